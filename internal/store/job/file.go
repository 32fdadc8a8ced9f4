package job

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/store/boltfile"
)

// file is the open database. It survives damage: a damaged file is moved aside and replaced by a new one.
type file struct {
	path     string
	readOnly bool
	log      *slog.Logger
	setup    func(*bolt.Tx) error  // creates what a new file has
	report   func(why error) error // passes damage that a reader found to the writer, which calls replace

	mu      sync.RWMutex // held for reading by every use of db, for writing to replace it
	db      *boltfile.File
	damaged atomic.Bool // a reader found the file damaged
}

func (f *file) openReadOnly() (err error) {
	if _, err := os.Stat(f.path); err != nil {
		return salt.Errorf(salt.NotFound, "there is no job database: %w", err)
	}
	f.db, err = guard(func() (*boltfile.File, error) {
		return boltfile.Open(f.path, bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	})
	if err != nil {
		return openError(f.path, err)
	}
	return nil
}

// open opens or creates the file, and reports whether it was closed orderly.
func (f *file) open() (wasClosed bool, err error) {
	if err := atomicfile.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return false, salt.Errorf(salt.Unavailable, "cannot create the directory of the job database: %w", err)
	}
	db, err := openFile(f.path)
	if errors.Is(err, errDamaged) {
		db, err = f.recreate(err)
	}
	if err != nil {
		return false, err
	}
	f.db = db
	err = f.update(func(tx *bolt.Tx) error {
		if err := f.setup(tx); err != nil {
			return err
		}
		meta := tx.Bucket(metaBucket)
		wasClosed = meta.Get(cleanKey) != nil
		return meta.Delete(cleanKey)
	})
	if err != nil {
		db.Close()
		return false, f.failed(err)
	}
	return wasClosed, nil
}

// close marks the file as closed orderly, and closes it.
func (f *file) close() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.readOnly {
		err = f.updateLocked(func(tx *bolt.Tx) error { return tx.Bucket(metaBucket).Put(cleanKey, []byte{1}) })
	}
	_, closeErr := guard(func() (any, error) { return nil, f.db.Close() })
	return errors.Join(err, closeErr)
}

// lockTimeout is how long to wait for another process to close the file.
const lockTimeout = time.Second

// ErrInUse is the cause if another process has the job database open.
var ErrInUse = errors.New("in use by another process")

// errDamaged says that the content of the file is damaged.
var errDamaged = errors.New("the job database is damaged")

// openFile opens or creates the file. The error matches errDamaged if the content is the cause.
func openFile(path string) (*boltfile.File, error) {
	db, err := guard(func() (*boltfile.File, error) {
		return boltfile.Open(path, bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
	})
	if err != nil {
		return nil, openError(path, err)
	}
	var want int64
	if _, err = guard(func() (any, error) {
		return nil, db.View(func(tx *bolt.Tx) error { want = tx.Size(); return nil })
	}); err == nil {
		info, statErr := os.Stat(path)
		if err = statErr; err == nil && info.Size() < want {
			err = fmt.Errorf("%w: %d bytes, %d are missing", errDamaged, info.Size(), want-info.Size())
		}
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

func openError(path string, err error) error {
	var p *fs.PathError
	var errno syscall.Errno
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return salt.Errorf(salt.Unavailable, "the job database %s is %w: stop it, or, if two masters are meant to share a cachedir, "+
			"give each an id of its own", path, ErrInUse)
	case errors.Is(err, errDamaged):
		return err
	case errors.As(err, &p), errors.As(err, &errno):
		return salt.Errorf(salt.Unavailable, "cannot open the job database %s: %w", path, atomicfile.Cause(err))
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

// guard runs fn and turns a panic into an error that matches errDamaged. bbolt panics on an invalid
// page, and a page that the disk cannot read causes a memory fault.
func guard[T any](fn func() (T, error)) (v T, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	return fn()
}

// recreate moves the damaged file aside and opens a new one.
func (f *file) recreate(why error) (*boltfile.File, error) {
	aside := f.path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000")
	if err := os.Rename(f.path, aside); err != nil { // rename: moves a file aside
		return nil, salt.Errorf(salt.Unavailable, "%w; cannot move it aside: %w", why, err)
	}
	f.log.Error("job database damaged: moved aside and replaced by an empty one; earlier jobs are not shown", "path", aside, "err", why)
	return openFile(f.path)
}

// replace replaces a damaged file while the master runs, or retries to open a file.
func (f *file) replace(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.damaged.Store(false)
	guard(func() (any, error) { return nil, f.db.Close() })
	var db *boltfile.File
	var err error
	if errors.Is(why, errDamaged) {
		db, err = f.recreate(why)
	} else {
		db, err = openFile(f.path)
	}
	if err == nil {
		f.db = db
		err = f.updateLocked(f.setup)
	}
	if err != nil {
		f.log.Error("cannot create a job database; jobs are not kept", "err", err)
	}
}

// verify reads every entry once after an unclean shutdown. If it finds an invalid page, view causes
// the replacement of the file. It works in small steps, because a read transaction can delay the
// writer.
func (f *file) verify(quit <-chan struct{}) {
	var hour, from []byte
	for done := false; !done && !ended(quit); {
		err := f.view(func(tx *bolt.Tx) error {
			hour, from, done = verifyStep(tx, hour, from)
			return nil
		})
		if err != nil {
			f.log.Error("cannot read the job database", "err", err)
			return
		}
	}
}

// verifyStep reads some entries after the given one and returns where to continue.
func verifyStep(tx *bolt.Tx, hour, from []byte) (nextHour, next []byte, done bool) {
	hours := tx.Bucket(hoursBucket)
	hc := hours.Cursor()
	n := 0
	for name, _ := hc.Seek(hour); name != nil; name, _ = hc.Next() {
		c := hours.Bucket(name).Cursor()
		for k, _ := c.Seek(from); k != nil; k, _ = c.Next() {
			if n++; n > 5000 {
				return bytes.Clone(name), bytes.Clone(k), false
			}
		}
		from = nil
	}
	return nil, nil, true
}

func ended(quit <-chan struct{}) bool {
	select {
	case <-quit:
		return true
	default:
		return false
	}
}

func (f *file) update(fn func(*bolt.Tx) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.updateLocked(fn)
}

func (f *file) updateLocked(fn func(*bolt.Tx) error) error {
	_, err := guard(func() (any, error) { return nil, f.db.Update(fn) })
	return err
}

// view runs a read transaction. It reports a damaged file once, so that it is replaced.
func (f *file) view(fn func(*bolt.Tx) error) error {
	err := f.viewOnce(fn)
	if errors.Is(err, errDamaged) && !f.readOnly && f.damaged.CompareAndSwap(false, true) {
		if f.report(err) != nil {
			f.damaged.Store(false)
		}
	}
	if err != nil {
		return f.failed(err)
	}
	return nil
}

func (f *file) viewOnce(fn func(*bolt.Tx) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	_, err := guard(func() (any, error) { return nil, f.db.View(fn) })
	return err
}

// failed adds a kind and the path to an error.
func (f *file) failed(err error) error {
	var e *salt.Error
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, errDamaged):
		return salt.Errorf(salt.Internal, "cannot use the job database %s: %w", f.path, err)
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return salt.Errorf(salt.Unavailable, "the job database %s is closed", f.path)
	}
	return salt.Errorf(salt.Unavailable, "cannot use the job database %s: %w", f.path, err)
}
