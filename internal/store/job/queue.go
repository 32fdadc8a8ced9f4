package job

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/py/value"
)

// Queued is a job that is, or recently was, queued for disconnected minions.
type Queued struct {
	// Job has only the fields Load, Minions and Returned.
	Job
	// At is when the job was stored. Until is when its delivery ends.
	At, Until time.Time
	// From is the id of the cluster's master that published the job, else "".
	From string
	State
}

// State is the progress of a job on minions that have not returned.
type State struct {
	Handed  []string // received it when they reconnected
	Running []string // reported that they run it
	Absent  []string // known to be disconnected when it was published
}

// queuedKey makes keys that sort by time.
func queuedKey(jid string, until time.Time) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(until.UnixMilli())), jid...)
}

func queuedMoment(k []byte) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(k)))
}

// sweep is the number of expired entries removed with each new one: more than one, so that they do
// not accumulate, and few, so that no caller is delayed.
const sweep = 8

// putQueued records until when a job is queued for disconnected minions. It removes jobs that had expired long before the time early.
func putQueued(tx *bolt.Tx, jid string, until, now, early time.Time) error {
	if until.IsZero() {
		return nil
	}
	b, states := tx.Bucket(queueBucket), tx.Bucket(statesBucket)
	var over [][]byte
	c := b.Cursor()
	for k, _ := c.First(); len(k) >= 8 && queuedMoment(k).Before(early.Add(-RememberFor)) && len(over) < sweep; k, _ = c.Next() {
		over = append(over, slices.Clone(k))
	}
	for _, k := range over {
		if err := errors.Join(b.Delete(k), states.Delete(k[8:])); err != nil {
			return err
		}
	}
	return b.Put(queuedKey(jid, until), binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli())))
}

// RememberFor is how long the outcome of an expired job is remembered.
const RememberFor = 10 * time.Minute

// rememberJobs bounds the expired jobs that Queued returns.
const rememberJobs = 500

// Queued returns the jobs that are queued for disconnected minions at the time now, and some that
// expired shortly before, at most limit in all. They are sorted by the time at which they were
// stored.
func (s *Store) Queued(now time.Time, limit int) ([]Queued, error) {
	var out []Queued
	err := s.file.view(func(tx *bolt.Tx) error {
		b := tx.Bucket(queueBucket)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		from := now.Add(-RememberFor)
		past := 0
		k, v := c.Last()
		for ; len(k) >= 8 && len(out) < limit && queuedMoment(k).After(from); k, v = c.Prev() {
			if queuedMoment(k).Before(now) {
				if past++; past > rememberJobs {
					break
				}
			}
			q, err := readQueued(tx, k, v)
			if err != nil {
				s.damaged(string(k[8:]), "queued job", err)
			}
			if q.Load != nil {
				out = append(out, q)
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Queued) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.JID, b.JID)) })
	return out, err
}

func readQueued(tx *bolt.Tx, k, v []byte) (q Queued, err error) {
	jid := string(k[8:])
	hour := findHour(tx, jid)
	if hour == nil {
		return q, nil
	}
	f := Filter{Returned: true}
	j, err := f.read(hour, jid)
	if err != nil {
		return Queued{}, err
	}
	q = Queued{Job: *j, Until: queuedMoment(k)}
	_, q.From = readFrom(hour, jid)
	q.At = q.Until
	if len(v) == 8 {
		q.At = queuedMoment(v)
	}
	if states := tx.Bucket(statesBucket); states != nil {
		if raw := states.Get(k[8:]); raw != nil {
			d, err := decodeDict(raw)
			if err != nil {
				return Queued{}, err // which minions started it is unknown, so the job could run twice
			}
			q.State = State{Handed: value.Texts(d.At("handed")), Running: value.Texts(d.At("running")), Absent: value.Texts(d.At("absent"))}
		}
	}
	return q, nil
}

// Notes are updates of the state of jobs and minions.
type Notes struct {
	States map[string]State // by job id
	// Speakers are the minions that request missed jobs, and those (false) that no longer do.
	Speakers map[string]bool
}

// Note stores notes. It returns when they are on disk.
func (s *Store) Note(n Notes) error { return s.writer.wait(&op{kind: opNotes, notes: n}) }

// Speakers returns the minions that request missed jobs.
func (s *Store) Speakers() (ids []string, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		b := tx.Bucket(speakersBucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, _ []byte) error {
			ids = append(ids, string(k))
			return nil
		})
	})
	return ids, err
}

func (n *Notes) put(tx *bolt.Tx) error {
	states, speakers := tx.Bucket(statesBucket), tx.Bucket(speakersBucket)
	for jid, st := range n.States {
		raw, err := encode(value.DictOf("handed", value.Strings(st.Handed), "running", value.Strings(st.Running), "absent", value.Strings(st.Absent)))
		if err == nil {
			err = states.Put([]byte(jid), raw)
		}
		if err != nil {
			return err
		}
	}
	for id, speaks := range n.Speakers {
		var err error
		if speaks {
			err = speakers.Put([]byte(id), nil)
		} else {
			err = speakers.Delete([]byte(id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
