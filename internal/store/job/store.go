// Package job is the master's job cache: published jobs, their targets and their returns.
//
// Store keeps it in one file, DIR/jobs.db, an embedded B+tree (bbolt) that survives a loss of power: when a
// call returns without error, the change is on disk. All changes go through one goroutine that puts all
// waiting changes into one transaction, so that thousands of returns share one flush. A full disk fails only
// the affected calls. A damaged file is moved aside, never deleted, and a new one is created.
//
// The layout is one bucket for each hour, by the time at which a job was stored and not by its id, which
// clients choose. It holds for each job
//
//	JID NUL "l"      the published load
//	JID NUL "m"      the array of targeted minions
//	JID NUL "r" ID   the return of one minion
//
// as new-spec msgpack. Expiring old jobs means dropping buckets. Another bucket has the ids of jobs that are
// kept for disconnected minions, after the time of their expiry. Further buckets hold the state of these jobs
// on their minions, and the minions that request missed jobs.
//
// LocalCache is the directory of files in which Salt's own command line looks for a job, and where an
// upgraded master has its old jobs.
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
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/boltfile"
	"brine/internal/store/oplog"
)

const fileName = "jobs.db"

var (
	metaBucket     = []byte("meta")
	hoursBucket    = []byte("hours")
	futureBucket   = []byte("future")
	queueBucket    = []byte("queue")
	statesBucket   = []byte("states")
	speakersBucket = []byte("speakers")
	cleanKey       = []byte("closed")
)

// Store is the jobs in one file. It is safe for concurrent use.
type Store struct {
	path     string
	o        Options
	log      *slog.Logger
	readOnly bool
	now      func() time.Time

	mu sync.RWMutex // held for reading by every use of db, for writing to replace it
	db *boltfile.File

	ops     chan *op
	waiting atomic.Int64 // bytes in ops
	damaged atomic.Bool  // a reader found the file damaged
	enter   sync.RWMutex // held for reading while sending to ops
	leaving bool
	quit    chan struct{}
	shares  *sharing // of a replicated store, else nil
	workers sync.WaitGroup
	closed  sync.Once
}

// Open opens or creates the job database in dir. If another process has it open, the error is of kind
// Unavailable.
func Open(dir string, o Options, log *slog.Logger) (*Store, error) {
	return newStore(dir, o, log).open(dir)
}

func (s *Store) open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot create the directory of the job database: %w", err)
	}
	db, err := openFile(s.path)
	if errors.Is(err, errDamaged) {
		db, err = s.recreate(err)
	}
	if err != nil {
		return nil, err
	}
	s.db = db
	wasClosed := false
	err = s.update(func(tx *bolt.Tx) error {
		if err := s.makeBuckets(tx); err != nil {
			return err
		}
		meta := tx.Bucket(metaBucket)
		wasClosed = meta.Get(cleanKey) != nil
		return meta.Delete(cleanKey)
	})
	if err != nil {
		db.Close()
		return nil, s.failed(err)
	}
	s.workers.Go(s.write)
	if !wasClosed {
		s.workers.Go(s.verify)
	}
	return s, nil
}

