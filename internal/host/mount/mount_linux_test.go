package mount

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/internal/host"
	"brine/test/tools"
)

func TestFstab(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	const path = "/etc/fstab"
	if err := m.WriteFile(path, []byte("# table\n/dev/a / ext4 defaults,ro 0 1\nbroken line\n//srv/share /mnt cifs rw\n")); err != nil {
		t.Fatal(err)
	}
	if l := ReadFstab(m, path); len(l) != 2 || l[1].Pass != "0" || l[0].Opts[1] != "ro" {
		t.Errorf("%+v", l)
	}
	e := Entry{Device: "/dev/b", Name: "/data", Type: "xfs", Opts: []string{"noatime"}, Dump: "0", Pass: "2"}
	set := func(e Entry, keep, test bool, want string) {
		t.Helper()
		if got, err := SetFstab(m, path, e, MatchFor(e.Type), keep, test); got != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	set(e, false, true, New)
	set(e, false, false, New)
	set(e, false, false, Present)
	set(Entry{"/dev/a", "/", "ext4", []string{"ro", "defaults"}, "0", "1"}, false, false, Present)
	e.Pass = "1"
	set(e, true, false, Present)
	set(e, false, false, Changed)
	set(Entry{"none", "/data", "tmpfs", []string{"defaults"}, "0", "0"}, false, false, Changed) // found by its directory
	want := "# table\n/dev/a / ext4 defaults,ro 0 1\nbroken line\n//srv/share /mnt cifs rw\nnone\t\t/data\ttmpfs\tdefaults\t0 0\n"
	if got := m.Text(path); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	if _, err := SetFstab(m, path, Entry{Device: "a b", Name: "/x", Type: "t"}, Match{}, false, false); err == nil {
		t.Error("a blank is accepted")
	}
	for _, c := range []struct {
		name, device string
		want         bool
	}{{"/mnt", "other", false}, {"/mnt", "//srv/share", true}, {"/data", "", true}, {"/data", "", false}} {
		if got, err := RemoveFstab(m, path, c.name, c.device); got != c.want || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	if got := m.Text(path); got != "# table\n/dev/a / ext4 defaults,ro 0 1\nbroken line\n" {
		t.Errorf("%q", got)
	}
}

// TestMount mounts in a separate mount namespace, which ends with the test.
func TestMount(t *testing.T) {
	const child = "MOUNT_TEST_CHILD"
	if dir := os.Getenv(child); dir != "" {
		mountHere(t, dir)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMount$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) { // in a container or a chroot
		tools.Without(t, "cannot create a mount namespace: "+err.Error())
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func mountHere(t *testing.T, dir string) {
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	m, ctx := &host.Machine{}, t.Context()
	name := filepath.Join(dir, "with blank")
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Mount(ctx, m, "none", name, Options{Type: "tmpfs", Opts: []string{"size=64k", "noexec"}}); err != nil {
		t.Fatal(err)
	}
	all, err := Active(m)
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1]
	if Unescape(last.Name) != name || last.Type != "tmpfs" || !strings.Contains(strings.Join(last.Opts, ","), "noexec") {
		t.Errorf("%+v", last)
	}
	if on, err := Is(m, name); !on || err != nil {
		t.Errorf("%v, %v", on, err)
	}
	if err := Unmount(ctx, m, name, false, nil); err != nil {
		t.Fatal(err)
	}
	if on, err := Is(m, name); on || err != nil {
		t.Errorf("%v, %v", on, err)
	}
	if err := Unmount(ctx, m, name, false, nil); err == nil || !strings.Contains(err.Error(), "not mounted") {
		t.Errorf("what is not mounted: %v", err)
	}
	if Mount(ctx, m, "x", "", Options{}) == nil {
		t.Error("an empty directory is accepted")
	}
}
