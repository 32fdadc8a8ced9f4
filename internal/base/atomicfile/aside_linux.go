package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Aside writes a content to a file in a folder that has no name yet: SyncAll
// puts it on the disk, and ReplaceAs in its place. Nobody sees it, and if it is
// closed, or the process killed, before that, nothing is left of it. The mode
// is what the umask leaves of perm. The error is errors.ErrUnsupported where
// the file system has no such files.
func Aside(dir string, perm fs.FileMode, pour func(io.Writer) error) (*os.File, error) {
	if !nameable() {
		return nil, errors.ErrUnsupported
	}
	// os.OpenFile would offer the file to the poller, which takes five further
	// system calls to find out that it is none for it.
	fd, err := again(func() (int, error) {
		return unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, uint32(perm.Perm()))
	})
	switch {
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return nil, errors.ErrUnsupported
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	if err := pour(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// nameable tells whether files without names can be given some here: that goes
// by /proc.
var nameable = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/self/fd")
	return err == nil
})

// again repeats a system call that a signal has interrupted.
func again[T any](call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}

// link gives a file of Aside's a name that must not exist; the error then
// matches fs.ErrExist.
func link(f *os.File, path string) error {
	self := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	_, err := again(func() (struct{}, error) {
		return struct{}{}, unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	})
	if err != nil {
		return &os.LinkError{Op: "link", Old: "a file without a name", New: path, Err: err}
	}
	return nil
}

// begin has the system write what it holds of a file, without waiting for it.
func begin(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // Sync says what is wrong
}

// written waits until what begin began is on the disk. An error is told once
// only, and Sync would not tell of it again.
func written(f *os.File) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := unix.SyncFileRange(int(f.Fd()), 0, 0, all)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESPIPE) || errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "sync", Path: f.Name(), Err: err}
	}
	return nil
}
