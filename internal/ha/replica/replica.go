// Package replica replicates files between the masters of a cluster without a shared directory: keys of minions, data of minions, tokens
// and the keys of the cluster.
//
// The files have Salt's format and stay authoritative on a master: programs such as salt-key change them directly. A Mirror notices changes
// and records them; records go to the other masters (oplog.Stream), where mirrors change the files. Store keeps the records in one bbolt
// file, including those of deleted things (tombstones), so that no old copy restores them.
//
// A record that causally follows another wins: its number At is higher, because each new number of a master is higher than all that the
// master has seen. The numbers are clock times unless the clock is behind those seen. So the later of two concurrent records wins if the
// clocks are right. A wrong clock has no other effect: no record is refused because of its time.
//
// If the kind has a rank (minion keys), all concurrent records are kept until a later one follows all of them. Until then the record with
// the highest rank wins, and the first of several with that rank.
package replica

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/boltfile"
	"brine/internal/store/keystore"
	"brine/internal/store/oplog"
)

// Record is one version of a replicated file or value.
type Record struct {
	Kind, Name string
	// Value is nil if this version is a deletion.
	Value []byte
	// At orders the versions. It is in microseconds since 1970, but higher than those of all versions known to the master that made it. By is
	// that master.
	At int64
	By string
	// clock is the time of that master's clock in the same unit if At differs much from it, else 0.
	clock int64
	// Who made it, and How: for example a user and a program; "" if unknown.
	Who, How string

	origin string
	number uint64
	seen   oplog.Vector // for kinds with a rank: the versions known when it was made
}

// knows reports whether r follows s, or is s.
func (r *Record) knows(s *Record) bool {
	return r.origin == s.origin && r.number >= s.number || r.seen.Knows(s.origin, s.number)
}

// Ranks returns the rank of a value for kinds with ranked conflicts; a nil value is a deletion.
type Ranks map[string]func(value []byte) int

// Store holds the records of one master. It is safe for concurrent use.
type Store struct {
	db     *boltfile.File
	id     string
	ranks  Ranks
	log    *slog.Logger
	now    func() time.Time
	signal oplog.Signal

	mu    sync.Mutex
	heard []func(kind, name string)
}

var (
	recordsBucket = []byte("records")
	todoBucket    = []byte("todo") // records whose files are not written yet
	metaBucket    = []byte("meta")
	clockKey      = []byte("clock")
	nameKey       = []byte("name")
)

// fileName is the name of the file in a master's own directory.
const fileName = "replica.db"

// lockTimeout is how long to wait for another process to release the file.
const lockTimeout = time.Second

// Open opens the records in dir or creates them. id is the master's.
func Open(dir, id string, ranks Ranks, log *slog.Logger) (*Store, error) {
	path := filepath.Join(dir, fileName)
	db, err := boltfile.Open(path, bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable,
			"cannot open %s: %w; if it is damaged, stop the master, move it away and start again: its contents are fetched from the other masters", path, err)
	}
	s := &Store{db: db, id: id, ranks: ranks, log: log, now: time.Now}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{recordsBucket, todoBucket, metaBucket, forgottenBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		if err := oplog.Init(tx, id); err != nil {
			return err
		}
		meta := tx.Bucket(metaBucket)
		if meta.Get(nameKey) == nil {
			return meta.Put(nameKey, []byte(oplog.Self(tx)))
		}
		return nil
	})
	if err != nil {
		db.Close()
		return nil, failed(err)
	}
	return s, nil
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

func failed(err error) error {
	var e *salt.Error
	if err == nil || errors.As(err, &e) || errors.Is(err, oplog.ErrGap) {
		return err
	}
	if errors.Is(err, os.ErrClosed) {
		return salt.Errorf(salt.Unavailable, "the replicated state is closed")
	}
	return salt.Errorf(salt.Unavailable, "cannot store replicated state: %w", err)
}

// name returns the path of the file.
func (s *Store) name() (name string) {
	s.db.View(func(tx *bolt.Tx) error { name = string(tx.Bucket(metaBucket).Get(nameKey)); return nil })
	return name
}

func recordKey(kind, name string) []byte { return []byte(kind + "\x00" + name) }

func splitKey(k []byte) (kind, name string) {
	kind, name, _ = strings.Cut(string(k), "\x00")
	return kind, name
}

