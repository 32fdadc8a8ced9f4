package python

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/test/eventually"
	"brine/test/tools"
)

// echoFunctions are Brine functions as a module sees them.
type echoFunctions struct {
	pool   *Pool
	env    *Env
	setenv func(name string, val any) error // environ.setval, or nil
}

func (e *echoFunctions) Has(name string) bool {
	return strings.HasPrefix(name, "brine.") || strings.HasPrefix(name, "pillar.") || strings.HasPrefix(name, "environ.")
}

func (e *echoFunctions) Names() []string { return []string{"brine.echo"} }

func (e *echoFunctions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	switch name {
	case "brine.echo":
		return args[0], nil
	case "environ.setval":
		return nil, e.setenv(args[0].(string), args[1])
	case "brine.wait":
		select { // longer than a module waits that is interrupted
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return nil, nil
	case "brine.call":
		v, _, err := e.pool.Call(ctx, e.env, "modules", args[0].(string), args[1:], kwargs)
		return v, err
	case "brine.command":
		return nil, fn.Errorf("it broke")
	case "pillar.get", "pillar.items":
		if name == "pillar.get" {
			return e.env.Call.Pillar.All().At(args[0]), nil
		}
		return e.env.Call.Pillar.All(), nil
	case "brine.class":
		return nil, &fn.ExceptionError{Class: args[0].(string), Text: "told"}
	case "brine.argument":
		return nil, &fn.ArgumentError{Err: errors.New("no such argument")}
	}
	return nil, fmt.Errorf("a bug in %s", name)
}

// logs collects log records.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fixture is a pool with modules.
type fixture struct {
	*Pool
	env *Env
	own *echoFunctions
	log *logs
	dir string
}

func newFixture(t testing.TB, modules map[string]string, change func(*Config)) *fixture {
	t.Helper()
	tools.NeedPython(t, "python3", "marshal")
	f := &fixture{log: &logs{}, dir: t.TempDir()}
	c := Config{
		Options: Options{Helper: true, Helpers: 2, Idle: time.Minute, Memory: 1 << 30, Program: "/usr/bin/python3"}, Dir: filepath.Join(f.dir, "shim"),
		Log: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Loaders: func() map[string]Files {
			files := Files{Paths: map[string]string{}, Claims: map[string][]string{}}
			for name, text := range modules {
				path := filepath.Join(f.dir, name+".py")
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Error(err)
				}
				files.Paths[name], files.Claims[name] = path, []string{name}
			}
			return map[string]Files{"modules": files}
		},
	}
	if change != nil {
		change(&c)
	}
	f.Pool = New(c)
	t.Cleanup(f.Close)
	call := (&fn.Call{ID: "m1", JID: "20261124000000000000", Grains: fn.Tree{Dict: value.DictOf("os", "Debian")},
		Pillar: fn.Tree{Dict: value.DictOf("secret", 1)}, Config: fn.Tree{Dict: value.DictOf("id", "m1", "grains", value.NewDict(0))}}).Prepare()
	f.own = &echoFunctions{pool: f.Pool}
	f.env = &Env{Call: call, Functions: map[string]Functions{"modules": f.own}}
	f.own.env = f.env
	return f
}

func (f *fixture) run(t testing.TB, name string, args ...any) (any, error) {
	t.Helper()
	v, _, err := f.Call(t.Context(), f.env, "modules", name, args, nil)
	return v, err
}

