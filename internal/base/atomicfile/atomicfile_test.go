package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	other := filepath.Join(dir, "other")
	os.WriteFile(other, []byte("keep"), 0o644)
	os.Symlink(other, path)
	if err := Write(path, []byte("new"), 0o640, true); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o640 {
		t.Fatal(info.Mode(), err)
	}
	if b, _ := os.ReadFile(other); string(b) != "keep" {
		t.Error("the link was followed")
	}
	if es, _ := os.ReadDir(dir); len(es) != 2 {
		t.Error("a temporary file is left", es)
	}
}

func TestCreateHasOneWinner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			switch err := Create(path, []byte("x"), 0o600); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Error(won.Load())
	}
	if es, _ := os.ReadDir(filepath.Dir(path)); len(es) != 1 {
		t.Error("a temporary file is left", es)
	}
}

func TestErrorNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "f")
	err := Write(path, nil, 0o600, false)
	if err == nil || err.Error() != "cannot write "+path+": no such file or directory" {
		t.Error(err)
	}
	dir := t.TempDir()
	os.Mkdir(filepath.Join(dir, "d"), 0o755)
	if err := Write(filepath.Join(dir, "d"), nil, 0o600, false); err == nil || strings.Contains(err.Error(), TempPrefix) {
		t.Error(err)
	}
	if es, _ := os.ReadDir(dir); len(es) != 1 {
		t.Error("a temporary file is left", es)
	}
}

// TestRemoveTemps: of the temporary files that were there an hour ago those are
// removed that have not changed since, whatever their times say: one that looks
// days old may be in writing, if a clock is wrong.
func TestRemoveTemps(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, age time.Duration) {
		t.Helper()
		path, at := filepath.Join(dir, name), time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	var hourLater []func()
	usual := after
	t.Cleanup(func() { after = usual })
	after = func(d time.Duration, f func()) {
		if d != time.Hour {
			t.Errorf("it waits for %v", d)
		}
		hourLater = append(hourLater, f)
	}
	const days = 72 * time.Hour
	write("a", "", days)
	RemoveTemps(dir)
	if len(hourLater) != 0 {
		t.Error("it waits without a temporary file")
	}
	for _, name := range []string{"left", "written", "again"} {
		write(TempPrefix+name, "", days)
	}
	RemoveTemps(dir)
	RemoveTemps(dir)
	if len(hourLater) != 1 {
		t.Fatalf("it waits %d times", len(hourLater))
	}
	is := func(when string, want ...string) {
		t.Helper()
		var got []string
		es, _ := os.ReadDir(dir)
		for _, e := range es {
			got = append(got, strings.TrimPrefix(e.Name(), TempPrefix))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	is("at once", "a", "again", "left", "written")
	write(TempPrefix+"written", "more", days)
	os.Remove(filepath.Join(dir, TempPrefix+"again"))
	write(TempPrefix+"new", "", days)
	write(TempPrefix+"again", "", days-time.Second)
	hourLater[0]()
	is("an hour later", "a", "again", "new", "written")
	RemoveTemps(dir)
	if len(hourLater) != 2 {
		t.Fatalf("it does not look again")
	}
	hourLater[1]()
	is("two hours later", "a")
}

// TestReadyTakesTheName gives files made by Aside a free name, the name of a
// file, and the name of a symbolic link, which must be replaced and not
// followed.
func TestReadyTakesTheName(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	aside := func() *os.File {
		f, err := Aside(dir, 0o600, func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err })
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("files without names are not supported here")
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, test := range []struct {
		name      string
		old, link bool
	}{{"free", false, false}, {"taken", true, false}, {"link", false, true}} {
		path := filepath.Join(dir, test.name)
		if test.old {
			if err := os.WriteFile(path, []byte("old content"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f := aside()
		if errs := SyncAll([]*os.File{f}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		as := As{Mode: 0o640, UID: -1, GID: -1, Durable: true, Ready: func(final string, old fs.FileInfo) *os.File {
			if final != path || (old != nil) != test.old {
				t.Errorf("%s: asked for %s in place of %v", test.name, final, old)
			}
			if test.link {
				if err := os.Symlink(victim, path); err != nil {
					t.Error(err)
				}
			}
			return f
		}}
		if err := ReplaceAs(path, as, func(io.Writer) error { t.Error("the content was written again"); return nil }); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		st, err := os.Lstat(path)
		if b, e := os.ReadFile(path); err != nil || e != nil || string(b) != "new" || st.Mode() != 0o640 {
			t.Errorf("%s: %q %v %v %v", test.name, b, st, err, e)
		}
		if _, err := f.Stat(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: the file is still open: %v", test.name, err)
		}
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "keep" {
		t.Errorf("the link was followed: %q %v", b, err)
	}
	if es, err := os.ReadDir(dir); err != nil || len(es) != 4 {
		t.Errorf("files are left: %v %v", es, err)
	}
}

// TestSyncAllReportsEach lets one of several files fail.
func TestSyncAllReportsEach(t *testing.T) {
	var files []*os.File
	for range 20 {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("content"); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	files[7].Close()
	for i, err := range SyncAll(files) {
		if (err != nil) != (i == 7) {
			t.Errorf("file %d: %v", i, err)
		}
	}
}

// TestUnflushedDirectory: a file whose name the disk refuses to flush is not reported as written. File systems
// that cannot flush directories are no error.
func TestUnflushedDirectory(t *testing.T) {
	usual := flushDir
	t.Cleanup(func() { flushDir = usual })
	dir := t.TempDir()
	for i, test := range []struct {
		err  error
		fine bool
	}{{syscall.EIO, false}, {syscall.ENOSPC, false}, {syscall.EINVAL, true}, {syscall.ENOTSUP, true}, {nil, true}} {
		flushDir = func(f *os.File) error {
			if test.err == nil {
				return nil
			}
			return &fs.PathError{Op: "sync", Path: f.Name(), Err: test.err}
		}
		path := filepath.Join(dir, fmt.Sprint("f", i))
		errs := map[string]error{
			"Create": Create(path, nil, 0o600), "Write": Write(path, nil, 0o600, true), "MkdirAll": MkdirAll(path+"d", 0o700),
		}
		for what, err := range errs {
			if (err == nil) != test.fine || !test.fine && !errors.Is(err, test.err) {
				t.Errorf("%s while the flush returns %v: %v", what, test.err, err)
			}
		}
		if err := Write(path, nil, 0o600, false); err != nil {
			t.Errorf("without a flush: %v", err)
		}
	}
}
