// Package drivers opens the store that the option cache names.
package drivers

import (
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/store/cache"
	"brine/internal/store/cache/consul"
	"brine/internal/store/cache/etcd"
	"brine/internal/store/cache/redis"
	"brine/internal/store/cache/sqldb"
)

// Names returns the names of the option cache, sorted.
func Names() []string { return []string{"consul", "etcd", cache.Local, "mysql", "postgres", "redis"} }

// Open returns the driver with a name, nil for localfs. It does not connect. timeout bounds each request to
// the server.
func Open(name string, src remote.Source, timeout time.Duration) (cache.Driver, error) {
	switch name {
	case cache.Local, "":
		return nil, nil
	case "redis":
		return redis.New(src, timeout)
	case "etcd":
		return etcd.New(src, timeout)
	case "consul":
		return consul.New(src, timeout)
	case "mysql":
		return sqldb.MySQL(src, timeout)
	case "postgres":
		return sqldb.Postgres(src, timeout)
	}
	return nil, salt.Errorf(salt.Invalid, "unknown value %q of the option cache: use localfs, redis, etcd, consul, mysql or postgres", name)
}
