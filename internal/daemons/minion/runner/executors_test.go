package runner

import (
	"context"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/py/value"
)

// TestSplayShare: the shares are those that Salt's executor computes.
func TestSplayShare(t *testing.T) {
	for id, want := range map[string]float64{"alpha": 4522, "beta": 4020, "web1.example.com": 4266, "ü": 4720} {
		if got := splayShare(id) * 8192; got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

// functions has those that the tests call.
func functions(t *testing.T) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(nil, fn.Module{Name: "x", Doc: "d", Funcs: []fn.Func{
		fn.Of("f", func(context.Context, *fn.Call, struct{}) (string, error) { return "called", nil }, "d"),
		fn.Of("none", func(context.Context, *fn.Call, struct{}) (any, error) { return nil, nil }, "d"),
		fn.Of("echo", func(_ context.Context, _ *fn.Call, a struct {
			Args   fn.Args   `salt:"args"`
			Kwargs fn.Kwargs `salt:"kwargs"`
		}) (any, error) {
			return value.ListOf(&value.List{Items: a.Args}, a.Kwargs.Clean()), nil
		}, "d"),
	}}, fn.Module{Name: "saltutil", Doc: "d", Funcs: []fn.Func{
		fn.Of("find_job", func(context.Context, *fn.Call, struct{}) (string, error) { return "asked", nil }, "d"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// through runs a function of a job with executors.
func through(t *testing.T, m *Runner, fun string, job, opts any, arg ...any) fn.Outcome {
	t.Helper()
	load := value.DictOf("fun", fun, "arg", value.ListOf(arg...), "tgt", "*", "jid", jid1)
	if job != nil {
		load.Set("module_executors", job)
	}
	if opts != nil {
		load.Set("executor_opts", opts)
	}
	return m.Through(t.Context(), jobs.NewJob(load), &fn.Call{ID: "alpha", JID: jid1, Config: fn.Tree{Dict: value.DictOf("splaytime", int64(1))}},
		fn.Job{Fun: fun, Arg: arg, Pub: load, Missing: true})
}

func TestExecutors(t *testing.T) {
	list := func(names ...any) any { return value.ListOf(names...) }
	funcs := functions(t)
	for i, c := range []struct {
		conf, job, opts any
		want            any
	}{
		{directCall, nil, nil, "called"},
		{directCall, list(), nil, "called"},
		{list(directCall), nil, nil, "called"},
		{directCall, "direct_call", nil, "called"},
		{directCall, list("nope", "direct_call"), nil, "ERROR executing 'x.f': Executor 'nope' is not available"},
		{directCall, value.DictOf("a", "b"), nil, "ERROR executing 'x.f': Wrong executors specification: {'a': 'b'}. String or non-empty list expected"},
		{directCall, list("splay", "direct_call"), value.DictOf("splaytime", int64(1)), "called"},
		{directCall, list("splay", "direct_call"), nil, "called"}, // with the option splaytime
		{directCall, "splay", value.DictOf("splaytime", int64(1)), nil},
		{directCall, "splay", value.DictOf("splaytime", int64(0)), "ERROR executing 'x.f': splaytime must be a positive integer"},
		{directCall, "splay", value.DictOf("splaytime", "x"), "ERROR executing 'x.f': splaytime must be a positive integer"},
		{list("nope"), nil, nil, "ERROR executing 'x.f': Executor 'nope' is not available"},
		{list("nope"), "direct_call", nil, "called"},
		{directCall, "sudo", nil, "ERROR executing 'x.f': Executor 'sudo' is not available"}, // without sudo_user
	} {
		m := New(Config{Options: Options{ModuleExecutors: c.conf}, ID: "alpha", Log: slog.New(slog.DiscardHandler), Funcs: func() *fn.Registry { return funcs }})
		if o := through(t, m, "saltutil.find_job", c.job, c.opts); o.Return != "asked" {
			t.Errorf("%d: find_job: %+v", i, o)
		}
		o := through(t, m, "x.f", c.job, c.opts)
		if o.Return != c.want || o.Success != (c.want == "called" || c.want == nil) {
			t.Errorf("%d: got %+v, want %v", i, o, c.want)
		}
		if o := through(t, m, "x.gone", c.job, c.opts); !strings.Contains(value.Str(o.Return), "'x.gone' is not available.") {
			t.Errorf("%d: a missing function: %+v", i, o)
		}
	}
}

// written are executors of the user: one that changes arguments and leaves the call to the next
// one, one that uses a built-in one, and one that also runs functions that do not exist.
type written struct{}

func (written) Has(name string, builtin bool) bool {
	return !builtin && (name == "adds" || name == "uses" || name == "any")
}

func (written) AllowsMissing(_ context.Context, _ *fn.Call, name, _ string) (bool, error) {
	return name == "any", nil
}

func (written) Execute(ctx context.Context, name, fun string, data *value.Dict, t fn.Target, builtin python.Functions) (any, fn.Target, error) {
	switch name {
	case "adds":
		t.Args = append(t.Args, "added")
		return nil, t, nil
	case "uses":
		v, err := builtin.Call(ctx, "direct_call.execute", []any{data, &value.List{Items: t.Args}}, t.Kwargs)
		return value.ListOf("used", v), t, err
	}
	if t.Func == nil {
		return value.ListOf(fun, &value.List{Items: t.Args}, t.Kwargs.At("jid")), t, nil
	}
	return nil, t, nil
}

// TestExecutorsOfTheUser: the result nil passes a job on, with the arguments as they are then. A
// function that does not exist runs only by an executor that allows it.
func TestExecutorsOfTheUser(t *testing.T) {
	funcs := functions(t)
	m := New(Config{Options: Options{ModuleExecutors: directCall}, ID: "alpha", Log: slog.New(slog.DiscardHandler), Executors: written{},
		Funcs: func() *fn.Registry { return funcs }})
	list := func(names ...any) any { return value.ListOf(names...) }
	for i, c := range []struct {
		fun  string
		job  any
		want string
	}{
		{"x.echo", list("adds", "direct_call"), "[['a', 'added'], {}]"},
		{"x.echo", list("adds", "uses"), "['used', [['a', 'added'], {}]]"},
		{"x.echo", list("adds"), "None"},
		{"x.none", list("direct_call", "nope"), "ERROR executing 'x.none': Executor 'nope' is not available"},
		{"x.gone", list("adds"), "'x.gone' is not available."},
		{"x.gone", list("adds", "any"), "['x.gone', ['a', 'added'], '" + jid1 + "']"},
		{"x.echo", list("any", "direct_call"), "[['a'], {}]"},
		{"x.gone", list("any"), "['x.gone', ['a'], '" + jid1 + "']"},
	} {
		arg := []any{"a"}
		if c.fun == "x.none" {
			arg = nil
		}
		if o := through(t, m, c.fun, c.job, nil, arg...); value.Str(o.Return) != c.want {
			t.Errorf("%d: got %+v, want %s", i, o, c.want)
		}
	}
}

// TestSudo runs a program that stands for sudo, and for the salt-call that it runs.
func TestSudo(t *testing.T) {
	bin := t.TempDir()
	said := filepath.Join(bin, "said")
	script := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, "sudo"), []byte("#!/bin/sh\nprintf '%s|' \"$@\" >"+said+"\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	funcs := functions(t)
	m := New(Config{Options: Options{ModuleExecutors: directCall, SudoUser: "worker"}, ID: "alpha", ConfDir: "/etc/salt",
		Log: slog.New(slog.DiscardHandler), Funcs: func() *fn.Registry { return funcs }})

	const notJSON = "ERROR: the executor sudo: salt-call did not print a result as JSON; run as the minion's user: sudo -u worker " +
		"salt-call --out json --metadata test.ping"
	for i, c := range []struct {
		script  string
		job     any
		want    string
		retcode int
	}{
		{`echo '{"local": {"return": {"a": [1, null]}, "retcode": 0}}'`, nil, "{'a': [1, None]}", 0},
		{`echo '{"local": {"return": false, "retcode": 3}}'; exit 1`, nil, "False", 3},
		{`echo '{"local": {"return": "x"}}'; exit 4`, nil, "x", 4},
		{`echo no such user >&2; exit 5`, nil, "no such user\n", 5},
		{`echo '{"local": {"return": "by the last one"}}'`, value.ListOf("splay", "direct_call"), "by the last one", 0},
		{`echo '{"local": 1}'`, nil, notJSON, 1},
		{`echo Password:`, nil, notJSON, 1},
	} {
		script(c.script)
		o := through(t, m, "x.echo", c.job, nil, "a b", int64(1), value.DictOf("k", true, "__kwarg__", true))
		if value.Str(o.Return) != c.want || o.Retcode != c.retcode {
			t.Errorf("%d: got %+v", i, o)
		}
	}
	got, err := os.ReadFile(said)
	want := "-u|worker|salt-call|--out|json|--metadata|-c|/etc/salt|--|x.echo|a b|1|k=True|__pub_fun=x.echo|"
	if !strings.HasPrefix(string(got), want) || err != nil {
		t.Errorf("sudo got %s, %v", got, err)
	}
	if o := through(t, m, "saltutil.find_job", nil, nil); o.Return != "asked" {
		t.Errorf("find_job: %+v", o)
	}

	once := m.cfg
	once.Once = true // salt-call uses sudo only if that is asked for
	m = New(once)
	if o := through(t, m, "x.f", nil, nil); o.Return != "called" {
		t.Errorf("salt-call: %+v", o)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	m.cfg.Options.SudoUser = me.Username // salt-call, as sudo runs it
	if o := through(t, m, "x.f", "sudo", nil); o.Return != "called" {
		t.Errorf("salt-call as the user: %+v", o)
	}
	m = New(once)
	script(`echo '{"local": {"return": "by sudo"}}'`)
	if o := through(t, m, "x.f", "sudo", nil); o.Return != "by sudo" {
		t.Errorf("salt-call with the executor: %+v", o)
	}
}
