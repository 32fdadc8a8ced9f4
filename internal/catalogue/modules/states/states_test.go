package states

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/core"
	corestates "brine/internal/catalogue/states/core"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/highstate"
	"brine/internal/sls/render"
	"brine/internal/sls/state"
)

// source is the file server of a masterless minion.
type source struct {
	*fileserver.Server
	opts *value.Dict
}

func (s source) Request(ctx context.Context, load *value.Dict) (any, error) {
	if err := ctx.Err(); err != nil { // like a request to a master
		return nil, err
	}
	switch load.Str("cmd") {
	case "_master_opts":
		return s.opts, nil
	case "_master_tops":
		return value.NewDict(0), nil
	}
	return s.Server.Request(ctx, load)
}

// minion runs functions of the module with a tree of SLS files.
type minion struct {
	t     *testing.T
	funcs *fn.Registry
	opts  *value.Dict
	files *fileclient.Client
	jobs  []Job
}

func newMinion(t *testing.T, tree map[string]string) *minion {
	t.Helper()
	dir := t.TempDir()
	for name, text := range tree {
		path := filepath.Join(dir, "srv", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cache := filepath.Join(dir, "cache")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	m := &minion{t: t}
	m.opts = value.DictOf("cachedir", cache, "file_client", "local", "state_top", "top.sls", "top_file_merging_strategy", "merge", "default_top", "base")
	server := fileserver.New(fileserver.Options{FileRoots: value.DictOf("base", value.ListOf(filepath.Join(dir, "srv"))), Backends: []string{"roots"}},
		fileserver.Config{CacheDir: cache, HashType: "sha256"}, slog.New(slog.DiscardHandler))
	m.files = fileclient.New(source{server, m.opts}, fileclient.Options{CacheDir: cache, HashType: "sha256"}, slog.New(slog.DiscardHandler))
	states, err := state.NewRegistry(nil, corestates.Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	mod := Module(Deps{Deps: highstate.Deps{Renderer: render.New(render.Options{}), States: states}, Running: func() []Job { return m.jobs }})
	if m.funcs, err = fn.NewRegistry(nil, append(core.Modules(), mod, core.Grains(nil))...); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *minion) call(jid string) *fn.Call {
	return &fn.Call{ID: "web1", JID: jid, Config: fn.Tree{Dict: m.opts}, Grains: fn.Tree{Dict: value.DictOf("os", "Debian")},
		Pillar: fn.Tree{Dict: value.DictOf("port", 80)}, Files: m.files}
}

func (m *minion) run(fun string, args ...any) fn.Outcome {
	m.t.Helper()
	return m.funcs.Run(m.t.Context(), m.call(""), fn.Job{Fun: fun, Arg: args})
}

func kwargs(pairs ...any) *value.Dict {
	return value.DictOf(append([]any{"__kwarg__", true}, pairs...)...)
}

var tree = map[string]string{
	"top.sls": "base:\n  'web*': [a]\n  'os:Debian':\n    - match: grain\n    - sub\n",
	"a.sls": "include: [sub]\na:\n  test.succeed_with_changes:\n    - name: port {{ pillar['port'] }} of {{ grains['os'] }}\nb:\n  " +
		"test.nop:\n    - watch:\n      - test: a\n",
	"sub/init.sls":  "{% from './map.jinja' import word %}\nsub_{{ word }}:\n  test.nop\n",
	"sub/map.jinja": "{% set word = 'two' %}\n",
	"fail.sls":      "x:\n  test.fail_without_changes: []\n",
	"dup.sls":       "include: [a]\n\n# again\na:\n  test.nop: []\n",
	"yaml.sls":      "a:\n  test.nop:\n    - x\n   - y\n",
	"jinja.sls":     "a:\n{% if x %}\n  test.nop\n",
}

func TestRuns(t *testing.T) {
	m := newMinion(t, tree)
	for _, c := range []struct {
		fun     string
		args    []any
		retcode int
		want    string // expected part of the result
	}{
		{"state.apply", nil, 0, "'test_|-a_|-port 80 of Debian_|-succeed_with_changes'"},
		{"state.highstate", []any{kwargs("test", true)}, 0, "'result': None"},
		{"state.apply", []any{"a", kwargs("pillar", value.DictOf("port", 81))}, 0, "port 81 of Debian"},
		{"state.apply", []any{"fail"}, 2, "'comment': 'Failure!'"},
		{"state.apply", []any{"nothing"}, 1, "[\"No matching sls found for 'nothing' in env 'base'\"]"},
		{"state.apply", []any{"dup"}, 1, "SLS 'base:dup' and SLS 'base:a'\\n(a.sls, line 2)"},
		{"state.apply", []any{"yaml"}, 1,
			`Rendering SLS \'base:yaml\' failed: while parsing a block mapping\n  in "<unicode string>", line 2, column 3\ndid not find expected key\n`},
		{"state.apply", []any{"jinja"}, 1, "Rendering SLS 'base:jinja' failed: Jinja syntax error"},
		{"state.apply", []any{"a", kwargs("exclude", "sub")}, 0, "port 80"},
		{"state.sls", []any{"fail", kwargs("mock", true)}, 0, "Not called, mocked"},
		{"state.sls_id", []any{"b", "a"}, 0, "Watch statement fired."},
		{"state.single", []any{"test.nop", "x"}, 0, "{'test_|-x_|-x_|-nop'"},
		{"state.single", []any{"test.none", "x"}, 1, "[\"Specified state 'test.none' was not found\"]"},
		{"state.high", []any{value.DictOf("v", value.DictOf("test", value.ListOf("nop")))}, 0, "test_|-v_|-v_|-nop"},
		{"state.low", []any{value.DictOf("state", "test", "fun", "nop", "name", "v")}, 0, "'comment': 'Success!'"},
		{"state.low", []any{value.DictOf("state", "test", "fun", "fail_without_changes", "name", "v")}, 1, "'comment': 'Failure!'"},
		{"state.low", []any{value.DictOf("state", "test", "fun", "nopp", "name", "v", "__id__", "b", "__sls__", "a")}, 1,
			"did you mean test.nop?\\n(a.sls, line 5)"},
		{"state.template_str", []any{"a: test.nop"}, 0, "test_|-a_|-a_|-nop"},
		{"state.show_top", nil, 0, "{'base': ['a', 'sub']}"},
		{"state.show_states", nil, 0, "['sub', 'a']"},
		{"state.id_exists", []any{"a,b", "a"}, 0, "True"},
		{"state.sls_exists", []any{"nothing"}, 1, "False"},
	} {
		o := m.run(c.fun, c.args...)
		if got := value.Repr(o.Return); !strings.Contains(got, c.want) || o.Retcode != c.retcode {
			t.Errorf("%s %v: exit code %d, want %d\n%s\nwithout %s", c.fun, value.Repr(value.From(c.args)), o.Retcode, c.retcode, got, c.want)
		}
	}
	if got := value.Repr(m.run("state.apply", "a", kwargs("exclude", "sub")).Return); strings.Contains(got, "sub_two") {
		t.Errorf("what is excluded runs: %s", got)
	}
}

func TestRequests(t *testing.T) {
	m := newMinion(t, tree)
	m.run("state.request", "fail")
	if got := value.Repr(m.run("state.check_request", "default").Return); !strings.Contains(got, "'mods': 'fail'") {
		t.Errorf("kept %s", got)
	}
	if o := m.run("state.run_request"); o.Retcode != codeFailure {
		t.Errorf("exit code %d of %s", o.Retcode, value.Repr(o.Return))
	}
	if got := value.Repr(m.run("state.check_request").Return); got != "{}" {
		t.Errorf("still kept: %s", got)
	}
}

func TestOneRunAtATime(t *testing.T) {
	m := newMinion(t, tree)
	first, second := "20260101000000000001", "20260101000000000002"
	m.jobs = []Job{{JID: first, Fun: "state.apply", PID: os.Getpid() + 1}}
	o := m.funcs.Run(t.Context(), m.call(second), fn.Job{Fun: "state.apply"})
	if got := value.Repr(o.Return); o.Retcode != codeCompile || !strings.Contains(got, `The function "state.apply" is running as PID`) ||
		!strings.Contains(got, "started at 2026, Jan 01 00:00:00.000001 with jid "+first) {
		t.Errorf("exit code %d, %s", o.Retcode, got)
	}
	o = m.funcs.Run(t.Context(), m.call(second), fn.Job{Fun: "state.apply", Arg: []any{kwargs("concurrent", true)}})
	if o.Retcode != 0 {
		t.Errorf("a concurrent run ends with %d", o.Retcode)
	}
	m.jobs = nil
	g := newGate(nil)
	_, leave, _ := g.enter(t.Context(), first, "state.apply", false, false)
	if conflicts, _, _ := g.enter(t.Context(), second, "state.apply", false, false); len(conflicts) != 1 {
		t.Errorf("conflicts %v", conflicts)
	}
	entered := make(chan func())
	go func() {
		_, leave, _ := g.enter(t.Context(), second, "state.apply", true, false)
		entered <- leave
	}()
	_, again, _ := g.enter(t.Context(), first, "state.sls", false, false) // a nested call of the run itself
	again()
	leave()
	(<-entered)()
	if l := g.list(""); len(l) != 0 {
		t.Errorf("left over: %v", l)
	}
}

func TestSoftKill(t *testing.T) {
	m := newMinion(t, tree)
	jid := "20260101000000000003"
	m.run("state.soft_kill", jid, "b")
	o := m.funcs.Run(t.Context(), m.call(jid), fn.Job{Fun: "state.apply", Arg: []any{"a"}})
	if got := value.Repr(o.Return); strings.Contains(got, "_|-b_|-") || !strings.Contains(got, "_|-a_|-") {
		t.Errorf("the run did not end before b: %s", got)
	}
}

// TestBrokenPillar checks that no state runs, and the run fails, if a pillar file
// cannot be rendered.
func TestBrokenPillar(t *testing.T) {
	for _, job := range [][]any{
		{"state.apply"}, {"state.apply", "a"}, {"state.highstate"}, {"state.sls", "a"}, {"state.sls_id", "a", "a"}, {"state.top", "top.sls"},
	} {
		m := newMinion(t, tree)
		c := m.call("")
		c.Pillar = fn.Tree{Dict: value.DictOf("port", 80, "_errors", value.ListOf("Rendering SLS 'secrets' failed"))}
		o := m.funcs.Run(t.Context(), c, fn.Job{Fun: job[0].(string), Arg: job[1:]})
		if text := value.Repr(o.Return); o.Retcode == 0 || !strings.Contains(text, "Rendering SLS 'secrets' failed") || strings.Contains(text, "port 80") {
			t.Errorf("%v: exit code %d, %s", job, o.Retcode, text)
		}
	}
}

// TestCachesOfRunsArePrivate checks the permissions of the caches of a run, which
// may hold secrets of the pillar.
func TestCachesOfRunsArePrivate(t *testing.T) {
	m := newMinion(t, tree)
	for _, mods := range [][]any{nil, {"a"}} {
		if o := m.run("state.apply", mods...); o.Retcode != 0 {
			t.Fatal(value.Repr(o.Return))
		}
	}
	found := map[string]bool{}
	dir := m.opts.Str("cachedir")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
			found[e.Name()] = true
			if st.Mode().Perm() != 0o600 {
				t.Errorf("%s has the mode %v", e.Name(), st.Mode())
			}
		}
	}
	if !found["sls.p"] || !found["highstate.cache.p"] {
		t.Errorf("found %v", found)
	}
}
