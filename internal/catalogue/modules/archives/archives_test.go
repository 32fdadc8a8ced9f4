package archives

import (
	"archive/zip"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules(&host.Machine{})) }

const signatures = "testdata/signatures.json"

func TestSignatures(t *testing.T) { stocktest.Signatures(t, signatures, Modules(&host.Machine{}), nil) }

func TestRecordingIsTrue(t *testing.T) { stocktest.Verify(t, signatures) }

func run(t *testing.T, fun string, args ...any) fn.Outcome {
	t.Helper()
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	return r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "archive." + fun, Arg: args})
}

// TestLikeSalt lists, packs and unpacks the same archives with Salt and with Brine.
func TestLikeSalt(t *testing.T) {
	dir := t.TempDir()
	script := `set -e; cd "$1"; mkdir -p src/a/b; echo 1 > src/a/b/f; echo 2 > src/g; ln -s g src/l; chmod 750 src/a; chmod 600 src/g
		tar cf t.tar src; tar czf t.tar.gz src/a; tar cjf t.tar.bz2 src; tar cJf t.tar.xz src; zip -q -r -y t.zip src; zip -q -P word locked.zip src/g; echo no > bad.tar; echo no > bad.zip`
	if out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot make the archives: %v: %s", err, out)
	}
	var jobs [][]any
	for _, f := range []string{"t.tar", "t.tar.gz", "t.tar.bz2", "t.tar.xz", "t.zip"} {
		jobs = append(jobs, []any{"archive.list", dir + "/" + f}, []any{"archive.list", dir + "/" + f, "verbose=True"},
			[]any{"archive.list", dir + "/" + f, "strip_components=1"})
	}
	jobs = append(jobs, []any{"archive.tar", "tf", dir + "/t.tar"}, []any{"archive.tar", "", "x"},
		[]any{"archive.tar", "tf", dir + "/none"}, []any{"archive.gunzip", dir + "/none"}, []any{"archive.cmd_zip", dir + "/n.zip", "none"},
		[]any{"archive.zip", dir + "/o.zip", "src/a,none", "cwd=" + dir}, []any{"archive.list", dir + "/o.zip", "verbose=True"},
		[]any{"archive.zip", dir + "/o.zip", dir + "/src/a"}, []any{"archive.zip", dir + "/o.zip", "src"},
		[]any{"archive.zip", dir + "/o.zip", "src", "cwd=here"},
		[]any{"archive.is_encrypted", dir + "/t.zip"}, []any{"archive.is_encrypted", dir + "/locked.zip"})
	recorded := stocktest.Ask(t, nil, jobs...)
	for i, job := range jobs {
		got := run(t, strings.TrimPrefix(job[0].(string), "archive."), job[1:]...)
		if want := recorded[i].At("return"); !value.Equal(got.Return, want) || got.Retcode != int(recorded[i].Int("retcode")) {
			t.Errorf("%v: returns %s, %d\nSalt: %s, %d", job, value.Repr(got.Return), got.Retcode, value.Repr(want), recorded[i].Int("retcode"))
		}
	}
	for _, f := range []string{"bad.tar", "bad.zip", "none.tar", "t.what"} {
		if o := run(t, "list", dir+"/"+f); o.Success {
			t.Errorf("%s: %v", f, o.Return)
		}
	}
	if o := run(t, "unzip", dir+"/t.zip", dir+"/out", "excludes=src/g"); !o.Success {
		t.Errorf("unzip: %v", o.Return)
	}
	st, err := os.Stat(dir + "/out/src/a")
	if err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", st, err)
	}
	if link, err := os.Readlink(dir + "/out/src/l"); link != "g" || err != nil {
		t.Errorf("%s, %v", link, err)
	}
	if _, err := os.Stat(dir + "/out/src/g"); err == nil {
		t.Error("what is excluded is there")
	}
	if o := run(t, "gzip", dir+"/src/g"); !o.Success {
		t.Errorf("gzip: %v", o.Return)
	}
	if o := run(t, "gunzip", dir+"/src/g.gz"); !o.Success {
		t.Errorf("gunzip: %v", o.Return)
	}
}

// TestUnzipPassword unpacks an encrypted archive.
func TestUnzipPassword(t *testing.T) {
	dir := t.TempDir()
	script := `cd "$1" && echo secret > f && echo other > g && zip -q -P word locked.zip f g`
	if out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot make the archive: %v: %s", err, out)
	}
	if o := run(t, "unzip", dir+"/locked.zip", dir+"/out", "password=wrong"); o.Success {
		t.Errorf("with a wrong password: %v", o.Return)
	}
	o := run(t, "unzip", dir+"/locked.zip", dir+"/out", "password=word", "excludes=g", "runas=root")
	if want := "['f']"; os.Geteuid() == 0 && value.Repr(o.Return) != want {
		t.Errorf("unpacked %s, want %s", value.Repr(o.Return), want)
	}
	o = run(t, "unzip", dir+"/locked.zip", dir+"/out", "password=word")
	if want := "['f', 'g']"; value.Repr(o.Return) != want || o.Retcode != 0 {
		t.Errorf("unpacked %s, exit code %d, want %s", value.Repr(o.Return), o.Retcode, want)
	}
	if text, err := os.ReadFile(dir + "/out/f"); string(text) != "secret\n" || err != nil {
		t.Errorf("unpacked %q, %v", text, err)
	}
}

