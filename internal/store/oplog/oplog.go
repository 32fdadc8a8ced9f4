// Package oplog numbers the changes that several masters make to replicated state, so that each
// master can send another exactly the changes that it lacks.
//
// A log is a set of buckets in the bbolt file of the data, and is written in the transactions that
// change the data. It has entries of several origins: the file itself, which gets a random name
// each time it is opened, and the files of other masters. Each origin numbers its changes from 1.
// No number is used twice under one name, even if the file is replaced by an older copy of itself:
// the copy continues under a new name.
//
// An entry only names the changed item; its data is read when it is sent. So a replaced change uses
// no space, and a log is never larger than the data.
//
// A Vector holds for each origin the number up to which a file has all changes that still count. A
// batch that continues the vector raises it, whichever master sent the batch. Masters that are
// connected, directly or through others, therefore converge.
package oplog

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// Vector maps an origin to the number up to which all its changes are known.
type Vector map[string]uint64

// Merge raises v to include w.
func (v Vector) Merge(w Vector) {
	for o, n := range w {
		v[o] = max(v[o], n)
	}
}

// Knows reports whether v includes a change.
func (v Vector) Knows(origin string, number uint64) bool { return number > 0 && v[origin] >= number }

// Clone returns a copy of v.
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

// Batch is all changes of an origin after From, up to and including To, that still count.
type Batch struct {
	Origin   string
	From, To uint64
	Items    []Item

	// Live, if not nil, makes this a list of the changes after From, up to To, that still count.
	// They are encoded as varints, each the difference from the previous number. Items is empty
	// then. Forgotten is the number of Forgetful.Forgotten for the origin.
	Live      []byte
	Forgotten uint64

	// Loose means that changes before some of the items are missing: the items count, but the vector
	// is not raised, so that the missing ones can follow.
	Loose bool
}

// Decode decodes the items of a batch. It truncates the batch before the first item that cannot be decoded, so
// that nothing is acknowledged that is not stored, and returns the reason. A batch that is out of order stays
// unchanged, with nothing decoded: Accept refuses it.
func Decode[T any](b *Batch, item func(Item) (T, error)) (decoded []T, unreadable error) {
	last := b.From
	for i, it := range b.Items {
		if it.Number <= last || it.Number > b.To {
			return nil, nil
		}
		last = it.Number
		d, err := item(it)
		if err != nil {
			unreadable = fmt.Errorf("change %d of %s: %w; is that master of a newer version?", it.Number, b.Origin, err)
			b.Items, b.To = b.Items[:i], it.Number-1
			return decoded, unreadable
		}
		decoded = append(decoded, d)
	}
	return decoded, nil
}

// Lister is a Stream that lists which changes count.
type Lister interface {
	Stream
	// ReadLive returns which changes of an origin after a number count.
	ReadLive(origin string, after uint64) (Batch, error)
}

// Forgetful is a Stream that removes deletions known to all masters from the log.
type Forgetful interface {
	Lister
	// Forgotten returns, by origin, the number up to which deletions may have been removed. A peer
	// that does not know all changes up to there needs the list of ReadLive.
	Forgotten() (Vector, error)
	// ApplyLive drops the changes that the batch does not list.
	ApplyLive(b Batch) error
}

// Stream is the interface of a store with a log for links between masters. It is safe for concurrent use.
type Stream interface {
	// Vector returns the known changes, and Self the store's own origin.
	Vector() (Vector, error)
	Self() string
	// Own reports whether an origin is the store's own, or was its own before a restart.
	Own(origin string) bool
	// Read returns a batch after a number, of about the given number of items and bytes.
	Read(origin string, after uint64, items, size int) (Batch, error)
	// Apply applies a batch, and returns when it is on disk. ErrGap means that the batch does not continue
	// the known changes.
	Apply(b Batch) error
	// Renew gives the store a new origin name. It is needed when a peer knows more changes of the
	// present origin than the store itself: memory and disk were reset together, as with a snapshot
	// of a virtual machine, and the store would reuse numbers.
	Renew() error
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Selective is a Stream that does not send everything to every peer.
type Selective interface {
	Stream
	// ReadFor is Read for a peer. If short is false, the version of the peer does not support short
	// items.
	ReadFor(peer string, short bool, origin string, after uint64, items, size int) (Batch, error)
}

// ErrGap means that a batch does not continue the known changes.
var ErrGap = errors.New("changes before these are missing")

var (
	entriesBucket = []byte("oplog")
	vectorBucket  = []byte("oplog.vector")
	selfKey       = []byte("\x00self")
)

// maxName bounds the name of an origin in bytes.
const maxName = 64

// Init creates missing buckets and gives the file a new name. It is called when a file is opened,
// because the file may be an older copy. Then other masters may know changes under the present name
// that the copy lacks, and would mistake new changes with the same numbers for these. owner is the
// id of the master.
func Init(tx *bolt.Tx, owner string) error {
	for _, name := range [][]byte{entriesBucket, vectorBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return Renew(tx, owner)
}

// Renew gives the file a new origin name. Changes under the old name stay.
func Renew(tx *bolt.Tx, owner string) error {
	var b [8]byte
	rand.Read(b[:])
	return tx.Bucket(vectorBucket).Put(selfKey, []byte(prefixOf(owner)+hex.EncodeToString(b[:])))
}

// prefixOf returns the prefix of the names of a master's origins, by which it recognizes them even
// after its disk was reset.
func prefixOf(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:4]) + "-"
}

