package python

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"brine/internal/py/value"
)

const forkingModule = `
import logging, multiprocessing, os
log = logging.getLogger(__name__)

def _work(queue, n):
    log.warning("child %d works", n)
    queue.put([__salt__["brine.echo"](n), __grains__["os"], os.getpid() != PARENT])

def children(count):
    global PARENT
    PARENT = os.getpid()
    ways = multiprocessing.get_context("fork")
    queue = ways.Queue()
    all = [ways.Process(target=_work, args=(queue, n)) for n in range(count)]
    [p.start() for p in all]
    found = sorted(queue.get(timeout=60) for _ in all)
    [p.join() for p in all]
    return found, [p.exitcode for p in all]

def _grandchild(queue):
    inner = multiprocessing.get_context("fork").Process(target=_work, args=(queue, 7))
    inner.start()
    inner.join()

def grandchild():
    global PARENT
    PARENT = os.getpid()
    ways = multiprocessing.get_context("fork")
    queue = ways.Queue()
    p = ways.Process(target=_grandchild, args=(queue,))
    p.start()
    p.join()
    return queue.get(timeout=60)

def fails():
    ways = multiprocessing.get_context("fork")
    queue = ways.Queue()
    def work():
        try:
            __salt__["brine.command"]()
        except Exception as exc:
            queue.put([type(exc).__name__, str(exc)])
    p = ways.Process(target=work)
    p.start()
    p.join()
    return queue.get(timeout=60)
`

// Modules that fork use functions, data and the log in the child, as in Salt.
func TestForks(t *testing.T) {
	f := newFixture(t, map[string]string{"forking": forkingModule, "sample": sampleModule}, nil)
	v, err := f.run(t, "forking.children", int64(3))
	if want := "([[0, 'Debian', True], [1, 'Debian', True], [2, 'Debian', True]], [0, 0, 0])"; err != nil || value.Repr(v) != want {
		t.Errorf("children: %s, %v", value.Repr(v), err)
	}
	if !strings.Contains(f.log.String(), "child 2 works") {
		t.Error("the log lacks what a child logged")
	}
	if v, err := f.run(t, "forking.grandchild"); err != nil || value.Repr(v) != "[7, 'Debian', True]" {
		t.Errorf("grandchild: %s, %v", value.Repr(v), err)
	}
	if v, err := f.run(t, "forking.fails"); err != nil || value.Repr(v) != "['CommandExecutionError', 'it broke']" {
		t.Errorf("fails: %s, %v", value.Repr(v), err)
	}
	// A child that returns from its function gives no second answer.
	if v, err := f.run(t, "sample.fork"); err != nil || v != "parent" {
		t.Errorf("fork: %v, %v", v, err)
	}
	if v, err := f.run(t, "sample.echo", "x"); err != nil || v != "x" {
		t.Errorf("after forks: %v, %v", v, err)
	}
}

const leavingModule = `
import os, signal, sys, time
os.environ["BRINE_AT_LOAD"] = "load"

def leave():
    os.environ["BRINE_LEFT"] = "left"
    os.environ.pop("PATH", None)
    os.chdir("/usr")
    os.umask(0o777)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.2)

def look():
    old = os.umask(0)
    os.umask(old)
    return (os.environ.get("BRINE_AT_LOAD"), os.environ.get("BRINE_LEFT"), "PATH" in os.environ, os.getcwd() == "/usr", old == 0o777,
            signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL, signal.getitimer(signal.ITIMER_REAL)[0])

def interrupted():
    def handler(*_):
        raise TimeoutError("too slow")
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        __salt__["brine.wait"]()
    except TimeoutError as exc:
        return str(exc), __salt__["brine.echo"](1), __salt__["brine.echo"](2)
`

// What a call changes in its process does not reach later calls, what the load of a module
// changes does.
func TestLeftovers(t *testing.T) {
	f := newFixture(t, map[string]string{"leaving": leavingModule}, func(c *Config) { c.Options.Helpers = 1 })
	t.Setenv("PATH", "/usr/bin:/bin")
	if _, err := f.run(t, "leaving.leave"); err != nil {
		t.Fatal(err)
	}
	v, err := f.run(t, "leaving.look")
	if want := "('load', None, True, False, False, True, 0.0)"; err != nil || value.Repr(v) != want {
		t.Errorf("%s, %v, want %s", value.Repr(v), err, want)
	}
	if v, err := f.run(t, "leaving.interrupted"); err != nil || value.Repr(v) != "('too slow', 1, 2)" {
		t.Errorf("interrupted: %s, %v", value.Repr(v), err)
	}
}

