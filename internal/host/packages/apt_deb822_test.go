package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/host"
	"brine/test/tools"
)

const debianSources = "/etc/apt/sources.list.d/debian.sources"

const twoStanzas = `# Debian itself
Types: deb deb-src
URIs: http://deb.example.com/debian
Suites: stable stable-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb.example.com/security
Suites: stable-security
Components: main
# more of it
 contrib
Enabled: no
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
`

// deb822Machine returns a machine with only that file, and apt's own view of
// it: the URLs that an update would fetch.
func deb822Machine(t *testing.T) (a apt, reads func() string) {
	t.Helper()
	program := tools.Need(t, "apt", "apt-get")
	m := &host.Machine{Root: t.TempDir()}
	if err := m.WriteFile(debianSources, []byte(twoStanzas)); err != nil {
		t.Fatal(err)
	}
	return apt{m, "amd64"}, func() string {
		t.Helper()
		cmd := exec.Command(program, "update", "--print-uris", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts="+
			m.Path(filepath.Dir(debianSources)), "-o", "Dir::State::lists="+t.TempDir())
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("apt does not read it: %v\n%s\n%s", err, out, m.Text(debianSources))
		}
		return string(out)
	}
}

func lineOf(t *testing.T, a apt, line string) (Repo, Repo) {
	t.Helper()
	want, err := ParseRepo(line)
	if err != nil {
		t.Fatal(err)
	}
	all, err := a.Repos()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Same(want) {
			return r, want
		}
	}
	t.Fatalf("%s is not among %v", line, all)
	return want, want
}

// said returns the lines of all repositories.
func said(t *testing.T, a apt) string {
	t.Helper()
	all, err := a.Repos()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range all {
		lines = append(lines, strings.ReplaceAll(r.String(), " [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", "+"))
	}
	return strings.Join(lines, "\n")
}

func TestStanzas(t *testing.T) {
	const src, updates = "\ndeb-src+ http://deb.example.com/debian stable main\ndeb-src+ http://deb.example.com/debian stable-updates main",
		"\ndeb+ http://deb.example.com/debian stable-updates main"
	const security = "\n# deb http://deb.example.com/security stable-security main contrib"

	t.Run("one of several", func(t *testing.T) {
		a, reads := deb822Machine(t)
		old, want := lineOf(t, a, "deb http://deb.example.com/debian stable main non-free")
		if err := a.SetRepo(&old, want); err != nil {
			t.Fatal(err)
		}
		if got := said(t, a); got != strings.TrimPrefix(src+updates+"\ndeb+ http://deb.example.com/debian stable main non-free"+security, "\n") {
			t.Errorf("%s", got)
		}
		if got := reads(); !strings.Contains(got, "/stable/non-free/") || strings.Contains(got, "/stable-updates/non-free/") ||
			strings.Contains(got, "security") {
			t.Errorf("apt reads\n%s", got)
		}
	})
	t.Run("one alone", func(t *testing.T) {
		a, reads := deb822Machine(t)
		old, want := lineOf(t, a, "deb [arch=amd64] http://deb.example.com/security stable-security main")
		if err := a.SetRepo(&old, want); err != nil {
			t.Fatal(err)
		}
		text := a.m.Text(debianSources)
		for _, part := range []string{"Enabled: yes\n", "Architectures: amd64", " abc\n", "# Debian itself\n", "Components: main\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("no %q in\n%s", part, text)
			}
		}
		if got := reads(); !strings.Contains(got, "security") || strings.Contains(got, "contrib") {
			t.Errorf("apt reads\n%s", got)
		}
	})
	t.Run("removed", func(t *testing.T) {
		a, _ := deb822Machine(t)
		for _, line := range strings.Split(said(t, a), "\n") {
			old, _ := lineOf(t, a, strings.ReplaceAll(line, "+", ""))
			if err := a.RemoveRepo(old); err != nil {
				t.Fatal(err)
			}
			if got := said(t, a); strings.Contains(got+"\n", line+"\n") {
				t.Errorf("%s is still there:\n%s", line, got)
			}
		}
		if a.m.Exists(debianSources) {
			t.Errorf("the file is still there:\n%s", a.m.Text(debianSources))
		}
	})
	t.Run("added", func(t *testing.T) {
		a, reads := deb822Machine(t)
		r, err := ParseRepo("deb [signed-by=/usr/share/keyrings/x.gpg] http://new.example.com/debian stable main")
		if err != nil {
			t.Fatal(err)
		}
		r.File = debianSources
		if err := a.SetRepo(nil, r); err != nil {
			t.Fatal(err)
		}
		if got := reads(); !strings.Contains(got, "new.example.com") || !strings.Contains(got, "deb.example.com") {
			t.Errorf("apt reads\n%s", got)
		}
		if r.Options = []string{"trusted=yes"}; a.SetRepo(nil, r) == nil {
			t.Error("an option that would be lost is accepted")
		}
	})
}
