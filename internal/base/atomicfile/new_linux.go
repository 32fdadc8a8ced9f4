package atomicfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew atomically renames to a name that must not exist. done is false if
// the file system, such as NFS, does not support that.
func renameNew(temp, path string) (done bool, err error) {
	switch err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE); {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return false, nil
	default:
		return true, &os.LinkError{Op: "rename", Old: temp, New: path, Err: err}
	}
}
