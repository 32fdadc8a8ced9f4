package fn

import (
	"context"
	"slices"

	"brine/internal/py/value"
)

// Foreign is a function that is not written in Go, as described by its own language.
type Foreign struct {
	// Name is the name within the module.
	Name string
	// Doc is the unformatted documentation.
	Doc string
	// Args are the positional arguments; Defaults are the defaults of the last ones.
	Args     []string
	Defaults []any
	// VarArgs and Keywords are the names of the *args and **kwargs parameters, "" if there are
	// none.
	VarArgs, Keywords string
	// Only are the arguments that can only be given by name, with their defaults.
	Only         []string
	OnlyDefaults *value.Dict
	// Out is the outputter of the result, or "".
	Out string
	// Call runs the function and checks its arguments.
	Call func(ctx context.Context, c *Call, args []any, kwargs *value.Dict) (any, error)
}

// Func returns the function as a Func without an argument struct.
func (f *Foreign) Func() *Func {
	s := &signature{places: map[string]int{}, varArgs: f.VarArgs, varKw: f.Keywords}
	if f.VarArgs != "" {
		s.args = []int{}
	}
	if f.Keywords != "" {
		s.kwargs = []int{}
	}
	first := len(f.Args) - len(f.Defaults)
	for i, name := range f.Args {
		p := Param{Name: name}
		if i >= first {
			p.Optional, p.Default = true, f.Defaults[i-first]
		}
		s.places[name] = len(s.params)
		s.params = append(s.params, p)
	}
	for _, name := range f.Only {
		p := Param{Name: name, Keyword: true}
		p.Default, p.Optional = f.OnlyDefaults.Get(name)
		s.places[name] = len(s.params)
		s.params = append(s.params, p)
	}
	return &Func{name: f.Name, summary: f.Doc, out: f.Out, foreign: f, sig: func() *signature { return s }}
}

// Foreign returns the description from which the function was made, nil if it is written in Go.
func (f *Func) Foreign() *Foreign { return f.foreign }

// Source provides functions that are found at run time, such as those of the user's Python modules.
// They take precedence over those of the registry.
type Source interface {
	// Find returns the function with the full name, or nil. own reports whether the registry has
	// such a function, so that the source need not search modules that are unlikely to have it.
	Find(full string, own bool) *Func
	// Hides reports whether the source replaces the registry's module as a whole.
	Hides(module string) bool
	// Claims reports whether the source is likely to have functions of a module.
	Claims(module string) bool
	// Names returns the full names of all functions, sorted, and a version that differs after every
	// change.
	Names() (names []string, version uint64)
	// Missing returns the unavailable modules with the reasons.
	Missing() map[string]string
}

// Attach adds a source. Call it before the registry is used.
func (r *Registry) Attach(s Source) { r.source = s }

// merged are all names for one version of the source.
type merged struct {
	version uint64
	names   []string
}

// withSource adds the names of the source to the registry's own.
func (r *Registry) withSource(own []string) []string {
	if r.source == nil {
		return own
	}
	more, version := r.source.Names()
	if len(more) == 0 {
		return own
	}
	if m := r.merged.Load(); m != nil && m.version == version {
		return m.names
	}
	all := slices.Clone(more)
	for _, name := range own {
		if mod, _ := split(name); !r.source.Hides(mod) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	r.merged.Store(&merged{version, all})
	return all
}

// Own looks up a function of the registry without its source. It finds none in a module that the
// source hides.
func (r *Registry) Own(name string) (*Func, bool) {
	if r == nil {
		return nil, false
	}
	mod, _ := split(name)
	if r.source != nil && r.source.Hides(mod) {
		return nil, false
	}
	f := r.own(mod, name)
	return f, f != nil
}

// Builtin looks up a function of the registry without its source, also one of a module that the
// source hides.
func (r *Registry) Builtin(name string) (*Func, bool) {
	if r == nil {
		return nil, false
	}
	mod, _ := split(name)
	f := r.own(mod, name)
	return f, f != nil
}

// HasModule reports whether a module has functions.
func (r *Registry) HasModule(module string) bool {
	if r == nil {
		return false
	}
	defer r.settle(module)()
	return r.modules[module] || r.source != nil && r.source.Claims(module)
}

// OwnNames returns the full names of the registry's own functions, sorted.
func (r *Registry) OwnNames() []string {
	if r == nil {
		return nil
	}
	defer r.settle("")()
	return slices.Clone(r.names)
}
