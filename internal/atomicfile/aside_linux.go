package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Aside writes a content to a file in a folder that has no name yet: SyncAll
// puts it on the disk, and ReplaceAs in its place. Nobody sees it, and if it is
// closed, or the process killed, before that, nothing is left of it. The mode
// is what the umask leaves of perm. The error is errors.ErrUnsupported where
// the file system has no such files.
func Aside(dir string, perm fs.FileMode, pour func(io.Writer) error) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, perm)
	if err != nil {
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
			err = errors.ErrUnsupported
		}
		return nil, err
	}
	if _, e := os.Lstat(self(f)); e != nil { // it could not be given a name
		err = errors.ErrUnsupported
	} else {
		err = pour(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func self(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// name gives a file of Aside's a temporary name in its folder.
func name(f *os.File, dir string) (string, error) {
	for i := 0; ; i++ {
		temp := temporaryName(dir)
		err := unix.Linkat(unix.AT_FDCWD, self(f), unix.AT_FDCWD, temp, unix.AT_SYMLINK_FOLLOW)
		switch {
		case err == nil:
			return temp, nil
		case !errors.Is(err, fs.ErrExist) || i > 10000:
			return "", &os.LinkError{Op: "link", Old: "a file without a name", New: temp, Err: err}
		}
	}
}
