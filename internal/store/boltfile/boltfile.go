// Package boltfile opens bbolt files and acknowledges no change after a failed flush until the file
// is replaced.
//
// The kernel reports a failed flush once, and then considers the pages written: a second flush
// succeeds although the pages are not on disk. So after a failed commit the file is replaced by a
// flushed copy before the next change, and changes are refused until that succeeds.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// File is a bbolt file. It is safe for concurrent use.
type File struct {
	path string
	o    bolt.Options

	writer sync.Mutex // held by Update
	failed error      // of the last flush; nil if the file is good

	mu sync.RWMutex // held for reading by every use of db, for writing to replace it
	db *bolt.DB

	// Tests replace these to simulate a failing disk.
	commit func(*bolt.Tx) error
	sync   func(*os.File) error
}

// Open opens or creates the file. The error is that of bbolt.
func Open(path string, o bolt.Options) (*File, error) {
	_, missing := os.Lstat(path)
	db, err := bolt.Open(path, 0o600, &o)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, o: o, db: db, commit: (*bolt.Tx).Commit, sync: (*os.File).Sync}
	if missing != nil { // bbolt flushes the file, not its name
		if err := f.syncDir(); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return f, nil
}

// Close closes the file. Later transactions fail with bbolt's ErrDatabaseNotOpen.
func (f *File) Close() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.db.Close()
}

// View runs a read transaction.
func (f *File) View(fn func(*bolt.Tx) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.db.View(fn)
}

// Update runs a transaction, and returns without error when its changes are on disk.
func (f *File) Update(fn func(*bolt.Tx) error) error {
	f.writer.Lock()
	defer f.writer.Unlock()
	if f.failed != nil {
		if err := f.replace(); err != nil {
			return fmt.Errorf("a flush failed: %w; replacing the file by a copy failed, too: %w", f.failed, err)
		}
		f.failed = nil
	}
	tx, err := f.db.Begin(true)
	if err != nil {
		return err
	}
	defer tx.Rollback() // without effect after a commit
	if err := fn(tx); err != nil {
		return err
	}
	if err = f.commit(tx); err != nil && !unwritten(err) {
		f.failed = err
	}
	return err
}

// unwritten reports whether a commit failed before its flush, as on a full disk: the data on disk is
// not affected, and a copy would need more space.
func unwritten(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && p.Op == "write"
}

// replace replaces the file by a flushed copy.
func (f *File) replace() error {
	temp := f.path + ".new"
	defer os.Remove(temp) // without effect after the rename
	if err := f.copyTo(temp); err != nil {
		return err
	}
	o := f.o
	o.OpenFile = func(name string, flag int, perm os.FileMode) (*os.File, error) {
		fd, err := unix.Open(temp, flag|unix.O_CLOEXEC, uint32(perm.Perm()))
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: temp, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil // so that errors name the final path
	}
	// The copy is locked before it gets the file's name, so that no other process can open it.
	db, err := bolt.Open(f.path, 0o600, &o)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, f.path); err != nil { // rename: flushed, and locked before it has the name
		db.Close()
		return err
	}
	f.mu.Lock()
	old := f.db
	f.db = db
	f.mu.Unlock()
	if err := old.Close(); err != nil {
		return err
	}
	return f.syncDir()
}

func (f *File) copyTo(temp string) error {
	to, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = f.View(func(tx *bolt.Tx) error {
		_, err := tx.WriteTo(to)
		return err
	})
	if err == nil {
		err = f.sync(to)
	}
	return errors.Join(err, to.Close())
}

// syncDir makes the new name durable, if the file system can do that.
func (f *File) syncDir() error {
	d, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := f.sync(d); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}
