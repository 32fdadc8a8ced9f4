package replica

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// Bounds of one comparison.
const (
	chunkThings = 256
	chunkBytes  = 1 << 20
	// maxOrigin bounds the name of an origin.
	maxOrigin = 64
)

// sumThing returns the checksum of the winning version of a record. It is "" for a deletion, since masters drop deletions at different
// times.
func (s *Store) sumThing(kind, name string, all []*Record) string {
	r := s.winner(kind, all)
	if r == nil || r.Value == nil {
		return ""
	}
	h := sha256.New()
	h.Write([]byte(kind + "\x00" + name + "\x00" + r.origin + "\x00"))
	h.Write(binary.BigEndian.AppendUint64(nil, r.number))
	h.Write(r.Value)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

var _ Source = (*Store)(nil)

// Sums implements Source. It stops early after many records.
func (s *Store) Sums(kind, after, to string) (p Part, err error) {
	p = Part{Sums: map[string]string{}, Last: to}
	err = s.db.View(func(tx *bolt.Tx) error {
		prefix := recordKey(kind, "")
		c := tx.Bucket(recordsBucket).Cursor()
		things, size := 0, 0
		at := ""
		for k, b := c.Seek(recordKey(kind, after)); bytes.HasPrefix(k, prefix); k, b = c.Next() {
			_, name := splitKey(k)
			if name == after && after != "" {
				continue
			}
			if to != "" && name > to {
				return nil
			}
			if things >= chunkThings || size >= chunkBytes {
				p.Last = at
				return nil
			}
			all, err := decodeAll(kind, name, b)
			if err != nil {
				return err
			}
			if sum := s.sumThing(kind, name, all); sum != "" {
				p.Sums[name] = sum
			}
			things, size, at = things+1, size+len(b), name
		}
		return nil
	})
	return p, failed(err)
}

// Some implements Source.
func (s *Store) Some(kind string, names []string) (sums map[string]string, from string, err error) {
	sums = map[string]string{}
	err = s.db.View(func(tx *bolt.Tx) error {
		for _, name := range names {
			all, err := load(tx, kind, name)
			if err != nil {
				return err
			}
			if sum := s.sumThing(kind, name, all); sum != "" {
				sums[name] = sum
			}
		}
		return nil
	})
	return sums, "", failed(err)
}

// total returns one checksum for many.
func total(sums map[string]string) string {
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		h.Write([]byte(name + "\x00" + sums[name] + "\x00"))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Version is a version of a record in the form for another master.
type Version struct {
	// Origin and Number identify the change. For a job or return, Origin is the hour in which it is stored.
	Origin string `json:"origin"`
	Number uint64 `json:"number"`
	Data   []byte `json:"data"`
}

func encodeItem(r *Record) ([]byte, error) {
	return msgpack.Marshal(&value.List{Items: []any{r.Kind, r.Name, orNil(r.Value), r.At, r.by(), vectorDict(r.seen)}}, msgpack.NewSpec)
}

// Versions implements Source. The result includes deletions.
func (s *Store) Versions(kind, name string) (out []Version, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		all, err := load(tx, kind, name)
		if err != nil {
			return err
		}
		for _, r := range all {
			data, err := encodeItem(r)
			if err != nil {
				return err
			}
			out = append(out, Version{r.origin, r.number, data})
		}
		return nil
	})
	return out, failed(err)
}

func isOrigin(name string) bool {
	return name != "" && len(name) <= maxOrigin && !strings.Contains(name, "\x00")
}

// Take implements Source: it merges versions of another master as if they had just arrived. If instead is true, they replace local
// versions of the same number, whose content is damaged.
func (s *Store) Take(kind, name string, versions []Version, instead bool) (changed bool, err error) {
	latest, last := s.latestPlace(), int64(0)
	var records []*Record
	for _, v := range versions {
		r, err := readItem(v.Data)
		if err != nil || r.Kind != kind || r.Name != name || r.At > latest || v.Number == 0 || !isOrigin(v.Origin) {
			return false, salt.Errorf(salt.Invalid, "a version of %s %.80q of another master is not a record", kind, name)
		}
		r.origin, r.number = v.Origin, v.Number
		last = max(last, r.At)
		records = append(records, r)
	}
	err = s.db.Update(func(tx *bolt.Tx) error {
		changed = false
		all, err := load(tx, kind, name)
		if err != nil {
			return err
		}
		for _, r := range records {
			old := all
			if instead {
				all = slices.DeleteFunc(slices.Clone(all), func(o *Record) bool {
					return o.origin == r.origin && o.number == r.number && !bytes.Equal(o.Value, r.Value)
				})
			}
			next, took := s.merge(all, r)
			if !took {
				all = old
				continue
			}
			if err := replace(tx, kind, name, old, next); err != nil {
				return err
			}
			if err := oplog.Put(tx, r.origin, r.number, recordKey(kind, name)); err != nil {
				return err
			}
			all, changed = next, true
		}
		if !changed {
			return nil
		}
		if err := tx.Bucket(metaBucket).Put(clockKey, fmt.Append(nil, s.tick(tx, last))); err != nil {
			return err
		}
		return tx.Bucket(todoBucket).Put(recordKey(kind, name), nil)
	})
	if err != nil || !changed {
		return false, failed(err)
	}
	s.tell(kind, name)
	s.signal.Fire()
	return true, nil
}
