package revision

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncTree returns when a directory and the contents of its files are on disk.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
