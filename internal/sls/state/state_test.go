package state_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/states/core"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func registry(t *testing.T, more ...state.Module) *state.Registry {
	t.Helper()
	r, err := state.NewRegistry(nil, append(core.Modules(), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLookup(t *testing.T) {
	r := registry(t, state.Module{Name: "other", When: func(fn.Reader) (string, bool) { return "not here", false },
		Funcs: []state.Func{state.Of("x", func(context.Context, *state.Env, struct{}) (state.Plan, error) { return state.Plan{}, nil }, `x`)}})
	for name, want := range map[string]string{
		"test.nop": "", "test.mod_watch": "", "test.none": "'test.none' is not available.", "other.x": "'other' __virtual__ returned False: not here",
	} {
		got := ""
		if _, err := r.Lookup(name); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if _, err := r.Declarations().Call(t.Context(), &fn.Call{}, "test.nop", []any{"x"}, nil); err == nil {
		t.Error("a state can be called as a function")
	}
}

func TestPlanBindsArguments(t *testing.T) {
	r := registry(t)
	f, err := r.Lookup("test.configurable_test_state")
	if err != nil {
		t.Fatal(err)
	}
	low := value.DictOf("state", "test", "fun", "configurable_test_state", "name", "x", "__id__", "x", "order", 1, "comment", "c",
		"require", value.ListOf(), "what", 1)
	kwargs, extra := f.Arguments(low)
	if value.Repr(kwargs) != "{'name': 'x', 'comment': 'c'}" || len(extra) != 1 || extra[0] != "what" {
		t.Errorf("arguments %s, extra %v", value.Repr(kwargs), extra)
	}
	e := &state.Env{Call: &fn.Call{}, Low: low, Run: state.NewRun(nil)}
	p, err := f.Plan(t.Context(), e, kwargs)
	if err != nil || len(p.Steps) != 1 {
		t.Fatalf("plan %+v, %v", p, err)
	}
	kwargs.Delete("name")
	var argument *fn.ArgumentError
	if _, err := f.Plan(t.Context(), e, kwargs); !errors.As(err, &argument) {
		t.Errorf("a missing name is %v", err)
	}
}

// TestOnFail checks that exactly the states that handle failures of others are kept as
// declared, even if the run changes the high data.
func TestOnFail(t *testing.T) {
	high := value.DictOf(
		"breaks", value.DictOf("cmd", value.ListOf("run")),
		"other", value.DictOf("cmd", value.ListOf("run", value.DictOf("onfail", value.ListOf(value.DictOf("cmd", "breaks"))))),
		"mends", value.DictOf("cmd", value.ListOf("run", value.DictOf("onfail", value.ListOf(value.DictOf("cmd", "breaks"))), value.DictOf("onfail_stop", false))))
	kept := state.OnFail(high)
	high.Dict("mends").At("cmd").(*value.List).Items = nil
	results := value.DictOf("cmd_|-breaks_|-false_|-run", value.DictOf("result", false), "cmd_|-mends_|-true_|-run", value.DictOf("result", true))
	if kept.Len() != 1 || !state.AllSucceeded(results, false, kept) {
		t.Errorf("%s: the failure counts although it was handled", value.Repr(kept))
	}
	results.Dict("cmd_|-mends_|-true_|-run").Set("result", false)
	if state.AllSucceeded(results, false, kept) || state.AllSucceeded(results, false, state.OnFail(value.DictOf("other", high.At("other")))) {
		t.Error("the failure does not count although nothing handled it")
	}
}

type openArgs struct {
	Name   string    `salt:"name"`
	Mode   string    `salt:"mode" default:""`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// TestMisspelt checks that a key that is similar to an argument is reported with it,
// and that other keys that a function accepts are not.
func TestMisspelt(t *testing.T) {
	r := registry(t, state.Module{Name: "open", Funcs: []state.Func{
		state.Of("x", func(context.Context, *state.Env, openArgs) (state.Plan, error) { return state.Plan{}, nil }, `x`)}})
	f, err := r.Lookup("open.x")
	if err != nil {
		t.Fatal(err)
	}
	low := value.DictOf("state", "open", "fun", "x", "name", "n", "__id__", "n", "order", 1, "mdoe", "644", "colour", "red", "a.b", 1)
	got := f.Misspelt(low)
	want := []string{"mdoe is no argument of this state and has no effect; did you mean mode?"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	low.Set("mode", "600")
	if got := f.Misspelt(low); len(got) > 0 {
		t.Errorf("with the argument itself: %q", got)
	}
	low.Delete("mode")
	knows := f.Knows("mdoe")
	if got := knows.Misspelt(low); len(got) > 0 {
		t.Errorf("of a keyword that the function knows: %q", got)
	}
}
