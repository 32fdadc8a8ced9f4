package shell

import (
	"context"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/states/core"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// TestWaitInRoot checks that cmd.wait runs its command in root after a watched
// state has changed, as cmd.run does.
func TestWaitInRoot(t *testing.T) {
	type args struct {
		Root   string    `salt:"root"`
		Cmd    string    `salt:"cmd"`
		Kwargs fn.Kwargs `salt:"kwargs"`
	}
	var ran []string
	chroot := fn.Of("run_chroot", func(_ context.Context, _ *fn.Call, a args) (*value.Dict, error) {
		ran = append(ran, a.Root+" "+a.Cmd)
		return value.DictOf("pid", 1, "retcode", 0, "stdout", "", "stderr", ""), nil
	}, "Note the command.")
	funcs, err := fn.NewRegistry(nil, fn.Module{Name: "cmd", Doc: "Commands.", Funcs: []fn.Func{chroot}})
	if err != nil {
		t.Fatal(err)
	}
	states, err := state.NewRegistry(nil, append(Modules(), core.Modules()...)...)
	if err != nil {
		t.Fatal(err)
	}
	deps := engine.Deps{States: states, Call: func() *fn.Call { return &fn.Call{ID: "a", Funcs: funcs} }}
	low := func(order int64, more ...any) *value.Dict {
		return value.DictOf(append([]any{"__sls__", "s", "__env__", "base", "order", order}, more...)...)
	}
	results := engine.New(deps, engine.Options{}).Run(t.Context(), []*value.Dict{
		low(1, "state", "test", "fun", "succeed_with_changes", "name", "a", "__id__", "a"),
		low(2, "state", "cmd", "fun", "wait", "name", "echo b", "__id__", "b", "root", "/jail", "watch", value.ListOf(value.DictOf("test", "a"))),
		low(3, "state", "cmd", "fun", "wait", "name", "echo c", "__id__", "c", "root", "/jail"),
	})
	if len(ran) != 1 || ran[0] != "/jail echo b" {
		t.Errorf("ran %q: %s", ran, value.Repr(results))
	}
	if r := results.Dict("cmd_|-b_|-echo b_|-wait"); r.At("result") != true || r.Dict("changes").At("retcode") == nil {
		t.Errorf("%s", value.Repr(r))
	}
}
