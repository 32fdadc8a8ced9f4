package usermodules

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/value"
	"brine/test/tools"
)

// TestGrainsModules checks what functions of grains modules can call and get while the grains are
// collected.
func TestGrainsModules(t *testing.T) {
	tools.NeedPython(t, "python3", "marshal")
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "extmods", "grains"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "extmods", "modules"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "extmods", "modules", "own.py"), []byte("def x():\n    pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "extmods", "grains", "own.py"), []byte(`
from salt.modules import file
import salt.grains.core
import salt.modules.state
def machine():
    return {"there": file.directory_exists("/tmp"), "names": sorted(__salt__)}
def of_proxy(proxy, grains):
    return {"no_proxy": proxy is None, "seen": grains["host"]}
def core():
    return {"core": salt.grains.core.hostname()}
def late():
    try:
        salt.modules.state.apply()
    except Exception:
        return {"late": False}
    return {"late": True}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var called string
	funcs, err := fn.NewRegistry(unread{t},
		fn.Module{Name: "file", Doc: `Files.`, Funcs: []fn.Func{
			fn.Of("directory_exists", func(_ context.Context, _ *fn.Call, a struct {
				Path string `salt:"path" doc:"A path."`
			}) (any, error) {
				called = a.Path
				return true, nil
			}, `Report whether a directory exists.`),
		}},
		fn.Module{Name: "mount", Doc: `Mounts.`, When: func(g fn.Reader) (string, bool) { return "", g.Get("kernel") == "Linux" }},
		fn.Module{Name: "state", Doc: `States.`, Funcs: []fn.Func{
			fn.Of("apply", func(context.Context, *fn.Call, struct{}) (any, error) { return nil, nil }, `Apply.`),
		}})
	if err != nil {
		t.Fatal(err)
	}
	m := New(Config{
		Kinds: MinionKinds, CacheDir: dir, ExtensionModules: filepath.Join(dir, "extmods"), ID: "m1", Opts: value.DictOf("id", "m1"), Log: slog.Default(),
		Options: python.Options{Helper: true, Helpers: 1, Idle: time.Minute, Memory: 1 << 30, Program: "/usr/bin/python3"},
		SaltFile: func(string) string {
			t.Error("the grains were needed to look for the file of a module")
			return ""
		},
		Call: func() *fn.Call {
			t.Error("the grains were needed to collect them")
			return &fn.Call{}
		},
		Funcs: func() *fn.Registry { return funcs },
	})
	funcs.Attach(m.Source())
	t.Cleanup(m.Close)
	grains := value.DictOf("host", "m1", "domain", "x.example")
	m.Grains(t.Context(), grains)
	want := value.DictOf("host", "m1", "domain", "x.example", "core", value.DictOf("domain", "x.example", "host", "m1"), "late", false,
		"there", true, "names", value.ListOf("file.directory_exists", "own.x"), "no_proxy", true, "seen", "m1")
	if !value.Equal(grains, want) || called != "/tmp" {
		t.Errorf("%s, want %s; called for %q", value.Repr(grains), value.Repr(want), called)
	}
}

// unread are grains that must not be read.
type unread struct{ t *testing.T }

func (unread) Late() {}

func (u unread) Get(string) any {
	u.t.Error("a grain was read while grains are collected")
	return nil
}

func (u unread) All() *value.Dict {
	u.t.Error("grains were read while they are collected")
	return nil
}