// load returns the versions of a record.
func load(tx *bolt.Tx, kind, name string) ([]*Record, error) {
	b := tx.Bucket(recordsBucket).Get(recordKey(kind, name))
	if b == nil {
		return nil, nil
	}
	return decodeAll(kind, name, b)
}

// damaged returns the error for a record that cannot be decoded.
func damaged(kind, name string) error {
	return salt.Errorf(salt.Internal, "cannot decode the record of %s %q in %s, which is damaged; stop the master, move the file away and start again: "+
		"its contents are fetched from the other masters", kind, name, fileName)
}

func decodeAll(kind, name string, b []byte) (out []*Record, err error) {
	v, err := msgpack.UnmarshalTyped(b)
	l, _ := v.(*value.List)
	if err != nil || l == nil {
		return nil, damaged(kind, name)
	}
	for _, it := range l.Items {
		e, _ := it.(*value.List)
		if e.Len() != 6 {
			return nil, damaged(kind, name)
		}
		r := &Record{Kind: kind, Name: name}
		if r.Value, _ = e.Items[0].([]byte); r.Value == nil && e.Items[0] != nil {
			r.Value = []byte{}
		}
		r.At, _ = e.Items[1].(int64)
		by, _ := e.Items[2].(string)
		r.setBy(by)
		r.origin, _ = e.Items[3].(string)
		n, _ := e.Items[4].(int64)
		r.number = uint64(n)
		r.seen = readVector(e.Items[5])
		out = append(out, r)
	}
	return out, nil
}

// by encodes By, Who, How and the clock in one string, which older versions use as the master's name.
func (r *Record) by() string {
	switch {
	case r.clock != 0:
		return r.By + "\x00" + r.Who + "\x00" + r.How + "\x00" + strconv.FormatInt(r.clock, 10)
	case r.Who == "" && r.How == "":
		return r.By
	}
	return r.By + "\x00" + r.Who + "\x00" + r.How
}

// setBy decodes the result of by, possibly from another master.
func (r *Record) setBy(text string) {
	text, rest, _ := strings.Cut(text, "\x00")
	r.By = text
	who, rest, _ := strings.Cut(rest, "\x00")
	how, clock, _ := strings.Cut(rest, "\x00")
	r.Who, r.How = keystore.CleanName(who), keystore.CleanName(how)
	r.clock, _ = strconv.ParseInt(clock, 10, 64)
	r.clock = max(r.clock, 0)
}

func readVector(v any) oplog.Vector {
	d, _ := v.(*value.Dict)
	if d.Len() == 0 {
		return nil
	}
	out := oplog.Vector{}
	for k, n := range d.All() {
		if i, ok := n.(int64); ok && i > 0 {
			out[value.Str(k)] = uint64(i)
		}
	}
	return out
}

func vectorDict(v oplog.Vector) *value.Dict {
	d := value.NewDict(len(v))
	for o, n := range v {
		d.Set(o, int64(n))
	}
	return d
}

func orNil(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

func save(tx *bolt.Tx, kind, name string, all []*Record) error {
	l := &value.List{}
	for _, r := range all {
		l.Append(&value.List{Items: []any{orNil(r.Value), r.At, r.by(), r.origin, int64(r.number), vectorDict(r.seen)}})
	}
	b, err := msgpack.Marshal(l, msgpack.NewSpec)
	if err != nil {
		return err
	}
	return tx.Bucket(recordsBucket).Put(recordKey(kind, name), b)
}

// winner returns the winning version, nil if there is none.
func (s *Store) winner(kind string, all []*Record) *Record {
	if len(all) == 0 {
		return nil
	}
	rank := s.ranks[kind]
	return slices.MaxFunc(all, func(a, b *Record) int {
		if rank == nil {
			return later(a, b)
		}
		if n := rank(a.Value) - rank(b.Value); n != 0 {
			return n
		}
		return later(b, a)
	})
}

func later(a, b *Record) int {
	switch {
	case a.At != b.At:
		return int(max(-1, min(1, a.At-b.At)))
	case a.origin != b.origin:
		return strings.Compare(a.origin, b.origin)
	}
	return int(int64(a.number) - int64(b.number))
}

// merge adds a version. took is false if the version neither wins nor is kept.
func (s *Store) merge(all []*Record, r *Record) (out []*Record, took bool) {
	if s.ranks[r.Kind] == nil {
		if len(all) > 0 && later(all[0], r) >= 0 {
			return all, false
		}
		return []*Record{r}, true
	}
	for _, o := range all {
		if o.knows(r) {
			return all, false
		}
	}
	for _, o := range all {
		if !r.knows(o) {
			out = append(out, o)
		}
	}
	return append(out, r), true
}

// Made returns when the version was made, according to the clock of the master that made it.
func (r *Record) Made() time.Time { return time.UnixMicro(cmp.Or(r.clock, r.At)) }

// clockApart is the difference from At beyond which a record also stores the clock time.
const clockApart = time.Minute

// Get returns the winning version of a record, nil if it never existed.
func (s *Store) Get(kind, name string) (r *Record, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		all, err := load(tx, kind, name)
		r = s.winner(kind, all)
		return err
	})
	return r, failed(err)
}

