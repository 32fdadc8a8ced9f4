// Package job is the master's job cache: published jobs, their targets and their returns.
//
// Store stores it in one file, DIR/jobs.db, an embedded B+tree (bbolt) that survives a loss of
// power: when a call returns without error, the change is on disk. All changes go through one
// goroutine that puts all waiting changes into one transaction, so that thousands of returns share
// one flush. A full disk fails only the affected calls. A damaged file is moved aside, never
// deleted, and a new one is created.
//
// The layout is one bucket for each hour, by the time at which a job was stored and not by its id,
// which clients choose. It has for each job
//
//	JID NUL "l"      the published load
//	JID NUL "m"      the array of targeted minions
//	JID NUL "r" ID   the return of one minion
//
// as new-spec msgpack. Expiring old jobs means dropping buckets. Another bucket has the ids of jobs
// queued for disconnected minions, each after its time of expiry. Further buckets hold the state of
// these jobs on their minions, and the minions that request missed jobs.
//
// LocalCache is the directory of files in which Salt's own command line looks for a job, and where
// an upgraded master has its old jobs.
package job

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
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
	o      Options
	now    func() time.Time
	steady *steady.Clock
	file   *file
	writer *writer
	stream *Stream // of a replicated store, else nil
	// damage reports entries that cannot be read.
	damage *ratelimit.Log
	conflict

	quit    chan struct{}
	workers sync.WaitGroup
	closed  sync.Once
}

// Open opens or creates the job database in dir. If another process has it open, the error is of kind
// Unavailable.
func Open(dir string, o Options, log *slog.Logger) (*Store, error) {
	return newStore(dir, o, log).open()
}

// OpenReadOnly reads the jobs in dir while no master has them open.
func OpenReadOnly(dir string, o Options, log *slog.Logger) (*Store, error) {
	s := newStore(dir, o, log)
	s.file.readOnly = true
	if err := s.file.openReadOnly(); err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(dir string, o Options, log *slog.Logger) *Store {
	s := &Store{o: o, now: time.Now, quit: make(chan struct{}),
		damage: ratelimit.NewLog(log, 10, time.Hour)}
	s.steady = steady.New(func() time.Time { return s.now() })
	s.file = &file{path: filepath.Join(dir, fileName), log: log, setup: makeBuckets}
	s.writer = newWriter(s.file, s.apply)
	return s
}

func (s *Store) open() (*Store, error) {
	wasClosed, err := s.file.open()
	if err != nil {
		return nil, err
	}
	s.workers.Go(s.writer.run)
	if !wasClosed {
		s.workers.Go(func() { s.file.verify(s.quit) })
	}
	return s, nil
}

// Close waits until queued changes are stored, and closes the file. Later calls fail.
func (s *Store) Close() error {
	var err error
	s.closed.Do(func() {
		close(s.quit)
		s.writer.stop()
		s.workers.Wait()
		err = s.file.close()
	})
	if err != nil {
		return s.file.failed(err)
	}
	return nil
}

func makeBuckets(tx *bolt.Tx) error {
	for _, name := range [][]byte{metaBucket, hoursBucket, futureBucket, queueBucket, statesBucket, speakersBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
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

// splitKey splits a key into its parts.
func splitKey(k []byte) (jid string, entry byte, id string) {
	i := bytes.IndexByte(k, 0)
	if i < 0 || i+1 >= len(k) {
		return string(k), 0, ""
	}
	return string(k[:i]), k[i+1], string(k[i+2:])
}

// errFound ends an iteration.
var errFound = errors.New("found")

// findHour returns the bucket that has a job, or nil. It tries the hour in the id first, which is
// right except around the full hour and for ids that others generated.
func findHour(tx *bolt.Tx, jid string) *bolt.Bucket {
	hour, _ := hourOf(tx, jid)
	return hour
}

// hourOf is findHour with the name of the bucket.
func hourOf(tx *bolt.Tx, jid string) (hour *bolt.Bucket, name []byte) {
	has := func(b *bolt.Bucket) bool {
		k, _ := b.Cursor().Seek(key(jid, 0, ""))
		found, _, _ := splitKey(k)
		return k != nil && found == jid
	}
	hours := tx.Bucket(hoursBucket)
	if hours == nil {
		return nil, nil
	}
	if len(jid) >= len(hourLayout) {
		name := []byte(jid[:len(hourLayout)])
		if b := hours.Bucket(name); b != nil && has(b) {
			return b, name
		}
	}
	eachHour(tx, true, func(at []byte, b *bolt.Bucket) error {
		if has(b) {
			hour, name = b, at
			return errFound
		}
		return nil
	})
	return hour, name
}

func encode(v any) ([]byte, error) {
	b, err := msgpack.Marshal(v, msgpack.NewSpec)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "cannot store a job: %w", err)
	}
	return b, nil
}

// damaged reports an entry that cannot be read. One such entry must not hide others.
func (s *Store) damaged(jid, what string, err error) {
	s.damage.Log(slog.LevelError, "an entry of the job database is damaged; the others are served", "path", s.file.path, "jid", jid, "entry", what, "err", err)
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
