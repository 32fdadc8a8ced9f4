//go:build !linux

package revision

import (
	"io/fs"
	"os"
	"path/filepath"
)

// syncTree comes back when the disk has all that is in a folder, and the
// contents that it names.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Sync()
	})
}