// TestNamesAreTemplates: with an engine, the names are rendered, each item of a list by itself.
func TestNamesAreTemplates(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a-m1", "b-m1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	for _, sources := range []any{"a-ID,b-ID", value.Strings([]string{"a-ID", "b-ID"})} {
		c := &fn.Call{Templates: fntest.Templates{OfText: func(_ context.Context, tm fn.Template) (string, error) {
			if tm.Engine != "jinja" {
				return "", errors.New("an unknown engine")
			}
			return strings.ReplaceAll(string(tm.Source), "ID", "m1"), nil
		}}}
		o := r.Run(t.Context(), c, fn.Job{Fun: "archive.zip", Arg: []any{dir + "/ID.zip", sources, "cwd=" + dir, "template=jinja"}})
		if value.Repr(o.Return) != "['a-m1', 'b-m1']" {
			t.Errorf("packed %s", value.Repr(o.Return))
		}
		if names := run(t, "list", dir+"/m1.zip"); value.Repr(names.Return) != "['a-m1', 'b-m1']" {
			t.Errorf("the archive has %s", value.Repr(names.Return))
		}
		if o := r.Run(t.Context(), c, fn.Job{Fun: "archive.tar", Arg: []any{"cf", dir + "/ID.tar", sources, "template=none"}}); o.Success {
			t.Errorf("an unknown engine: %v", o.Return)
		}
	}
}

// TestZipStaysInside unpacks an archive with paths outside of the directory.
func TestZipStaysInside(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "evil.zip"))
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	h := &zip.FileHeader{Name: "link"}
	h.SetMode(os.ModeSymlink | 0o777)
	for _, e := range []struct {
		h    *zip.FileHeader
		text string
	}{{h, dir}, {&zip.FileHeader{Name: "link/through"}, "x"}} {
		w, err := z.CreateHeader(e.h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if o := run(t, "unzip", f.Name(), filepath.Join(dir, "out")); o.Success {
		t.Errorf("unpacked: %v", o.Return)
	}
	if _, err := os.Lstat(filepath.Join(dir, "through")); err == nil {
		t.Error("a file was written through a link")
	}
}

// TestZip unpacks with archive.unzip what archive.zip packs.
func TestZip(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"src/a/b/deep": 0o640, "src/run": 0o755, "one": 0o600} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("..", filepath.Join(dir, "src/up")); err != nil {
		t.Fatal(err)
	}
	o := run(t, "zip", dir+"/o.zip", "src,one,none", "cwd="+dir)
	if want := "['src/', 'src/run', 'src/a/', 'src/a/b/', 'src/a/b/deep', 'one']"; value.Repr(o.Return) != want {
		t.Errorf("packed %s, want %s", value.Repr(o.Return), want)
	}
	if o := run(t, "unzip", dir+"/o.zip", dir+"/out"); !o.Success {
		t.Fatal(o.Return)
	}
	for name, mode := range map[string]os.FileMode{"src/a/b/deep": 0o640, "src/run": 0o755, "one": 0o600} {
		text, err := os.ReadFile(filepath.Join(dir, "out", name))
		st, _ := os.Stat(filepath.Join(dir, "out", name))
		if err != nil || string(text) != name || st.Mode() != mode {
			t.Errorf("%s: %q, %v, %v", name, text, st, err)
		}
	}
	if o := run(t, "is_encrypted", dir+"/o.zip"); o.Return != false {
		t.Error(o.Return)
	}
	if o := run(t, "is_encrypted", dir+"/one"); o.Return != "ERROR: "+dir+"/one is not a ZIP file" {
		t.Error(o.Return)
	}
	if o := run(t, "zip", dir+"/gone/o.zip", dir+"/one"); o.Success {
		t.Error(o.Return)
	}
}

// TestRar only checks how the programs are called, as they are not free software.
func TestRar(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rar", "unrar"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+name+"\nfor a; do echo \"$a\"; done\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	for _, c := range []struct {
		want, fun string
		args      []any
	}{
		{"['rar', 'a', '-idp', '/o.rar', '/x', '/y z']", "rar", []any{"/o.rar", "/x,/y z"}},
		{"['unrar', 'x', '-idp', '/o.rar', '-xp', '-xq', '/to']", "unrar", []any{"/o.rar", "/to", "excludes=p,q"}},
		{"['unrar', 'x', 'List trimmed after 2 files.']", "unrar", []any{"/o.rar", "/to", "trim_output=2"}},
	} {
		if o := run(t, c.fun, c.args...); value.Repr(o.Return) != c.want {
			t.Errorf("%s: %s, want %s", c.fun, value.Repr(o.Return), c.want)
		}
	}
}