// Modules that Salt's loader could not use do not keep others from being listed.
func TestUnluckyModules(t *testing.T) {
	f := newFixture(t, map[string]string{
		"listed":   "def __virtual__():\n    return [False, 'no']\n\ndef f():\n    return 1\n",
		"counting": "def __init__(opts):\n    __context__['started'] = opts['id']\n\ndef f():\n    return __context__.get('started')\n",
		"replaces": "import sys\nsys.path = ['/nonexistent']\n\ndef f():\n    return 1\n",
		"late":     "def f():\n    import colorsys\n    return colorsys.__name__\n",
		"shown":    "import inspect\n\ndef f():\n    return str(inspect.signature(__salt__['brine.echo'])), list(__salt__)\n",
	}, nil)
	names, missing, err := f.List(t.Context(), f.env, "modules")
	if want := []string{"counting.f", "late.f", "replaces.f", "shown.f"}; err != nil || !reflect.DeepEqual(names, want) {
		t.Fatalf("%v, %v", names, err)
	}
	if reason := value.Str(missing.At("listed")); !strings.Contains(reason, "__virtual__") {
		t.Errorf("missing: %s", reason)
	}
	for range 2 { // the second job does not load the module
		if v, err := f.run(t, "counting.f"); err != nil || v != "m1" {
			t.Errorf("counting: %v, %v", v, err)
		}
	}
	if v, err := f.run(t, "late.f"); err != nil || v != "colorsys" {
		t.Errorf("late: %v, %v", v, err)
	}
}

// described are functions that return their keywords, and the arguments of cmd.run.
type described struct{}

func (described) Has(name string) bool {
	return strings.HasPrefix(name, "cmd.") || strings.HasPrefix(name, "brine.") || name == "sys.argspec"
}
func (described) Names() []string { return nil }

func (described) Call(_ context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	if name == "sys.argspec" {
		spec := value.DictOf("args", value.ListOf("cmd", "cwd"), "defaults", value.ListOf(nil), "varargs", nil, "kwargs", true)
		return value.DictOf(args[0], spec), nil
	}
	return kwargs, nil
}

// Programs inherit what a module puts into os.environ.
func TestEnvironmentOfPrograms(t *testing.T) {
	f := newFixture(t, map[string]string{"setting": `
import inspect, os
import salt.utils.args

def f():
    before = __salt__["cmd.run"]("env")
    os.environ["BRINE_SET"] = "1"
    return [before, __salt__["cmd.run"]("env"), __salt__["cmd.retcode"]("env", env={"B": "2"}), __salt__["cmd.shell"]("env", env=[{"BRINE_SET": "3"}]),
            __salt__["cmd.run"]("env", env=[{"C": "4"}]), __salt__["cmd.has_exec"]("env"), __salt__["brine.env"]()]

def spec():
    spec = salt.utils.args.get_function_argspec(__salt__["cmd.run"])
    return spec.args, spec.defaults, str(inspect.signature(__salt__["cmd.run"]))
`}, nil)
	f.env.Functions["modules"] = described{}
	v, err := f.run(t, "setting.f")
	want := "[{}, {'env': {'BRINE_SET': '1'}}, {'env': {'BRINE_SET': '1', 'B': '2'}}, {'env': [{'BRINE_SET': '1'}, {'BRINE_SET': '3'}]}, " +
		"{'env': [{'BRINE_SET': '1'}, {'C': '4'}]}, {}, {}]"
	if err != nil || value.Repr(v) != want {
		t.Errorf("%s, %v\nwant %s", value.Repr(v), err, want)
	}
	v, err = f.run(t, "setting.spec")
	if want := "(['cmd', 'cwd'], [None], '(cmd, cwd=None, **kwargs)')"; err != nil || strings.ReplaceAll(value.Repr(v), "(None,)", "[None]") != want {
		t.Errorf("%s, %v", value.Repr(v), err)
	}
}

// Bytes in grains become text, as in Salt.
func TestBytesInGrains(t *testing.T) {
	f := newFixture(t, map[string]string{}, func(c *Config) {
		c.Loaders = func() map[string]Files {
			path := filepath.Join(c.Dir, "..", "facts.py")
			if err := os.WriteFile(path, []byte("def f():\n    return {'a': b'x', 'l': [b'y', (b'\\xff', 1)], b'k': {'d': b'z'}}\n"), 0o600); err != nil {
				t.Error(err)
			}
			return map[string]Files{"grains": {Paths: map[string]string{"facts": path}}}
		}
	})
	got, err := f.Grains(t.Context(), f.env, value.NewDict(0))
	if want := "{'a': 'x', 'l': ['y', (b'\\xff', 1)], 'k': {'d': 'z'}}"; err != nil || value.Repr(got) != want {
		t.Errorf("%s, %v", value.Repr(got), err)
	}
}
