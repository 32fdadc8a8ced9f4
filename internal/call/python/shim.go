package python

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"brine/internal/base/atomicfile"
)

//go:embed all:shim
var shimFiles embed.FS

// shimHash is the name of the shim's directory. It depends on the content, so that Python never
// uses compiled files of another release.
var shimHash = sync.OnceValue(func() string {
	sum := sha256.New()
	for name, data := range shimContents() {
		sum.Write([]byte(name))
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
})

// shimContents returns the files in a fixed order.
func shimContents() func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		_ = fs.WalkDir(shimFiles, "shim", func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := shimFiles.ReadFile(path)
			if err == nil && !yield(path[len("shim/"):], data) {
				return fs.SkipAll
			}
			return err
		})
	}
}

var installing sync.Mutex

// installShim writes the shim below dir unless it exists, and returns its directory.
func installShim(dir string) (string, error) {
	installing.Lock()
	defer installing.Unlock()
	to := filepath.Join(dir, shimHash())
	for name, data := range shimContents() {
		path := filepath.Join(to, filepath.FromSlash(name))
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		if err := atomicfile.Write(path, data, 0o600, false); err != nil {
			return "", err
		}
	}
	return to, removeOthers(dir, shimHash())
}

// removeOthers removes the shims of other releases.
func removeOthers(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != keep && len(e.Name()) == len(keep) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Install writes the package salt for programs outside of Brine to a directory.
func Install(dir string) error {
	for name, data := range shimContents() {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := atomicfile.Write(path, data, 0o644, false); err != nil {
			return err
		}
	}
	return nil
}