const sampleModule = `
import collections, datetime, logging, os, threading
from salt.exceptions import CommandExecutionError, SaltInvocationError, CommandNotFoundError
log = logging.getLogger(__name__)

def echo(value):
    return value

def show(value):
    return repr(value)

def through(value):
    return repr(__salt__["brine.echo"](value))

def kinds():
    return [collections.OrderedDict([("b", 1)]), {1}, datetime.datetime(2026, 1, 2, 3, 4, 5, 6), 2 ** 70, b"\xff", (1, None)]

def trees():
    return __grains__["os"], __pillar__.get("secret"), __opts__["id"], __opts__["grains"]["os"], "no" in __opts__, len(__grains__)

def count():
    __context__["n"] = __context__.get("n", 0) + 1
    return __context__["n"]

def code():
    __context__["retcode"] = 7

def parts():
    yield {"a": 1}
    yield {"b": 2}

def talk():
    print("printed text")
    os.write(2, b"raw text\n")
    log.error("logged %s", "text")
    log.trace("too detailed")

def raises(kind):
    raise {"command": CommandExecutionError, "invocation": SaltInvocationError, "program": CommandNotFoundError,
           "type": TypeError, "value": ValueError, "exit": SystemExit}[kind]("text of " + kind)

def pillar():
    return [type(v).__name__ for v in (__pillar__.value(), __pillar__["a"], __pillar__["a"]["b"][0],
                                       __salt__["pillar.get"]("a"), __salt__["pillar.items"](), __salt__["pillar.items"]()["a"])]

def sets():
    given = [{1, "a"}, frozenset([2]), set(), (3,), {"k": {(4, frozenset([5]))}}, [6], [{1: 2}]]
    back = __salt__["brine.echo"](given, more={7})
    return back == given and [type(v).__name__ for v in back]

def catches(name, *args):
    try:
        __salt__[name](*args)
    except Exception as exc:
        return type(exc).__name__, str(exc)

def deeper(n):
    return n if n == 0 else __salt__["brine.call"]("sample.deeper", n - 1) + 1

def same():
    try:
        __salt__["brine.call"]("sample.raises", "value")
    except ValueError as exc:
        return str(exc)

def threads():
    found = []
    def work():
        found.append(__salt__["brine.echo"](__grains__["os"]))
    all = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in all]
    [t.join() for t in all]
    return found

def has():
    return "brine.echo" in __salt__, "no.such" in __salt__, "sample.echo" in __salt__, __salt__.get("no.such", 5)

def recursion():
    return recursion()

def nested(n):
    value = []
    for _ in range(n):
        value = [value]
    return value

def text(size):
    return "x" * size

def noise(size):
    for _ in range(size // 100):
        os.write(1, b"y" * 99 + b"\n")
    return "done"

def leave():
    os._exit(3)

def loop():
    while True:
        pass

def pid():
    return os.getpid()

def fork():
    if os.fork() == 0:
        return "child"
    os.wait()
    return "parent"

def linger():
    import subprocess
    return subprocess.Popen(["sleep", "600"]).pid

def descriptors():
    out = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            out[int(fd)] = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            pass
    return out

def grow(size):
    global kept
    kept = b"z" * size

def signature(a, b=2, *args, c, d=[4], **kw):
    """Documented."""
`

func sample(t testing.TB, change func(*Config)) *fixture {
	return newFixture(t, map[string]string{"sample": sampleModule}, change)
}

func TestValues(t *testing.T) {
	f := sample(t, nil)
	large := new(big.Int).Lsh(big.NewInt(1), 70)
	when := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	in := value.ListOf(nil, true, 1, large, 1.5, "é", []byte{0xff}, value.Tuple{int64(1), "a"}, value.DictOf("k", value.DictOf(2, "b")), when)
	got, err := f.run(t, "sample.echo", in)
	if err != nil || !value.Equal(got, in) {
		t.Error(value.Repr(got), err)
	}
	for i, it := range in.Items {
		if a, b := value.TypeName(value.Items(got)[i]), value.TypeName(it); a != b {
			t.Errorf("item %d is a %s, not a %s", i, a, b)
		}
	}
	const want = `[1, 1180591620717411303424, b'\xff', (1, 'a'), datetime.datetime(2026, 1, 2, 3, 4, 5, 6)]`
	for _, fun := range []string{"sample.show", "sample.through"} {
		if got, err := f.run(t, fun, value.ListOf(1, large, []byte{0xff}, value.Tuple{int64(1), "a"}, when)); err != nil || got != want {
			t.Error(fun, got, err)
		}
	}
	kinds := value.ListOf(value.DictOf("b", 1), value.Tuple{int64(1)}, when, large, []byte{0xff}, value.Tuple{int64(1), nil})
	if got, err := f.run(t, "sample.kinds"); err != nil || !value.Equal(got, kinds) {
		t.Error(value.Repr(got), err)
	}
}

