package packages_test

import (
	"os"
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
}