// Each calls fn for the winning versions, including deletions.
func (s *Store) Each(kind string, fn func(*Record)) error {
	return failed(s.db.View(func(tx *bolt.Tx) error {
		prefix := recordKey(kind, "")
		c := tx.Bucket(recordsBucket).Cursor()
		for k, b := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, b = c.Next() {
			_, name := splitKey(k)
			all, err := decodeAll(kind, name, b)
			if err != nil {
				return err
			}
			fn(s.winner(kind, all))
		}
		return nil
	}))
}

// change is a local change. base are the versions known to the writer, nil for all present ones.
type change struct {
	kind, name string
	value      []byte
	base       oplog.Vector
	who, how   string
	old        bool // older than any other version
}

// oldest is a time older than any other.
const oldest = 1

// contextOf returns the versions known to a reader of these versions.
func contextOf(all []*Record) oplog.Vector {
	v := oplog.Vector{}
	for _, r := range all {
		v.Merge(r.seen)
		v[r.origin] = max(v[r.origin], r.number)
	}
	return v
}

// Put makes a new version of a record; a nil value deletes it.
func (s *Store) Put(kind, name string, value []byte) error {
	_, err := s.put([]change{{kind: kind, name: name, value: value}})
	return err
}

// Change replaces a record atomically. fn gets the present version, and returns the new value, nil to delete, and whether to write it.
// did reports whether the new version was written and won.
func (s *Store) Change(kind, name string, fn func(now *Record) (value []byte, do bool)) (did bool, err error) {
	err = s.db.Update(func(tx *bolt.Tx) error {
		did = false
		all, err := load(tx, kind, name)
		if err != nil {
			return err
		}
		value, do := fn(s.winner(kind, all))
		if !do {
			return nil
		}
		at := s.tick(tx, 0)
		if _, did, err = s.add(tx, all, change{kind: kind, name: name, value: value}, at); err != nil {
			return err
		}
		return tx.Bucket(metaBucket).Put(clockKey, fmt.Append(nil, at+1))
	})
	if err == nil && did {
		s.signal.Fire()
	}
	return did, failed(err)
}

// Drop deletes a record locally, without replication. It is for records that all masters drop by a common rule and that are harmless
// if they return.
func (s *Store) Drop(kind, name string) error {
	return failed(s.db.Update(func(tx *bolt.Tx) error {
		all, err := load(tx, kind, name)
		if err != nil {
			return err
		}
		for _, r := range all {
			if err := oplog.Drop(tx, r.origin, r.number); err != nil {
				return err
			}
		}
		if err := tx.Bucket(todoBucket).Delete(recordKey(kind, name)); err != nil {
			return err
		}
		return tx.Bucket(recordsBucket).Delete(recordKey(kind, name))
	}))
}

// add adds a new version to the versions of a record, and reports whether it wins.
func (s *Store) add(tx *bolt.Tx, all []*Record, c change, at int64) (r *Record, counts bool, err error) {
	r = &Record{Kind: c.kind, Name: c.name, Value: c.value, At: at, By: s.id, Who: c.who, How: c.how}
	if clock := s.now().UnixMicro(); at != oldest && at-clock > clockApart.Microseconds() {
		r.clock = clock
	}
	if s.ranks[c.kind] != nil {
		if r.seen = c.base; r.seen == nil {
			r.seen = contextOf(all)
		}
	}
	if r.origin, r.number, err = oplog.Append(tx, recordKey(c.kind, c.name)); err != nil {
		return nil, false, err
	}
	next, took := s.merge(all, r)
	if took {
		err = replace(tx, c.kind, c.name, all, next)
	}
	return r, s.winner(c.kind, next) == r, err
}

