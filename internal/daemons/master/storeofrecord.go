package master

import (
	"context"
	"errors"
	"time"

	"brine/internal/ha/record"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// Times to get changes from the store of record before a master serves.
const (
	// storeStart is for a master with its disk: others may have decided while it was down.
	storeStart = 3 * time.Second
	// storeFresh is for a master with a new disk.
	storeFresh = time.Minute
)

// keepIn makes the store of record have all replicated state, and gets from it what this master lacks.
func (c *replicated) keepIn(store *record.Store, jobs jobStore) {
	store.Share(streamRecords, c.records)
	if s, ok := jobs.(*job.Store); ok {
		store.Share(streamJobs, s.Stream())
	}
	store.Exclude(func() bool {
		r, err := c.records.Get(kindRemoved, c.id)
		return err == nil && r != nil && r.Value != nil
	})
	within := storeStart
	if c.cluster.Fresh() {
		within = storeFresh
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := store.CatchUp(ctx, streamRecords)
	for kind, mirror := range c.mirrors {
		if kind == kindPeer {
			continue
		}
		if serr := mirror.Sync(); serr != nil {
			c.log.Error("cannot write what the store of record has", "kind", kind, "err", serr)
		}
	}
	for range 2 { // the first time, it may write a former key of this master
		if serr := errors.Join(c.mirrors[kindPeer].Sync(), c.cluster.Store.WriteOwnKey()); serr != nil {
			c.log.Error("cannot write the public key of this master", "err", serr)
		}
	}
	if err != nil {
		c.log.Warn("serving without all changes from the store of record; they follow", "err", err)
	}
}

// storeStatus returns the state of the store of record as this master sees it.
func storeStatus(s *record.Store, now time.Time) *value.Dict {
	st := s.Status()
	d := value.DictOf("engine", st.Engine, "problem", st.Problem, "waiting", st.Waiting, "lacking", st.Lacking, "unreadable", int64(st.Unreadable))
	if !st.Since.IsZero() {
		d.Set("seconds", int64(now.Sub(st.Since).Seconds()))
	}
	return d
}
