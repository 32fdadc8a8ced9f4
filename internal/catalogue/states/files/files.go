// Package files holds the state modules file, files, directories and links with
// content, owner and mode, ini and openstack_config, files of options, and acl,
// lists of who may do what. A state is one file of this package, or a few that
// belong together; each adds its functions to the list.
//
// Contents are compared before anything is written, and written aside, so that no reader
// sees a partial file. The texts of comments and the shape of changes
// are Salt's.
package files

import (
	"context"
	"path/filepath"

	"brine/internal/call/fn"
	"brine/internal/catalogue/states"
	"brine/internal/host"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/perms"
)

// file is the state module of one machine.
type file struct{ m *host.Machine }

var functions []func(file) []state.Func

func add(f func(file) []state.Func) { functions = append(functions, f) }

// units are the modules, which their files register.
var units = states.Family()

// Modules returns the modules of this family, working on one machine.
func Modules(m *host.Machine) []state.Module { return units.Modules(m) }

// Module returns one of them.
func Module(name string, m *host.Machine) state.Module { return units.Module(name, m) }

func init() { units.Register("file", fileModule) }

func fileModule(m *host.Machine) state.Module {
	mod := state.Module{Name: "file", Doc: `Keep files, directories and links as they are declared.`}
	for _, f := range functions {
		for _, s := range f(file{m}) {
			if s.Name() != "append" {
				s = s.Renamed(filesys.ExpandUser)
			}
			mod.Funcs = append(mod.Funcs, s)
		}
	}
	return mod
}

// absolute checks the name of a state and expands it.
func absolute(name, missing string) (string, error) {
	name = filesys.ExpandUser(name)
	switch {
	case name == "":
		return "", fn.Errorf("%s", missing)
	case !filepath.IsAbs(name):
		return "", fn.Errorf("Specified file %s is not an absolute path", name)
	}
	return name, nil
}

// owner is who a file is to belong to and what mode it is to have, as
// declared: nil and "" say nothing.
type owner struct {
	user, group any
	mode        string
	uid, gid    int // -1 for nothing
	bits        int
	problem     string // a user or group that is not there
}

// owner reads user, group and mode. A user or group that does not exist, yet,
// is for the run to complain of, not for a test.
func (f file) owner(ctx context.Context, user, group any, mode string) (owner, error) {
	o := owner{user: user, group: group, mode: mode}
	var err error
	if o.bits, err = filesys.ParseMode(mode); err != nil {
		return o, fn.Errorf("%w", err)
	}
	var ok bool
	if o.uid, ok = filesys.UserID(ctx, f.m, user); !ok {
		o.problem = "User " + value.Str(user) + " is not available "
	}
	if o.gid, ok = filesys.GroupID(ctx, f.m, group); !ok {
		o.problem += "Group " + value.Str(group) + " is not available"
	}
	return o, nil
}

// available fails if a user or group is not there.
func (o owner) available() error {
	if o.problem != "" {
		return fn.Errorf("%s", o.problem)
	}
	return nil
}

// differs reports what of the owner and mode is not as declared. The mode of a
// symbolic link cannot be set.
func (o owner) differs(now filesys.Facts) *value.Dict {
	return perms.Differs(o.user, o.group, o.mode, now)
}

func given(v any) bool { return v != nil && v != "" }

// apply gives a file the owner and mode, and returns what has changed.
func (f file) apply(path string, o owner, follow bool) (*value.Dict, error) {
	now, err := filesys.Look(f.m, path, follow)
	if err != nil {
		return nil, err
	}
	d := o.differs(now)
	if d.Has("user") || d.Has("group") {
		if err := filesys.SetOwner(path, o.uid, o.gid, follow); err != nil {
			what, who := "user", o.user
			if !d.Has("user") {
				what, who = "group", o.group
			}
			return nil, fn.Errorf("Failed to change %s to %s: %w", what, value.Str(who), cause(err))
		}
	}
	if d.Has("mode") {
		if err := filesys.SetMode(path, o.bits); err != nil {
			return nil, fn.Errorf("Failed to change mode to %s: %w", o.mode, cause(err))
		}
	}
	return d, nil
}

// merge adds the entries of b to a.
func merge(a, b *value.Dict) *value.Dict {
	if a == nil {
		a = value.NewDict(0)
	}
	for k, v := range b.All() {
		a.Set(k, v)
	}
	return a
}
