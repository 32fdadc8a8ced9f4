package job

import (
	"encoding/binary"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Queued is a job that is kept for minions that are away.
type Queued struct {
	// Job has Load, Minions and Returned.
	Job
	// Until is when it is not handed out any more.
	Until time.Time
}

// queuedKey sorts by the moment.
func queuedKey(jid string, until time.Time) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(until.UnixMilli())), jid...)
}

func queuedMoment(k []byte) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(k)))
}

// sweep is how many entries that are over are removed with each new one: more
// than one, so that they do not heap up, and few, so that nobody waits.
const sweep = 8

// putQueued notes until when a job is kept for minions that are away.
func putQueued(tx *bolt.Tx, jid string, until, now time.Time) error {
	if !until.After(now) {
		return nil
	}
	b := tx.Bucket(queueBucket)
	var over [][]byte
	c := b.Cursor()
	for k, _ := c.First(); len(k) >= 8 && queuedMoment(k).Before(now) && len(over) < sweep; k, _ = c.Next() {
		over = append(over, slices.Clone(k))
	}
	for _, k := range over {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return b.Put(queuedKey(jid, until), nil)
}

// Queued returns the jobs that are kept at a moment for minions that are away,
// the one that is over first at the front, and at most limit of them.
func (s *Store) Queued(now time.Time, limit int) ([]Queued, error) {
	var out []Queued
	err := s.view(func(tx *bolt.Tx) error {
		b := tx.Bucket(queueBucket)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, _ := c.Seek(queuedKey("", now)); len(k) >= 8 && len(out) < limit; k, _ = c.Next() {
			jid := string(k[8:])
			hour := findHour(tx, jid)
			if hour == nil {
				continue
			}
			f := Filter{Returned: true}
			j, err := f.read(hour, jid)
			if err != nil {
				return err
			}
			if j.Load != nil {
				out = append(out, Queued{*j, queuedMoment(k)})
			}
		}
		return nil
	})
	return out, err
}
