// Package family registers modules that every machine has: execution modules and state
// modules. A family is a package whose files each register their modules.
package family

import (
	"brine/internal/base/registry"
	"brine/internal/host"
)

// Build creates a module for a machine.
type Build[M any] func(*host.Machine) M

// Kind holds the modules of all families of one kind. Names are unique.
type Kind[M any] struct {
	units *registry.Registry[Build[M]]
	name  func(M) string
}

// NewKind returns a kind without modules. name returns the name of a module.
func NewKind[M any](what string, name func(M) string) Kind[M] {
	return Kind[M]{registry.New[Build[M]](what), name}
}

// Modules returns the modules of all families that the program imports, sorted by name.
func (k Kind[M]) Modules(m *host.Machine) []M {
	all := make([]M, 0, len(k.units.Names()))
	for _, name := range k.units.Names() {
		all = append(all, k.Module(name, m))
	}
	return all
}

// Module returns the registered module with a name. It panics if there is none, or if the
// module has another name, under which users could not call it.
func (k Kind[M]) Module(name string, m *host.Machine) M {
	build, ok := k.units.Lookup(name)
	if !ok {
		panic("family: no module " + name)
	}
	mod := build(m)
	if k.name(mod) != name {
		panic("family: the module " + k.name(mod) + " is registered as " + name)
	}
	return mod
}

// Family holds the modules of one package.
type Family[M any] struct {
	all Kind[M]
	Kind[M]
}

// Family returns a family without modules.
func (k Kind[M]) Family() Family[M] { return Family[M]{k, NewKind("module", k.name)} }

// Register adds a module under its name.
func (f Family[M]) Register(name string, build Build[M]) {
	f.all.units.Register(name, build)
	f.units.Register(name, build)
}

// Declare registers a module that does not use the machine. It is built when it is looked
// up, so that a program that runs no modules, such as salt, does not spend time and memory
// on its description.
func (f Family[M]) Declare(name string, build func() M) {
	f.Register(name, func(*host.Machine) M { return build() })
}
