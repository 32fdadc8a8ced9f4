// Package registry is the common way in which units register by name: modules,
// states, outputters, cache drivers, returners and other kinds that users name in
// commands and options. The package that owns a kind has a Registry; each unit's
// file registers it in its init function.
package registry

import (
	"maps"
	"slices"
	"sync/atomic"
)

// Registry holds the units of one kind. Units are registered during the
// initialization of the program. The first look-up ends that, so that later ones
// need no lock and all users see the same names.
type Registry[T any] struct {
	kind   string
	units  map[string]T
	frozen atomic.Bool
}

// New returns an empty registry. kind names it in panics, for example "outputter".
func New[T any](kind string) *Registry[T] {
	return &Registry[T]{kind: kind, units: map[string]T{}}
}

// Register adds a unit. It panics if the name is empty or taken, or after the first
// look-up. These are programming errors, which show at every start.
func (r *Registry[T]) Register(name string, unit T) {
	if name == "" {
		panic("registry: " + r.kind + " without a name")
	}
	if r.frozen.Load() {
		panic("registry: " + r.kind + " " + name + " is registered after the first look-up; register it in an init function")
	}
	if _, ok := r.units[name]; ok {
		panic("registry: two units are registered as " + r.kind + " " + name + "; rename one")
	}
	r.units[name] = unit
}

// Lookup returns the unit with a name.
func (r *Registry[T]) Lookup(name string) (T, bool) {
	r.frozen.Store(true)
	unit, ok := r.units[name]
	return unit, ok
}

// Names returns all names, sorted.
func (r *Registry[T]) Names() []string {
	r.frozen.Store(true)
	return slices.Sorted(maps.Keys(r.units))
}
