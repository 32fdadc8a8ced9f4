package packages_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/test/tools"
)

// TestRPMInstall: rpm installs the packages into an empty root, finds every file as it was packed,
// installs them again as an update, and removes them. Its scripts do not run, since the root has no
// shell.
func TestRPMInstall(t *testing.T) {
	tools.Slow(t)
	rpm := tools.Find("rpm")
	if rpm == "" || os.Geteuid() != 0 {
		t.Skip("it needs rpm, and root for a root directory of its own")
	}
	dir, root := build(t, "rpm"), t.TempDir()
	var paths []string
	packages := built("rpm")
	for _, name := range packages {
		paths = append(paths, filepath.Join(dir, file("rpm", name)))
	}
	in := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(string(run(t, rpm, append([]string{"--root", root, "--dbpath", "/var/lib/rpm"}, args...)...)))
	}
	in("--initdb")
	// Dependencies between the packages count; those on a shell do not, and neither do users and
	// groups, which the scripts make.
	in(append([]string{"-i", "--nodeps", "--noscripts", "--nosignature"}, paths...)...)
	if got := strings.Fields(in("-qa", "--qf", "%{NAME} ")); len(got) != len(packages) {
		t.Errorf("installed are %v", got)
	}
	version := string(run(t, filepath.Join(root, "usr/bin/salt-call"), "--version"))
	if !strings.Contains(version, "Brine "+salt.BrineVersion) {
		t.Errorf("the installed program says %q", version)
	}
	for _, name := range packages {
		// Owners are left out: this root has no user salt.
		in("-V", "--nodeps", "--noscripts", "--nouser", "--nogroup", name)
	}
	in(append([]string{"-U", "--replacepkgs", "--nodeps", "--noscripts", "--nosignature"}, paths...)...)
	conf := filepath.Join(root, "etc/salt/minion.d/own.conf")
	if err := os.MkdirAll(filepath.Dir(conf), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte("id: kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in(append([]string{"-e", "--nodeps", "--noscripts"}, packages...)...)
	for _, path := range []string{"usr/bin/brine", "usr/bin/salt-call", "usr/lib/systemd/system/salt-minion.service", "lib/systemd/system/salt-minion.service"} {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			t.Errorf("%s is left over", path)
		}
	}
	if _, err := os.Stat(conf); err != nil {
		t.Errorf("the removal lost a configuration: %v", err)
	}
}
