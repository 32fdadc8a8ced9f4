package fn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"brine/internal/py/value"
)

// Module is a named set of functions.
type Module struct {
	// Name is the first part of the functions' names.
	Name string
	// Doc describes the purpose of the module.
	Doc string
	// When, if set, decides whether the module can be used on a machine with these grains. If not,
	// reason says why; it may be "".
	When func(grains Reader) (reason string, ok bool)
	// Funcs are the functions.
	Funcs []Func
	// Aliases are additional names of the module.
	Aliases []string
}

// Registry looks functions up by name. It does not change after its creation, so that any number of
// goroutines may use it. The zero Registry, and nil, are empty.
type Registry struct {
	funcs   map[string]*Func
	names   []string // sorted
	modules map[string]bool
	missing map[string]string    // unavailable modules, with the reasons
	refused map[string][]*Module // unavailable modules, by name
	all     Reader               // the grains
	source  Source               // functions that are not part of the program, or nil
	early   map[string]*Func     // of modules without When; never changed
	kinds   map[string]func() *Registry
	merged  atomic.Pointer[merged]

	// For late grains: mu guards the fields above, and late has the modules whose When has not run
	// yet.
	mu     sync.Mutex
	late   []*Module
	grains Late
}

// Late is a Reader that is slow on first use. A registry reads it only when a module is requested.
type Late interface {
	Reader
	// Late is a marker method.
	Late()
}

// settle runs When of the late modules with the name ("" for all), and locks the registry until the
// caller calls unlock.
func (r *Registry) settle(name string) (unlock func()) {
	if r.grains == nil {
		return func() {}
	}
	r.mu.Lock()
	wanted := func(m *Module) bool { return name == "" || name == m.Name || slices.Contains(m.Aliases, name) }
	if !slices.ContainsFunc(r.late, wanted) {
		return r.mu.Unlock
	}
	var left []*Module
	for _, m := range r.late {
		if !wanted(m) {
			left = append(left, m)
		} else if err := r.add(r.grains, m); err != nil {
			panic(err) // a duplicate function; without late grains NewRegistry reports it
		}
	}
	r.late = left
	r.sortNames()
	return r.mu.Unlock
}

func (r *Registry) sortNames() {
	r.names = slices.Sorted(maps.Keys(r.funcs))
}

// NewRegistry collects the modules that can be used on a machine with these grains. It fails if two
// functions have the same name.
func NewRegistry(grains Reader, modules ...Module) (*Registry, error) {
	r := &Registry{funcs: map[string]*Func{}, modules: map[string]bool{}, missing: map[string]string{}, refused: map[string][]*Module{}}
	if grains == nil {
		grains = Tree{}
	}
	r.all = grains
	r.grains, _ = grains.(Late)
	for i := range modules {
		if m := &modules[i]; r.grains != nil && m.When != nil {
			r.late = append(r.late, m)
		} else if err := r.add(grains, m); err != nil {
			return nil, err
		}
	}
	r.sortNames()
	r.early = r.funcs
	if r.grains != nil {
		r.early = maps.Clone(r.funcs)
	}
	return r, nil
}

// Early returns a function of the program that can be used on every machine, or nil. It reads no
// grains, so that it can be called while they are collected.
func (r *Registry) Early(name string) *Func {
	if r == nil {
		return nil
	}
	return r.early[name]
}

// EarlyNames returns the full names of these functions, sorted.
func (r *Registry) EarlyNames() []string {
	if r == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.early))
}

// Document adds the functions of another kind ("states", "runners", "returners" or "renderers"),
// for documentation only. Call it before the registry is used.
func (r *Registry) Document(kind string, of func() *Registry) {
	if r.kinds == nil {
		r.kinds = map[string]func() *Registry{}
	}
	r.kinds[kind] = of
}

// Kind returns the functions that Document added, or an empty registry.
func (r *Registry) Kind(kind string) *Registry {
	if of := r.kinds[kind]; of != nil {
		return of()
	}
	return nil
}