func TestCalls(t *testing.T) {
	f := sample(t, nil)
	for _, c := range []struct {
		fun  string
		args []any
		want any
	}{
		{"trees", nil, value.Tuple{"Debian", int64(1), "m1", "Debian", false, int64(1)}},
		{"count", nil, int64(1)},
		{"count", nil, int64(2)}, // __context__ is that of the job
		{"parts", nil, value.DictOf("a", 1, "b", 2)},
		{"deeper", []any{int64(20)}, int64(20)},
		{"same", nil, "text of value"},
		{"threads", nil, value.ListOf("Debian", "Debian", "Debian", "Debian", "Debian", "Debian", "Debian", "Debian")},
		{"has", nil, value.Tuple{true, false, true, int64(5)}},
		{"catches", []any{"brine.command"}, value.Tuple{"CommandExecutionError", "it broke"}},
		{"catches", []any{"brine.argument"}, value.Tuple{"TypeError", "no such argument"}},
		{"catches", []any{"brine.bug"}, value.Tuple{"CommandExecutionError", "a bug in brine.bug"}},
		{"catches", []any{"brine.class", "Exception"}, value.Tuple{"Exception", "told"}},
		{"catches", []any{"brine.class", "ValueError"}, value.Tuple{"ValueError", "told"}},
		{"catches", []any{"brine.class", "salt.exceptions.SaltRenderError"}, value.Tuple{"SaltRenderError", "told"}},
		{"catches", []any{"brine.class", "exit"}, value.Tuple{"Exception", "told"}},
		{"sets", nil, value.ListOf("set", "frozenset", "set", "tuple", "dict", "list", "list")},
		{"catches", []any{"no.such"}, value.Tuple{"KeyError", "'no.such'"}},
		{"fork", nil, "parent"},
	} {
		if got, err := f.run(t, "sample."+c.fun, c.args...); err != nil || !value.Equal(got, c.want) {
			t.Errorf("%s: %s, %v", c.fun, value.Repr(got), err)
		}
	}
	other := *f.env.Call
	other.JID = "20261124000000000001"
	if got, _, err := f.Call(t.Context(), &Env{Call: &other}, "modules", "sample.count", nil, nil); err != nil || got != int64(1) {
		t.Error("another job has the __context__ of the first:", got, err)
	}
	if _, code, err := f.Call(t.Context(), f.env, "modules", "sample.code", nil, nil); err != nil || code != 7 {
		t.Error(code, err)
	}
	var parts []any
	f.env.Call.Progress = func(part any) { parts = append(parts, part) }
	if _, err := f.run(t, "sample.parts"); err != nil || len(parts) != 2 {
		t.Error(parts, err)
	}
	if _, err := f.run(t, "sample.talk"); err != nil {
		t.Error(err)
	}
	eventually.True(t, "what modules print and log is in the log", func() bool {
		s := f.log.String()
		return strings.Contains(s, "printed text") && strings.Contains(s, "raw text") && strings.Contains(s, "logged text") && !strings.Contains(s, "too detailed")
	})
}

