// Package system holds the state modules for the settings of a machine: cron,
// host, sysctl, mount, iptables, timezone, locale, kmod, alias, lvm, blockdev and firewalld. A module is one file, which adds
// itself to the list.
//
// Settings are read and changed by the minion's execution modules, whichever
// they are.
package system

import (
	"context"

	"brine/internal/py/value"
	"brine/internal/sls/state"
)

var modules []state.Module

func add(m state.Module) { modules = append(modules, m) }

// Modules returns the state modules of this family.
func Modules() []state.Module { return modules }

// ask calls an execution function that returns a map.
func ask(ctx context.Context, e *state.Env, fun string, args ...any) (*value.Dict, error) {
	v, err := e.Exec(ctx, fun, nil, args...)
	d, _ := v.(*value.Dict)
	return d, err
}
