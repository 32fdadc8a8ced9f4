package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/store/oplog"
)

// Tombstones are dropped eventually. A master may drop a tombstone when every master has reported that it has it, and this one has received
// all changes that those masters had at that time. Then no older version exists, and none can arrive whose author did not know of the
// deletion. While a master is unreachable, all keep the tombstones that it lacks.
//
// One case remains: a master whose records are older than it has reported, for example because its disk was restored. Such a master lacks
// changes that others have dropped (the vector forgotten). Before new changes it receives the list of the changes up to some number that
// are still valid (Batch.Live). It drops the changes that are not listed, since they were replaced or deleted. A master that has just
// joined also gets the list, but has nothing to drop.

// forgottenBucket stores the highest number of a dropped tombstone for each origin.
var forgottenBucket = []byte("forgotten")

// ForgetDeleted drops the tombstones of a kind that were made before a time and that all masters know according to acked. It returns
// their number.
//
// acked are the changes that all masters had at some moment, and seen those that any master had. While this store lacks any of the
// changes in seen, it drops nothing.
func (s *Store) ForgetDeleted(kind string, before time.Time, acked, seen oplog.Vector) (n int, err error) {
	err = s.db.Update(func(tx *bolt.Tx) error {
		n = 0
		mine := oplog.ReadVector(tx)
		for origin, number := range seen {
			if mine[origin] < number {
				return nil
			}
		}
		var old []*Record
		prefix := recordKey(kind, "")
		c := tx.Bucket(recordsBucket).Cursor()
		for k, b := c.Seek(prefix); bytes.HasPrefix(k, prefix) && len(old) < maxForget; k, b = c.Next() {
			_, name := splitKey(k)
			all, err := decodeAll(kind, name, b)
			if err != nil {
				return err
			}
			if len(all) != 1 || all[0].Value != nil || !all[0].Made().Before(before) || !acked.Knows(all[0].origin, all[0].number) ||
				tx.Bucket(todoBucket).Get(k) != nil {
				continue
			}
			old = append(old, all[0])
		}
		for _, r := range old {
			if err := oplog.Drop(tx, r.origin, r.number); err != nil {
				return err
			}
			if err := raiseForgotten(tx, r.origin, r.number); err != nil {
				return err
			}
			if err := tx.Bucket(recordsBucket).Delete(recordKey(kind, r.Name)); err != nil {
				return err
			}
		}
		n = len(old)
		return nil
	})
	return n, failed(err)
}

// maxForget bounds the tombstones dropped in one transaction.
const maxForget = 5000

func raiseForgotten(tx *bolt.Tx, origin string, number uint64) error {
	b := tx.Bucket(forgottenBucket)
	if old := b.Get([]byte(origin)); len(old) == 8 && binary.BigEndian.Uint64(old) >= number {
		return nil
	}
	return b.Put([]byte(origin), binary.BigEndian.AppendUint64(nil, number))
}

// Forgotten implements oplog.Forgetful.
func (s *Store) Forgotten() (v oplog.Vector, err error) {
	v = oplog.Vector{}
	err = s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(forgottenBucket).ForEach(func(k, n []byte) error {
			if len(n) == 8 {
				v[string(k)] = binary.BigEndian.Uint64(n)
			}
			return nil
		})
	})
	return v, failed(err)
}

// ReadLive implements oplog.Lister.
func (s *Store) ReadLive(origin string, after uint64) (b oplog.Batch, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		b = oplog.List(tx, origin, after)
		if n := tx.Bucket(forgottenBucket).Get([]byte(origin)); len(n) == 8 {
			b.Forgotten = binary.BigEndian.Uint64(n)
		}
		return nil
	})
	return b, failed(err)
}

// IsDeletion reports whether a change is the deletion of a record.
func (s *Store) IsDeletion(it oplog.Item) bool {
	r, err := readItem(it.Data)
	return err == nil && r.Value == nil
}

// ApplyLive implements oplog.Forgetful: it drops the changes of an origin with numbers after From up to To that are not in Live.
func (s *Store) ApplyLive(b oplog.Batch) error {
	numbers, err := b.ParseLive()
	if err != nil {
		return err
	}
	live := map[uint64]bool{}
	for _, n := range numbers {
		live[n] = true
	}
	dropped := 0
	err = s.db.Update(func(tx *bolt.Tx) error {
		dropped = 0
		type entry struct {
			number uint64
			ref    []byte
		}
		var gone []entry
		oplog.Each(tx, b.Origin, b.From, func(n uint64, ref []byte) bool {
			if n <= b.To && !live[n] {
				gone = append(gone, entry{n, bytes.Clone(ref)})
			}
			return n <= b.To
		})
		for _, e := range gone {
			if err := s.removeVersion(tx, b.Origin, e.number, e.ref); err != nil {
				return err
			}
		}
		dropped = len(gone)
		if b.Forgotten > 0 && b.Origin != "" {
			return raiseForgotten(tx, b.Origin, b.Forgotten)
		}
		return nil
	})
	if err == nil && dropped > 0 {
		s.log.Warn("dropping outdated records: other masters deleted or replaced them long ago", "things", dropped)
		s.signal.Fire()
	}
	return failed(err)
}

func (s *Store) removeVersion(tx *bolt.Tx, origin string, number uint64, ref []byte) error {
	if err := oplog.Drop(tx, origin, number); err != nil {
		return err
	}
	kind, name := splitKey(ref)
	all, err := load(tx, kind, name)
	if err != nil {
		return err
	}
	var rest []*Record
	for _, r := range all {
		if r.origin != origin || r.number != number {
			rest = append(rest, r)
		}
	}
	if len(rest) == len(all) {
		return nil
	}
	if err := tx.Bucket(todoBucket).Put(ref, nil); err != nil {
		return err
	}
	if len(rest) == 0 {
		return tx.Bucket(recordsBucket).Delete(ref)
	}
	return save(tx, kind, name, rest)
}

var _ oplog.Forgetful = (*Store)(nil)

// PutAside moves away the state of an earlier membership: the records in own, which is the master's own directory, and the names in dir
// and the directories more if a mark in dir shows that the files there belonged to records. Otherwise a master that rejoins would override
// later decisions of the cluster. It returns the new location, "" if there was nothing.
func PutAside(own, dir string, names, more []string) (aside string, err error) {
	marks, err := filepath.Glob(filepath.Join(globQuoted(dir), markFile+"*"))
	if err != nil {
		return "", err
	}
	records := filepath.Join(own, fileName)
	if _, err := os.Lstat(records); err != nil && !errors.Is(err, fs.ErrNotExist) || len(marks) == 0 && err != nil {
		return "", ignoreMissing(err)
	}
	suffix := ".before-join-" + time.Now().UTC().Format("20060102T150405.000")
	aside = filepath.Join(dir, "earlier"+suffix)
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return "", err
	}
	moves := [][2]string{}
	if len(marks) > 0 {
		for _, n := range names {
			moves = append(moves, [2]string{filepath.Join(dir, n), filepath.Join(aside, n)})
		}
		for _, path := range more {
			moves = append(moves, [2]string{path, path + suffix})
		}
	}
	moves = append(moves, [2]string{records, records + suffix})
	for _, path := range marks { // last, so that an interrupted move is repeated
		moves = append(moves, [2]string{path, filepath.Join(aside, filepath.Base(path))})
	}
	for _, mv := range moves {
		if err := ignoreMissing(os.Rename(mv[0], mv[1])); err != nil { // rename: moves files aside
			return "", err
		}
	}
	return aside, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// globQuoted quotes a path for a glob pattern.
func globQuoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
