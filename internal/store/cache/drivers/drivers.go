// Package drivers registers all drivers of the option cache by importing their packages.
package drivers

import (
	"time"

	"brine/internal/net/remote"
	"brine/internal/store/cache"
	_ "brine/internal/store/cache/consul"
	_ "brine/internal/store/cache/etcd"
	_ "brine/internal/store/cache/redis"
	_ "brine/internal/store/cache/sqldb"
)

// Names returns the values of the option cache, sorted.
func Names() []string { return cache.DriverNames() }

// Open returns the driver with a name, nil for localfs. It does not connect. timeout bounds
// each request to the server.
func Open(name string, src remote.Source, timeout time.Duration) (cache.Driver, error) {
	return cache.FromOptions(name, src, timeout)
}
