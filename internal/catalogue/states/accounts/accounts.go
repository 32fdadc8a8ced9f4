// Package accounts holds the state modules for access to a machine: user, group,
// ssh_auth and ssh_known_hosts.
//
// Accounts are read and changed with the minion's execution modules user, group and
// shadow, whatever their implementation.
package accounts

import (
	"context"

	"brine/internal/catalogue/states"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the state modules of this family.
func Modules() []state.Module { return units.Modules(nil) }

// info returns the result of user.info or group.info, an empty map for an unknown
// name. local reads the machine's own accounts and ignores directory services.
func info(ctx context.Context, e *state.Env, module, name string, local bool) (*value.Dict, error) {
	var kw *value.Dict
	if local {
		kw = value.DictOf("root", "/")
	}
	v, err := e.Exec(ctx, module+".info", kw, name)
	d, _ := v.(*value.Dict)
	return d, err
}