// TestPillarTypes checks that mappings in the pillar are OrderedDicts if the minion compiles it itself.
func TestPillarTypes(t *testing.T) {
	f := sample(t, nil)
	for client, inner := range map[string]string{"remote": "dict", "local": "OrderedDict"} {
		c := *f.env.Call
		c.Config = fn.Tree{Dict: value.DictOf("id", "m1", "file_client", client)}
		c.Pillar = fn.Tree{Dict: value.DictOf("a", value.DictOf("b", value.ListOf(value.DictOf("c", 1))))}
		env := &Env{Call: &c}
		env.Functions = map[string]Functions{"modules": &echoFunctions{env: env}}
		got, _, err := f.Call(t.Context(), env, "modules", "sample.pillar", nil, nil)
		if want := value.ListOf("dict", inner, inner, inner, "dict", inner); err != nil || !value.Equal(got, want) {
			t.Errorf("%s: %s %v", client, value.Repr(got), err)
		}
	}
}

func TestErrors(t *testing.T) {
	f := sample(t, nil)
	for kind, is := range map[string]func(error) bool{
		"command":    func(err error) bool { var e *fn.CommandError; return errors.As(err, &e) },
		"invocation": func(err error) bool { var e *fn.InvocationError; return errors.As(err, &e) },
		"program":    func(err error) bool { var e *fn.ProgramError; return errors.As(err, &e) },
		"type":       func(err error) bool { var e *fn.ArgumentError; return errors.As(err, &e) },
	} {
		if _, err := f.run(t, "sample.raises", kind); !is(err) || err.Error() != "text of "+kind {
			t.Errorf("%s: %T %v", kind, err, err)
		}
	}
	path := filepath.Join(f.dir, "sample.py")
	for kind, name := range map[string]string{"value": "ValueError", "exit": "SystemExit"} {
		_, err := f.run(t, "sample.raises", kind)
		var e *Error
		if !errors.As(err, &e) || e.Text != "text of "+kind || !strings.HasPrefix(e.Trace, "Traceback (most recent call last):\n  File \""+path) ||
			!strings.HasSuffix(e.Trace, name+": text of "+kind+"\n") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := f.run(t, "sample.recursion"); err == nil || !strings.Contains(err.Error(), "RecursionError") {
		t.Error(err)
	}
	if _, err := f.run(t, "sample.nested", int64(5000)); err == nil || !strings.Contains(err.Error(), "nested more than") {
		t.Error(err)
	}
	if v, err := f.run(t, "sample.nested", int64(300)); err != nil || value.TypeName(v) != "list" {
		t.Error(err)
	}
	if _, err := f.run(t, "sample.text", int64(maxFrame)); err == nil || !strings.Contains(err.Error(), "bytes are more than") {
		t.Error(err)
	}
	if _, err := f.run(t, "sample.echo", strings.Repeat("x", maxFrame)); err == nil || !strings.Contains(err.Error(), "bytes are more than") {
		t.Error(err)
	}
	if v, err := f.run(t, "sample.echo", "still here"); err != nil || v != "still here" {
		t.Error(v, err)
	}
}

func TestLostHelpers(t *testing.T) {
	f := sample(t, nil)
	if _, err := f.run(t, "sample.leave"); err == nil || !strings.Contains(err.Error(), "ended while it ran sample.leave: exit status 3") {
		t.Error(err)
	}

	// A helper that hangs ends with its call, together with the processes that it started.
	started, err := f.run(t, "sample.linger")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		eventually.True(t, "the helper is at work", func() bool { return busy(f.Pool) })
		cancel(errors.New("the job was killed"))
	}()
	if _, _, err := f.Call(ctx, f.env, "modules", "sample.loop", nil, nil); err == nil ||
		!strings.Contains(err.Error(), "killed while it ran sample.loop: the job was killed") {
		t.Error(err)
	}
	eventually.True(t, "the process that the module has started is gone", func() bool { return !alive(int(started.(int64))) })

	// A helper is killed from outside.
	pid, err := f.run(t, "sample.pid")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		eventually.True(t, "the helper is at work", func() bool { return busy(f.Pool) })
		if err := syscall.Kill(int(pid.(int64)), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}()
	if _, err := f.run(t, "sample.loop"); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Error(err)
	}
	if v, err := f.run(t, "sample.noise", int64(4<<20)); err != nil || v != "done" {
		t.Error(v, err)
	}
	if n := strings.Count(f.log.String(), "output of a Python module"); n > 2*maxOutput/99 || !strings.Contains(f.log.String(), "prints too much") {
		t.Errorf("%d lines of output were logged", n)
	}
}

