package pillar

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/py/value"
	"brine/internal/sls/render"
	"brine/internal/sls/top"
)

// writeTree writes files below a new directory.
func writeTree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func compiler(dir string, change func(*Config)) *Compiler {
	c := Config{
		Options: Options{Roots: value.DictOf("base", value.ListOf(dir+"/base"), "dev", value.ListOf(dir+"/dev")), Strategy: "smart", SafeErrors: true,
			DecryptDelimiter: ":", DecryptDefault: "gpg", DecryptRenderers: []string{"gpg"}},
		Top: top.Options{StateTop: "top.sls"}, Renderer: render.New(render.Options{}), Default: "yaml", Opts: value.DictOf("renderer", "yaml"),
	}
	if change != nil {
		change(&c)
	}
	return New(c)
}

func TestCompile(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"base/top.sls":       "base:\n  '*': [common, 'app.*']\n  'web*':\n    - match: glob\n    - web\n  'G@os:Debian': [deb]\n  'db*': [secret]\n",
		"base/common.sls":    "a: 1\nlist: [1]\nnested: {x: 1, y: 2}\n",
		"base/app/one.sls":   "list: [2]\nnested: {y: 3}\n",
		"base/app/two.sls":   "include:\n  - common: {key: 'in:ner'}\n  - .three\ntwo: 2\n",
		"base/app/three.sls": "three: 3\n",
		"base/web.sls":       "web: true\n",
		"base/deb.sls":       "deb: true\n",
		"base/secret.sls":    "secret: true\n",
	})
	got, err := compiler(dir, nil).Compile(context.Background(), Request{ID: "web1", Grains: value.DictOf("os", "Debian")})
	if err != nil {
		t.Fatal(err)
	}
	want := value.DictOf("a", 1, "list", value.ListOf(2), "nested", value.DictOf("x", 1, "y", 3), "web", true, "deb", true, "two", 2, "three", 3,
		"in", value.DictOf("ner", value.DictOf("a", 1, "list", value.ListOf(1), "nested", value.DictOf("x", 1, "y", 2))))
	if !value.Equal(got, want) {
		t.Errorf("got %s\nwant %s", value.Repr(got), value.Repr(want))
	}
}

// TestAbsoluteImportsStayBelowTheRoots checks that a minion whose grains select
// an import can only read files of pillar_roots in its environment, and files
// that the renderer's configuration permits.
func TestAbsoluteImportsStayBelowTheRoots(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"base/top.sls":  "base:\n  '*': [imp]\n",
		"base/imp.sls":  "#!jinja|yaml\n{% include grains.path %}\n",
		"base/good.sls": "good: 1\n", "dev/other.sls": "other: 1\n", "outside": "outside: 1\n", "states/map": "map: 1\n",
	})
	if err := os.Symlink("../outside", dir+"/base/link"); err != nil {
		t.Fatal(err)
	}
	states := func(_, path string) ([]byte, error) {
		if path != dir+"/states/map" {
			return nil, fs.ErrNotExist
		}
		return os.ReadFile(path)
	}
	c := compiler(dir, func(c *Config) { c.Renderer = render.New(render.Options{Local: states}) })
	for path, want := range map[string]string{
		dir + "/base/good.sls": "{'good': 1}", dir + "/states/map": "{'map': 1}",
		dir + "/base/link":     "{'outside': 1}", // a link that the administrator made
		dir + "/dev/other.sls": "", dir + "/outside": "", dir + "/base/../outside": "", dir + "/states/../outside": "", "/etc/passwd": "",
		"/base/../../etc/passwd": "", "../outside": "", "./../outside": "", dir + "/base/../dev/other.sls": "", dir + "/base": "",
	} {
		got, err := c.Compile(t.Context(), Request{ID: "evil", Grains: value.DictOf("path", path)})
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = `{'_errors': ["Rendering SLS 'imp' failed. Please see master log for details."]}`
		}
		if value.Repr(got) != want {
			t.Errorf("%s: %s, want %s", path, value.Repr(got), want)
		}
	}
}
