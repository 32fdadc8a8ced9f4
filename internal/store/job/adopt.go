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

// Adopt adds the unexpired jobs in Salt's files to a store, and returns the number of jobs read. An
// error with one job does not stop the others.
func Adopt(s *Store, c *LocalCache) (jobs int, err error) {
	var failed failures
	err = c.Jobs(func(j *Job) bool {
		if s.Expired(j.JID) || ended(s.quit) {
			return !ended(s.quit)
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

// failures collects the first errors of many.
type failures []error

func (f *failures) add(err error) {
	if err != nil && len(*f) < 10 {
		*f = append(*f, err)
	}
}

// adoptedKey, in the meta bucket, is the start time of the last complete read of Salt's files.
var adoptedKey = []byte("adopted")

// adoptSlack is the tolerance for a file system clock that is behind.
const adoptSlack = time.Minute

// AdoptNew is Adopt, but skips jobs that are complete in the store, and jobs whose directories have
// not changed since the last successful call. It returns the number of changed jobs. Jobs are added
// one at a time, so that a running master is not delayed.
func AdoptNew(ctx context.Context, s *Store, c *LocalCache) (added int, err error) {
	if !s.o.JobCache {
		return 0, nil
	}
	began := s.now()
	var last time.Time
	err = s.file.view(func(tx *bolt.Tx) error {
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
		// The directory changes at the first return of a minion.
		if info, err := os.Stat(dir); err != nil || info.ModTime().Before(last) {
			return true
		}
		b, err := os.ReadFile(filepath.Join(dir, "jid"))
		jid := string(b)
		if err != nil || !salt.ValidJID(jid) || s.Expired(jid) {
			return true
		}
		lacks, err := lacks(s, jid, returnedIn(dir))
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
		err = s.writer.wait(&op{kind: opAdopted, until: began})
	}
	return added, err
}

// lacks reports whether the job or the return of one of these minions is missing, or the load was made from a
// return.
func lacks(s *Store, jid string, ids []string) (bool, error) {
	load, err := s.Load(jid)
	if err != nil || load == nil || load.Has("return") {
		return err == nil, err
	}
	lacks := false
	err = s.file.view(func(tx *bolt.Tx) error {
		hour := findHour(tx, jid)
		lacks = hour == nil || slices.ContainsFunc(ids, func(id string) bool { return hour.Get(key(jid, entryReturn, id)) == nil })
		return nil
	})
	return lacks, err
}

func putAdopted(tx *bolt.Tx, began time.Time) error {
	return tx.Bucket(metaBucket).Put(adoptedKey, binary.BigEndian.AppendUint64(nil, uint64(began.UnixMilli())))
}
