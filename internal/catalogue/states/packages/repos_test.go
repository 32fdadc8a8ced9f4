package packages

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/packages"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// repoStage is a machine below a directory, with an OS family.
type repoStage struct {
	t    *testing.T
	m    *host.Machine
	deps engine.Deps
}

func newRepoStage(t *testing.T, family string, files map[string]string) *repoStage {
	t.Helper()
	s := &repoStage{t: t, m: &host.Machine{Root: t.TempDir()}}
	for path, text := range files {
		if err := s.m.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if family == "RedHat" { // the module pkg needs the program
		if err := errors.Join(s.m.WriteFile("/usr/bin/dnf", nil), os.Chmod(s.m.Path("/usr/bin/dnf"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	grains := fn.Tree{Dict: value.DictOf("os_family", family, "os", family, "osarch", "amd64")}
	states, err := state.NewRegistry(grains, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	funcs, err := fn.NewRegistry(grains, packages.Modules(s.m)...)
	if err != nil {
		t.Fatal(err)
	}
	s.deps = engine.Deps{States: states, Call: func() *fn.Call { return &fn.Call{Grains: grains, Funcs: funcs} }}
	return s
}

// run runs a state and returns "result: comment, changes".
func (s *repoStage) run(test bool, fun string, args ...any) string {
	s.t.Helper()
	low := value.DictOf("state", "pkgrepo", "fun", fun, "__id__", "x", "__sls__", "x", "__env__", "base", "order", int64(1))
	low.Update(value.DictOf(args...))
	r := engine.New(s.deps, engine.Options{Test: test}).Single(s.t.Context(), low)
	return value.Str(r.At("result")) + ": " + value.Str(r.At("comment")) + " " + value.Str(r.At("changes"))
}

func (s *repoStage) want(what, got, want string) {
	s.t.Helper()
	if !strings.HasPrefix(got, want) {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

const xList = "/etc/apt/sources.list.d/x.list"

func TestLinesOfAPT(t *testing.T) {
	const line = "deb [arch=amd64 signed-by=/k/x.gpg] http://x.example.com/debian stable main"
	s := newRepoStage(t, "Debian", map[string]string{xList: line + "\n"})
	s.want("as it is", s.run(false, "managed", "name", line), "True: Package repo '"+line+"' already configured {}")
	s.want("other order", s.run(false, "managed", "name", "deb [arch=amd64 signed-by=/k/x.gpg] http://x.example.com/debian stable", "comps", "main"),
		"True: ")
	s.want("another component, as a test", s.run(true, "managed", "name", line+" contrib", "refresh", false), "None: Package repo '"+line+
		" contrib' would be configured.")
	s.want("another component", s.run(false, "managed", "name", line+" contrib", "refresh", false), "True: Configured package repo '"+line+
		" contrib' {'comps': {'new': ['main', 'contrib'], 'old': ['main']}")
	s.want("again", s.run(false, "managed", "name", line+" contrib", "refresh", false), "True: Package repo '"+line+" contrib' already configured {}")
	s.want("disabled", s.run(false, "managed", "name", line+" contrib", "refresh", false, "disabled", true), "True: Configured")
	s.want("disabled again", s.run(false, "managed", "name", line+" contrib", "refresh", false, "enabled", false), "True: Package repo '"+line+
		" contrib' already configured {}")
	if got := s.m.Text(xList); !strings.HasPrefix(got, "# deb [") {
		t.Errorf("the file has %q", got)
	}
	s.want("no line", s.run(false, "managed", "name", "what is this"), "False: Failed to examine repo 'what is this'")
	other := strings.Replace(line, " main", " other", 1)
	s.want("two keys", s.run(false, "managed", "name", other, "key_url", "salt://nothing", "key_text", "x", "keyserver", "x"),
		"False: Failed to configure repo '"+other+"': Error: file not found: salt://nothing")
	s.want("absent, as a test", s.run(true, "absent", "name", line, "refresh", false), "None: Package repo '"+line+"' will be removed.")
	s.want("absent", s.run(false, "absent", "name", line+" contrib", "refresh", false), "True: Removed repo")
	s.want("absent again", s.run(false, "absent", "name", line, "refresh", false), "True: Package repo "+line+" is absent {}")
	if s.m.Exists(xList) {
		t.Error("the file is still there")
	}
}

func TestSectionsOfDNF(t *testing.T) {
	const file, other = "/etc/yum.repos.d/two.repo", "/etc/yum.repos.d/new.repo"
	s := newRepoStage(t, "RedHat",
		map[string]string{file: "# words\n[one]\nname=One\nbaseurl=http://one.example.com/\n http://mirror.example.com/\n# why\nenabled=1\n\n[two]\n" +
			"name=Two\nmirrorlist=http://two.example.com/\n"})
	add := []any{"name", "new", "humanname", "New one", "baseurl", "http://new.example.com/", "gpgcheck", int64(1), "gpgkey", "file:///k"}
	s.want("new, as a test", s.run(true, "managed", add...), "None: Package repo 'new' would be configured.")
	s.want("new", s.run(false, "managed", add...), "True: Configured package repo 'new' {'repo': 'new'}")
	s.want("again", s.run(false, "managed", add...), "True: Package repo 'new' already configured {}")
	if got, want := s.m.Text(other), "[new]\nbaseurl=http://new.example.com/\ngpgcheck=1\ngpgkey=file:///k\nname=New one\nenabled=1\n\n"; got != want {
		t.Errorf("the file has %q, want %q", got, want)
	}
	s.want("disabled", s.run(false, "managed", append(add, "enabled", false)...), "True: Configured package repo 'new' {'enabled': {'new': '0', 'old': '1'}}")
	s.want("another address", s.run(false, "managed", "name", "two", "humanname", "Two", "baseurl", "http://2.example.com/"),
		"True: Configured package repo 'two'")
	if got, want := s.m.Text(file),
		"# words\n[one]\nname=One\nbaseurl=http://one.example.com/\n http://mirror.example.com/\nenabled=1\n# why\n\n[two]\nname=Two\n"+
			"baseurl=http://2.example.com/\nenabled=1\n\n"; got != want {
		t.Errorf("the file has %q, want %q", got, want)
	}
	s.want("without address", s.run(false, "managed", "name", "none", "humanname", "x"),
		"False: Failed to configure repo 'none': The repo does not exist and needs to be created, but either a baseurl or a mirrorlist needs to be given")
	s.want("no name for a file", s.run(false, "managed", "name", "../x", "humanname", "x", "baseurl", "http://x/"), "False: Failed to configure repo '../x'")
	s.want("absent", s.run(false, "absent", "name", "one"), "True: Removed repo one {'repo': 'one'}")
	s.want("absent again", s.run(false, "absent", "name", "one"), "True: Package repo one is absent {}")
	s.want("the last of a file", s.run(false, "absent", "name", "new"), "True: Removed repo new")
	if _, err := os.Stat(filepath.Join(s.m.Root, other)); err == nil {
		t.Error("an empty file is left")
	}
}
