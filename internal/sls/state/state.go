// Package state is the contract between the functions that declare the state of a machine
// (file.managed, pkg.installed …) and the engine that applies it.
//
// A state function changes nothing: it compares its arguments with the machine, and returns
// a Plan. A plan without steps means that nothing has to change. In test mode the engine
// shows the plan's steps, otherwise it executes them, so that test=True shows exactly what
// a run does:
//
//	type managedArgs struct {
//		Name string `salt:"name" doc:"path of the file"`
//		Mode string `salt:"mode" doc:"its mode" default:"null"`
//	}
//	state.Of("managed", file{}.managed, `Keep content, owner and mode of a file.`)
//	func (file) managed(ctx context.Context, e *state.Env, a managedArgs) (state.Plan, error)
//
// Arguments are declared like those of execution functions, see package fn. Every state has
// "name" as first argument. Keywords of the engine are not arguments: requisites, order,
// onlyif, unless, creates, check_cmd, retry, parallel, failhard, umask, runas, fire_event
// and the like. A function that declares an argument of such a name gets its value anyway,
// and one that declares check_cmd does that check itself.
//
// If a watched state has changed and the watching state has not, the engine calls the
// function "mod_watch" of the same module. It gets the arguments of the state and, as
// "sfun", its function; Env.Low has the watched states under "__reqs__". Without such a
// function a watch is a require.
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

// Func is a state function: a declaration and its Go function. Create one with
// Of.
type Func struct {
	fn.Func
	// known are keywords that the function reads without declaring them.
	known []string
	plan  func(ctx context.Context, e *Env, args any) (Plan, error)
	// foreign is set instead of plan for a function of the registry's source.
	foreign func(ctx context.Context, e *Env, kwargs *value.Dict) (Plan, error)
}

// Of declares a state function. A is a struct whose tags declare the arguments,
// the first of which should be "name". The tags are read at the first use;
// invalid ones panic.
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

// Renamed returns the function with another name in its results, computed from
// the state's: for example ~/x with the home directory.
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

// Plan binds the arguments and calls the state function. An argument that is
// missing, unknown or of the wrong type is an *fn.ArgumentError.
func (f *Func) Plan(ctx context.Context, e *Env, kwargs *value.Dict) (Plan, error) {
	if f.foreign != nil {
		return f.foreign(ctx, e, kwargs)
	}
	b, err := f.Bind(nil, kwargs)
	if err != nil {
		return Plan{}, err
	}
	return f.plan(ctx, e, b.Args())
}

// Module is a set of state functions with a common name.
type Module struct {
	// Name is the first part of the functions' names.
	Name string
	// Doc describes the module.
	Doc string
	// When, if set, reports whether the module can be used on a machine with these
	// grains. If not, reason is the reason, possibly "".
	When func(grains fn.Reader) (reason string, ok bool)
	// Funcs are the functions.
	Funcs []Func
	// Aliases are further names of the module.
	Aliases []string
	// Aggregate, if set, merges chunks of a run that can be executed together if
	// the run enables that (state_aggregate): it returns low, or a copy that
	// includes other chunks of the module, which it marks with "__agg__": true.
	// running has the results so far, by tag.
	Aggregate func(low *value.Dict, chunks []*value.Dict, running *value.Dict) *value.Dict
}

// Registry finds state functions by "module.function".
type Registry struct {
	decl       *fn.Registry
	funcs      map[string]*Func
	modules    map[string]bool // that are part of the program
	source     Source          // of states that are not part of the program, or nil
	aggregates map[string]func(*value.Dict, []*value.Dict, *value.Dict) *value.Dict
}

// NewRegistry builds a registry of the modules that can be used on a machine
// with these grains. It fails if a name is declared twice.
func NewRegistry(grains fn.Reader, modules ...Module) (*Registry, error) {
	r := &Registry{funcs: map[string]*Func{}, modules: map[string]bool{}, aggregates: map[string]func(*value.Dict, []*value.Dict, *value.Dict) *value.Dict{}}
	decls := make([]fn.Module, len(modules))
	for i, m := range modules {
		decls[i] = fn.Module{Name: m.Name, Doc: m.Doc, When: m.When, Aliases: m.Aliases}
		for j := range m.Funcs {
			decls[i].Funcs = append(decls[i].Funcs, m.Funcs[j].Func)
		}
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			r.modules[name] = true
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

// Lookup returns a function. The error is an *fn.UnknownError with the reason.
func (r *Registry) Lookup(name string) (*Func, error) {
	if r == nil {
		return nil, errors.New("there are no states")
	}
	f, err := r.decl.Lookup(name)
	if err != nil {
		return nil, err
	}
	if f.Foreign() != nil {
		return r.foreign(name, f), nil
	}
	return r.funcs[name], nil
}

// Has reports whether a function exists.
func (r *Registry) Has(name string) bool {
	_, err := r.Lookup(name)
	return err == nil
}

// Aggregate returns the function that merges chunks of a module, or nil.
func (r *Registry) Aggregate(module string) Merge {
	if r.source != nil {
		if merge := r.source.Aggregate(module, r.modules[module]); merge != nil {
			return merge
		}
		if r.source.Hides(module) {
			return nil
		}
	}
	aggregate := r.aggregates[module]
	if aggregate == nil {
		return nil
	}
	return func(_ context.Context, e *Env, chunks []*value.Dict, _ bool) (*value.Dict, map[int]*value.Dict, error) {
		return aggregate(e.Low, chunks, e.Run.Results()), nil, nil
	}
}

// Declarations returns the functions for listing and documentation, not for
// calls.
func (r *Registry) Declarations() *fn.Registry { return r.decl }
