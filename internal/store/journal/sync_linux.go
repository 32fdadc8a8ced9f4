package journal

import (
	"errors"
	"os"
	"syscall"
)

// toDisk writes what is in f, and of its metadata what is needed to read it.
func toDisk(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
