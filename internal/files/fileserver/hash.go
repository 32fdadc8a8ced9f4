package fileserver

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"brine/internal/host"
	"brine/internal/net/crypt"
)

// hashCache caches the hashes of files while they do not change. Concurrent requests for a file read it once.
type hashCache struct {
	form string
	mu   sync.Mutex
	sums map[string]*hashEntry
}

type hashEntry struct {
	stamp host.Stamp
	done  chan struct{} // closed when sum and err are known
	sum   string
	err   error
}

// maxHashes bounds the cached hashes.
const maxHashes = 1 << 18

func newHashCache(form string) *hashCache {
	return &hashCache{form: form, sums: map[string]*hashEntry{}}
}

// of returns the hash of a file in hexadecimal.
func (h *hashCache) of(path string) (string, error) {
	s, err := host.StampOf(path)
	if err != nil {
		return "", err
	}
	return h.version(path, s)
}

// found does the same for a file that a backend has just found.
func (h *hashCache) found(f Found) (string, error) {
	if f.stamp == (host.Stamp{}) {
		return h.of(f.Path)
	}
	return h.version(f.Path, f.stamp)
}

// version returns the hash of a file with this stamp.
func (h *hashCache) version(path string, s host.Stamp) (string, error) {
	h.mu.Lock()
	e, ok := h.sums[path]
	if ok && e.stamp == s {
		h.mu.Unlock()
		<-e.done
		return e.sum, e.err
	}
	e = &hashEntry{stamp: s, done: make(chan struct{})}
	if len(h.sums) >= maxHashes {
		clear(h.sums)
	}
	h.sums[path] = e
	h.mu.Unlock()
	var read host.Stamp
	e.sum, read, e.err = sum(path, h.form)
	close(e.done)
	// A file that changed while it was read, or could change again with the same stamp, is not cached.
	if e.err != nil || read != s || !s.Settled() {
		h.mu.Lock()
		if h.sums[path] == e {
			delete(h.sums, path)
		}
		h.mu.Unlock()
	}
	return e.sum, e.err
}

// known returns the hash of a file only if it is cached.
func (h *hashCache) known(path string) (string, bool) {
	s, err := host.StampOf(path)
	if err != nil {
		return "", false
	}
	h.mu.Lock()
	e, ok := h.sums[path]
	h.mu.Unlock()
	if !ok || e.stamp != s {
		return "", false
	}
	select {
	case <-e.done:
		return e.sum, e.err == nil
	default:
		return "", false
	}
}

// forget drops all hashes.
func (h *hashCache) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.sums)
}

// sum hashes a file. The stamp is that of the file after reading.
func sum(path, form string) (string, host.Stamp, error) {
	n := crypt.NewHash(form)
	if n == nil {
		return "", host.Stamp{}, fmt.Errorf("%q is not a known hash_type", form)
	}
	f, err := openRegular(path)
	if err != nil {
		return "", host.Stamp{}, err
	}
	defer f.Close()
	if _, err := io.Copy(n, f); err != nil {
		return "", host.Stamp{}, err
	}
	s, err := host.StampOfFile(f)
	return hex.EncodeToString(n.Sum(nil)), s, err
}

// openRegular opens a regular file; it never waits for the writer of a pipe.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
