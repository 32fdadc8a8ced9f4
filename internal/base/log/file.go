package log

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// File is a log file, opened for appending. It follows rotation, like Salt's log files: if
// another program has moved or deleted the file, the next message goes to a new file at
// the same path. Salt's packages rotate log files without signalling the daemons.
type File struct {
	path string
	mu   sync.Mutex
	f    *os.File // nil once closed
}

// OpenFile opens or creates the log file and its directory. Only owner and
// group may read it.
func OpenFile(path string) (*File, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	f, err := openAppend(path)
	if err != nil {
		return nil, err
	}
	return &File{path: path, f: f}, nil
}

func checkPath(path string) error {
	if strings.Contains(path, "://") {
		return fmt.Errorf("cannot log to %s: only paths of files are supported", path)
	}
	return nil
}

// CheckFile returns the error with which OpenFile would fail on a file that exists, or on one that
// cannot be a file. It changes nothing.
func CheckFile(path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return cannotOpen(err)
	}
	return f.Close()
}

func cannotOpen(err error) error { return fmt.Errorf("cannot open log file: %w", err) }

func openAppend(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the directory of the log file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, cannotOpen(err)
	}
	return f, nil
}

// Write appends to the file. After Close it does nothing. If a new file cannot be created
// after rotation, Write continues with the old file, so that messages are not lost.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return len(p), nil
	}
	if f.rotated() {
		if next, err := openAppend(f.path); err == nil {
			_ = f.f.Close()
			f.f = next
		}
	}
	return f.f.Write(p)
}

// rotated reports whether the path no longer names the open file. The caller must hold the
// lock.
func (f *File) rotated() bool {
	at, err := os.Stat(f.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	open, err := f.f.Stat()
	return err == nil && !os.SameFile(at, open)
}

// Reopen opens the path again and closes the old file. If that fails, the old
// file stays in use.
func (f *File) Reopen() error {
	next, err := openAppend(f.path)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return next.Close()
	}
	old := f.f
	f.f = next
	return old.Close()
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return nil
	}
	old := f.f
	f.f = nil
	return old.Close()
}