// put adds new versions, and returns the versions that their writer knows afterwards.
func (s *Store) put(changes []change) (known []oplog.Vector, err error) {
	err = s.db.Update(func(tx *bolt.Tx) error {
		known = nil
		at := s.tick(tx, 0)
		for _, c := range changes {
			all, err := load(tx, c.kind, c.name)
			if err != nil {
				return err
			}
			made := at
			if c.old {
				made = oldest
			}
			r, counts, err := s.add(tx, all, c, made)
			if err != nil {
				return err
			}
			if !counts { // a decision of another master wins
				if err := tx.Bucket(todoBucket).Put(recordKey(c.kind, c.name), nil); err != nil {
					return err
				}
			}
			ctx := contextOf([]*Record{r})
			known = append(known, ctx)
			at++
		}
		return tx.Bucket(metaBucket).Put(clockKey, fmt.Append(nil, at))
	})
	if err == nil {
		s.signal.Fire()
	}
	return known, failed(err)
}

// tick returns At for a new version: the clock time, or a number higher than all known ones and seen if the clock is behind.
func (s *Store) tick(tx *bolt.Tx, seen int64) int64 {
	var last int64
	fmt.Sscan(string(tx.Bucket(metaBucket).Get(clockKey)), &last)
	return max(s.now().UnixMicro(), last+1, seen+1)
}

// replace stores the versions of a record, and removes superseded ones from the log.
func replace(tx *bolt.Tx, kind, name string, old, next []*Record) error {
	for _, o := range old {
		if !slices.Contains(next, o) {
			if err := oplog.Drop(tx, o.origin, o.number); err != nil {
				return err
			}
		}
	}
	return save(tx, kind, name, next)
}

var _ oplog.Stream = (*Store)(nil)

// Self implements oplog.Stream.
func (s *Store) Self() (self string) {
	s.db.View(func(tx *bolt.Tx) error { self = oplog.Self(tx); return nil })
	return self
}

// Own implements oplog.Stream.
func (s *Store) Own(origin string) bool { return oplog.Own(origin, s.id) }

// Vector implements oplog.Stream.
func (s *Store) Vector() (v oplog.Vector, err error) {
	err = s.db.View(func(tx *bolt.Tx) error { v = oplog.ReadVector(tx); return nil })
	return v, failed(err)
}

// Changed implements oplog.Stream.
func (s *Store) Changed() <-chan struct{} { return s.signal.Wait() }

// Renew implements oplog.Stream.
func (s *Store) Renew() error {
	return failed(s.db.Update(func(tx *bolt.Tx) error { return oplog.Renew(tx, s.id) }))
}

// Read implements oplog.Stream.
func (s *Store) Read(origin string, after uint64, items, size int) (oplog.Batch, error) {
	b := oplog.Batch{Origin: origin, From: after}
	err := s.db.View(func(tx *bolt.Tx) error {
		var failed error
		b.To = oplog.Each(tx, origin, after, func(n uint64, ref []byte) bool {
			if len(b.Items) >= items || size <= 0 {
				return false
			}
			kind, name := splitKey(ref)
			all, err := load(tx, kind, name)
			if err != nil {
				failed = err
				return false
			}
			for _, r := range all {
				if r.origin != origin || r.number != n {
					continue
				}
				data, err := encodeItem(r)
				if err != nil {
					failed = err
					return false
				}
				b.Items = append(b.Items, oplog.Item{Number: n, Data: data})
				size -= len(data)
			}
			return true
		})
		return failed
	})
	return b, failed(err)
}

// OnChange sets the function to call for changes of other masters after they are on disk.
func (s *Store) OnChange(fn func(kind, name string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, fn)
}

// tell calls the functions set by OnChange.
func (s *Store) tell(kind, name string) {
	s.mu.Lock()
	heard := s.heard
	s.mu.Unlock()
	for _, fn := range heard {
		fn(kind, name)
	}
}