// busy reports whether a helper runs a call.
func busy(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) == 0 && len(p.free) < cap(p.free)
}

// alive reports whether a process runs. An ended child of another process that has not been waited
// for does not.
func alive(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// TestCloseWhileBusy checks that a hanging module does not prevent the end of the process.
func TestCloseWhileBusy(t *testing.T) {
	f := newFixture(t, map[string]string{"hangs": "while True:\n    pass\n"}, nil)
	done := make(chan error, 1)
	go func() {
		_, err := f.Find(t.Context(), f.env, "modules", "hangs.x", true)
		done <- err
	}()
	eventually.True(t, "a helper runs", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.all) == 1
	})
	f.Close()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "this process ends") && !strings.Contains(err.Error(), "ended at its start") {
		t.Error(err)
	}
}

// TestTimeout checks that the option ends a call that does not end by itself.
func TestTimeout(t *testing.T) {
	f := sample(t, func(c *Config) { c.Options.Timeout = 2 * time.Second })
	if _, err := f.run(t, "sample.loop"); err == nil || !strings.Contains(err.Error(), "python_call_timeout") {
		t.Error(err)
	}
}

func TestHelpersComeAndGo(t *testing.T) {
	f := sample(t, func(c *Config) { c.Options.Idle, c.Options.Memory = 100*time.Millisecond, 100<<20 })
	pid := func() int {
		v, err := f.run(t, "sample.pid")
		if err != nil {
			t.Fatal(err)
		}
		return int(v.(int64))
	}
	first := pid()
	eventually.True(t, "a helper that no call needs ends", func() bool { return !alive(first) })
	f.cfg.Options.Idle = time.Hour
	second := pid()
	if first == second || pid() != second {
		t.Error("a helper was not kept, or not replaced")
	}
	f.Reload()
	third := pid()
	if third == second {
		t.Error("a helper was kept although modules have changed")
	}
	eventually.True(t, "the old helper ends", func() bool { return !alive(second) })
	if _, err := f.run(t, "sample.grow", int64(200<<20)); err != nil {
		t.Fatal(err)
	}
	if fourth := pid(); fourth == third {
		t.Error("a helper with much memory was kept")
	}
	f.Close()
	if _, err := f.run(t, "sample.pid"); err == nil {
		t.Error("a closed pool has started a helper")
	}
}

// TestDescriptors checks that a helper has open only its pipes and what it opened itself, and no
// descriptor of this process.
func TestDescriptors(t *testing.T) {
	leak, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	v, err := sample(t, nil).run(t, "sample.descriptors")
	if err != nil {
		t.Fatal(err)
	}
	for fd, target := range v.(*value.Dict).All() {
		to := value.Str(target)
		listed := strings.HasPrefix(to, "/proc/") && strings.HasSuffix(to, "/fd") // by the module itself
		if n := fd.(int64); n == 0 && to == "/dev/null" || n >= 1 && n <= 4 && strings.HasPrefix(to, "pipe:") || listed {
			continue
		}
		t.Errorf("descriptor %v is %s", fd, to)
	}
}

