package packages

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"brine/internal/host"
)

// TestOrderOfRPM compares with a file of pairs of versions and their order in Salt, which
// uses rpm.
func TestOrderOfRPM(t *testing.T) {
	b, err := os.ReadFile("testdata/rpm-order.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		want, err := strconv.Atoi(f[2])
		if err != nil {
			t.Fatal(err)
		}
		if got := compareRPM(f[0], f[1]); got != want {
			t.Errorf("%q against %q: %d, want %d", f[0], f[1], got, want)
		}
	}
}

// fake is a machine below a directory whose programs answer from a map.
func fake(t *testing.T, files, answers map[string]string, calls *[]string) *host.Machine {
	t.Helper()
	m := &host.Machine{Root: t.TempDir()}
	for _, program := range []string{"apt-get", "apt-cache", "dpkg-query", "rpm", "dnf", "apk"} {
		files["/usr/bin/"+program] = "#!"
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(m.Path(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.Path(path), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		call := strings.Join(append([]string{filepath.Base(path)}, args...), " ")
		if calls != nil {
			*calls = append(*calls, call)
		}
		out, ok := answers[call]
		if !ok {
			return "no answer to " + call, 1, nil
		}
		if text, ok := strings.CutPrefix(out, "exit100"); ok {
			return text, 100, nil
		}
		return out, 0, nil
	}
	return m
}

func TestApt(t *testing.T) {
	status := "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2-1\nDescription: a\n Package: x\n\n" +
		"Package: libc6\nStatus: hold ok installed\nArchitecture: i386\nVersion: 2.36-9\n\n" +
		"Package: old\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n" +
		"Package: gone\nStatus: purge ok installed\nArchitecture: all\nVersion: 2\n\n" +
		"Package: none\nStatus: unknown ok not-installed\nArchitecture: all\n\nbroken\n"
	m := fake(t, map[string]string{"/var/lib/dpkg/status": status}, map[string]string{
		"apt-cache -q policy -o APT::Default-Release=testing bash nothing": "bash:\n  Installed: 5.2-1\n  Candidate: 5.2-2\n  Version table:\n *** " +
			"5.2-1 100\nvirtual:\n  Candidate: (none)\nlibc6:i386:\n  Candidate: 3",
		"apt-get --just-print dist-upgrade": "Inst bash [5.2-1] (5.2-2 Debian:12 [amd64])\nConf bash (5.2-2 Debian:12 [amd64])\nConf x (1 Debian [all])",
		"apt-get -q update": "Get:1 http://a b InRelease [48.0 kB]\nHit:2 http://c d InRelease\nIgn:3 http://e f\nErr:4 http://g h\n " +
			" 404\nFetched 48 kB in 1s",
		"dpkg-query -S -- /bin/bash": "bash: /bin/bash",
	}, nil)
	a := For(m, "Debian", "amd64")
	list, err := a.List(t.Context())
	want := []Package{{"bash", "5.2-1", Installed}, {"libc6:i386", "2.36-9", Installed}, {"old", "1", Removed}, {"gone", "2", PurgeDesired}}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%+v, %v", list, err)
	}
	found, err := a.Candidates(t.Context(), []string{"bash", "nothing"}, Options{From: "testing"})
	if err != nil || !maps.Equal(found, map[string]string{"bash": "5.2-2", "virtual": "", "libc6:i386": "3"}) {
		t.Errorf("%v, %v", found, err)
	}
	if up, err := a.Upgrades(t.Context(), Options{Dist: true}); err != nil || !maps.Equal(up, map[string]string{"bash": "5.2-2", "x": "1"}) {
		t.Errorf("%v, %v", up, err)
	}
	sources, err := a.Refresh(t.Context(), Options{})
	if err != nil || !slices.Equal(sources, []Source{{"http://a b InRelease", true, false}, {"http://c d InRelease", false, false},
		{"http://e f", false, true}, {"http://g h", false, true}}) {
		t.Errorf("%+v, %v", sources, err)
	}
	for path, want := range map[string]string{"/bin/bash": "bash", "/x": ""} {
		if o, err := a.Owner(t.Context(), path); err != nil || o != want {
			t.Errorf("%s: %q, %v", path, o, err)
		}
	}
	if _, err := a.Upgrades(t.Context(), Options{}); err == nil || !strings.HasPrefix(err.Error(), "apt-get failed: no answer") {
		t.Errorf("%v", err)
	}
}

func TestRPM(t *testing.T) {
	const query = "rpm -qa --nodigest --nosignature --queryformat %{NAME}\t%{EPOCH}\t%{VERSION}\t%{RELEASE}\t%{ARCH}\n"
	var calls []string
	m := fake(t, map[string]string{}, map[string]string{
		query: "bash\t(none)\t5.1\t6.el9\tx86_64\nglibc\t0\t2.34\t1\ti686\ndbus\t1\t1.12\t8\tx86_64\ndocs\t(none)\t1\t1\tnoarch\nbroken",
		"dnf --quiet --disablerepo=* --enablerepo=base list available bash dbus": "Available Packages\nbash.x86_64     5.1-7.el9    baseos\n" +
			"bash.x86_64\n  5.1-6.el9  updates\ndbus.x86_64 1:1.12-8 baseos",
		"dnf --quiet list --upgrades":                "Available Upgrades\nkernel.x86_64  5.14-2  baseos",
		"dnf --quiet --assumeyes clean expire-cache": "",
		"dnf --quiet --assumeyes check-update":       "exit100bash.x86_64",
		"rpm -qf --queryformat %{name} -- /bin/bash": "bash",
	}, &calls)
	r := For(m, "RedHat", "x86_64")
	list, err := r.List(t.Context())
	if want := []Package{{Name: "bash", Version: "5.1-6.el9"}, {Name: "glibc.i686", Version: "2.34-1"}, {Name: "dbus", Version: "1:1.12-8"},
		{Name: "docs", Version: "1-1"}}; err != nil || !slices.Equal(list, want) {
		t.Errorf("%+v, %v", list, err)
	}
	if found, err := r.Candidates(t.Context(), []string{"bash", "dbus"}, Options{From: "base"}); err != nil ||
		!maps.Equal(found, map[string]string{"bash": "5.1-7.el9"}) {
		t.Errorf("%v, %v", found, err)
	}
	if up, err := r.Upgrades(t.Context(), Options{}); err != nil || !maps.Equal(up, map[string]string{"kernel": "5.14-2"}) {
		t.Errorf("%v, %v", up, err)
	}
	if s, err := r.Refresh(t.Context(), Options{}); err != nil || !slices.Equal(s, []Source{{"all", true, false}}) {
		t.Errorf("%v, %v", s, err)
	}
	if o, err := r.Owner(t.Context(), "/bin/bash"); err != nil || o != "bash" {
		t.Errorf("%q, %v", o, err)
	}
}

func TestAPK(t *testing.T) {
	m := fake(t, map[string]string{"/lib/apk/db/installed": "C:Q1\nP:musl\nV:1.2.4-r1\nA:x86_64\n\nP:busybox\nV:1.36-r5\n\n"}, map[string]string{
		"apk upgrade -s":                  "(1/1) Upgrading musl (1.2.4-r1 -> 1.2.4-r2)\nOK: 8 MiB",
		"apk search -- busybox":           "busybox-1.36-r5\nbusybox-extras-1.36-r5",
		"apk search -- nano":              "nano-7.2-r1\nnano-syntax-7.2-r1",
		"apk update":                      "OK",
		"apk info -W -- /bin/sh":          "/bin/sh symlink target is owned by busybox-1.36-r5",
		"apk version -t -- 1.2-r0 1.2-r1": "<",
	}, nil)
	a := For(m, "Alpine", "")
	if list, err := a.List(t.Context()); err != nil ||
		!slices.Equal(list, []Package{{Name: "musl", Version: "1.2.4-r1"}, {Name: "busybox", Version: "1.36-r5"}}) {
		t.Errorf("%+v, %v", list, err)
	}
	if found, err := a.Candidates(t.Context(), []string{"musl", "busybox", "nano"}, Options{}); err != nil ||
		!maps.Equal(found, map[string]string{"musl": "1.2.4-r2", "nano": "7.2-r1"}) {
		t.Errorf("%v, %v", found, err)
	}
	if s, err := a.Refresh(t.Context(), Options{}); err != nil || len(s) != 1 || !s[0].Fetched {
		t.Errorf("%v, %v", s, err)
	}
	if o, err := a.Owner(t.Context(), "/bin/sh"); err != nil || o != "busybox-1.36-r5" {
		t.Errorf("%q, %v", o, err)
	}
	if c, err := a.Compare(t.Context(), "1.2-r0", "1.2-r1"); err != nil || c != -1 {
		t.Errorf("%d, %v", c, err)
	}
}

func TestRefused(t *testing.T) {
	for _, family := range []string{"Debian", "RedHat", "Alpine"} {
		var calls []string
		m := For(fake(t, map[string]string{}, nil, &calls), family, "")
		for _, name := range []string{"", "-o", "a\nb"} {
			if _, err := m.Candidates(t.Context(), []string{"bash", name}, Options{}); err == nil || len(calls) != 0 {
				t.Errorf("%s: %q: %v, %q", family, name, err, calls)
			}
		}
	}
	if For(&host.Machine{}, "Suse", "") != nil {
		t.Error("there is a manager for SUSE")
	}
}