// Apply implements oplog.Stream. If a record of the batch cannot be decoded, it applies the records before it and fails: a record that
// was not stored is not acknowledged.
func (s *Store) Apply(b oplog.Batch) error {
	latest := s.latestPlace()
	records, unreadable := oplog.Decode(&b, func(it oplog.Item) (*Record, error) {
		r, err := readItem(it.Data)
		if err != nil {
			return nil, err
		}
		if r.At > latest {
			return nil, errors.New("its place in the order is out of bounds")
		}
		r.origin, r.number = b.Origin, it.Number
		return r, nil
	})
	var news []*Record
	err := s.db.Update(func(tx *bolt.Tx) error {
		news = nil
		before, err := oplog.Accept(tx, b)
		if err != nil {
			return err
		}
		last := int64(0)
		for _, r := range records {
			if r.number <= before {
				continue
			}
			last = max(last, r.At)
			all, err := load(tx, r.Kind, r.Name)
			if err != nil {
				return err
			}
			next, took := s.merge(all, r)
			if !took {
				continue
			}
			if err := replace(tx, r.Kind, r.Name, all, next); err != nil {
				return err
			}
			if err := oplog.Put(tx, r.origin, r.number, recordKey(r.Kind, r.Name)); err != nil {
				return err
			}
			if err := tx.Bucket(todoBucket).Put(recordKey(r.Kind, r.Name), nil); err != nil {
				return err
			}
			news = append(news, r)
		}
		return tx.Bucket(metaBucket).Put(clockKey, fmt.Append(nil, s.tick(tx, last)))
	})
	if err != nil {
		return failed(err)
	}
	for _, r := range news {
		s.tell(r.Kind, r.Name)
	}
	if len(news) > 0 {
		s.signal.Fire()
	}
	return unreadable
}

// latestPlace returns the highest At accepted from another master: a thousand years, more than any clock error, after the highest one known
// here. Masters continue from the numbers that they accept, so without this limit a hostile member could exhaust them.
func (s *Store) latestPlace() int64 {
	var at int64
	s.db.View(func(tx *bolt.Tx) error { at = s.tick(tx, 0); return nil })
	return min(at+maxJump, maxAt)
}

// Bounds of a record from another master. maxAt leaves room for later versions.
const (
	maxName = 512
	maxAt   = 1 << 62
	maxJump = 1000 * 365 * 24 * int64(time.Hour/time.Microsecond)
)

func readItem(data []byte) (*Record, error) {
	v, err := msgpack.UnmarshalTyped(data)
	l, _ := v.(*value.List)
	if err != nil || l.Len() != 6 {
		return nil, errors.New("not a record")
	}
	r := &Record{}
	var ok [4]bool
	r.Kind, ok[0] = l.Items[0].(string)
	r.Name, ok[1] = l.Items[1].(string)
	if l.Items[2] != nil {
		var isBytes bool
		if r.Value, isBytes = l.Items[2].([]byte); !isBytes {
			return nil, errors.New("the value is not bytes")
		}
		if r.Value == nil {
			r.Value = []byte{}
		}
	}
	r.At, ok[2] = l.Items[3].(int64)
	var by string
	by, ok[3] = l.Items[4].(string)
	r.setBy(by)
	if ok != [4]bool{true, true, true, true} || len(r.Name) > maxName || strings.Contains(r.Kind, "\x00") {
		return nil, errors.New("not a record")
	}
	if r.At < 0 || r.At > maxAt {
		return nil, errors.New("not a record: its place in the order is out of bounds")
	}
	r.seen = readVector(l.Items[5])
	return r, nil
}

// todo returns the names of a kind whose files must be written.
func (s *Store) todo(kind string) (names []string, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		prefix := recordKey(kind, "")
		c := tx.Bucket(todoBucket).Cursor()
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
			_, name := splitKey(k)
			names = append(names, name)
		}
		return nil
	})
	return names, failed(err)
}

// current returns the winning version, and the versions that a reader of it knows.
func (s *Store) current(kind, name string) (r *Record, known oplog.Vector, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		all, err := load(tx, kind, name)
		r, known = s.winner(kind, all), contextOf(all)
		return err
	})
	return r, known, failed(err)
}

// done records that files were written, unless their records have changed again.
func (s *Store) done(kind string, written map[string]oplog.Vector) error {
	if len(written) == 0 {
		return nil
	}
	return failed(s.db.Update(func(tx *bolt.Tx) error {
		for name, known := range written {
			all, err := load(tx, kind, name)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(all, func(r *Record) bool { return !known.Knows(r.origin, r.number) }) {
				continue
			}
			if err := tx.Bucket(todoBucket).Delete(recordKey(kind, name)); err != nil {
				return err
			}
		}
		return nil
	}))
}