func (r *Registry) add(grains Reader, m *Module) error {
	names := append([]string{m.Name}, m.Aliases...)
	if m.When != nil {
		if reason, ok := m.When(grains); !ok {
			for _, n := range names {
				r.missing[n] = reason
				r.refused[n] = append(r.refused[n], m)
			}
			return nil
		}
	}
	for _, n := range names {
		r.modules[n] = true
		for i := range m.Funcs {
			full := n + "." + m.Funcs[i].name
			if _, ok := r.funcs[full]; ok {
				return fmt.Errorf("fn: function %s is declared twice", full)
			}
			r.funcs[full] = &m.Funcs[i]
		}
	}
	return nil
}

// Lookup returns the function with the full name. The error is an *UnknownError.
func (r *Registry) Lookup(name string) (*Func, error) {
	if r != nil {
		mod, _ := split(name)
		f := r.own(mod, name)
		if r.source != nil {
			if r.source.Hides(mod) {
				f = nil
			}
			if found := r.source.Find(name, f != nil); found != nil {
				return found, nil
			}
		}
		if f != nil {
			return f, nil
		}
	}
	return nil, &UnknownError{Name: name, text: r.unknown(name)}
}

// own returns the function with that name if it is part of the program.
func (r *Registry) own(mod, name string) *Func {
	defer r.settle(mod)()
	if f, ok := r.funcs[name]; ok {
		return f
	}
	return r.reconsider(mod, name)
}

// split returns the module and the function of a full name.
func split(full string) (module, function string) {
	module, function, _ = strings.Cut(full, ".")
	return module, function
}

// reconsider runs When again for unavailable modules: a state may have installed the program that a
// module needs.
func (r *Registry) reconsider(mod, name string) *Func {
	if r.modules[mod] {
		return nil
	}
	for _, m := range r.refused[mod] {
		if _, ok := m.When(r.all); !ok {
			continue
		}
		for i := range m.Funcs {
			if mod+"."+m.Funcs[i].name == name {
				return &m.Funcs[i]
			}
		}
	}
	return nil
}

func (r *Registry) unknown(name string) string {
	mod, _ := split(name)
	if r == nil {
		return fmt.Sprintf(textUnavailable, name)
	}
	unlock := r.settle(mod)
	there := r.modules[mod]
	reason, ok := r.missing[mod]
	unlock() // the source may look up functions
	if !there {
		if !ok && r.source != nil {
			reason, ok = r.source.Missing()[mod]
		}
		if ok && reason != "" {
			return fmt.Sprintf(textVirtualReason, mod, reason)
		} else if ok {
			return fmt.Sprintf(textVirtual, mod)
		}
	}
	return fmt.Sprintf(textUnavailable, name)
}

// Has reports whether a function with the full name exists.
func (r *Registry) Has(name string) bool {
	_, err := r.Lookup(name)
	return err == nil
}

// Names returns all full names, sorted. The caller must not modify them.
func (r *Registry) Names() []string {
	if r == nil {
		return nil
	}
	unlock := r.settle("")
	own := r.names
	unlock()
	return r.withSource(own)
}

// Modules returns the names of the modules that have functions, sorted.
func (r *Registry) Modules() []string {
	var mods []string
	for _, name := range r.Names() {
		mod, _, _ := strings.Cut(name, ".")
		if len(mods) == 0 || mods[len(mods)-1] != mod {
			mods = append(mods, mod)
		}
	}
	slices.Sort(mods) // "a-b.x" sorts before "a.x"
	return slices.Compact(mods)
}

// Missing returns the unavailable modules with the reasons.
func (r *Registry) Missing() map[string]string {
	if r == nil {
		return nil
	}
	unlock := r.settle("")
	all := r.missing // the map no longer changes
	unlock()
	if r.source == nil {
		return all
	}
	all = maps.Clone(all)
	maps.Copy(all, r.source.Missing())
	return all
}

// Call calls a function on behalf of another, which passes its own Call.
func (r *Registry) Call(ctx context.Context, c *Call, name string, args []any, kwargs *value.Dict) (any, error) {
	f, err := r.Lookup(name)
	if err != nil {
		return nil, err
	}
	return f.Call(ctx, c, args, kwargs)
}
