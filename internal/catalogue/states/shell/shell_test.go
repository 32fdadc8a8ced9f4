package shell

import (
	"context"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// allArgs accepts all arguments that the state passes on.
type allArgs struct {
	Cmd    any       `salt:"cmd" doc:"command"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// results are the outcomes of the test commands. The states do not know how a
// command is run.
var results = map[string]*value.Dict{
	"good":    value.DictOf("pid", 1, "retcode", 0, "stdout", "out", "stderr", ""),
	"bad":     value.DictOf("pid", 1, "retcode", 3, "stdout", "", "stderr", "why"),
	"pairs":   value.DictOf("pid", 1, "retcode", 0, "stdout", "first\nchanged=yes comment='it did' x=1", "stderr", ""),
	"json":    value.DictOf("pid", 1, "retcode", 0, "stdout", `{"changed": false, "comment": "nope"}`, "stderr", ""),
	"garbage": value.DictOf("pid", 1, "retcode", 0, "stdout", "garbage", "stderr", ""),
	"late":    value.DictOf("pid", 1, "retcode", 1, "stdout", "Timed out after 1 seconds", "stderr", ""),
	"none.sh": value.DictOf("pid", 0, "retcode", 1, "stdout", "", "stderr", "", "cache_error", true),
}

type single struct {
	t     *testing.T
	calls []*value.Dict
	deps  engine.Deps
}

func newSingle(t *testing.T) *single {
	t.Helper()
	s := &single{t: t}
	answer := func(_ context.Context, _ *fn.Call, a allArgs) (any, error) {
		call := a.Kwargs.Clone()
		call.Set("cmd", a.Cmd)
		s.calls = append(s.calls, call)
		return results[value.Str(a.Cmd)], nil
	}
	funcs, err := fn.NewRegistry(nil, fn.Module{Name: "cmd", Doc: "d", Funcs: []fn.Func{
		fn.Of("run_all", answer, `Run.`), fn.Of("script", answer, `Run.`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	states, err := state.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	s.deps = engine.Deps{States: states, Call: func() *fn.Call {
		return &fn.Call{Funcs: funcs, Grains: fn.Tree{Dict: value.DictOf("shell", "/bin/bash")}}
	}}
	return s
}

func (s *single) run(test bool, fun string, pairs ...any) *value.Dict {
	low := value.DictOf("state", "cmd", "fun", fun, "__id__", "x", "__sls__", "x", "__env__", "base", "order", int64(1))
	low.Update(value.DictOf(pairs...))
	return engine.New(s.deps, engine.Options{Test: test}).Single(s.t.Context(), low)
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		args    []any
		result  any
		comment string
		changes string
	}{
		{[]any{"name", "good"}, true, `Command "good" run`, "{'pid': 1, 'retcode': 0, 'stdout': 'out', 'stderr': ''}"},
		{[]any{"name", "bad"}, false, `Command "bad" run`, "{'pid': 1, 'retcode': 3, 'stdout': '', 'stderr': 'why'}"},
		{[]any{"name", "pairs", "stateful", true}, true, "it did", "{'changed': 'yes', 'x': '1', 'pid': 1, 'retcode': 0, 'stdout': 'first', 'stderr': ''}"},
		{[]any{"name", "json", "stateful", true}, true, "nope", "{}"},
		{[]any{"name", "garbage", "stateful", true}, false, "Failed parsing script output! Stdout must be JSON or a line of name=value pairs.",
			"{'pid': 1, 'retcode': 0, 'stdout': 'garbage', 'stderr': ''}"},
		{[]any{"name", "late"}, false, `Command "late" run`, "{'pid': 1, 'retcode': 1, 'stdout': 'Timed out after 1 seconds', 'stderr': ''}"},
		{[]any{"name", "late", "ignore_timeout", true}, true, `Command "late" run`,
			"{'pid': 1, 'retcode': 0, 'stdout': 'Timed out after 1 seconds', 'stderr': ''}"},
		{[]any{"name", "good", "cwd", "/nonexistent"}, false, `Desired working directory "/nonexistent" is not available`, "{}"},
		{[]any{"name", "good", "env", "X"}, false, "Invalidly-formatted 'env' parameter. See documentation.", "{}"},
	} {
		r := newSingle(t).run(false, "run", c.args...)
		if r.At("result") != c.result || r.Str("comment") != c.comment || value.Repr(r.At("changes")) != c.changes {
			t.Errorf("%v: %s\nwant %v %s %s", c.args, value.Repr(r), c.result, c.comment, c.changes)
		}
	}
}

func TestTestRunsNothing(t *testing.T) {
	for fun, comment := range map[string]string{"run": `Command "good" would have been executed`, "script": "Command 'good' would have been executed"} {
		s := newSingle(t)
		r := s.run(true, fun, "name", "good")
		if r.At("result") != nil || r.Str("comment") != comment || len(s.calls) != 0 {
			t.Errorf("%s: %s, %d calls", fun, value.Repr(r), len(s.calls))
		}
	}
}

func TestArgumentsAreHandedOn(t *testing.T) {
	s := newSingle(t)
	s.run(false, "run", "name", "good", "runas", "me", "timeout", int64(3), "umask", "077")
	s.run(false, "script", "name", "none.sh one two", "template", "jinja", "context", value.DictOf("a", 1))
	if len(s.calls) != 2 {
		t.Fatalf("%d calls", len(s.calls))
	}
	run, script := s.calls[0], s.calls[1]
	if run.Str("runas") != "me" || run.Int("timeout") != 3 || run.Str("shell") != "/bin/bash" || run.At("python_shell") != true {
		t.Errorf("cmd.run_all got %s", value.Repr(run))
	}
	if script.Str("cmd") != "none.sh" || script.Str("args") != "one two" || script.Str("template") != "jinja" || script.Dict("context").Int("a") != 1 ||
		script.Str("saltenv") != "base" {
		t.Errorf("cmd.script got %s", value.Repr(script))
	}
}

func TestScriptThatIsNotThere(t *testing.T) {
	r := newSingle(t).run(false, "script", "name", "none.sh")
	if r.At("result") != false || !strings.HasPrefix(r.Str("comment"), "Unable to cache script none.sh from saltenv 'base'") {
		t.Error(value.Repr(r))
	}
}

func TestWaitDoesNothing(t *testing.T) {
	s := newSingle(t)
	if r := s.run(false, "wait", "name", "good"); r.At("result") != true || len(s.calls) != 0 {
		t.Error(value.Repr(r))
	}
	if r := s.run(false, "mod_watch", "name", "good", "sfun", "wait"); r.At("result") != true || len(s.calls) != 1 {
		t.Error(value.Repr(r), len(s.calls))
	}
	if r := s.run(false, "mod_watch", "name", "good", "sfun", "what"); r.At("result") != false {
		t.Error(value.Repr(r))
	}
}
