package wheel

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/store/keystore"
)

// site is a configuration, two file roots and one pillar root, with files
// outside of them.
type site struct {
	t    *testing.T
	dir  string
	opts *value.Dict
	r    *fn.Registry
}

func newSite(t *testing.T) *site {
	s := &site{t: t, dir: t.TempDir()}
	for name, text := range map[string]string{
		"etc/master":  "# the master\ninterface: 127.0.0.1\nfile_roots:\n  base:\n    - /srv\n# the end\ntimeout: 5\n",
		"one/top.sls": "base: {}\n", "one/sub/a.sls": "a: 1\n", "one/bin": "\x00\x01\x02", "two/top.sls": "two: {}\n", "pillar/top.sls": "p: {}\n",
		"secret": "secret\n", "outside/x": "x\n",
	} {
		p := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"one/link": "../secret", "one/dir": "../outside", "one/within": "top.sls", "pillar/link": "../secret",
		"pillar/dir": "../outside"} {
		if err := os.Symlink(to, filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.opts = value.DictOf("conf_file", s.path("etc/master"), "default_include", "master.d/*.conf",
		"file_roots", value.DictOf("base", value.ListOf(s.path("one"), s.path("two")), "empty", value.ListOf()),
		"pillar_roots", value.DictOf("base", value.ListOf(s.path("pillar"))))
	pki := s.path("pki")
	keys, err := keystore.Open(pki, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pki, "master.pub"), []byte("PUBLIC\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.r, err = fn.NewRegistry(nil, New(Deps{Keys: keys, HashType: "sha256", KeySize: 2048})...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// run calls a function with keywords and returns the result as Python shows
// it, without the path of the site's directory.
func (s *site) run(fun string, pairs ...any) string {
	s.t.Helper()
	ret, _ := Run(context.Background(), s.r, &fn.Call{Config: fn.Tree{Dict: s.opts}}, fun, nil, value.DictOf(pairs...))
	return strings.ReplaceAll(value.Repr(ret), s.dir, "")
}

func (s *site) content(name string) string {
	b, err := os.ReadFile(s.path(name))
	if err != nil {
		return "none"
	}
	return string(b)
}

func TestRoots(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		fun   string
		pairs []any
		want  string
	}{
		{"file_roots.find", []any{"path", "top.sls"}, "[{'/one/top.sls': 'txt'}, {'/two/top.sls': 'txt'}]"},
		{"file_roots.find", []any{"path", "bin"}, "[{'/one/bin': 'bin'}]"},
		{"file_roots.find", []any{"path", "none"}, "[]"},
		{"file_roots.find", []any{"path", "sub"}, "[]"},
		{"file_roots.find", []any{"path", "top.sls", "saltenv", "dev"}, "[]"},
		{"file_roots.find", []any{"path", "within"}, "[{'/one/within': 'txt'}]"},
		{"file_roots.read", []any{"path", "sub/a.sls"}, "[{'/one/sub/a.sls': 'a: 1\\n'}]"},
		{"file_roots.read", []any{"path", "bin"}, "[]"},
		{"file_roots.list_env", nil,
			"{'/one': {'dir': {}, 'sub': {'a.sls': 'f'}, 'bin': 'f', 'link': 'f', 'top.sls': 'f', 'within': 'f'}, '/two': {'top.sls': 'f'}}"},
		{"file_roots.list_env", []any{"saltenv", "dev"}, "{}"},
		{"pillar_roots.list_roots", nil, "{'base': [{'/pillar': {'dir': {}, 'link': 'f', 'top.sls': 'f'}}]}"},
		{"pillar_roots.read", []any{"path", "top.sls"}, "[{'/pillar/top.sls': 'p: {}\\n'}]"},
		{"file_roots.write", []any{"data", "new", "path", "new/dir/file"}, "'Wrote data to file /one/new/dir/file'"},
		{"file_roots.write", []any{"data", "second", "path", "top.sls", "index", 1}, "'Wrote data to file /two/top.sls'"},
		{"file_roots.write", []any{"data", "x", "path", "a", "saltenv", "dev"}, "'Named environment dev is not present'"},
		{"file_roots.write", []any{"data", "x", "path", "a", "index", 2}, "'Specified index 2 in environment base is not present'"},
		{"file_roots.write", []any{"data", "x", "path", "a", "index", -1}, "'Specified index -1 in environment base is not present'"},
		{"file_roots.write", []any{"data", "x", "path", "a", "saltenv", "empty"}, "'Specified index 0 in environment empty is not present'"},
		{"file_roots.write", []any{"data", "x", "path", "/a"}, "'The path passed in /a is not relative to the environment base'"},
		{"pillar_roots.write", []any{"data", "pw: 1\n", "path", "pw.sls"}, "'Wrote data to file /pillar/pw.sls'"},
	} {
		if got := s.run(c.fun, c.pairs...); got != c.want {
			t.Errorf("%s %v:\n%s\nwant\n%s", c.fun, c.pairs, got, c.want)
		}
	}
	for name, want := range map[string]string{"one/new/dir/file": "new", "two/top.sls": "second", "one/top.sls": "base: {}\n", "pillar/pw.sls": "pw: 1\n"} {
		if got := s.content(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if fi, err := os.Stat(s.path("pillar/pw.sls")); err != nil || fi.Mode().Perm()&0o007 != 0 {
		t.Errorf("a new file of the pillar: %v %v", fi.Mode(), err)
	}
}

// TestPathsThatLeadOut checks that no path leads out of a root, neither for
// reading nor for writing.
func TestPathsThatLeadOut(t *testing.T) {
	s := newSite(t)
	for _, option := range []string{"file_roots", "pillar_roots"} {
		for _, p := range []string{"../secret", "sub/../../secret", "..", ".", "", "/" + "etc/passwd", s.path("secret"), "link", "dir/x", "dir/new",
			"dir/sub/new", "link/x",
			"a\x00b", "./../secret", "one/../../../../../../../../tmp/brine-escaped"} {
			for _, f := range []string{".find", ".read"} {
				if got := s.run(option+f, "path", p); got != "[]" {
					t.Errorf("%s%s %q: %s", option, f, p, got)
				}
			}
			if got := s.run(option+".write", "path", p, "data", "CHANGED"); strings.Contains(got, "Wrote") {
				t.Errorf("%s.write %q: %s", option, p, got)
			}
		}
	}
	for name, want := range map[string]string{"secret": "secret\n", "outside/x": "x\n", "outside/new": "none", "outside/sub/new": "none",
		"one/link": "secret\n"} {
		if got := s.content(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, name := range []string{"../x", "/etc/x", "a/b", "..", ".", "", "a\x00b", "master.d/x"} {
		if got := s.run("config.update_config", "file_name", name, "yaml_contents", value.DictOf("timeout", 1)); strings.Contains(got, "Wrote") &&
			name != ".." && name != "." {
			t.Errorf("update_config %q: %s", name, got)
		}
	}
	if _, err := os.Stat(s.path("etc/x.conf")); err == nil {
		t.Error("update_config left its directory")
	}
	for _, pairs := range [][]any{{"keydir", "/tmp"}, {"keydir", s.dir}, {"keyname", "../x"}, {"keyname", "minions/x"}, {"keyname", "a/../../x"},
		{"keyname", "master"}, {"keydir", s.path("pki/minions")}} {
		if got := s.run("key.gen_keys", pairs...); !strings.HasPrefix(got, "'Exception occurred in wheel key.gen_keys") &&
			!strings.HasPrefix(got, `"Exception occurred`) {
			t.Errorf("gen_keys %v: %s", pairs, got)
		}
	}
	if got := s.content("pki/master.pub"); got != "PUBLIC\n" {
		t.Errorf("the master's key was changed: %q", got)
	}
}

func TestConfigFiles(t *testing.T) {
	s := newSite(t)
	if got := s.run("config.update_config", "file_name", "gui", "yaml_contents",
		value.DictOf("timeout", 7, "a", value.ListOf("b"))); got != "'Wrote gui.conf'" {
		t.Error(got)
	}
	if got := s.content("etc/master.d/gui.conf"); got != "a:\n- b\ntimeout: 7\n" {
		t.Errorf("written: %q", got)
	}
	if got := s.run("config.update_config", "file_name", "gui", "yaml_contents", "x"); !strings.Contains(got, "must be a map") {
		t.Error(got)
	}
	os.Symlink(s.path("secret"), s.path("etc/master.d/evil.conf"))
	if got := s.run("config.update_config", "file_name", "evil", "yaml_contents", value.DictOf("a", 1)); got != "'Invalid path'" ||
		s.content("secret") != "secret\n" {
		t.Error(got)
	}
	for _, c := range []struct {
		key  string
		v    any
		want string
	}{
		{"timeout", 9, "# the master\ninterface: 127.0.0.1\nfile_roots:\n  base:\n    - /srv\n# the end\ntimeout: 9\n"},
		{"file_roots", value.DictOf("base", value.ListOf("/a", "/b")),
			"# the master\ninterface: 127.0.0.1\nfile_roots:\n  base:\n  - /a\n  - /b\ntimeout: 9\n"},
		{"new", "x", "# the master\ninterface: 127.0.0.1\nfile_roots:\n  base:\n  - /a\n  - /b\ntimeout: 9\nnew: x\n"},
	} {
		if got := s.run("config.apply", "key", c.key, "value", c.v); got != "None" || s.content("etc/master") != c.want {
			t.Errorf("apply %s: %s\n%s\nwant\n%s", c.key, got, s.content("etc/master"), c.want)
		}
	}
	for text, want := range map[string]string{
		"":                          "k: 1\n",
		"a: 1":                      "a: 1\nk: 1\n",
		"{a: 1, k: 2}":              "a: 1\nk: 1\n",
		"k: |\n  x\n  y\nb: 2\n":    "k: 1\nb: 2\n",
		"k:\n- x\n- y\nb: 2\n":      "k: 1\nb: 2\n",
		"'k': 3\nb: 2\n":            "k: 1\nb: 2\n",
		"# c\n\nkk: 3\n":            "# c\n\nkk: 3\nk: 1\n",
		"a: &x [1]\nb: *x\nk: *x\n": "a: &x [1]\nb: *x\nk: 1\n",
	} {
		got, err := withOption(text, "k", int64(1))
		if err != nil || got != want {
			t.Errorf("%q: %q %v", text, got, err)
		}
		if v, err := yaml.Load([]byte(got), "test"); err != nil || v.(*value.Dict).At("k") != int64(1) {
			t.Errorf("%q: cannot be read: %v %v", got, v, err)
		}
	}
	if _, err := withOption("- a\n", "k", 1); err == nil {
		t.Error("a file that is no map was changed")
	}
}

func TestKeyPairs(t *testing.T) {
	s := newSite(t)
	if got := s.run("key.master_key_str"); got != "{'local': {'master.pub': 'PUBLIC\\n'}}" {
		t.Error(got)
	}
	first := s.run("key.gen_keys", "keyname", "web1")
	if len(first) != len("'")*2+95 {
		t.Errorf("the fingerprint is %s", first)
	}
	pub := s.content("pki/web1.pub")
	if got := s.run("key.gen_keys", "keyname", "web1", "keydir", s.path("pki")+"/"); !strings.Contains(got, "exists already") ||
		s.content("pki/web1.pub") != pub {
		t.Error(got)
	}
	if got := s.run("error.error"); got != "{}" {
		t.Error(got)
	}
	if got := s.run("error.error", "name", "Exception", "message", "told"); got != "'Exception occurred in wheel error.error: Exception: told'" &&
		!strings.Contains(got, "Exception: told") {
		t.Error(got)
	}
}
