package packages

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules(&host.Machine{})) }

const signatures, table = "testdata/signatures.json", "testdata/jobs.json"

var debian = fn.Tree{Dict: value.DictOf("os", "Debian", "os_family", "Debian", "osarch", "amd64")}

func TestSignatures(t *testing.T) {
	all := Modules(&host.Machine{})
	apart := slices.IndexFunc(all, func(m fn.Module) bool { return m.Name == "debconf" })
	one := []fn.Module{all[apart]}
	stocktest.Signatures(t, signatures, slices.Delete(all, apart, apart+1), map[string]string{})
	stocktest.Signatures(t, answers, one, nil)
}

// answers was recorded with debconf-utils, without which Salt lacks the module.
const answers = "testdata/debconf.json"

// TestLikeSalt compares versions as apt does. The recording needs Debian.
func TestLikeSalt(t *testing.T) {
	stocktest.Compare(t, table, registry(t, &host.Machine{}, debian), func() *fn.Call { return &fn.Call{Grains: debian} })
}

func TestRecordingIsTrue(t *testing.T) {
	stocktest.Verify(t, signatures)
	if (&host.Machine{}).Which("debconf-get-selections") != "" {
		stocktest.Verify(t, answers)
	}
	stocktest.Verify(t, table)
}

func registry(t *testing.T, m *host.Machine, grains fn.Reader) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(grains, Modules(m)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

type fake struct {
	*host.Machine
	calls   []string
	answers map[string]string
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{Machine: &host.Machine{Root: t.TempDir()}, answers: map[string]string{}}
	status := "Package: zsh\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.9\n\n" +
		"Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2-1\n\n" +
		"Package: bash-doc\nStatus: install ok installed\nArchitecture: all\nVersion: 5.2-1\n\n" +
		"Package: old\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n" +
		"Package: gone\nStatus: purge ok installed\nArchitecture: all\nVersion: 2\n\n"
	for path, text := range map[string]string{"/var/lib/dpkg/status": status, "/usr/bin/apt-get": "", "/usr/bin/apt-cache": "", "/usr/bin/dpkg-query": "",
		"/var/lib/apt/lists/x": ""} {
		if err := os.MkdirAll(filepath.Dir(f.Path(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Path(path), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		call := strings.Join(append([]string{filepath.Base(path)}, args...), " ")
		f.calls = append(f.calls, call)
		out, ok := f.answers[call]
		if !ok {
			return "", 100, nil
		}
		return out, 0, nil
	}
	return f
}

func (f *fake) run(t *testing.T, fun string, arg ...any) fn.Outcome {
	t.Helper()
	return registry(t, f.Machine, debian).Run(t.Context(), &fn.Call{Grains: debian}, fn.Job{Fun: fun, Arg: arg})
}

func TestReading(t *testing.T) {
	f := newFake(t)
	f.answers["apt-get -q update"] = "Get:1 http://a b [5 kB]\nHit:2 http://c d\nErr:3 http://e f"
	f.answers["apt-cache -q policy bash"] = "bash:\n  Candidate: 5.2-2"
	f.answers["apt-cache -q policy zsh"] = "zsh:\n  Candidate: 5.9"
	f.answers["apt-cache -q policy bash zsh new nothing"] = "bash:\n  Candidate: 5.2-2\nzsh:\n  Candidate: 5.9\nnew:\n  Candidate: 1\n"
	f.answers["apt-cache -q policy nothing"] = ""
	f.answers["apt-cache -q policy nothing new"] = "new:\n  Candidate: 1\n"
	f.answers["apt-cache -q policy nothing none"] = ""
	f.answers["apt-cache -q policy libx"] = "libx:i386:\n  Candidate: 7\n"
	f.answers["apt-get --just-print dist-upgrade"] = "Conf bash (5.2-2 D [amd64])"
	f.answers["apt-get --just-print upgrade"] = ""
	f.answers["dpkg-query -S -- /bin/bash"] = "bash: /bin/bash"
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"pkg.list_pkgs", nil, "{'bash': '5.2-1', 'bash-doc': '5.2-1', 'gone': '2', 'zsh': '5.9'}"},
		{"pkg.list_pkgs", []any{"versions_as_list=true", "removed=true"}, "{'old': ['1']}"},
		{"pkg.list_pkgs", []any{"purge_desired=true"}, "{'gone': '2'}"},
		{"pkg.version", []any{"bash"}, "'5.2-1'"},
		{"pkg.version", []any{"nothing"}, "''"},
		{"pkg.version", []any{"bash", "nothing"}, "{'bash': '5.2-1', 'nothing': ''}"},
		{"pkg.version", []any{"bash*"}, "{'bash': '5.2-1', 'bash-doc': '5.2-1'}"},
		{"pkg.version", []any{"z*"}, "{'zsh': '5.9'}"},
		{"pkg.version", []any{"bash", "versions_as_list=true"}, "['5.2-1']"},
		{"pkg.version", nil, "{}"},
		{"pkg.latest_version", []any{"bash", "refresh=false"}, "'5.2-2'"},
		{"pkg.latest_version", []any{"zsh", "refresh=false"}, "''"},
		{"pkg.latest_version", []any{"zsh", "refresh=false", "show_installed=true"}, "'5.9'"},
		{"pkg.available_version", []any{"bash", "zsh", "new", "nothing"}, "{'bash': '5.2-2', 'new': '1', 'nothing': '', 'zsh': ''}"},
		{"pkg.latest_version", []any{"libx"}, "'7'"},
		{"pkg.latest_version", nil, "''"},
		{"pkg.latest_version", []any{"nothing", "refresh=false"}, "{'nothing': ''}"},
		{"pkg.latest_version", []any{"nothing", "new", "refresh=false"}, "'1'"},
		{"pkg.latest_version", []any{"nothing", "none", "refresh=false"}, "{'none': '', 'nothing': ''}"},
		{"pkg.latest_version", []any{"bash", "repo=x"}, "\"ERROR executing 'pkg.latest_version': The 'repo' argument is invalid, use 'fromrepo' instead\""},
		{"pkg.upgrade_available", []any{"bash"}, "True"},
		{"pkg.upgrade_available", []any{"zsh"}, "False"},
		{"pkg.list_upgrades", []any{"refresh=false"}, "{'bash': '5.2-2'}"},
		{"pkg.list_upgrades", []any{false, false}, "{}"},
		{"pkg.refresh_db", nil, "{'http://a b': True, 'http://c d': None, 'http://e f': False}"},
		{"pkg.refresh_db", []any{"failhard=true"}, "'ERROR: Error getting repos: http://e f'"},
		{"pkg.refresh_db", []any{3600}, "{}"},
		{"pkg.owner", []any{"/bin/bash"}, "'bash'"},
		{"pkg.owner", []any{"/bin/bash", "/x"}, "{'/bin/bash': 'bash', '/x': ''}"},
		{"pkg.owner", nil, "''"},
	} {
		got, want := f.run(t, c.fun, c.arg...).Return, c.want
		if d, ok := got.(*value.Dict); ok {
			keys := d.Keys()
			slices.SortFunc(keys, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
			sorted := value.NewDict(0)
			for _, k := range keys {
				sorted.Set(k, d.At(k))
			}
			got = sorted
		}
		if value.Repr(got) != want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, value.Repr(got), want)
		}
	}
	f.calls = nil
	f.run(t, "pkg.latest_version", "bash")
	f.run(t, "pkg.latest_version", "bash", "refresh=false")
	if want := []string{"apt-get -q update", "apt-cache -q policy bash", "apt-cache -q policy bash"}; !slices.Equal(f.calls, want) {
		t.Errorf("ran %q", f.calls)
	}
}

// TestRefreshMark checks that fetching the lists removes the file that requests
// it, even if the lists are new enough.
func TestRefreshMark(t *testing.T) {
	f := newFake(t)
	f.answers["apt-get -q update"] = "Hit:1 http://c d"
	f.answers["apt-cache -q policy bash"] = "bash:\n  Candidate: 5.2-2"
	dir := t.TempDir()
	mark := filepath.Join(dir, "pkg_refresh")
	for _, job := range []fn.Job{
		{Fun: "pkg.refresh_db"},
		{Fun: "pkg.refresh_db", Arg: []any{3600}},
		{Fun: "pkg.latest_version", Arg: []any{"bash"}},
		{Fun: "pkg.refresh_db"}, // the file does not exist
	} {
		if job.Arg != nil || len(f.calls) == 0 {
			if err := os.WriteFile(mark, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := &fn.Call{Grains: debian, Config: fn.Tree{Dict: value.DictOf("cachedir", dir)}}
		if o := registry(t, f.Machine, debian).Run(t.Context(), c, job); !o.Success {
			t.Errorf("%s: %s", job.Fun, value.Repr(o.Return))
		}
		if _, err := os.Stat(mark); !os.IsNotExist(err) {
			t.Errorf("%s %v: the file is still there (%v)", job.Fun, job.Arg, err)
		}
	}
}

// TestNoRepo checks that a string that is not a line of apt's sources names no
// repository.
func TestNoRepo(t *testing.T) {
	f := newFake(t)
	if err := f.WriteFile("/etc/apt/sources.list", []byte("deb http://a.example.com/debian stable main\n")); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]int{"doesnotexist": 0, "ppa:foo/bar": 0, "": 0, "deb http://a.example.com/debian": 0, "deb [arch=amd64": 0,
		"deb http://a.example.com/debian stable": 9} {
		if o := f.run(t, "pkg.get_repo", line); !o.Success || o.Return.(*value.Dict).Len() != want {
			t.Errorf("%q: %s", line, value.Repr(o.Return))
		}
	}
	if o := f.run(t, "pkg.del_repo", "doesnotexist"); o.Success || !strings.Contains(value.Str(o.Return), "is not a line of apt's sources") {
		t.Errorf("del_repo: %s", value.Repr(o.Return))
	}
}

// TestAlternatives runs the real program in temporary directories.
func TestAlternatives(t *testing.T) {
	real, err := exec.LookPath("update-alternatives")
	if err != nil {
		t.Skip("this machine has no update-alternatives")
	}
	m := &host.Machine{Root: t.TempDir()}
	for _, path := range []string{"/usr/sbin/update-alternatives", "/bin/one", "/bin/two"} {
		if err := m.WriteFile(path, nil); err != nil {
			t.Fatal(err)
		}
		if err := m.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"/etc/alternatives", "/admin"} {
		if err := os.MkdirAll(m.Path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.ExecCmd = func(ctx context.Context, c host.Cmd) (host.Output, error) {
		c.Program = real
		c.Args = append([]string{"--altdir", m.Path("/etc/alternatives"), "--admindir", m.Path("/admin"), "--log", "/dev/null"}, c.Args...)
		return c.Execute(ctx)
	}
	link, one, two := m.Path("/bin/tool"), m.Path("/bin/one"), m.Path("/bin/two")
	r, err := fn.NewRegistry(nil, alternativesModule(m))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fun  string
		args []any
		want any // the result of alternatives.show_current afterwards
	}{
		{"install", []any{"tool", link, one, 10}, one},
		{"install", []any{"tool", link, two, 20}, two},
		{"set", []any{"tool", one}, one},
		{"auto", []any{"tool"}, two},
		{"remove", []any{"tool", two}, one},
		{"remove", []any{"tool", one}, false},
	} {
		o := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "alternatives." + c.fun, Arg: c.args})
		now := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "alternatives.show_current", Arg: []any{"tool"}}).Return
		if !o.Success || now != c.want {
			t.Errorf("%s %v: %v, then %v, want %v", c.fun, c.args, value.Repr(o.Return), now, c.want)
		}
	}
	if o := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "alternatives.set", Arg: []any{"--help", one}}); o.Success {
		t.Error("an option as a name is taken")
	}
}

