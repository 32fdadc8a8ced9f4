package system

import (
	"context"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// kernel stands for the functions kmod.*: modules cannot be loaded for a test.
type kernel struct{ now, boot, known []string }

type anyArgs struct {
	Args fn.Args `salt:"args"`
}

func (k *kernel) functions() fn.Module {
	list := func(_ context.Context, _ *fn.Call, a anyArgs) (any, error) {
		if len(a.Args) > 0 && a.Args[0] == true {
			return value.Strings(k.boot), nil
		}
		return value.Strings(k.now), nil
	}
	known := func(context.Context, *fn.Call, anyArgs) (any, error) { return value.Strings(k.known), nil }
	load := func(_ context.Context, _ *fn.Call, a anyArgs) (any, error) {
		mod := a.Args[0].(string)
		if mod == "stuck" {
			return "Error loading module stuck: no", nil
		}
		k.now = append(k.now, mod)
		if a.Args[1] == true {
			k.boot = append(k.boot, mod)
		}
		return value.ListOf(mod), nil
	}
	remove := func(_ context.Context, _ *fn.Call, a anyArgs) (any, error) {
		if a.Args[0] == "busy" {
			return value.ListOf(), nil
		}
		without := func(l []string) []string {
			return slices.DeleteFunc(slices.Clone(l), func(s string) bool { return s == a.Args[0] })
		}
		k.now, k.boot = without(k.now), without(k.boot)
		return value.ListOf(a.Args[0]), nil
	}
	return fn.Module{Name: "kmod", Doc: "d", Funcs: []fn.Func{fn.Of("mod_list", list, "d"), fn.Of("available", known, "d"), fn.Of("load", load, "d"), fn.Of("remove", remove, "d")}}
}

func (k *kernel) run(t *testing.T, test bool, fun string, args ...any) string {
	t.Helper()
	grains := fn.Tree{Dict: value.DictOf("kernel", "Linux")}
	states, err := state.NewRegistry(grains, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	funcs, err := fn.NewRegistry(grains, k.functions())
	if err != nil {
		t.Fatal(err)
	}
	deps := engine.Deps{States: states, Call: func() *fn.Call { return &fn.Call{Grains: grains, Funcs: funcs} }}
	low := value.DictOf("state", "kmod", "fun", fun, "__id__", "x", "__sls__", "x", "__env__", "base", "order", int64(1))
	low.Update(value.DictOf(args...))
	r := engine.New(deps, engine.Options{Test: test}).Single(t.Context(), low)
	return value.Str(r.At("result")) + ": " + strings.ReplaceAll(r.Str("comment"), "\n", "; ") + " " + value.Str(r.At("changes"))
}

func TestKernelModules(t *testing.T) {
	k := &kernel{now: []string{"loop"}, known: []string{"loop", "kvm", "tun", "stuck", "busy"}}
	for _, c := range []struct {
		test bool
		fun  string
		args []any
		want string
	}{
		{false, "present", []any{"name", "loop"}, "True: Kernel module loop is already present {}"},
		{true, "present", []any{"name", "kvm"}, "None: Kernel module kvm is set to be loaded {}"},
		{false, "present", []any{"name", "kvm"}, "True: Loaded kernel module kvm {'kvm': 'loaded'}"},
		{false, "present", []any{"name", "kvm"}, "True: Kernel module kvm is already present {}"},
		{true, "present", []any{"name", "x", "mods", value.ListOf("loop", "tun", "busy")}, "None: Kernel module loop is already present; Kernel modules tun, busy are set to be loaded {}"},
		{false, "present", []any{"name", "x", "mods", value.ListOf("loop", "tun", "busy")}, "True: Kernel module loop is already present; Loaded kernel modules tun, busy {'tun': 'loaded', 'busy': 'loaded'}"},
		{false, "present", []any{"name", "kvm", "persist", true}, "True: Loaded kernel module kvm {'kvm': 'loaded'}"},
		{false, "present", []any{"name", "none"}, "False: Kernel module none is unavailable {}"},
		{false, "present", []any{"name", "stuck"}, "False: Failed to load kernel module stuck: Error loading module stuck: no {}"},
		{true, "absent", []any{"name", "kvm"}, "None: Kernel module kvm is set to be removed {}"},
		{false, "absent", []any{"name", "kvm", "persist", true}, "True: Removed kernel module kvm {'kvm': 'removed'}"},
		{false, "absent", []any{"name", "kvm", "persist", true}, "True: Kernel module kvm is already removed {}"},
		{false, "absent", []any{"name", "busy"}, "False: Failed to remove kernel module busy {}"},
		{false, "absent", []any{"name", "x", "mods", value.ListOf("a", "b")}, "True: Kernel modules a, b are already removed {}"},
	} {
		if got := k.run(t, c.test, c.fun, c.args...); got != c.want {
			t.Errorf("kmod.%s %v, test=%v:\n got %s\nwant %s", c.fun, c.args, c.test, got, c.want)
		}
	}
}
