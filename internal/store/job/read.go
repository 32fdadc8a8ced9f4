package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/boltfile"
)

// Job is one job.
type Job struct {
	JID string
	// Load is the published load, or that of the first return if the job was not published.
	Load *value.Dict
	// Minions are the ids of targeted minions.
	Minions []string
	// Returned are the ids that have returned, sorted; nil unless requested.
	Returned []string
}

// Missing returns the minions that have not returned. It needs Returned.
func (j *Job) Missing() []string {
	var out []string
	for _, id := range j.Minions {
		if _, found := slices.BinarySearch(j.Returned, id); !found {
			out = append(out, id)
		}
	}
	return out
}

// Load returns the load of a job, or nil if the job is unknown.
func (s *Store) Load(jid string) (*value.Dict, error) {
	raw, err := s.get(jid, entryLoad)
	if raw == nil || err != nil {
		return nil, err
	}
	return decodeDict(raw)
}

// Minions returns the ids of the minions that a job targets.
func (s *Store) Minions(jid string) ([]string, error) {
	raw, err := s.get(jid, entryMinions)
	return decodeIDs(raw), err
}

// get returns a copy of an entry, or nil.
func (s *Store) get(jid string, entry byte) (raw []byte, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		if hour := findHour(tx, jid); hour != nil {
			raw = bytes.Clone(hour.Get(key(jid, entry, "")))
		}
		return nil
	})
	return raw, err
}

// Returns returns the returns of a job by id: dicts with return and, if known, retcode, success and out.
func (s *Store) Returns(jid string) (map[string]*value.Dict, error) {
	out := map[string]*value.Dict{}
	err := s.EachReturn(jid, func(id string, ret *value.Dict) bool {
		out[id] = ret
		return true
	})
	return out, err
}

// Bounds of the returns that are copied in one transaction.
const (
	chunkReturns = 256
	chunkBytes   = 4 << 20
)

// EachReturn calls fn for the returns of a job in the order of their ids, until it returns false.
// It has only a few of them in memory at a time. fn may be slow.
//
// A return whose content only unreachable masters have is a dict that says so.
func (s *Store) EachReturn(jid string, fn func(id string, ret *value.Dict) bool) error {
	return s.eachReturn(jid, func(id string, ret *value.Dict, _ bool) bool { return fn(id, ret) })
}

// eachReturn is EachReturn that reports whether the content of a return is missing.
func (s *Store) eachReturn(jid string, fn func(id string, ret *value.Dict, missing bool) bool) error {
	from := key(jid, entryReturn, "")
	prefix := slices.Clone(from)
	for {
		var got []rawReturn
		err := s.file.view(func(tx *bolt.Tx) error {
			hour := findHour(tx, jid)
			if hour == nil {
				return nil
			}
			c, issuer := hour.Cursor(), issuerOf(hour, jid)
			size := 0
			for k, v := c.Seek(from); bytes.HasPrefix(k, prefix) && len(got) < chunkReturns && size < chunkBytes; k, v = c.Next() {
				got = append(got, rawReturn{string(k[len(prefix):]), issuer, bytes.Clone(v)})
				size += len(v)
			}
			return nil
		})
		if err != nil || len(got) == 0 {
			return err
		}
		s.complete(jid, got)
		for _, e := range got {
			if isShort(e.raw) {
				if s.expiring(jid) {
					continue
				}
				if !fn(e.id, s.stream.elsewhere(jid, e), true) {
					return nil
				}
				continue
			}
			ret, err := decodeDict(e.raw)
			if err != nil {
				s.damaged(jid, "return of "+e.id, err)
				ret = unreadable(err)
			}
			if !fn(e.id, ret, false) {
				return nil
			}
		}
		from = append(key(jid, entryReturn, got[len(got)-1].id), 0)
	}
}

// unreadable returns the dict shown instead of a damaged return.
func unreadable(err error) *value.Dict {
	return value.DictOf("return", fmt.Sprintf("ERROR: The master has this return but %v.", err), "retcode", 1, "success", false)
}

// Snapshot writes the current jobs to a directory that Open and OpenReadOnly can read, with the returns that other reachable
// masters store. It replaces an older snapshot.
func (s *Store) Snapshot(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot create the snapshot directory: %w", err)
	}
	err := s.file.view(func(tx *bolt.Tx) error {
		return atomicfile.Replace(filepath.Join(dir, fileName), 0o600, func(w io.Writer) error {
			_, err := tx.WriteTo(w)
			return err
		})
	})
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write a snapshot of the jobs: %w", err)
	}
	if err := s.stream.fillSnapshot(filepath.Join(dir, fileName)); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot add the returns of other masters to a snapshot of the jobs: %w", err)
	}
	return nil
}

