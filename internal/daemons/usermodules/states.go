package usermodules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// States returns the user's state modules, for a registry.
func (m *Modules) States() state.Source { return states{source{m, kindStates}} }

type states struct{ source }

// Plan implements state.Source. A state in Python handles test runs itself, so all of it
// also runs in a test.
func (s states) Plan(ctx context.Context, e *state.Env, full string, kwargs *value.Dict) (state.Plan, error) {
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
		if err := s.initialize(ctx, e, full, test); err != nil {
			return failure(err)
		}
		v, _, err := s.m.pool.Call(ctx, s.env(e, test), s.kind, full, nil, kwargs)
		if err != nil {
			return failure(err)
		}
		r, err := state.ReadResult(v)
		if err != nil {
			return failure(err)
		}
		return r
	}}, nil
}

// funcAggregate is the function that merges chunks.
const funcAggregate = "mod_aggregate"

// Aggregate implements state.Source.
func (s states) Aggregate(module string, own bool) state.Merge {
	full := module + "." + funcAggregate
	if s.Find(full, own) == nil {
		return nil
	}
	return func(ctx context.Context, e *state.Env, chunks []*value.Dict, test bool) (*value.Dict, map[int]*value.Dict, error) {
		low, replaced, err := s.m.pool.Aggregate(ctx, s.env(e, test), full, slices.Index(chunks, e.Low), chunks, e.Run.Results())
		var wrong *fn.ArgumentError
		switch {
		case errors.As(err, &wrong):
			return nil, nil, err
		case err != nil:
			return nil, nil, fmt.Errorf("the function %s raised an exception: %s", full, python.Text(err))
		case low == nil:
			return nil, nil, fmt.Errorf("the function %s does not return the state as a dict", full)
		}
		return low, replaced, nil
	}
}

// env returns the environment of a state's call.
func (s states) env(e *state.Env, test bool) *python.Env {
	out := env(e.Call, value.DictOf("test", test, "__low__", e.Low, "__env__", e.Saltenv, "__sls__", state.SLSOf(e.Low),
		"__instance_id__", e.JID))
	out.Functions = map[string]python.Functions{kindModules: ownFunctions{e.Call}, kindBuiltin: allFunctions{ownFunctions{e.Call}},
		kindStates: ownStates{s, e, test}}
	out.Trees = map[string]func() any{
		"running": func() any { return e.Run.Results() },
		"lowstate": func() any {
			l := &value.List{}
			for _, c := range e.Run.Chunks {
				l.Append(c)
			}
			return l
		},
	}
	return out
}

// initialize calls the function mod_init of a module once per run.
func (s states) initialize(ctx context.Context, e *state.Env, full string, test bool) error {
	module, _, _ := strings.Cut(full, ".")
	first := false
	e.Run.Shared("python mod_init "+module, func() any { first = true; return true })
	if !first || s.Find(module+".mod_init", true) == nil {
		return nil
	}
	_, _, err := s.m.pool.Call(ctx, s.env(e, test), s.kind, module+".mod_init", []any{e.Low}, nil)
	return err
}

// ownStates makes Brine's states callable as __states__.
type ownStates struct {
	s    states
	e    *state.Env
	test bool
}

// Has implements python.Functions.
func (o ownStates) Has(name string) bool { return o.registry().Has(name) }

// Names implements python.Functions.
func (o ownStates) Names() []string { return o.registry().Names() }

// Call implements python.Functions.
func (o ownStates) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	return o.e.State(ctx, name, args, kwargs, o.test)
}

// registry returns the declarations of all states.
func (o ownStates) registry() *fn.Registry { return o.e.Funcs.Kind(kindStates) }

// failure returns the result of a state that raised an exception.
func failure(err error) state.Result {
	text := python.Trace(err)
	if text == "" {
		text = err.Error()
	}
	return state.Result{Verdict: state.Failed, Comment: "An exception occurred in this state: " + text + "\n"}
}
