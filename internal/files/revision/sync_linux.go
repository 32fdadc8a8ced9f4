package revision

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncTree flushes a directory and the contents of its files to disk.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
