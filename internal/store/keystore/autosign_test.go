package keystore

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/py/value"
)

func options(t *testing.T) Options {
	t.Helper()
	var o Options
	must(t, field.Defaults(&o))
	return o
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o600))
	must(t, os.Chmod(path, mode))
}

func TestOptions(t *testing.T) {
	if _, err := field.Of(reflect.TypeFor[Options]()); err != nil {
		t.Fatal(err)
	}
	if o := options(t); o != (Options{AutosignTimeout: 120}) {
		t.Errorf("%+v", o)
	}
}

func TestSigningFiles(t *testing.T) {
	s := open(t)
	o := options(t)
	o.AutosignFile = filepath.Join(s.dir, "autosign.conf")
	o.AutorejectFile = filepath.Join(s.dir, "autoreject.conf")
	a := NewAutosign(s, o, "root", quiet)
	if a.Signs("web1", nil) != "" || a.Rejects("web1") {
		t.Error("signed or rejected without a file")
	}
	write(t, o.AutosignFile, "# comment\n\n  web*.example.com  \ndb[0-9]+\nexact\nweb1|app1\n(broken\n", 0o644)
	write(t, o.AutorejectFile, "#bad\nevil*\n", 0o644)
	for id, want := range map[string]bool{"web1.example.com": true, "web1.example.com.evil": false, "db42": true, "db": false, "xdb1": false,
		"exact": true, "exact2": false, "web1": true, "app1": true, "web1x": false, "# comment": false, "#bad": false, "(broken": true} {
		if got := a.Signs(id, nil) != ""; got != want {
			t.Errorf("%s: %v", id, got)
		}
	}
	if !a.Rejects("evil1") || a.Rejects("good") || a.Rejects("bad") {
		t.Error("autoreject_file")
	}
	write(t, o.AutosignFile, "other", 0o644) // applies at once
	if a.Signs("exact", nil) != "" || a.Signs("other", nil) == "" {
		t.Error("an old autosign file is still used")
	}
	for mode, want := range map[os.FileMode]bool{0o600: true, 0o644: true, 0o646: false, 0o664: false} {
		must(t, os.Chmod(o.AutosignFile, mode))
		if got := a.Signs("other", nil) != ""; got != want {
			t.Errorf("mode %o: %v", mode, got)
		}
	}
	must(t, os.Chmod(o.AutosignFile, 0o664))
	o.PermissivePKIAccess = true
	if NewAutosign(s, o, "root", quiet).Signs("other", nil) == "" {
		t.Error("permissive_pki_access")
	}
	if os.Geteuid() == 0 && NewAutosign(s, o, "nobody", quiet).Signs("other", nil) != "" {
		t.Error("a file writable for another group was used")
	}
	must(t, os.Chmod(o.AutosignFile, 0o666))
	if NewAutosign(s, o, "root", quiet).Signs("other", nil) != "" {
		t.Error("a file writable for all users was used")
	}
}

// TestPlainLines checks that a name or a glob accepts no id that it matches only as a regular
// expression. Regular expressions still work, and a line that rejects is used in both meanings.
func TestPlainLines(t *testing.T) {
	s := open(t)
	o := options(t)
	o.AutosignFile, o.AutorejectFile = filepath.Join(s.dir, "autosign.conf"), filepath.Join(s.dir, "autoreject.conf")
	a := NewAutosign(s, o, "root", quiet)
	for line, c := range map[string]struct{ signs, not string }{
		"web*.example.com":   {"web1.example.com", "we-example-com"},
		"web1.example.com":   {"web1.example.com", "web1-example-com"},
		"web?.example.com":   {"web1.example.com", "web-example-com"},
		"*.example.com":      {"a.example.com", "a-example-com"},
		"[a-c]1.example.com": {"b1.example.com", "b1-example-com"},
		"web.*":              {"web1", "we"},
		"web.?":              {"web1", "web12"},
		".*":                 {"any", ""},
		"web..":              {"web12", "web1"},
		"web[0-9]*":          {"web123", "webx"},
		"web[0-9]?":          {"web", "webx"},
		"web[0-9]+":          {"web12", "web"},
		`web\.example\.com`:  {"web.example.com", "web-example-com"},
		"(db|web).x":         {"db-x", "dbx"},
		"web1|web2":          {"web2", "web3"},
	} {
		write(t, o.AutosignFile, line+"\n", 0o600)
		write(t, o.AutorejectFile, line+"\n", 0o600)
		if a.Signs(c.signs, nil) == "" {
			t.Errorf("%s does not sign %s", line, c.signs)
		}
		if a.Signs(c.not, nil) != "" {
			t.Errorf("%s signs %s", line, c.not)
		}
	}
	write(t, o.AutorejectFile, "web*.example.com\n", 0o600)
	if !a.Rejects("we-example-com") {
		t.Error("a line of autoreject_file has lost a meaning")
	}
}

