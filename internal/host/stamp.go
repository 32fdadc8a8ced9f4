package host

import (
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp identifies a version of a file or directory without reading it. Compare
// Stamps with ==; the zero Stamp means no file.
type Stamp struct {
	mtime, ctime, size int64 // times in nanoseconds
	inode, dev         uint64
}

// StampOf returns the stamp of a file, following links. It does not allocate.
func StampOf(path string) (Stamp, error) {
	s, _, err := StampAndType(path)
	return s, err
}

// StampAndType also reports whether it is a regular file.
func StampAndType(path string) (s Stamp, regular bool, err error) {
	var st unix.Stat_t
	for {
		switch err := unix.Stat(path, &st); err {
		case nil:
			return stampOf(&st), st.Mode&unix.S_IFMT == unix.S_IFREG, nil
		case unix.EINTR:
		default:
			return Stamp{}, false, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}

// StampOfFile returns the stamp of an open file.
func StampOfFile(f *os.File) (Stamp, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return Stamp{}, err
	}
	var st unix.Stat_t
	if e := c.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }); e != nil {
		err = e
	}
	if err != nil {
		return Stamp{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return stampOf(&st), nil
}

func stampOf(st *unix.Stat_t) Stamp {
	return Stamp{mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), size: st.Size, inode: uint64(st.Ino), dev: uint64(st.Dev)}
}

// Size returns the size in bytes.
func (s Stamp) Size() int64 { return s.size }

// SameFile reports whether two stamps are of the same file or directory,
// possibly of different versions.
func (s Stamp) SameFile(o Stamp) bool { return s.inode == o.inode && s.dev == o.dev }

// Settled reports whether a further change would give another stamp. File times
// advance in ticks of some milliseconds, on a few file systems in whole seconds,
// so a file that just changed may change again with the same stamp.
func (s Stamp) Settled() bool {
	tick := 100 * time.Millisecond
	if s.ctime%1e9 == 0 || s.mtime%1e9 == 0 {
		tick = 2100 * time.Millisecond
	}
	return time.Since(time.Unix(0, max(s.mtime, s.ctime))) > tick
}
