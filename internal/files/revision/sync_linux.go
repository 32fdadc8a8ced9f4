package revision

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncTree comes back when the disk has all that is in a folder, and the
// contents that it names.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