func TestFind(t *testing.T) {
	f := newFixture(t, map[string]string{
		"sample": sampleModule,
		"other": "__virtualname__ = 'named'\n__func_alias__ = {'list_': 'list'}\ndef __virtual__():\n    return __virtualname__\n" +
			"def list_():\n    pass\ndef _private():\n    pass\n",
		"refused": "def __virtual__():\n    return False, 'the reason'\ndef x():\n    pass\n",
		"broken":  "def ok():\n    pass\n\ndef x(:\n    pass\n",
		"lacking": "import os\nimport salt.nothing\n",
		"raising": "1 / 0\n",
	}, nil)
	spec, err := f.Find(t.Context(), f.env, "modules", "sample.signature", false)
	want := &fn.Foreign{Name: "signature", Doc: "Documented.", Args: []string{"a", "b"}, Defaults: []any{int64(2)}, VarArgs: "args", Keywords: "kw",
		Only: []string{"c", "d"}, OnlyDefaults: value.DictOf("d", value.ListOf(4))}
	if err != nil || !reflect.DeepEqual(spec, want) {
		t.Errorf("%+v %v", spec, err)
	}
	names, missing, err := f.List(t.Context(), f.env, "modules")
	if err != nil || !slices.Contains(names, "named.list") || slices.Contains(names, "other.list") || slices.Contains(names, "named._private") {
		t.Error(names, err)
	}
	for name, text := range map[string]string{
		"refused": "the reason",
		"broken":  filepath.Join(f.dir, "broken.py") + " cannot be loaded: SyntaxError in line 4: ",
		"lacking": filepath.Join(f.dir, "lacking.py") + " cannot be loaded: ModuleNotFoundError in line 2: " +
			"Brine does not provide Salt's Python module salt.nothing, which " +
			filepath.Join(f.dir, "lacking.py") + " in line 2 imports",
		"raising": filepath.Join(f.dir, "raising.py") + " cannot be loaded: ZeroDivisionError in line 1: ",
	} {
		if got := value.Str(missing.At(name)); !strings.HasPrefix(got, text) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestNoPython(t *testing.T) {
	f := sample(t, func(c *Config) { c.Options.Program = filepath.Join(t.TempDir(), "python3") })
	if _, err := f.run(t, "sample.pid"); err == nil || !strings.Contains(err.Error(), "cannot run Python modules: the option python names ") {
		t.Error(err)
	}
	program := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no such thing\nexit 4\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	f = sample(t, func(c *Config) { c.Options.Program = program })
	if _, err := f.run(t, "sample.pid"); err == nil || !strings.Contains(err.Error(), "ended at its start (exit status 4): no such thing") {
		t.Error(err)
	}
	f = sample(t, func(c *Config) { c.Options.Helper = false })
	if _, err := f.run(t, "sample.pid"); !errors.Is(err, ErrOff) {
		t.Error(err)
	}
}

// TestShim imports each file of the shim.
func TestShim(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import importlib
def load(name):
    importlib.import_module(name)
def attribute(module, name):
    return callable(getattr(importlib.import_module(module), name))
`}, nil)
	n := 0
	for name := range shimContents() {
		module, ok := strings.CutSuffix(name, ".py")
		if !ok || name == "brine_helper.py" {
			continue
		}
		n++
		module = strings.TrimSuffix(strings.ReplaceAll(module, "/", "."), ".__init__")
		if _, err := f.run(t, "sample.load", module); err != nil {
			t.Errorf("%s: %v", module, err)
		}
	}
	if n < 50 {
		t.Errorf("there are only %d files", n)
	}
	for _, c := range [][2]string{{"salt.utils", "fopen"}, {"salt.modules.brine", "echo"}, {"salt.ext.six.moves", "range"},
		{"salt.ext.six.moves.urllib.parse", "quote"},
		{"salt.ext.six.moves.configparser", "ConfigParser"}, {"salt.exceptions", "SaltClientError"}, {"salt.modules.cmdmod", "_run_quiet"}} {
		if v, err := f.run(t, "sample.attribute", c[0], c[1]); err != nil || v != true {
			t.Error(c, v, err)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	f := sample(b, nil)
	if _, err := f.run(b, "sample.echo", "x"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := f.run(b, "sample.echo", "x"); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	f.mu.Lock()
	b.ReportMetric(float64(f.idle[0].memory())/(1<<20), "MiB")
	f.mu.Unlock()
	runtime.KeepAlive(f)
}

// BenchmarkFirstCall measures a call that has to start a helper.
func BenchmarkFirstCall(b *testing.B) {
	f := sample(b, nil)
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &before); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := f.run(b, "sample.echo", "x"); err != nil {
			b.Fatal(err)
		}
		f.Reload()
	}
	f.Close() // the CPU time of a process is counted when it has ended
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &after); err != nil {
		b.Fatal(err)
	}
	spent := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(spent)/1e6/float64(b.N), "python-ms/op")
}

// TestReturnersAndOutput checks that modules find the options of returners and format data as in
// Salt.
func TestReturnersAndOutput(t *testing.T) {
	f := newFixture(t, map[string]string{"shows": `
import salt.output
import salt.returners
import salt.utils
from salt.output import nested
from salt._compat import ElementTree, ipaddress
from salt.ext.ipaddress import ip_address

OPTIONS = {"mine.host": "h", "alt.mine.host": "other", "mine": {"port": 1, "empty": ""}, "alt.mine": {"port": 2}, "creds": {"mine.user": "u"},
           "mine.profile": "creds"}

def options(ret=None, **more):
    config = lambda name, default="": OPTIONS.get(name, default)
    return salt.returners.get_returner_options("mine", ret, {n: n for n in ("host", "port", "empty", "none", "profile")},
        __salt__={"config.option": config}, defaults={"none": "given", "empty": "full"}, **more)

def profile():
    return options(profile_attr="profile", profile_attrs={"user": "user"})

def plain():
    return salt.returners.get_returner_options("mine", {"ret_kwargs": {"host": "x"}}, {"host": "host", "port": "port"},
        __opts__={"mine.host": "h", "port": 3})

def show(data):
    return [salt.output.out_format(data, "json", {}), salt.output.string_format(data, "nested", {"color": True}),
            salt.output.html_format(data, "raw"), nested.output(data)]

@salt.utils.memoize
def address():
    return str(ip_address("::1") + 1)
`, "breaks": "def __init__(opts):\n    import no_such_thing\n\ndef x():\n    pass\n"}, nil)
	for call, want := range map[string]string{
		"shows.options": "{'host': 'h', 'port': 1, 'empty': 'full', 'none': 'given', 'profile': 'creds'}",
		"shows.profile": "{'host': 'h', 'port': 1, 'empty': 'full', 'none': 'given', 'profile': 'creds', 'user': 'u'}",
		"shows.plain":   "{'host': 'x', 'port': 3}",
		"shows.address": "'::2'",
	} {
		if v, err := f.run(t, call); value.Repr(v) != want {
			t.Errorf("%s: %s, %v", call, value.Repr(v), err)
		}
	}
	if v, err := f.run(t, "shows.options", value.DictOf("ret_config", "alt")); !strings.Contains(value.Repr(v), "'host': 'other', 'port': 2") {
		t.Errorf("%s, %v", value.Repr(v), err)
	}
	v, err := f.run(t, "shows.show", value.DictOf("a", "1 2"))
	if got, want := value.Repr(v), `['{\n    "a": "1 2"\n}', 'a:\n    1 2', "{'a':&nbsp;'1&nbsp;2'}", 'a:\n    1 2']`; got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	// A module whose __init__ fails does not affect the others.
	names, missing, err := f.List(t.Context(), f.env, "modules")
	if !slices.Contains(names, "shows.show") || !strings.Contains(value.Str(missing.At("breaks")), "its function __init__ raised ModuleNotFoundError in line 2") {
		t.Errorf("%v, %s, %v", names, value.Repr(missing), err)
	}
}

// TestShimHasSourcesOnly checks that the shim contains no compiled files, which Python writes when
// the shim is run by hand.
func TestShimHasSourcesOnly(t *testing.T) {
	for name := range shimContents() {
		if filepath.Ext(name) != ".py" && name != "names.txt" {
			t.Errorf("the shim has %s, which is no source; remove it", name)
		}
	}
}
