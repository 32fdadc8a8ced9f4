// Package state is the contract between the functions that describe how a
// machine should be (file.managed, pkg.installed …) and the engine that makes
// it so.
//
// A state function looks, plans, and changes nothing: it compares what its
// arguments declare with what it finds, and returns a Plan. A plan without
// steps says that all is as declared. The engine shows the plan's steps when
// it was asked for a test, and else carries them out, so that test=True shows
// the very plan that a run would follow:
//
//	type managedArgs struct {
//		Name string `salt:"name" doc:"path of the file"`
//		Mode string `salt:"mode" doc:"its mode" default:"null"`
//	}
//	state.Of("managed", file{}.managed, `Keep content, owner and mode of a file.`)
//	func (file) managed(ctx context.Context, e *state.Env, a managedArgs) (state.Plan, error)
//
// Arguments are declared as those of execution functions are, see package fn.
// Every state has an argument "name" as its first. What belongs to the engine
// is no argument: requisites, order, onlyif, unless, creates, check_cmd,
// retry, parallel, failhard, umask, runas, fire_event and the like. A function
// that declares an argument of such a name gets its value all the same, and
// one that declares check_cmd does that check itself.
//
// A function named "mod_watch" of the same module is what runs when something
// that the state watches has changed and the state itself changed nothing. It
// gets the arguments of the state and, as "sfun", its function; Env.Low has
// the states that are watched under "__reqs__". Without such a function a
// watch is a require.
//
// The package knows nothing of SLS files, of files or of a machine.
package state

import (
	"context"
	"errors"
	"fmt"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Func is a state function: a declaration and the Go function behind it. Make
// one with Of.
type Func struct {
	fn.Func
	plan func(ctx context.Context, e *Env, args any) (Plan, error)
}

// Of declares a state function. A is a struct whose tags declare the
// arguments, the first of which should be "name". The tags are read at the
// first use; wrong ones panic.
func Of[A any](name string, f func(ctx context.Context, e *Env, a A) (Plan, error), doc string, opts ...fn.Option) Func {
	notCallable := func(context.Context, *fn.Call, A) (any, error) {
		return nil, fn.Errorf("%s is a state: use state.single to run it", name)
	}
	return Func{
		Func: fn.Of(name, notCallable, doc, opts...),
		plan: func(ctx context.Context, e *Env, args any) (Plan, error) {
			return f(ctx, e, *args.(*A))
		},
	}
}

// Renamed is the function with a name in its results that is made of the
// state's: ~/x, say, may be shown with the home directory in it.
func (f Func) Renamed(rename func(string) string) Func {
	plan := f.plan
	f.plan = func(ctx context.Context, e *Env, args any) (Plan, error) {
		p, err := plan(ctx, e, args)
		old, ok := e.Low.At("name").(string)
		if name := rename(old); ok && name != old {
			p.Extra = named(p.Extra, name)
			if p.Forecast != nil && p.Forecast.Extra != nil {
				p.Forecast.Extra = named(p.Forecast.Extra, name)
			}
		}
		return p, err
	}
	return f
}

func named(extra *value.Dict, name string) *value.Dict {
	d := value.DictOf("name", name)
	d.Update(extra)
	return d
}

// Plan binds the arguments and asks the state for its plan. An argument that
// is missing, unknown or of the wrong kind is an *fn.ArgumentError.
func (f *Func) Plan(ctx context.Context, e *Env, kwargs *value.Dict) (Plan, error) {
	b, err := f.Bind(nil, kwargs)
	if err != nil {
		return Plan{}, err
	}
	return f.plan(ctx, e, b.Args())
}

// Module is a set of state functions under one name.
type Module struct {
	// Name is the first part of the functions' names.
	Name string
	// Doc says what the module is for.
	Doc string
	// When, if set, decides whether the module can be used on a machine with
	// these grains. If not, reason says why, possibly as "".
	When func(grains fn.Reader) (reason string, ok bool)
	// Funcs are the functions.
	Funcs []Func
	// Aliases are further names of the module.
	Aliases []string
	// Aggregate, if set, merges chunks of a run that can be done together
	// when the run asks for it (state_aggregate): it returns low, or a copy
	// that also does the work of other chunks of the module, which it marks
	// with "__agg__": true. running has the results so far, by tag.
	Aggregate func(low *value.Dict, chunks []*value.Dict, running *value.Dict) *value.Dict
}

// Registry finds state functions by "module.function".
type Registry struct {
	decl       *fn.Registry
	funcs      map[string]*Func
	aggregates map[string]func(*value.Dict, []*value.Dict, *value.Dict) *value.Dict
}

// NewRegistry builds a registry of the modules that can be used on a machine
// with these grains. It fails when a name is declared twice.
func NewRegistry(grains fn.Reader, modules ...Module) (*Registry, error) {
	r := &Registry{funcs: map[string]*Func{}, aggregates: map[string]func(*value.Dict, []*value.Dict, *value.Dict) *value.Dict{}}
	decls := make([]fn.Module, len(modules))
	for i, m := range modules {
		decls[i] = fn.Module{Name: m.Name, Doc: m.Doc, When: m.When, Aliases: m.Aliases}
		for j := range m.Funcs {
			decls[i].Funcs = append(decls[i].Funcs, m.Funcs[j].Func)
		}
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			for j := range m.Funcs {
				r.funcs[name+"."+m.Funcs[j].Name()] = &m.Funcs[j]
			}
			if m.Aggregate != nil {
				r.aggregates[name] = m.Aggregate
			}
		}
	}
	var err error
	if r.decl, err = fn.NewRegistry(grains, decls...); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return r, nil
}

// Lookup returns a function. The error is an *fn.UnknownError that says why
// there is none.
func (r *Registry) Lookup(name string) (*Func, error) {
	if r == nil {
		return nil, errors.New("there are no states")
	}
	if _, err := r.decl.Lookup(name); err != nil {
		return nil, err
	}
	return r.funcs[name], nil
}

// Has reports whether there is such a function.
func (r *Registry) Has(name string) bool {
	_, err := r.Lookup(name)
	return err == nil
}

// Aggregate returns the function that merges chunks of a module, or nil.
func (r *Registry) Aggregate(module string) func(low *value.Dict, chunks []*value.Dict, running *value.Dict) *value.Dict {
	return r.aggregates[module]
}

// Declarations returns the functions as what can be listed and documented,
// but not called.
func (r *Registry) Declarations() *fn.Registry { return r.decl }
