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

// Aside creates an unnamed file in a directory and writes its content. SyncAll
// flushes it, and ReplaceAs gives it a name. Until then, no other process sees
// it, and nothing is left if it is closed or the process ends. Its mode is perm
// minus the umask. The error is errors.ErrUnsupported if the file system has no
// such files.
func Aside(dir string, perm fs.FileMode, pour func(io.Writer) error) (*os.File, error) {
	if !nameable() {
		return nil, errors.ErrUnsupported
	}
	// os.OpenFile would register the file with the poller, which costs five
	// system calls that fail.
	fd, err := retry(func() (int, error) {
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

// nameable reports whether unnamed files can be linked here, which requires
// /proc.
var nameable = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/self/fd")
	return err == nil
})

// retry repeats a system call interrupted by a signal.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}

// link gives a name to a file made by Aside. The error matches fs.ErrExist if
// the name exists.
func link(f *os.File, path string) error {
	self := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	_, err := retry(func() (struct{}, error) {
		return struct{}{}, unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	})
	if err != nil {
		return &os.LinkError{Op: "link", Old: "a file without a name", New: path, Err: err}
	}
	return nil
}

// startFlush starts writing the file to disk, without waiting.
func startFlush(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // Sync reports the error
}

// waitFlush waits for the writes of startFlush. The system reports an error only
// once, so Sync would not report it again.
func waitFlush(f *os.File) error {
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
