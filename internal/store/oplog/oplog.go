// Package oplog numbers the changes that several masters make to what they
// keep in common, so that each can tell another exactly what that one lacks.
//
// A log lives in buckets of a bbolt file beside the data it is about, and is
// written in the transactions that change this data. It has entries of several
// origins: of the file itself, which gets a random name when it is made, and of
// the files of other masters. Each origin numbers its changes from 1. An entry
// only names what was changed; what is sent is read when it is sent, so a
// change that a later one has replaced costs nothing more, and a log is never
// larger than what it is about.
//
// A Vector says up to which number of each origin a file knows everything that
// still counts. Whoever gets a batch that continues this may raise it, from
// whomever the batch comes: all masters that have spoken with each other, if
// only through others, come to the same.
package oplog

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// Vector is, by origin, the number up to which everything is known.
type Vector map[string]uint64

// Merge raises v to what w knows too.
func (v Vector) Merge(w Vector) {
	for o, n := range w {
		v[o] = max(v[o], n)
	}
}

// Knows reports whether v reaches to a change.
func (v Vector) Knows(origin string, number uint64) bool { return number > 0 && v[origin] >= number }

// Clone copies v.
func (v Vector) Clone() Vector {
	if v == nil {
		return Vector{}
	}
	return maps.Clone(v)
}

// Item is one change.
type Item struct {
	Number uint64
	Data   []byte
}

// Batch is all changes of an origin behind From, up to and with To, that still
// count.
type Batch struct {
	Origin   string
	From, To uint64
	Items    []Item

	// Live, if not nil, makes this a list of those changes behind From, up to To,
	// that still count: as varints, each the distance to the one before. There are
	// no items then. Forgotten is that of Forgetful.
	Live      []byte
	Forgotten uint64
}

// Forgetful is a stream that forgets deletions that all masters know.
type Forgetful interface {
	Stream
	// Forgotten returns, by origin, up to which number deletions may not be here
	// any more. Who does not know all up to there must be told what counts.
	Forgotten() (Vector, error)
	// ReadLive returns which changes of an origin behind a number count.
	ReadLive(origin string, after uint64) (Batch, error)
	// ApplyLive drops what does not.
	ApplyLive(b Batch) error
}

