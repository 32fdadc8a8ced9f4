package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/test/tools"
)

// TestARM64: the programs of the packages for arm64 run in an emulator on another machine, and
// self-check finds their installation whole.
func TestARM64(t *testing.T) {
	tools.Slow(t)
	if runtime.GOARCH != "amd64" || os.Getenv("BRINE_PACKAGE_ROOT") == "" {
		t.Skip("it needs amd64, and BRINE_PACKAGE_ROOT: it compiles everything for another architecture")
	}
	qemu := tools.Need(t, "qemu-user-static", "qemu-aarch64-static")
	dir, root := t.TempDir(), t.TempDir()
	script(t, "build", dir, "deb", "ARCHES=arm64")
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) < 6 {
		t.Fatalf("%v, %v", debs, err)
	}
	for _, deb := range debs {
		if strings.HasPrefix(filepath.Base(deb), pam) {
			continue // its file belongs to the group salt
		}
		run(t, "dpkg-deb", "-x", deb, root)
	}
	program := func(name string) string { return filepath.Join(root, "usr/bin", name) }
	if out := string(run(t, qemu, "-0", "salt", program("salt"), "--version")); !strings.Contains(out, "Brine "+salt.BrineVersion) {
		t.Errorf("salt --version: %s", out)
	}
	conf := filepath.Join(t.TempDir(), "minion")
	if err := os.WriteFile(conf, []byte("root_dir: "+filepath.Dir(conf)+"\nid: arm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := run(t, qemu, "-0", "salt-call", program("salt-call"), "--local", "--config-dir", filepath.Dir(conf), "--out=txt", "test.ping")
	if strings.TrimSpace(string(out)) != "local: True" {
		t.Errorf("test.ping: %s", out)
	}
	out = run(t, qemu, "-0", "salt-call", program("salt-call"), "--local", "--config-dir", filepath.Dir(conf), "--out=txt", "grains.get", "cpuarch")
	if strings.TrimSpace(string(out)) != "local: aarch64" {
		t.Errorf("the grain cpuarch: %s", out)
	}
	if out := string(run(t, qemu, "-0", "brine", program("brine"), "self-check", "--root", root)); !strings.HasPrefix(out, "OK: ") {
		t.Errorf("self-check: %s", out)
	}
	hub := string(run(t, qemu, program("brine-hub"), "--version"))
	if !strings.Contains(hub, salt.BrineVersion) {
		t.Errorf("brine-hub --version: %s", hub)
	}
	pamOfARM64(t, qemu, debs)
}

// pamOfARM64: brine-pam lets a user of an arm64 Debian root in with the right password alone. BRINE_ARM64_ROOT
// names what `debootstrap --foreign --arch=arm64` has made, with the files of its packages unpacked.
func pamOfARM64(t *testing.T, qemu string, debs []string) {
	original := os.Getenv("BRINE_ARM64_ROOT")
	if original == "" || os.Getuid() != 0 {
		t.Log("brine-pam is not tried: that needs root, and BRINE_ARM64_ROOT")
		return
	}
	root := filepath.Join(t.TempDir(), "root")
	run(t, "cp", "-a", original, root)
	for _, deb := range debs {
		if strings.HasPrefix(filepath.Base(deb), pam) {
			run(t, "dpkg-deb", "-x", deb, root)
		}
	}
	run(t, "cp", qemu, filepath.Join(root, "qemu"))
	hash := strings.TrimSpace(string(run(t, "openssl", "passwd", "-6", "s3cret")))
	for name, text := range map[string]string{
		"pam.d/other": "auth required pam_unix.so\naccount required pam_unix.so\n",
		"passwd":      "joe:x:1500:1500::/home/joe:/bin/sh\n",
		"shadow":      "joe:" + hash + ":19000:0:99999:7:::\n",
	} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for password, want := range map[string]int{"s3cret": 0, "wrong": 1, "": 1} {
		cmd := exec.Command("chroot", root, "/qemu", "/usr/lib/brine/brine-pam")
		cmd.Stdin = strings.NewReader("login\x00joe\x00" + password + "\x00")
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("password %q: exit code %d, want %d: %s %v", password, got, want, out, err)
		}
	}
}
