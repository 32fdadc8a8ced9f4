package system

import (
	"context"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// kernel replaces the kernel's modules by fake ones: tests cannot load modules.
func kernel(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	loaded := []string{"loop"}
	write := func(path, text string) {
		if err := m.WriteFile(path, []byte(text)); err != nil {
			t.Error(err)
		}
	}
	show := func() {
		text := ""
		for _, name := range loaded {
			text += name + " 1 0 - Live 0x0\n"
		}
		write("/proc/modules", text)
	}
	write("/etc/modules", "")
	write("/proc/sys/kernel/osrelease", "6.1\n")
	for _, name := range []string{"loop", "kvm", "tun", "stuck", "busy"} {
		write("/lib/modules/6.1/"+name+".ko", "")
	}
	for _, program := range []string{"/sbin/modprobe", "/sbin/rmmod"} {
		write(program, "")
		if err := m.Chmod(program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	show()
	m.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		name := args[0]
		switch {
		case name == "stuck":
			return "no", 1, nil
		case strings.HasSuffix(path, "modprobe"):
			loaded = append(loaded, name)
		case name != "busy":
			loaded = slices.DeleteFunc(loaded, func(s string) bool { return s == name })
		}
		show()
		return "", 0, nil
	}
	before := machine
	machine = m
	t.Cleanup(func() { machine = before })
}

func runKmod(t *testing.T, test bool, fun string, args ...any) string {
	t.Helper()
	grains := fn.Tree{Dict: value.DictOf("kernel", "Linux")}
	states, err := state.NewRegistry(grains, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	deps := engine.Deps{States: states, Call: func() *fn.Call { return (&fn.Call{Grains: grains}).Prepare() }}
	low := value.DictOf("state", "kmod", "fun", fun, "__id__", "x", "__sls__", "x", "__env__", "base", "order", int64(1))
	low.Update(value.DictOf(args...))
	r := engine.New(deps, engine.Options{Test: test}).Single(t.Context(), low)
	return value.Str(r.At("result")) + ": " + strings.ReplaceAll(r.Str("comment"), "\n", "; ") + " " + value.Str(r.At("changes"))
}

func TestKernelModules(t *testing.T) {
	kernel(t)
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
		{true, "present", []any{"name", "x", "mods", value.ListOf("loop", "tun", "busy")},
			"None: Kernel module loop is already present; Kernel modules tun, busy are set to be loaded {}"},
		{false, "present", []any{"name", "x", "mods", value.ListOf("loop", "tun", "busy")},
			"True: Kernel module loop is already present; Loaded kernel modules tun, busy {'tun': 'loaded', 'busy': 'loaded'}"},
		{false, "present", []any{"name", "kvm", "persist", true}, "True: Loaded kernel module kvm {'kvm': 'loaded'}"},
		{false, "present", []any{"name", "none"}, "False: Kernel module none is unavailable {}"},
		{false, "present", []any{"name", "stuck"}, "False: Failed to load kernel module stuck: Error loading module stuck: no {}"},
		{true, "absent", []any{"name", "kvm"}, "None: Kernel module kvm is set to be removed {}"},
		{false, "absent", []any{"name", "kvm", "persist", true}, "True: Removed kernel module kvm {'kvm': 'removed'}"},
		{false, "absent", []any{"name", "kvm", "persist", true}, "True: Kernel module kvm is already removed {}"},
		{false, "absent", []any{"name", "busy"}, "False: Failed to remove kernel module busy {}"},
		{false, "absent", []any{"name", "x", "mods", value.ListOf("a", "b")}, "True: Kernel modules a, b are already removed {}"},
	} {
		if got := runKmod(t, c.test, c.fun, c.args...); got != c.want {
			t.Errorf("kmod.%s %v, test=%v:\n got %s\nwant %s", c.fun, c.args, c.test, got, c.want)
		}
	}
}
