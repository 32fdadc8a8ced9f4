package journal

import (
	"errors"
	"os"
	"syscall"
)

// toDisk flushes the data of f and the metadata needed to read it.
func toDisk(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
