package journal

import (
	"errors"
	"os"
	"syscall"
)

// allocate reserves disk space for a range of f without changing its size.
func allocate(f *os.File, from, to int64) error {
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE
	for {
		if err := syscall.Fallocate(int(f.Fd()), keepSize, from, to-from); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// cannotAllocate reports whether the file system of a file does not reserve space at all.
func cannotAllocate(err error) bool {
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS)
}
