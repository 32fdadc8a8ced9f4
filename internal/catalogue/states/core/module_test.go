package core

import (
	"log/slog"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/core"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// TestModuleWaitCallsFunctions calls functions given as keywords when a
// watched state has changed.
func TestModuleWaitCallsFunctions(t *testing.T) {
	states, err := state.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	funcs, err := fn.NewRegistry(nil, core.Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	deps := engine.Deps{States: states, Log: slog.New(slog.DiscardHandler), Call: func() *fn.Call {
		return &fn.Call{Funcs: funcs, Grains: fn.Tree{Dict: value.NewDict(0)}, Config: fn.Tree{Dict: value.NewDict(0)}}
	}}
	low := func(mod, fun, id string, order int, more ...any) *value.Dict {
		d := value.DictOf("state", mod, "fun", fun, "__id__", id, "name", id, "__sls__", "s", "__env__", "base", "order", int64(order))
		d.Update(value.DictOf(more...))
		return d
	}
	results := engine.New(deps, engine.Options{}).Run(t.Context(), []*value.Dict{
		low("test", "succeed_with_changes", "changed", 1),
		low("module", "wait", "run_new", 2, "test.echo", value.ListOf(value.DictOf("text", "said")), "watch", value.ListOf(value.DictOf("test", "changed"))),
	})
	got := results.Dict("module_|-run_new_|-run_new_|-wait")
	if got.At("result") != true || got.Str("comment") != "test.echo: said" {
		t.Errorf("%s", value.Repr(got))
	}
}
