package packages

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/host"
)

// debian returns a scratch machine with a real apt and dpkg that install into its
// directory, from a repository of tiny packages created here. Nothing on the
// machine that runs the test is changed.
func debian(t *testing.T) apt {
	t.Helper()
	for _, p := range []string{"apt-get", "apt-cache", "dpkg", "dpkg-deb", "dpkg-query", "dpkg-scanpackages"} {
		if _, err := exec.LookPath(p); err != nil && p != "dpkg-scanpackages" {
			t.Skip("this machine has no " + p)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("dpkg installs for root only")
	}
	root, err := os.MkdirTemp("", "apt") // apt's user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/apt/lists/partial",
		"var/cache/apt/archives/partial",
		"etc/apt/sources.list.d", "etc/apt/preferences.d", "etc/apt/apt.conf.d", "var/log/apt", "repo", "usr/bin", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(path, text string) {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("var/lib/dpkg/status", "")
	put("var/lib/dpkg/available", "")
	put("var/lib/dpkg/arch", "amd64\n")
	put("etc/apt/sources.list", fmt.Sprintf("deb [trusted=yes] file:%s/repo ./\n", root))
	put("apt.conf", fmt.Sprintf(`Dir %q; Dir::State::status %q; DPkg::Options { "--root=%s"; "--force-not-root"; "--force-bad-path"; "--log=%s/log"; `+
		`}; APT::Architecture "amd64"; APT::Sandbox::User "root"; DPkg::Use-Pty "0"; Dir::Bin::dpkg "/usr/bin/dpkg";`,
		root+"/", root+"/var/lib/dpkg/status", root, root))
	var index strings.Builder
	for _, p := range []string{"hello-tiny 1.0", "hello-tiny 2.0", "other-tiny 1:3-1"} {
		name, version, _ := strings.Cut(p, " ")
		index.WriteString(build(t, root, name, version))
	}
	put("repo/Packages", index.String())
	m := &host.Machine{Root: root}
	m.ExecCmd = func(ctx context.Context, c host.Cmd) (host.Output, error) {
		c.Env = append(c.Env, "APT_CONFIG="+root+"/apt.conf", "DPKG_ADMINDIR="+root+"/var/lib/dpkg", "DPKG_ROOT="+root)
		return c.Execute(ctx)
	}
	for _, p := range []string{"apt-get", "apt-cache", "dpkg", "dpkg-deb", "dpkg-query"} {
		if err := os.WriteFile(filepath.Join(root, "usr/bin", p), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return apt{m, "amd64"}
}

// build creates a package with one file and one configuration file, and returns
// its entry for the index of a repository.
func build(t *testing.T, root, name, version string) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), name)
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nSection: misc\nPriority: optional\n"+
		"Description: a tiny package\n for tests\n", name, version)
	for path, text := range map[string]string{"DEBIAN/control": control, "DEBIAN/conffiles": "/etc/" + name + ".conf\n",
		"etc/" + name + ".conf": version + "\n", "usr/share/" + name + "/data": version + "\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := fmt.Sprintf("%s_%s_all.deb", name, strings.ReplaceAll(version, ":", "%3a"))
	if out, err := exec.Command("dpkg-deb", "--build", "--root-owner-group", tree, filepath.Join(root, "repo", file)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(root, "repo", file))
	if err != nil {
		t.Fatal(err)
	}
	return control + fmt.Sprintf("Filename: ./%s\nSize: %d\nSHA256: %x\n\n", file, len(b), sha256.Sum256(b))
}

func TestRealAPT(t *testing.T) {
	a := debian(t)
	ctx := t.Context()
	if _, err := a.Refresh(ctx, Options{}); err != nil {
		t.Fatal(err)
	}
	check := func(what string, got Changes, err error, want string) {
		t.Helper()
		if text := fmt.Sprint(got); err != nil || text != want {
			t.Errorf("%s: %s, %v\nwant %s", what, text, err, want)
		}
	}
	if v, err := a.Versions(ctx, "hello-tiny", Options{}); err != nil || fmt.Sprint(v) != "[2.0 1.0]" {
		t.Errorf("versions: %v, %v", v, err)
	}
	c, err := a.Install(ctx, []Target{{Name: "hello-tiny", Version: "1.0"}, {Name: "other-tiny"}}, InstallOptions{})
	check("install", c, err, "map[hello-tiny:{ 1.0} other-tiny:{ 1:3-1}]")
	if b, err := a.m.ReadFile("/usr/share/hello-tiny/data"); err != nil || string(b) != "1.0\n" {
		t.Errorf("the file of the package: %q, %v", b, err)
	}
	c, err = a.Install(ctx, []Target{{Name: "hello-tiny", Version: "1.0"}}, InstallOptions{})
	check("what is there", c, err, "map[]")
	c, err = a.Install(ctx, []Target{{Name: "hello-tiny", Version: "1.0"}}, InstallOptions{Reinstall: true})
	check("reinstall", c, err, "map[hello-tiny:{1.0 1.0}]")
	if up, err := a.Upgrades(ctx, Options{}); err != nil || fmt.Sprint(up) != "map[hello-tiny:2.0]" {
		t.Errorf("upgrades: %v, %v", up, err)
	}
	if err := a.Hold(ctx, []string{"hello-tiny"}, true); err != nil {
		t.Fatal(err)
	}
	if held, err := a.Held(ctx); err != nil || fmt.Sprint(held) != "[hello-tiny]" {
		t.Errorf("held: %v, %v", held, err)
	}
	c, err = a.Upgrade(ctx, InstallOptions{})
	check("upgrade of what is held", c, err, "map[]")
	c, err = a.Install(ctx, []Target{{Name: "hello-tiny", Version: ">1.0"}}, InstallOptions{})
	check("install of what is held", c, err, "map[hello-tiny:{1.0 2.0}]")
	if held, err := a.Held(ctx); err != nil || fmt.Sprint(held) != "[hello-tiny]" {
		t.Errorf("held after an install: %v, %v", held, err)
	}
	if err := a.Hold(ctx, []string{"hello-tiny"}, false); err != nil {
		t.Fatal(err)
	}
	c, err = a.Install(ctx, []Target{{Name: "hello-tiny", Version: "1.*"}}, InstallOptions{})
	check("downgrade", c, err, "map[hello-tiny:{2.0 1.0}]")
	c, err = a.Install(ctx, []Target{{Name: "hello-tiny", Version: ">1.0, !=1.5"}}, InstallOptions{})
	check("two conditions", c, err, "map[hello-tiny:{1.0 2.0}]")
	c, err = a.Install(ctx, []Target{{Name: "hello-tiny", Version: ">=1.0,<2.0"}}, InstallOptions{})
	check("two other conditions", c, err, "map[hello-tiny:{2.0 1.0}]")
	if _, err = a.Install(ctx, []Target{{Name: "hello-tiny", Version: ">1.0,!=2.0"}}, InstallOptions{}); err == nil ||
		err.Error() != "no version matching 'hello-tiny>1.0,!=2.0' could be found (available: 2.0, 1.0)" {
		t.Errorf("conditions that no version satisfies: %v", err)
	}
	c, err = a.Upgrade(ctx, InstallOptions{Options: Options{Dist: true}})
	check("upgrade", c, err, "map[hello-tiny:{1.0 2.0}]")
	files, err := a.Files(ctx, []string{"hello-tiny"})
	if err != nil || !strings.Contains(fmt.Sprint(files), "/usr/share/hello-tiny/data") {
		t.Errorf("files: %v, %v", files, err)
	}
	c, err = a.Install(ctx, []Target{{Name: "no-such"}}, InstallOptions{})
	if err == nil || !strings.Contains(err.Error(), "Unable to locate package no-such") || len(c) != 0 {
		t.Errorf("an unknown package: %v, %v", c, err)
	}
	if _, err = a.Install(ctx, []Target{{Name: "hello-tiny", Version: ">=9"}}, InstallOptions{}); err == nil ||
		err.Error() != "no version matching 'hello-tiny>=9' could be found (available: 2.0, 1.0)" {
		t.Errorf("an unavailable version: %v", err)
	}
	if _, err = a.Install(ctx, []Target{{Name: "-oDir::Etc=/x"}}, InstallOptions{}); err == nil {
		t.Error("an option as a name is accepted")
	}
	gone, left, err := a.Remove(ctx, []string{"hello-*", "no-such"}, false)
	check("remove", gone, err, "map[hello-tiny:{2.0 }]")
	check("what is left", left, err, "map[hello-tiny:{ 2.0}]")
	gone, left, err = a.Remove(ctx, []string{"hello-tiny", "other-tiny"}, true)
	check("purge", gone, err, "map[other-tiny:{1:3-1 }]")
	check("purge what was left", left, err, "map[hello-tiny:{2.0 }]")
	file := filepath.Join(a.m.Root, "repo/hello-tiny_2.0_all.deb")
	if name, version, arch, err := a.FileInfo(ctx, file); err != nil || name+" "+version+" "+arch != "hello-tiny 2.0 all" {
		t.Errorf("%s %s %s, %v", name, version, arch, err)
	}
	c, err = a.Install(ctx, []Target{{Name: "hello-tiny", File: file}}, InstallOptions{})
	check("a file", c, err, "map[hello-tiny:{ 2.0}]")
}
