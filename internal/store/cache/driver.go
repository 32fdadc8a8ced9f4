package cache

import (
	"strings"
	"time"

	"brine/internal/base/registry"
	"brine/internal/base/salt"
	"brine/internal/net/remote"
)

// OpenDriver creates a driver from the options in src. It does not connect. timeout bounds each
// request to the server.
type OpenDriver func(src remote.Source, timeout time.Duration) (Driver, error)

var drivers = registry.New[OpenDriver]("cache driver")

// localfs is a value of the option, but needs no driver.
func init() {
	RegisterDriver(Local, func(remote.Source, time.Duration) (Driver, error) { return nil, nil })
}

// RegisterDriver registers a driver by its name in the option cache. The package
// drivers imports all of them.
func RegisterDriver(name string, open OpenDriver) { drivers.Register(name, open) }

// DriverNames returns the values of the option cache, sorted.
func DriverNames() []string { return drivers.Names() }

// FromOptions returns the driver with a name, nil for Local, which is the default.
func FromOptions(name string, src remote.Source, timeout time.Duration) (Driver, error) {
	if name == "" {
		name = Local
	}
	open, ok := drivers.Lookup(name)
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "unknown value %q of the option cache: use one of %s", name, strings.Join(DriverNames(), ", "))
	}
	d, err := open(src, timeout)
	if err != nil {
		return nil, salt.Errorf(salt.KindOf(err), "cache: %s: %w", name, err)
	}
	return d, nil
}
