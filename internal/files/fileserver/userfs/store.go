package userfs

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/files/fileserver"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

const (
	// maxContent bounds the content of one file in bytes.
	maxContent = 8 << 30
	// maxPart bounds one part of a file, decompressed, in bytes.
	maxPart = 64 << 20
	// keep is how long content is stored after it was used last.
	keep = 24 * time.Hour
	// touchAfter is how old the record of the last use may be.
	touchAfter = time.Hour
)

// store has the contents of files by their hashes.
type store struct {
	dir string

	mu     *sync.Mutex
	making map[string]*making
}

type making struct {
	done chan struct{} // closed when err is known
	err  error
}

func newStore(cacheDir, name string) store {
	return store{dir: filepath.Join(cacheDir, "brine", "userfs", hex.EncodeToString([]byte(name))), mu: &sync.Mutex{}, making: map[string]*making{}}
}

// get returns the path of the content with a hash. read returns its part at an offset, an empty one at its
// end. Requests for content that is being stored wait for it.
func (s *store) get(form, sum string, read func(loc int64) ([]byte, error)) (string, error) {
	if crypt.NewHash(form) == nil {
		return "", salt.Errorf(salt.Invalid, "file_hash returned the hash_type %q, which is not known", form)
	}
	if _, err := hex.DecodeString(sum); err != nil || sum == "" || len(sum) > 1024 {
		return "", salt.Errorf(salt.Invalid, "file_hash returned %q, which is no hash in hexadecimal", sum)
	}
	path := filepath.Join(s.dir, form+"-"+sum)
	for {
		if s.has(path) {
			return path, nil
		}
		s.mu.Lock()
		m := s.making[path]
		if m == nil {
			m = &making{done: make(chan struct{})}
			s.making[path] = m
			s.mu.Unlock()
			m.err = s.write(path, form, sum, read)
			s.mu.Lock()
			delete(s.making, path)
			s.mu.Unlock()
			close(m.done)
			return path, m.err
		}
		s.mu.Unlock()
		<-m.done
		if m.err != nil {
			return "", m.err
		}
	}
}

// has reports whether content is stored, and records its use.
func (s *store) has(path string) bool {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	if now := time.Now(); now.Sub(st.ModTime()) > touchAfter {
		_ = os.Chtimes(path, now, now) // at worst it is made again
	}
	return true
}

func (s *store) write(path, form, sum string, read func(loc int64) ([]byte, error)) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	h := crypt.NewHash(form)
	return atomicfile.Replace(path, 0o600, func(w io.Writer) error {
		for loc := int64(0); ; {
			data, err := read(loc)
			if err != nil {
				return err
			}
			if len(data) == 0 {
				break
			}
			if loc += int64(len(data)); loc > maxContent {
				return errEndless
			}
			h.Write(data)
			if _, err := w.Write(data); err != nil {
				return err
			}
		}
		if !strings.EqualFold(hex.EncodeToString(h.Sum(nil)), sum) {
			return fileserver.ErrOther
		}
		return nil
	})
}

// sweep removes contents that have not been used for some time.
func (s *store) sweep() {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil && steady.Removal().Sub(st.ModTime()) > keep {
			_ = os.Remove(filepath.Join(s.dir, e.Name()))
		}
	}
}

// clear removes all contents.
func (s *store) clear() error {
	if err := os.RemoveAll(s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove %s: %w", s.dir, err)
	}
	return nil
}

// part returns the data in an answer of serve_file.
func part(d *value.Dict) ([]byte, error) {
	var data []byte
	switch x := d.At("data").(type) {
	case []byte:
		data = x
	case string:
		data = []byte(x)
	case nil:
	default:
		return nil, salt.Errorf(salt.Invalid, "serve_file returned a %s as data, not bytes", value.TypeName(x))
	}
	if len(data) == 0 || !value.Truth(d.At("gzip")) {
		return data, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("serve_file returned data that is not compressed by gzip: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxPart+1))
	if err == nil && len(plain) > maxPart {
		err = fmt.Errorf("it has more than %d bytes", maxPart)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot decompress a part of serve_file: %w", err)
	}
	return plain, nil
}
