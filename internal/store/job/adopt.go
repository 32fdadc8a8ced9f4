package job

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
)

// Adopt adds the jobs of Salt's files that are not older than jobs are kept,
// and returns how many it has looked at. A job that cannot be added does not
// keep back the others.
func (s *Store) Adopt(c *LocalCache) (jobs int, err error) {
	var failed failures
	err = c.Jobs(func(j *Job) bool {
		if s.Expired(j.JID) || s.quitting() {
			return !s.quitting()
		}
		w, err := c.Lookup(j.JID)
		if err == nil && w != nil {
			err = s.Put(w)
			jobs++
		}
		failed.add(err)
		return true
	})
	return jobs, errors.Join(append(failed, err)...)
}

// failures are the first errors of many.
type failures []error

func (f *failures) add(err error) {
	if err != nil && len(*f) < 10 {
		*f = append(*f, err)
	}
}

// adoptedKey, in the meta bucket, has the moment at which the last look at
// Salt's files began that got through.
var adoptedKey = []byte("adopted")

// adoptSlack is by how much the clock of the file system may be behind.
const adoptSlack = time.Minute

// AdoptNew is Adopt without the jobs that are here with all their returns, and
// without those whose folders have not changed since the last call that had no
// error; it returns how many it has added to. Jobs are added one after the
// other, so that a master that runs is not held up.
func (s *Store) AdoptNew(ctx context.Context, c *LocalCache) (added int, err error) {
	if !s.o.JobCache {
		return 0, nil
	}
	began := s.now()
	var last time.Time
	err = s.view(func(tx *bolt.Tx) error {
		if b := tx.Bucket(metaBucket).Get(adoptedKey); len(b) == 8 {
			last = time.UnixMilli(int64(binary.BigEndian.Uint64(b))).Add(-adoptSlack)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var failed failures
	err = c.eachDir(func(dir string) bool {
		if ctx.Err() != nil {
			return false
		}
		// A folder changes when a minion returns for the first time.
		if info, err := os.Stat(dir); err != nil || info.ModTime().Before(last) {
			return true
		}
		b, err := os.ReadFile(filepath.Join(dir, "jid"))
		jid := string(b)
		if err != nil || !salt.ValidJID(jid) || s.Expired(jid) {
			return true
		}
		lacks, err := s.lacks(jid, returnedIn(dir))
		if err == nil && lacks {
			var w *Whole
			if w, err = c.Lookup(jid); err == nil && w != nil {
				if err = s.Put(w); err == nil {
					added++
				}
			}
		}
		failed.add(err)
		return true
	})
	err = errors.Join(append(failed, err)...)
	if err == nil && ctx.Err() == nil {
		err = s.wait(&op{kind: opAdopted, until: began})
	}
	return added, err
}

// lacks reports whether the job, or the return of one of these minions, is not
// here, or nothing but what a return says of the job.
func (s *Store) lacks(jid string, ids []string) (bool, error) {
	load, err := s.Load(jid)
	if err != nil || load == nil || load.Has("return") {
		return err == nil, err
	}
	lacks := false
	err = s.view(func(tx *bolt.Tx) error {
		hour := findHour(tx, jid)
		lacks = hour == nil || slices.ContainsFunc(ids, func(id string) bool { return hour.Get(key(jid, entryReturn, id)) == nil })
		return nil
	})
	return lacks, err
}

func putAdopted(tx *bolt.Tx, began time.Time) error {
	return tx.Bucket(metaBucket).Put(adoptedKey, binary.BigEndian.AppendUint64(nil, uint64(began.UnixMilli())))
}
