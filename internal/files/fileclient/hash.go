package fileclient

import (
	"encoding/hex"
	"hash"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
)

// NewHash returns the hash with a name, or nil for an unknown name.
func NewHash(name string) hash.Hash { return crypt.NewHash(name) }

// lengths maps the lengths of hexadecimal hashes to hash types.
var lengths = map[int]string{32: "md5", 40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}

func hashFile(path, form string) (string, error) {
	f, err := openRegular(path)
	if err != nil {
		return "", missing(err)
	}
	defer f.Close()
	return hashOf(f, form)
}

// hashOf returns the hash of a whole file, and seeks to its beginning.
func hashOf(f *os.File, form string) (string, error) {
	h := NewHash(form)
	if h == nil {
		return "", salt.Errorf(salt.Invalid, "%q is not a known hash_type", form)
	}
	if err := crypt.HashReader(h, f); err != nil {
		return "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// openRegular opens a regular file. It never waits for the writer of a pipe.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// statNumbers returns the ten numbers of stat(2), in Python's order.
func statNumbers(path string) ([]int64, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return nil, missing(&fs.PathError{Op: "stat", Path: path, Err: err})
	}
	return []int64{int64(s.Mode), int64(s.Ino), int64(s.Dev), int64(s.Nlink), int64(s.Uid), int64(s.Gid),
		s.Size, int64(s.Atim.Sec), int64(s.Mtim.Sec), int64(s.Ctim.Sec)}, nil
}
