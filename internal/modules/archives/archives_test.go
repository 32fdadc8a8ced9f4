package archives

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/fn"
	"brine/internal/fn/fntest"
	"brine/internal/host"
	"brine/internal/modules/stocktest"
	"brine/internal/value"
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

// TestLikeSalt lists, packs and unpacks the same archives with each.
func TestLikeSalt(t *testing.T) {
	dir := t.TempDir()
	script := `set -e; cd "$1"; mkdir -p src/a/b; echo 1 > src/a/b/f; echo 2 > src/g; ln -s g src/l; chmod 750 src/a; chmod 600 src/g
		tar cf t.tar src; tar czf t.tar.gz src/a; tar cjf t.tar.bz2 src; tar cJf t.tar.xz src; zip -q -r -y t.zip src; echo no > bad.tar; echo no > bad.zip`
	if out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot make the archives: %v: %s", err, out)
	}
	var jobs [][]any
	for _, f := range []string{"t.tar", "t.tar.gz", "t.tar.bz2", "t.tar.xz", "t.zip"} {
		jobs = append(jobs, []any{"archive.list", dir + "/" + f}, []any{"archive.list", dir + "/" + f, "verbose=True"}, []any{"archive.list", dir + "/" + f, "strip_components=1"})
	}
	jobs = append(jobs, []any{"archive.tar", "tf", dir + "/t.tar"}, []any{"archive.tar", "", "x"})
	recorded := stocktest.Ask(t, nil, jobs...)
	for i, job := range jobs {
		got := run(t, strings.TrimPrefix(job[0].(string), "archive."), job[1:]...).Return
		if want := recorded[i].At("return"); !value.Equal(got, want) {
			t.Errorf("%v: returns %s\nSalt: %s", job, value.Repr(got), value.Repr(want))
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

// TestZipStaysInside unpacks an archive that wants to write elsewhere.
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
