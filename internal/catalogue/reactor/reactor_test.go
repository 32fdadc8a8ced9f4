package reactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/eventually"
)

func load(t *testing.T, text string) any {
	t.Helper()
	v, err := yaml.Load([]byte(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestFormsAsSalt runs reactions of all forms, in Salt 3007.10's order and with
// its arguments. The arguments of jobs.lookup_jid are positional there, which
// is equivalent.
func TestFormsAsSalt(t *testing.T) {
	b, err := os.ReadFile("testdata/forms.sls")
	if err != nil {
		t.Fatal(err)
	}
	got, err := compile(load(t, string(b)).(*value.Dict))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`runner test.arg None [] {'n': 'first'} None`,
		`local_async test.echo 'x' ['hi'] {} 'glob'`,
		`local_async test.echo 'x' ['hi'] {} 'glob'`,
		`local_async test.version '*' [] {} 'glob'`,
		`local_async test.arg 'G@role:db' [1, 'two'] {'a': 'b'} 'compound'`,
		`local_async test.ping ['a', 'b'] [] {} 'list'`,
		`local_async cmd.run 'web*' [] {'cmd': 'rm -rf /tmp/x', 'cwd': '/'} 'glob'`,
		`runner test.arg None [] {'x': 1, 'y': [2]} None`,
		`runner jobs.lookup_jid None [] {'jid': '20260101000000000000'} None`,
		`runner manage.up None [] {} None`,
		`wheel key.accept None [] {'match': 'new1'} None`,
		`wheel key.list_all None [] {} None`,
		`runner test.arg None [] {'n': 'last'} None`,
	}
	for i, r := range got {
		c := r.chunk
		line := fmt.Sprint(c.Str("client"), " ", c.Str("fun"), " ", value.Repr(c.At("tgt")), " ", value.Repr(c.At("arg")), " ", value.Repr(c.At("kwarg")),
			" ", value.Repr(c.At("tgt_type")))
		if i >= len(want) || line != want[i] {
			t.Errorf("%d: %s", i, line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d reactions, want %d", len(got), len(want))
	}
}

func TestWrongForms(t *testing.T) {
	for _, c := range []struct{ sls, want string }{
		{"a: 1", "must be a map"},
		{"a: {pkg.installed: []}", "pkg is not a reaction"},
		{"a: {local.test.ping: []}", "tgt is missing"},
		{"a: {local.test.ping: x}", "must be a list"},
		{"a: {runner.test.arg: [{args: [1]}]}", "args must be a map"},
		{"a: {runner.test.arg: [{kwarg: 1}]}", "kwarg must be a map"},
		{"a: {runner: [{args: {}}]}", "function"},
		{"a: {local.a.b: [{tgt: x}], local.c.d: [{tgt: x}]}", "two reactions of the form local"},
	} {
		if _, err := compile(load(t, c.sls).(*value.Dict)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.sls, err)
		}
	}
	for _, conf := range []string{"{a: b}", "[a]", "[{a: b, c: d}]", "[{a: 1}]", "/nosuch/file"} {
		if _, err := New(Options{Reactor: load(t, conf)}, Deps{}); err == nil {
			t.Errorf("reactor: %s is taken", conf)
		}
	}
	for _, conf := range []any{nil, "", &value.List{}} {
		if r, err := New(Options{Reactor: conf}, Deps{}); r != nil || err != nil {
			t.Errorf("reactor: %v: %v, %v", conf, r, err)
		}
	}
}

// fake is a master that records requests.
type fake struct {
	*Reactor
	bus  *event.Bus
	log  strings.Builder
	logs sync.Mutex
	ran  chan string
}

func (f *fake) Write(b []byte) (int, error) {
	f.logs.Lock()
	defer f.logs.Unlock()
	return f.log.Write(b)
}

func (f *fake) logged() string {
	f.logs.Lock()
	defer f.logs.Unlock()
	return f.log.String()
}

// begin starts a reactor. do, if not nil, handles low data.
func begin(t *testing.T, o Options, do func(*value.Dict) error) *fake {
	t.Helper()
	f := &fake{bus: event.NewBus(0), ran: make(chan string, 10000)}
	d := Deps{
		Bus: f.bus, Log: slog.New(slog.NewTextHandler(f, nil)),
		Render: func(_ context.Context, path string, source []byte, vars *value.Dict) (any, error) {
			return yaml.Load([]byte(strings.ReplaceAll(string(source), "TAG", vars.Str("tag"))), path)
		},
		Read: func(_ context.Context, url string) ([]byte, error) {
			if url != "salt://r.sls" {
				return nil, errors.New("no such file")
			}
			return []byte("from_master: {runner.x.served: []}"), nil
		},
		Low: func(_ context.Context, chunk *value.Dict) ([]any, error) {
			f.ran <- chunk.Str("client") + " " + chunk.Str("fun") + " " + chunk.Str("tgt")
			if do != nil {
				return nil, do(chunk)
			}
			return nil, nil
		},
		Call: func(_ context.Context, fun string, args []any, kwargs *value.Dict) error {
			f.ran <- "caller " + fun + " " + value.Repr(value.ListOf(args...)) + value.Repr(kwargs)
			return nil
		},
	}
	var err error
	if f.Reactor, err = New(o, d); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	started := make(chan struct{})
	go func() {
		defer close(done)
		close(started)
		f.Run(ctx)
	}()
	<-started
	t.Cleanup(func() { stop(); <-done })
	return f
}

// next returns the next recorded request.
func (f *fake) next(t *testing.T) string {
	t.Helper()
	select {
	case s := <-f.ran:
		return s
	case <-time.After(time.Minute):
		t.Fatalf("nothing ran; log:\n%s", f.logged())
	}
	return ""
}

// until fires an event until something runs, since the reactor needs time to
// subscribe.
func (f *fake) until(t *testing.T, tag string) string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		f.bus.Fire(tag, value.NewDict(0))
		select {
		case s := <-f.ran:
			return s
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("nothing ran; log:\n%s", f.logged())
		}
	}
}

func TestEvents(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"one.sls": "x: {local.one: [{tgt: TAG}]}", "many1.sls": "a: {local.a: [{tgt: t}]}", "many2.sls": "b: {local.b: [{tgt: t}]}",
		"bad.sls": "a: [", "call.sls": "c: {caller.test.arg: [{args: [1, 2]}]}", "list.sls": "[1]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf := fmt.Sprintf("- ready: %[1]s/one.sls\n- 'a/*': [%[1]s/one.sls]\n- a/b: ['%[1]s/many?.sls', 'salt://r.sls', 'salt://nosuch']\n- bad: "+
		"[%[1]s/bad.sls, %[1]s/list.sls, %[1]s/none.sls, %[1]s/call.sls]\n", dir)
	f := begin(t, Options{Reactor: load(t, conf), Threads: 1, Queue: 100}, nil)
	if got := f.until(t, "ready"); got != "local_async one ready" {
		t.Errorf("%q", got)
	}
	f.bus.Fire("other", value.NewDict(0))
	f.bus.Fire("a/b", value.DictOf("user", User)) // caused by the reactor itself
	f.bus.Fire("a/b", value.DictOf("user", "root"))
	seen := map[string]bool{}
	for len(seen) < 4 {
		if s := f.next(t); s != "local_async one ready" {
			seen[s] = true
		}
	}
	for _, want := range []string{"local_async one a/b", "local_async a t", "local_async b t", "runner x.served "} {
		if !seen[want] {
			t.Errorf("%q did not run: %v", want, seen)
		}
	}
	f.bus.Fire("bad", value.NewDict(0))
	if got := f.next(t); got != "caller test.arg [1, 2]{}" {
		t.Errorf("beside what is broken: %q", got)
	}
	for _, file := range []string{"bad.sls", "list.sls", "none.sls", "salt://nosuch"} {
		if !strings.Contains(f.logged(), file) {
			t.Errorf("the log says nothing of %s:\n%s", file, f.logged())
		}
	}
}

// TestBounds checks that a reaction whose event causes it again does not loop
// without limit, that dropped reactions are logged, and that failures and
// panics have no other effect.
func TestBounds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.sls")
	if err := os.WriteFile(file, []byte("x: {runner.r: []}"), 0o600); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	f := begin(t, Options{Reactor: load(t, "- 'e': "+file), Threads: 2, Queue: 3}, func(*value.Dict) error {
		<-hold
		panic("broken")
	})
	f.until(t, "e") // one worker is busy; the next event starts another
	end := time.Now().Add(eventually.Limit)
	for !strings.Contains(f.logged(), "dropped reaction") {
		f.bus.Fire("e", value.NewDict(0))
		if time.Now().After(end) {
			t.Fatal("no reaction was dropped: ", f.logged())
		}
	}
	close(hold)
	f.until(t, "e")
	for !strings.Contains(f.logged(), "err=broken") {
		f.until(t, "e")
		if time.Now().After(end) {
			t.Fatal("the panic is not in the log: ", f.logged())
		}
	}
}
