// Package files holds the state modules file (files, directories and links with content,
// owner and mode), ini and openstack_config (option files), and acl (access control
// lists). Each state is one or a few files of this package, which add their functions to
// the list.
//
// Contents are compared before anything is written, and written to temporary files, so
// that no reader sees a partial file. The texts of comments and the shape of changes are
// Salt's.
package files

import (
	"context"
	"path/filepath"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/managed"
	"brine/internal/catalogue/states"
	"brine/internal/host"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// file is the state module of one machine.
type file struct{ m *host.Machine }

var functions []func(file) []state.Func

func add(f func(file) []state.Func) { functions = append(functions, f) }

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the modules of this family, working on one machine.
func Modules(m *host.Machine) []state.Module { return units.Modules(m) }

// Module returns one module by name.
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

// absolute validates and expands the name of a state.
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

// owner reads user, group and mode. A missing user or group is an error in a run, but not
// in a test, since an earlier state may create it.
func (f file) owner(ctx context.Context, user, group any, mode string) (managed.Owner, error) {
	return managed.OwnerOf(ctx, f.m, user, group, mode)
}

func given(v any) bool { return v != nil && v != "" }

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
