package shell

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// jail returns a directory with a shell, the given programs, and the libraries
// that they need.
func jail(t *testing.T, programs ...string) string {
	t.Helper()
	root := t.TempDir()
	seen := map[string]bool{}
	var add func(path string)
	add = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		b, err := os.ReadFile(path)
		if err != nil {
			t.Skip("cannot make a directory with programs: ", err)
		}
		at := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, b, 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("ldd", path).Output()
		if f, bad := elf.Open(path); bad != nil || f.Section(".interp") == nil && err != nil {
			return
		}
		for _, w := range strings.Fields(string(out)) {
			if filepath.IsAbs(w) {
				add(w)
			}
		}
	}
	for _, p := range programs {
		add(p)
	}
	defer func() { // shells need it for background processes
		if err := os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}()
	for _, dir := range []string{"dev", "proc", "sys", "given"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

type mountArgs struct {
	Name   string `salt:"name" doc:"directory"`
	Device string `salt:"device" doc:"device"`
	Type   string `salt:"fstype" doc:"type" default:""`
	Opts   string `salt:"opts" doc:"options" default:""`
}

type umountArgs struct {
	Name string `salt:"name" doc:"directory"`
}

// TestRunChroot runs commands in a chroot. Mounts are only recorded: the module
// mount has its own tests.
func TestRunChroot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	root := jail(t, "/bin/sh", "/bin/cat")
	given := t.TempDir()
	var done []string
	note := func(words ...string) { done = append(done, strings.ReplaceAll(strings.Join(words, " "), root, "R")) }
	mount := fn.Module{Name: "mount", Doc: "Mounts.", Funcs: []fn.Func{
		fn.Of("mount", func(_ context.Context, _ *fn.Call, a mountArgs) (any, error) {
			note("mount", a.Name, a.Device, a.Type, a.Opts)
			if a.Type == "sysfs" {
				return "no such device", nil
			}
			return true, nil
		}, "Mount."),
		fn.Of("umount", func(_ context.Context, _ *fn.Call, a umountArgs) (any, error) {
			note("umount", a.Name)
			return true, nil
		}, "Unmount."),
	}}
	r, err := fn.NewRegistry(nil, append(Modules(), mount)...)
	if err != nil {
		t.Fatal(err)
	}
	call := func(args ...any) fn.Outcome {
		return r.Run(t.Context(), &fn.Call{Funcs: r}, fn.Job{Fun: "cmd.run_chroot", Arg: args})
	}

	if err := os.WriteFile(root+"/word", []byte("inside"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(root+"/never", 0o600); err != nil {
		t.Fatal(err)
	}
	// The second program waits for ever, and would outlive the command.
	o := call(root, "cat /word; cat /etc/hostname; cat /never >/ignored 2>&1 & exit 7", "binds="+given)
	d, _ := o.Return.(*value.Dict)
	if d.At("stdout") != "inside" || !strings.Contains(d.Str("stderr"), "/etc/hostname") || d.Int("retcode") != 7 || o.Retcode != 7 {
		t.Errorf("returns %s, retcode %d", value.Repr(o.Return), o.Retcode)
	}
	want := []string{"mount R/dev devtmpfs devtmpfs defaults", "mount R/proc proc proc defaults", "mount R/sys sysfs sysfs defaults",
		"mount R" + given + " " + given + "  bind",
		"umount R" + given, "umount R/proc", "umount R/dev"}
	if !slices.Equal(done, want) {
		t.Errorf("mounts\n%q, want\n%q", done, want)
	}
	if left := within(root); len(left) > 0 {
		t.Errorf("processes go on in the directory: %v", left)
	}
	for _, bad := range []string{"/", "relative", "/none/of/this", root + "/word"} {
		if o := call(bad, "true"); o.Success {
			t.Errorf("%s: %v", bad, o.Return)
		}
	}
	o = r.Run(t.Context(), &fn.Call{Funcs: r}, fn.Job{Fun: "cmd.powershell", Arg: []any{"Get-Service"}})
	if text := value.Str(o.Return); o.Success || !strings.Contains(text, "Windows only") {
		t.Error(text)
	}
}
