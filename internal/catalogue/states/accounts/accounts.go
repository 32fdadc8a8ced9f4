// Package accounts holds the state modules for who may use a machine: user,
// group, ssh_auth and ssh_known_hosts.
//
// Accounts are read and changed by the minion's execution modules user, group
// and shadow, whichever they are.
package accounts

import (
	"context"

	"brine/internal/catalogue/states"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// units are the modules, which their files register.
var units = states.Family()

// Modules returns the state modules of this family.
func Modules() []state.Module { return units.Modules(nil) }

// info returns what user.info or group.info says, an empty map for an unknown name.
// local asks for the machine's own accounts, past a directory service.
func info(ctx context.Context, e *state.Env, module, name string, local bool) (*value.Dict, error) {
	var kw *value.Dict
	if local {
		kw = value.DictOf("root", "/")
	}
	v, err := e.Exec(ctx, module+".info", kw, name)
	d, _ := v.(*value.Dict)
	return d, err
}