// Stream is what a link between masters needs of a store with a log. Calls
// come from several goroutines.
type Stream interface {
	// Vector returns what is known, and Self the own origin.
	Vector() (Vector, error)
	Self() string
	// Read returns a batch behind a number, of about so many items and bytes.
	Read(origin string, after uint64, items, size int) (Batch, error)
	// Apply takes a batch, and returns when the disk has it. ErrGap says that
	// it does not continue what is known.
	Apply(b Batch) error
	// Renew gives the store another name: another master knows more of it than
	// it does itself, so it is an old copy, and would use numbers again.
	Renew() error
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// ErrGap says that a batch leaves something out.
var ErrGap = errors.New("changes before these are missing")

var (
	entriesBucket = []byte("oplog")
	vectorBucket  = []byte("oplog.vector")
	selfKey       = []byte("\x00self")
)

// maxName bounds the name of an origin in bytes.
const maxName = 64

// Init makes the buckets, and the name of the file, where they are missing.
func Init(tx *bolt.Tx) error {
	for _, name := range [][]byte{entriesBucket, vectorBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	if tx.Bucket(vectorBucket).Get(selfKey) == nil {
		return Renew(tx)
	}
	return nil
}

// Renew gives the file a new name. What it did under the old one stays.
func Renew(tx *bolt.Tx) error {
	var b [8]byte
	rand.Read(b[:])
	return tx.Bucket(vectorBucket).Put(selfKey, []byte(hex.EncodeToString(b[:])))
}

// Self returns the name of the file.
func Self(tx *bolt.Tx) string { return string(tx.Bucket(vectorBucket).Get(selfKey)) }

// ReadVector returns what is known.
func ReadVector(tx *bolt.Tx) Vector {
	v := Vector{}
	c := tx.Bucket(vectorBucket).Cursor()
	for k, n := c.First(); k != nil; k, n = c.Next() {
		if !bytes.Equal(k, selfKey) && len(n) == 8 {
			v[string(k)] = binary.BigEndian.Uint64(n)
		}
	}
	return v
}

func known(tx *bolt.Tx, origin string) uint64 {
	if n := tx.Bucket(vectorBucket).Get([]byte(origin)); len(n) == 8 {
		return binary.BigEndian.Uint64(n)
	}
	return 0
}

func entryKey(origin string, number uint64) []byte {
	k := make([]byte, 0, len(origin)+9)
	return binary.BigEndian.AppendUint64(append(append(k, origin...), 0), number)
}

// Append enters a change of this file's own and returns its number. ref names
// what was changed.
func Append(tx *bolt.Tx, ref []byte) (origin string, number uint64, err error) {
	origin = Self(tx)
	number = known(tx, origin) + 1
	if err := Put(tx, origin, number, ref); err != nil {
		return "", 0, err
	}
	return origin, number, raise(tx, origin, number)
}

// Put enters a change of any origin.
func Put(tx *bolt.Tx, origin string, number uint64, ref []byte) error {
	return tx.Bucket(entriesBucket).Put(entryKey(origin, number), ref)
}

// Drop takes out a change that does not count any more.
func Drop(tx *bolt.Tx, origin string, number uint64) error {
	return tx.Bucket(entriesBucket).Delete(entryKey(origin, number))
}

func raise(tx *bolt.Tx, origin string, to uint64) error {
	return tx.Bucket(vectorBucket).Put([]byte(origin), binary.BigEndian.AppendUint64(nil, to))
}

// Accept checks that a batch continues what is known, and notes that it is
// known now. The items in it that were known before are to be skipped: those
// up to the number that is returned.
func Accept(tx *bolt.Tx, b Batch) (before uint64, err error) {
	if b.Origin == "" || len(b.Origin) > maxName || bytes.IndexByte([]byte(b.Origin), 0) >= 0 || b.To < b.From {
		return 0, fmt.Errorf("changes of an origin that is none: %.80q", b.Origin)
	}
	before = known(tx, b.Origin)
	if b.From > before {
		return 0, ErrGap
	}
	last := b.From
	for _, it := range b.Items {
		if it.Number <= last || it.Number > b.To {
			return 0, errors.New("changes that are not in their order")
		}
		last = it.Number
	}
	if b.To > before {
		err = raise(tx, b.Origin, b.To)
	}
	return before, err
}

// Each calls fn for the changes of an origin behind a number, in their order,
// until it says false, and returns up to where all have been seen.
func Each(tx *bolt.Tx, origin string, after uint64, fn func(number uint64, ref []byte) bool) (to uint64) {
	prefix := append([]byte(origin), 0)
	c := tx.Bucket(entriesBucket).Cursor()
	to = after
	for k, ref := c.Seek(entryKey(origin, after+1)); bytes.HasPrefix(k, prefix) && len(k) == len(prefix)+8; k, ref = c.Next() {
		n := binary.BigEndian.Uint64(k[len(prefix):])
		if !fn(n, ref) {
			return to
		}
		to = n
	}
	return max(to, known(tx, origin)) // what is not here any more was replaced
}

// Sweep takes out the changes at the beginning of each origin for which gone
// says that what they name is not there any more.
func Sweep(tx *bolt.Tx, gone func(ref []byte) bool) error {
	b := tx.Bucket(entriesBucket)
	for origin := range ReadVector(tx) {
		var old []uint64
		Each(tx, origin, 0, func(n uint64, ref []byte) bool {
			if !gone(ref) {
				return false
			}
			old = append(old, n)
			return true
		})
		for _, n := range old {
			if err := b.Delete(entryKey(origin, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Signal tells any number of waiters that something has changed.
type Signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// Wait returns a channel that is closed at the next Fire.
func (s *Signal) Wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// Fire wakes all that wait.
func (s *Signal) Fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
