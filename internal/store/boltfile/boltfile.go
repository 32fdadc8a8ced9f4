// Package boltfile opens bbolt files and acknowledges no change after a failed flush until the file
// is replaced.
//
// The kernel reports a failed flush once, and then considers the pages written: a second flush
// succeeds although the pages are not on disk. So after a failed commit the file is replaced by a
// flushed copy before the next change, and changes are refused until that succeeds.
//
// A commit ends with one page (the meta page) that makes its changes current, and the flush of that
// page. bbolt shows the changes to readers before that flush. Here readers wait for the flush, and
// if it fails the page is overwritten: a change that was refused is never read, neither then nor
// after a restart.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// File is a bbolt file. It is safe for concurrent use.
type File struct {
	path string
	o    bolt.Options

	writer  sync.Mutex // held by Update
	failed  error      // of the last flush; nil if the file is good
	refused int        // the transaction that failed

	committing sync.RWMutex // held for writing during a commit
	flushed    atomic.Int64 // the id of the last transaction on disk
	unread     atomic.Bool  // db shows a transaction that was refused
	beginning  sync.RWMutex // held for reading while a read transaction begins, for writing to change a meta page

	mu sync.RWMutex // held for reading by every use of db, for writing to replace it
	db *bolt.DB

	// Tests replace these to simulate a failing disk.
	commit func(*bolt.Tx) error
	sync   func(*os.File) error
	revoke func(f *File, id int) error
}

// ErrUnknown is part of the error if a commit failed and its changes could not be taken back: they
// are not read now, but may be after a restart.
var ErrUnknown = errors.New("the change may come back when this program is started again")

// Open opens or creates the file. The error is that of bbolt.
func Open(path string, o bolt.Options) (*File, error) {
	_, missing := os.Lstat(path)
	db, err := bolt.Open(path, 0o600, &o)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, o: o, db: db, commit: (*bolt.Tx).Commit, sync: (*os.File).Sync, revoke: (*File).overwriteMeta}
	id, err := current(db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	f.flushed.Store(int64(id))
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

// View runs a read transaction on the changes that are on disk.
func (f *File) View(fn func(*bolt.Tx) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	tx, err := f.begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return fn(tx)
}

// begin begins a read transaction. If a commit is about to be flushed, it waits for the result.
func (f *File) begin() (*bolt.Tx, error) {
	for {
		f.beginning.RLock()
		tx, err := f.db.Begin(false)
		f.beginning.RUnlock()
		if err != nil || int64(tx.ID()) <= f.flushed.Load() {
			return tx, err
		}
		f.committing.RLock()
		unread := f.unread.Load()
		f.committing.RUnlock()
		if int64(tx.ID()) <= f.flushed.Load() {
			return tx, nil
		}
		if err := tx.Rollback(); err != nil {
			return nil, err
		}
		if unread {
			return nil, fmt.Errorf("%s cannot be read: its last change was refused, and cannot be removed; repair the disk", f.path)
		}
	}
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
	f.committing.Lock()
	defer f.committing.Unlock()
	id := tx.ID()
	err = f.commit(tx)
	if err == nil {
		f.flushed.Store(int64(id))
		return nil
	}
	if !unwritten(err) {
		f.failed = err
	}
	if now, e := current(f.db); e == nil && int64(now) <= f.flushed.Load() {
		return err
	}
	f.failed, f.refused = err, id
	if e := f.takeBack(id); e != nil {
		return fmt.Errorf("%w; %w: %w", err, ErrUnknown, e)
	}
	return err
}

// takeBack makes the transaction before the refused one current.
func (f *File) takeBack(id int) error {
	f.unread.Store(true)
	err := f.revoke(f, id)
	if now, e := current(f.db); e == nil && int64(now) <= f.flushed.Load() {
		f.unread.Store(false)
	}
	return err
}

// overwriteMeta overwrites the meta page of a transaction, so that the one before it is current. The
// memory of bbolt about free pages is wrong then: the file must be replaced before the next change.
func (f *File) overwriteMeta(id int) error {
	to, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	size := f.db.Info().PageSize
	f.beginning.Lock()
	_, err = to.WriteAt(make([]byte, size), int64(id%2)*int64(size))
	f.beginning.Unlock()
	if err == nil {
		err = f.sync(to)
	}
	return errors.Join(err, to.Close())
}

// current returns the id of the last transaction that readers see.
func current(db *bolt.DB) (int, error) {
	tx, err := db.Begin(false)
	if err != nil {
		return 0, err
	}
	return tx.ID(), tx.Rollback()
}

// unwritten reports whether a commit failed before its flush, as on a full disk: the data on disk is
// not affected, and a copy would need more space.
func unwritten(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && p.Op == "write"
}

// replace replaces the file by a flushed copy.
func (f *File) replace() error {
	if f.unread.Load() {
		if err := f.takeBack(f.refused); err != nil {
			return err
		}
	}
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
	id, err := current(db) // less than before if the copied transaction was made current again
	if err != nil {
		return errors.Join(err, db.Close())
	}
	if err := os.Rename(temp, f.path); err != nil { // rename: flushed, and locked before it has the name
		db.Close()
		return err
	}
	f.mu.Lock()
	old := f.db
	f.db = db
	f.flushed.Store(int64(id))
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