// OpenReadOnly reads the jobs in dir while no master has them open.
func OpenReadOnly(dir string, o Options, log *slog.Logger) (*Store, error) {
	s := newStore(dir, o, log)
	s.readOnly = true
	if _, err := os.Stat(s.path); err != nil {
		return nil, salt.Errorf(salt.NotFound, "there is no job database: %w", err)
	}
	db, err := guard(func() (*boltfile.File, error) {
		return boltfile.Open(s.path, bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	})
	if err != nil {
		return nil, openError(s.path, err)
	}
	s.db = db
	return s, nil
}

func newStore(dir string, o Options, log *slog.Logger) *Store {
	return &Store{path: filepath.Join(dir, fileName), o: o, log: log, now: time.Now,
		ops: make(chan *op, maxQueue), quit: make(chan struct{})}
}

// Close waits until queued changes are stored, and closes the file. Later calls fail.
func (s *Store) Close() error {
	var err error
	s.closed.Do(func() {
		close(s.quit)
		s.enter.Lock()
		s.leaving = true
		close(s.ops)
		s.enter.Unlock()
		s.workers.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.readOnly {
			err = s.updateLocked(func(tx *bolt.Tx) error { return tx.Bucket(metaBucket).Put(cleanKey, []byte{1}) })
		}
		_, closeErr := guard(func() (any, error) { return nil, s.db.Close() })
		err = errors.Join(err, closeErr)
	})
	if err != nil {
		return s.failed(err)
	}
	return nil
}

// lockTimeout is how long to wait for another process to close the file.
const lockTimeout = time.Second

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
		return salt.Errorf(salt.Unavailable, "the job database %s is in use by another process: stop it, or, if two masters are meant to share a cachedir, "+
			"share only the directories gitfs and git_pillar in it, or make them a cluster (cluster_id)", path)
	case errors.Is(err, errDamaged):
		return err
	case errors.As(err, &p), errors.As(err, &errno):
		return salt.Errorf(salt.Unavailable, "cannot open the job database %s: %w", path, atomicfile.Cause(err))
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

// guard runs fn and turns a panic into an error that matches errDamaged. bbolt panics on an invalid page, and
// a page that the disk cannot read is a fault of the memory map.
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
func (s *Store) recreate(why error) (*boltfile.File, error) {
	aside := s.path + ".damaged-" + s.now().UTC().Format("20060102T150405.000000")
	if err := os.Rename(s.path, aside); err != nil {
		return nil, salt.Errorf(salt.Unavailable, "%w; cannot move it aside: %w", why, err)
	}
	s.log.Error("job database damaged: moved aside and replaced by an empty one; earlier jobs are not shown", "path", aside, "err", why)
	return openFile(s.path)
}

func (s *Store) makeBuckets(tx *bolt.Tx) error {
	if s.shares != nil {
		if err := oplog.Init(tx, s.shares.id); err != nil {
			return err
		}
	}
	for _, name := range [][]byte{metaBucket, hoursBucket, futureBucket, queueBucket, statesBucket, speakersBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// replace replaces a damaged file while the master runs, or retries to open a file.
func (s *Store) replace(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damaged.Store(false)
	guard(func() (any, error) { return nil, s.db.Close() })
	var db *boltfile.File
	var err error
	if errors.Is(why, errDamaged) {
		db, err = s.recreate(why)
	} else {
		db, err = openFile(s.path)
	}
	if err == nil {
		s.db = db
		err = s.updateLocked(s.makeBuckets)
	}
	if err != nil {
		s.log.Error("cannot create a job database; jobs are not kept", "err", err)
	}
}

// verify reads every entry once after an unclean shutdown. At an invalid page, view has the file replaced. It
// works in small steps, because a read transaction can delay the writer.
func (s *Store) verify() {
	var hour, from []byte
	for done := false; !done && !s.quitting(); {
		err := s.view(func(tx *bolt.Tx) error {
			hour, from, done = verifyStep(tx, hour, from)
			return nil
		})
		if err != nil {
			s.log.Error("cannot read the job database", "err", err)
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

func (s *Store) quitting() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

func (s *Store) update(fn func(*bolt.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.updateLocked(fn)
}

func (s *Store) updateLocked(fn func(*bolt.Tx) error) error {
	_, err := guard(func() (any, error) { return nil, s.db.Update(fn) })
	return err
}

// view runs a read transaction. It reports a damaged file to the writer, which replaces it.
func (s *Store) view(fn func(*bolt.Tx) error) error {
	err := s.viewOnce(fn)
	if errors.Is(err, errDamaged) && !s.readOnly && s.damaged.CompareAndSwap(false, true) {
		if s.enqueue(&op{kind: opRepair, why: err}, false) != nil {
			s.damaged.Store(false)
		}
	}
	if err != nil {
		return s.failed(err)
	}
	return nil
}

func (s *Store) viewOnce(fn func(*bolt.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, err := guard(func() (any, error) { return nil, s.db.View(fn) })
	return err
}

// failed adds a kind and the path to an error.
func (s *Store) failed(err error) error {
	var e *salt.Error
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, errDamaged):
		return salt.Errorf(salt.Internal, "cannot use the job database %s: %w", s.path, err)
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return salt.Errorf(salt.Unavailable, "the job database %s is closed", s.path)
	}
	return salt.Errorf(salt.Unavailable, "cannot use the job database %s: %w", s.path, err)
}

// hourName is the name of an hour's bucket. Names sort by time.
func hourName(t time.Time) []byte { return []byte(t.UTC().Format(hourLayout)) }

const hourLayout = "2006010215"

// eachHour calls fn for the buckets, the newest first or last.
func eachHour(tx *bolt.Tx, newestFirst bool, fn func(name []byte, hour *bolt.Bucket) error) error {
	hours := tx.Bucket(hoursBucket)
	if hours == nil {
		return nil
	}
	c := hours.Cursor()
	first, next := c.First, c.Next
	if newestFirst {
		first, next = c.Last, c.Prev
	}
	for k, _ := first(); k != nil; k, _ = next() {
		if b := hours.Bucket(k); b != nil {
			if err := fn(k, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// The kinds of entries behind a job id.
const (
	entryLoad    = 'l'
	entryMinions = 'm'
	entryReturn  = 'r'
	entryFrom    = 'f' // of a replicated job: see sharing
)

func key(jid string, entry byte, id string) []byte {
	k := make([]byte, 0, len(jid)+2+len(id))
	k = append(append(append(k, jid...), 0, entry), id...)
	return k
}

// splitKey splits a key.
func splitKey(k []byte) (jid string, entry byte, id string) {
	i := bytes.IndexByte(k, 0)
	if i < 0 || i+1 >= len(k) {
		return string(k), 0, ""
	}
	return string(k[:i]), k[i+1], string(k[i+2:])
}

// errFound ends an iteration.
var errFound = errors.New("found")

// findHour returns the bucket that has a job, or nil. It tries the hour in the id first, which is right
// except around the full hour and for ids made by others.
func findHour(tx *bolt.Tx, jid string) *bolt.Bucket {
	has := func(b *bolt.Bucket) bool {
		k, _ := b.Cursor().Seek(key(jid, 0, ""))
		found, _, _ := splitKey(k)
		return k != nil && found == jid
	}
	hours := tx.Bucket(hoursBucket)
	if hours == nil {
		return nil
	}
	if len(jid) >= len(hourLayout) {
		if b := hours.Bucket([]byte(jid[:len(hourLayout)])); b != nil && has(b) {
			return b
		}
	}
	var found *bolt.Bucket
	eachHour(tx, true, func(_ []byte, b *bolt.Bucket) error {
		if has(b) {
			found = b
			return errFound
		}
		return nil
	})
	return found
}

func encode(v any) ([]byte, error) {
	b, err := msgpack.Marshal(v, msgpack.NewSpec)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "cannot store a job: %w", err)
	}
	return b, nil
}

func decodeDict(b []byte) (*value.Dict, error) {
	v, err := msgpack.UnmarshalTyped(b)
	if err != nil {
		return nil, salt.Errorf(salt.Internal, "cannot read an entry of the job database: %w", err)
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, salt.Errorf(salt.Internal, "an entry of the job database is a %s, not a dict", value.TypeName(v))
	}
	return d, nil
}

func decodeIDs(b []byte) []string {
	if b == nil {
		return nil
	}
	v, _ := msgpack.UnmarshalTyped(b)
	l, ok := v.(*value.List)
	if !ok {
		return nil
	}
	ids := make([]string, 0, l.Len())
	for _, it := range l.Items {
		if id, ok := it.(string); ok {
			ids = append(ids, id)
		}
	}
	return ids
}
