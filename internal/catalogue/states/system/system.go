// Package system holds the state modules for the settings of a machine: cron, host, sysctl, mount, iptables, timezone, locale,
// kmod, alias, lvm, blockdev and firewalld. Each module is one file, which registers itself.
//
// They use the packages below host, as the execution modules of the same names do.
package system

import (
	"context"

	"brine/internal/catalogue/states"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// machine is the machine that states change; tests replace it.
var machine = &host.Machine{}

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the state modules of this family.
func Modules() []state.Module { return units.Modules(nil) }

// ask calls an execution function that returns a map.
func ask(ctx context.Context, e *state.Env, fun string, args ...any) (*value.Dict, error) {
	v, err := e.Exec(ctx, fun, nil, args...)
	d, _ := v.(*value.Dict)
	return d, err
}