func TestFamilies(t *testing.T) {
	red := fn.Tree{Dict: value.DictOf("os_family", "RedHat")}
	m := &host.Machine{Root: t.TempDir()}
	for name, ok := range map[string]bool{"Debian": true, "RedHat": false, "Alpine": true, "Suse": false, "": false} {
		grains := fn.Tree{Dict: value.DictOf("os_family", name)}
		if registry(t, m, grains).Has("pkg.version") != ok {
			t.Errorf("%s: %v", name, !ok)
		}
	}
	for _, program := range []string{"usr/bin/rpm", "usr/bin/dnf"} {
		if registry(t, m, red).Has("pkg.version") {
			t.Errorf("pkg without dnf, before %s", program)
		}
		if err := os.MkdirAll(m.Path("/usr/bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.Path("/"+program), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if !registry(t, m, red).Has("lowpkg.file_list") {
			t.Errorf("no lowpkg beside %s", program)
		}
	}
	if !registry(t, m, red).Has("pkg.version") {
		t.Error("no pkg beside dnf")
	}
	if family(fn.Tree{Dict: value.DictOf("os", "Amazon", "os_family", "x")}) != "RedHat" {
		t.Error("Amazon Linux is no Red Hat")
	}
}

// TestLikeSaltHere compares what Salt and Brine read from this machine.
func TestLikeSaltHere(t *testing.T) {
	jobs := [][]any{{"pkg.list_pkgs"}, {"pkg.version", "bash"}, {"pkg.version", "lib*"}, {"pkg.version", "bash", "nothing-such"},
		{"pkg.latest_version", "bash", "refresh=False"},
		{"pkg.latest_version", "bash", "libc6", "nothing-such", "refresh=False"}, {"pkg.latest_version", "nothing-such", "refresh=False"},
		{"pkg.latest_version", "bash", "nothing-such", "refresh=False"}, {"pkg.list_upgrades", "refresh=False"}, {"pkg.owner", "/usr/bin/env"},
		{"pkg.owner", "/usr/bin/env", "/nothing"},
		{"pkg.info_installed", "bash", "libc6"}, {"pkg.file_list", "bash", "sed"}, {"pkg.file_dict", "sed", "libc6"}, {"pkg.get_selections", "lib*", "hold"},
		{"pkg.get_selections", "bash"}, {"pkg.normalize_name", "zsh:amd64"}, {"pkg.normalize_name", "zsh:i386"}, {"pkg.parse_arch", "zsh:i386"},
		{"pkg.parse_arch", "zsh"},
		{"pkg.list_repo_pkgs", "bash"}, {"pkg.show", "bash", "filter=section,priority"}, {"pkg.remove", "no-such-package"}, {"pkg.purge", "no-such-package"},
		{"pkg.remove"}, {"pkg.purge"}, {"pkg.remove", "pkgs=[]"}, {"pkg.install"},
		{"pkg.file_list", "no-such-package"}, {"pkg.info_installed", "no-such", "failhard=False"}, {"pkg.info_installed", "no-such"},
		{"lowpkg.list_pkgs", "bash", "libc6"}, {"lowpkg.list_pkgs", "no-such-package"}, {"lowpkg.file_list", "sed"}, {"lowpkg.file_dict", "sed"},
		{"lowpkg.info", "sed"}, {"lowpkg.info", "no-such"},
		{"alternatives.display", "awk"}, {"alternatives.display", "no-such"}, {"alternatives.show_link", "awk"}, {"alternatives.show_current", "awk"},
		{"alternatives.show_current", "no-such"},
		{"alternatives.check_exists", "awk", "/usr/bin/mawk"}, {"alternatives.check_installed", "awk", "/usr/bin/mawk"},
		{"alternatives.check_installed", "awk", "/x"}}
	recorded := stocktest.Ask(t, nil, append(jobs, []any{"grains.items"})...)
	grains := fn.Tree{Dict: recorded[len(jobs)].At("return").(*value.Dict)}
	if grains.Str("os_family") != "Debian" {
		t.Skip("this machine is no Debian")
	}
	r := registry(t, &host.Machine{}, grains)
	for i, j := range recorded[:len(jobs)] {
		got := r.Run(t.Context(), &fn.Call{Grains: grains}, fn.Job{Fun: j.Str("fun"), Arg: jobs[i][1:]}).Return
		if s, ok := got.(string); ok && strings.HasPrefix(s, "Passed invalid arguments to ") {
			got, _, _ = strings.Cut(s, "\n") // the documentation follows
		}
		if !value.Equal(got, j.At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got), value.Repr(j.At("return")))
		}
	}
}
