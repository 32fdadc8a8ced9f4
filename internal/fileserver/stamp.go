package fileserver

import (
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// stamp tells versions of a file or folder apart. Times are nanoseconds.
type stamp struct {
	mtime, ctime, size int64
	inode, dev         uint64
}

// stampOf follows symbolic links.
func stampOf(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fromStat(&st), nil
}

func stampOfFile(f *os.File) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stamp{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return fromStat(&st), nil
}

func fromStat(st *unix.Stat_t) stamp {
	return stamp{mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), size: st.Size, inode: uint64(st.Ino), dev: uint64(st.Dev)}
}

// same reports whether two stamps are of the same folder.
func (s stamp) same(o stamp) bool { return s.inode == o.inode && s.dev == o.dev }

// settled reports whether a further change would give another stamp. File
// times advance in ticks of some milliseconds, on a few file systems in whole
// seconds, so what changed just now may change again without showing it.
func (s stamp) settled() bool {
	tick := 50 * time.Millisecond
	if s.ctime%1e9 == 0 || s.mtime%1e9 == 0 {
		tick = 2100 * time.Millisecond
	}
	return time.Since(time.Unix(0, max(s.mtime, s.ctime))) > tick
}

func keys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }

func sortedSet(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}