func TestAutoAccept(t *testing.T) {
	o := options(t)
	o.AutoAccept = true
	a := NewAutosign(open(t), o, "root", quiet)
	if a.Signs("any", nil) == "" || a.Signs("../any", nil) != "" {
		t.Error("auto_accept")
	}
}

func TestStubs(t *testing.T) {
	s := open(t)
	a := NewAutosign(s, options(t), "root", quiet)
	dir := filepath.Join(s.dir, "minions_autosign")
	write(t, filepath.Join(dir, "web1"), "", 0o644)
	write(t, filepath.Join(dir, "old"), "", 0o644)
	must(t, os.Chtimes(filepath.Join(dir, "old"), time.Time{}, time.Now().Add(-121*time.Minute)))
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	var signed atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if a.Signs("web1", nil) != "" {
				signed.Add(1)
			}
		})
	}
	wg.Wait()
	if signed.Load() != 1 {
		t.Errorf("one stub signed %d times", signed.Load())
	}
	if a.Signs("old", nil) != "" || a.Signs("folder", nil) != "" || a.Signs("../real", nil) != "" {
		t.Error("signed")
	}
	if _, err := os.Stat(filepath.Join(dir, "old")); err == nil {
		t.Error("an expired stub was left")
	}
	o := options(t)
	o.AutosignTimeout = 0
	write(t, filepath.Join(dir, "old"), "", 0o644)
	must(t, os.Chtimes(filepath.Join(dir, "old"), time.Time{}, time.Unix(1, 0)))
	if NewAutosign(s, o, "root", quiet).Signs("old", nil) == "" {
		t.Error("a timeout of 0 must mean no limit")
	}
}

func TestGrains(t *testing.T) {
	s := open(t)
	o := options(t)
	o.AutosignGrainsDir = filepath.Join(s.dir, "grains")
	write(t, filepath.Join(o.AutosignGrainsDir, "uuid"), "# none\nabc\n\n42\n", 0o644)
	write(t, filepath.Join(o.AutosignGrainsDir, "open"), "x\n", 0o666)
	write(t, filepath.Join(s.dir, "secret"), "abc\n", 0o644)
	a := NewAutosign(s, o, "root", quiet)
	for _, c := range []struct {
		grain string
		v     any
		want  bool
	}{{"uuid", "abc", true}, {"uuid", 42, true}, {"uuid", "ab", false}, {"uuid", "", false}, {"uuid", "# none", false}, {"open", "x", false},
		{"../secret", "abc", false}, {"none", "abc", false}} {
		if got := a.Signs("m", value.DictOf(c.grain, c.v)) != ""; got != c.want {
			t.Errorf("%s=%v: %v", c.grain, c.v, got)
		}
	}
}

// TestCheckFiles: the files that options name are missing, of another type or open to others, or fine.
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	file, open := filepath.Join(dir, "file"), filepath.Join(dir, "open")
	for _, path := range []string{file, open} {
		if err := os.WriteFile(path, []byte("web*\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o                 Options
		missing, unusable string
	}{
		{Options{}, "", ""},
		{Options{AutosignFile: file, AutorejectFile: file, AutosignGrainsDir: dir}, "", ""},
		{Options{AutosignFile: dir + "/none"}, "autosign_file: there is no file " + dir + "/none", ""},
		{Options{AutorejectFile: dir}, "", "autoreject_file: " + dir + " is not a file"},
		{Options{AutosignFile: open}, "", "writable for all users"},
		{Options{AutosignGrainsDir: file}, "", "autosign_grains_dir: "},
		{Options{AutosignGrainsDir: dir + "/none"}, "autosign_grains_dir: there is no directory", ""},
	} {
		missing, unusable := CheckFiles(c.o, "root")
		for _, got := range []struct {
			errs []error
			want string
		}{{missing, c.missing}, {unusable, c.unusable}} {
			err := errors.Join(got.errs...)
			if (err == nil) != (got.want == "") || err != nil && !strings.Contains(err.Error(), got.want) {
				t.Errorf("%+v: got %v, want %q", c.o, err, got.want)
			}
		}
	}
}
