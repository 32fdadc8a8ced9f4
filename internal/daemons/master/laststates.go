package master

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/lastrun"
)

// lastStates maintains the last runs of states of each minion. They are saved now and then; after a start,
// newer returns are read from the job store. In a cluster without a shared directory every master computes
// them from the replicated returns.
type lastStates struct {
	*lastrun.Store
	jobs jobStore
	log  *slog.Logger
}

const (
	runsFile = "state_runs.json"
	// runsSaved is the interval in which they are saved.
	runsSaved = 30 * time.Second
	// runsSought bounds the jobs that are read after a start, runsBack their age.
	runsSought = 2000
	runsBack   = 7 * 24 * time.Hour
)

func openLastStates(own string, jobs jobStore, log *slog.Logger) *lastStates {
	store, err := lastrun.Open(filepath.Join(own, runsFile))
	if err != nil {
		log.Warn("cannot read the last runs of states; reading them from the job store again", "err", err)
	}
	return &lastStates{store, jobs, log}
}

// run reads what was returned since the runs were saved, and saves them until ctx ends.
func (s *lastStates) run(ctx context.Context) error {
	if err := s.catchUp(ctx, time.Now()); err != nil {
		s.log.Warn("cannot read the last runs of states from the job store", "err", err)
	}
	tick := time.NewTicker(runsSaved)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.save()
			return nil
		case <-tick.C:
			s.save()
		}
	}
}

func (s *lastStates) save() {
	if err := s.Save(); err != nil {
		s.log.Warn("cannot save the last runs of states; retrying", "err", err)
	}
}

// catchUp reads the newest jobs of the job store.
func (s *lastStates) catchUp(ctx context.Context, now time.Time) error {
	list, err := s.jobs.List(job.Filter{Limit: runsSought, Since: now.Add(-runsBack), Keep: func(j *job.Job) bool {
		return lastrun.Runs(readOrder(j.Load).fun())
	}})
	if err != nil {
		return err
	}
	for _, j := range list {
		if ctx.Err() != nil {
			return nil
		}
		at, err := salt.JIDTime(j.JID)
		if err != nil {
			continue
		}
		returns, err := s.jobs.Returns(j.JID)
		if err != nil {
			return err
		}
		s.Published(j.JID, readOrder(j.Load).fun(), j.Minions, at)
		for id, ret := range returns {
			s.take(j.JID, id, j.Load, ret, at)
		}
	}
	return nil
}

// take records a stored return of a job.
func (s *lastStates) take(jid, id string, load, ret *value.Dict, at time.Time) {
	o := readOrder(load)
	s.Returned(id, jid, o.fun(), o.Arg, ret, at)
}

// took records a return that another master stored.
func (s *lastStates) took(t job.Taken) {
	load, err := s.jobs.Load(t.JID)
	if err != nil || load == nil {
		return // the job has not arrived; a start reads it again
	}
	s.take(t.JID, t.ID, load, t.Return, time.Now())
}
