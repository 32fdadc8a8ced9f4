package python

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// TestZipped: a module may be an archive with a module or package of the archive's name, as in Salt;
// one without says so.
func TestZipped(t *testing.T) {
	dir := t.TempDir()
	paths := map[string]string{}
	for name, files := range map[string]map[string]string{
		"single":  {"single.py": "def hi():\n    return __salt__['brine.echo']('single')\n"},
		"several": {"several/__init__.py": "from .part import word\ndef hi():\n    return word\n", "several/part.py": "word = 'several'\n"},
		"foreign": {"other.py": "def hi():\n    return 'other'\n"},
	} {
		paths[name] = filepath.Join(dir, name+".zip")
		out, err := os.Create(paths[name])
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(out)
		for path, text := range files {
			w, err := z.Create(path)
			if err == nil {
				_, err = w.Write([]byte(text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f := newFixture(t, nil, func(c *Config) {
		c.Loaders = func() map[string]Files {
			return map[string]Files{"modules": {Paths: paths, Claims: map[string][]string{}}}
		}
	})
	for _, name := range []string{"single", "several"} {
		if v, err := f.run(t, name+".hi"); err != nil || !value.Equal(v, name) {
			t.Errorf("%s.hi: %v, %v", name, v, err)
		}
	}
	if _, err := f.run(t, "foreign.hi"); err == nil {
		t.Error("foreign.hi exists")
	}
	if !strings.Contains(f.log.String(), "foreign.zip cannot be loaded") {
		t.Errorf("the log does not name foreign.zip:\n%s", f.log.String())
	}
}