// Own reports whether an origin belongs to a master. It does not recognize names of earlier
// versions, which used one name for the life of a file.
func Own(origin, owner string) bool { return strings.HasPrefix(origin, prefixOf(owner)) }

// Mark returns a short name of a master, which is part of the names of its origins.
func Mark(owner string) string { return strings.TrimSuffix(prefixOf(owner), "-") }

// MarkOf returns the Mark of the master of an origin, "" for names of earlier versions.
func MarkOf(origin string) string {
	if mark, _, ok := strings.Cut(origin, "-"); ok && len(mark) == markLen {
		return mark
	}
	return ""
}

// markLen is the length of a Mark.
const markLen = 8

// Self returns the origin name of the file.
func Self(tx *bolt.Tx) string { return string(tx.Bucket(vectorBucket).Get(selfKey)) }

// ReadVector returns the vector of known changes.
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

// Append adds a change of this file's own and returns its number. ref names the changed item.
func Append(tx *bolt.Tx, ref []byte) (origin string, number uint64, err error) {
	origin = Self(tx)
	number = known(tx, origin) + 1
	if err := Put(tx, origin, number, ref); err != nil {
		return "", 0, err
	}
	return origin, number, raise(tx, origin, number)
}

// Put adds a change of any origin.
func Put(tx *bolt.Tx, origin string, number uint64, ref []byte) error {
	return tx.Bucket(entriesBucket).Put(entryKey(origin, number), ref)
}

// Drop removes a change that no longer counts.
func Drop(tx *bolt.Tx, origin string, number uint64) error {
	return tx.Bucket(entriesBucket).Delete(entryKey(origin, number))
}

func raise(tx *bolt.Tx, origin string, to uint64) error {
	return tx.Bucket(vectorBucket).Put([]byte(origin), binary.BigEndian.AppendUint64(nil, to))
}

// Accept checks that a batch continues the known changes, and raises the vector. Items up to the returned
// number were known before; skip them.
func Accept(tx *bolt.Tx, b Batch) (before uint64, err error) {
	if b.Origin == "" || len(b.Origin) > maxName || bytes.IndexByte([]byte(b.Origin), 0) >= 0 || b.To < b.From {
		return 0, fmt.Errorf("invalid origin of changes: %.80q", b.Origin)
	}
	before = known(tx, b.Origin)
	if b.From > before && !b.Loose {
		return 0, ErrGap
	}
	last := b.From
	for _, it := range b.Items {
		if it.Number <= last || it.Number > b.To {
			return 0, errors.New("changes are out of order")
		}
		last = it.Number
	}
	if b.To > before && !b.Loose {
		err = raise(tx, b.Origin, b.To)
	}
	return before, err
}

// Each calls fn for the changes of an origin after a number, in order, until it returns false. It
// returns the number up to which fn has seen all changes.
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
	return max(to, known(tx, origin)) // missing entries were replaced
}

// Sweep removes, at the beginning of each origin, the changes whose item no longer exists according to gone.
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

// maxLive bounds the numbers in a batch that lists valid changes.
const maxLive = 50_000

// List returns a batch that lists the changes of an origin after a number.
func List(tx *bolt.Tx, origin string, after uint64) Batch {
	b := Batch{Origin: origin, From: after, Live: []byte{}}
	count, last := 0, after
	b.To = Each(tx, origin, after, func(n uint64, _ []byte) bool {
		if count++; count > maxLive {
			return false
		}
		b.Live = binary.AppendUvarint(b.Live, n-last)
		last = n
		return true
	})
	return b
}

// Lists returns batches that list the changes of an origin up to a number, of which deletions up to
// forgotten were forgotten.
func Lists(origin string, to, forgotten uint64, numbers []uint64) (out []Batch) {
	from := uint64(0)
	for {
		b := Batch{Origin: origin, From: from, To: to, Live: []byte{}, Forgotten: forgotten}
		some := numbers[:min(len(numbers), maxLive)]
		numbers = numbers[len(some):]
		last := from
		for _, n := range some {
			b.Live = binary.AppendUvarint(b.Live, n-last)
			last = n
		}
		if len(numbers) > 0 {
			b.To = last
		}
		out = append(out, b)
		if len(numbers) == 0 {
			return out
		}
		from = last
	}
}

// ParseLive returns the numbers in the list of a batch.
func (b *Batch) ParseLive() ([]uint64, error) {
	var out []uint64
	last := b.From
	for rest := b.Live; len(rest) > 0; {
		d, n := binary.Uvarint(rest)
		if n <= 0 || d == 0 || last+d < last || len(out) > maxLive {
			return nil, errors.New("cannot decode the list of valid changes of another master")
		}
		last += d
		out = append(out, last)
		rest = rest[n:]
	}
	return out, nil
}

// Signal notifies any number of waiters of a change.
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

// Fire wakes all waiters.
func (s *Signal) Fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
