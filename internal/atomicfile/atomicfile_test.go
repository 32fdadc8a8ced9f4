package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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

func TestRemoveTemps(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a", TempPrefix + "old", TempPrefix + "new"} {
		os.WriteFile(filepath.Join(dir, n), nil, 0o600)
	}
	old := time.Now().Add(-2 * time.Hour)
	os.Chtimes(filepath.Join(dir, "a"), old, old)
	os.Chtimes(filepath.Join(dir, TempPrefix+"old"), old, old)
	RemoveTemps(dir)
	es, _ := os.ReadDir(dir)
	if len(es) != 2 || es[0].Name() != TempPrefix+"new" {
		t.Error(es)
	}
}
