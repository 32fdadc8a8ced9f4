package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// unchangedFor is the time for which a temporary file does not change before it
// is removed. No writer takes that long.
const unchangedFor = time.Hour

// after is time.AfterFunc, replaced by tests.
var after = func(d time.Duration, f func()) { time.AfterFunc(d, f) }

// waiting has the directories that RemoveTemps will look at again.
var waiting sync.Map

// RemoveTemps removes temporary files from a directory, left by writers that
// were killed: those that are there now and have not changed an hour later. It
// does not wait for that. The hour is time that passes in this process. The ages
// of files do not count, because clocks may be wrong: a file that looks days old
// may be one that another process writes now. A process that ends earlier
// removes nothing.
func RemoveTemps(dir string) {
	old := temps(dir)
	if len(old) == 0 {
		return
	}
	if _, ok := waiting.LoadOrStore(dir, true); ok {
		return
	}
	after(unchangedFor, func() {
		waiting.Delete(dir)
		for name, now := range temps(dir) {
			if was := old[name]; was != nil && os.SameFile(was, now) && was.ModTime().Equal(now.ModTime()) && was.Size() == now.Size() {
				os.Remove(filepath.Join(dir, name))
			}
		}
	})
}

// temps returns the temporary files of a directory by their names.
func temps(dir string) map[string]fs.FileInfo {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	out := map[string]fs.FileInfo{}
	names, _ := d.Readdirnames(-1) // includes entries read before an error
	for _, name := range names {
		if !strings.HasPrefix(name, TempPrefix) {
			continue
		}
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			out[name] = info
		}
	}
	return out
}