// fillSnapshot replaces the short returns in a snapshot by their contents, as far as masters that have these are reachable.
func (s *Stream) fillSnapshot(path string) error {
	if s == nil || s.contents == nil {
		return nil
	}
	db, err := boltfile.Open(path, bolt.Options{Timeout: lockTimeout})
	if err != nil {
		return err
	}
	defer db.Close()
	var at Cursor
	for done := false; !done; {
		var places []Place
		if places, at, done, err = s.Shorts(at, chunkReturns, func(Place) bool { return true }); err != nil {
			return err
		}
		if len(places) == 0 {
			continue
		}
		contents := s.contents(places)
		err = db.Update(func(tx *bolt.Tx) error {
			for _, p := range places {
				raw, hour, k := contents[p.Name()], findHour(tx, p.JID), key(p.JID, entryReturn, p.ID)
				if raw == nil || hour == nil || !isShort(hour.Get(k)) {
					continue
				}
				if err := hour.Put(k, raw); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Whole returns a job with its returns, or nil if it does not exist.
func (s *Store) Whole(jid string) (*Whole, error) {
	load, err := s.Load(jid)
	if load == nil || err != nil {
		return nil, err
	}
	w := &Whole{Job: Job{JID: jid, Load: load}}
	if w.Minions, err = s.Minions(jid); err != nil {
		return nil, err
	}
	w.Returns = map[string]*value.Dict{}
	missing := 0
	err = s.eachReturn(jid, func(id string, ret *value.Dict, lacks bool) bool {
		if w.Returns[id] = ret; lacks {
			missing++
		}
		return true
	})
	if err == nil && missing > 0 {
		err = salt.Errorf(salt.Unavailable, "%d returns of job %s are stored on other masters of the cluster only: start this master and those that "+
			"brine ha doctor names as unreachable, and run this again while they run", missing, jid)
	}
	if err != nil {
		return nil, err
	}
	w.Returned = slices.Sorted(maps.Keys(w.Returns))
	return w, nil
}

// Filter selects jobs to list.
type Filter struct {
	// Limit is the largest number of jobs; 0 means all.
	Limit int
	// Oldest lists the oldest jobs first instead of the newest.
	Oldest bool
	// After and Before are exclusive bounds of the job ids; "" means no bound.
	After, Before string
	// Since leaves out the jobs stored in an hour before that of this time.
	Since time.Time
	// Returned requests Job.Returned.
	Returned bool
	// Keep reports whether to list a job; nil means all. It must be quick.
	Keep func(*Job) bool

	panicked any // raised by Keep; passed on after the transaction
}

// List returns jobs in the order of storing, to the hour, and by id within an hour.
func (s *Store) List(f Filter) ([]*Job, error) {
	var jobs []*Job
	err := s.file.view(func(tx *bolt.Tx) error {
		err := eachHour(tx, !f.Oldest, func(name []byte, hour *bolt.Bucket) error {
			if !f.Since.IsZero() && bytes.Compare(name, hourName(f.Since)) < 0 {
				return nil
			}
			return s.inHour(&f, hour, &jobs)
		})
		if errors.Is(err, errFound) {
			return nil
		}
		return err
	})
	if f.panicked != nil {
		panic(f.panicked)
	}
	return jobs, err
}

// keeps calls Keep. A panic of Keep must not look like a damaged database.
func (f *Filter) keeps(j *Job) (keep bool, err error) {
	defer func() {
		if f.panicked = recover(); f.panicked != nil {
			err = errFound
		}
	}()
	return f.Keep == nil || f.Keep(j), nil
}

// inHour appends the jobs of an hour; errFound means that the limit is reached.
func (s *Store) inHour(f *Filter, hour *bolt.Bucket, jobs *[]*Job) error {
	c := hour.Cursor()
	for jid := f.firstJID(c); jid != ""; jid = f.nextJID(c, jid) {
		if f.After != "" && jid <= f.After || f.Before != "" && jid >= f.Before {
			continue
		}
		j, err := f.read(hour, jid)
		if err != nil {
			s.damaged(jid, "load", err)
		}
		keep, err := f.keeps(j)
		if err != nil {
			return err
		}
		if !keep {
			continue
		}
		*jobs = append(*jobs, j)
		if f.Limit > 0 && len(*jobs) >= f.Limit {
			return errFound
		}
	}
	return nil
}

func (f *Filter) firstJID(c *bolt.Cursor) string {
	k, _ := c.Last()
	if f.Oldest {
		k, _ = c.First()
	}
	jid, _, _ := splitKey(k)
	return jid
}

func (f *Filter) nextJID(c *bolt.Cursor, jid string) string {
	var k []byte
	if f.Oldest {
		k, _ = c.Seek([]byte(jid + "\x01"))
	} else {
		c.Seek([]byte(jid + "\x00"))
		k, _ = c.Prev()
	}
	next, _, _ := splitKey(k)
	return next
}

// read reads a job. If its load cannot be read, it returns the error and the rest of the job.
func (f *Filter) read(hour *bolt.Bucket, jid string) (*Job, error) {
	var damage error
	j := &Job{JID: jid, Minions: decodeIDs(hour.Get(key(jid, entryMinions, "")))}
	if raw := hour.Get(key(jid, entryLoad, "")); raw != nil {
		j.Load, damage = decodeDict(raw)
	}
	if f.Returned {
		prefix := key(jid, entryReturn, "")
		c := hour.Cursor()
		for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
			j.Returned = append(j.Returned, strings.Clone(string(k[len(prefix):])))
		}
	}
	return j, damage
}

// Active returns the jobs stored since a time that lack a return of some minion, newest first.
func (s *Store) Active(since time.Time) ([]*Job, error) {
	return s.List(Filter{Since: since, Returned: true, Keep: func(j *Job) bool { return len(j.Missing()) > 0 }})
}
