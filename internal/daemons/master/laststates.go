package master

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/lastrun"
)

// lastStates maintains the last runs of states of each minion. They are saved now and then; after a start,
// newer returns are read from the job store. In a cluster without a shared directory every master computes
// them from the replicated returns; it asks other masters for those that it does not store itself.
type lastStates struct {
	*lastrun.Store
	jobs jobStore
	log  *slog.Logger
	// contents gets returns that other masters store; nil if there are none.
	contents job.Contents
	past     *lastrun.History
	keep     time.Duration // of runs in the history; 0: for ever

	mu    sync.Mutex
	short []shortRun
}

// shortRun is a return of a run that another master stores.
type shortRun struct {
	job.Place
	at    time.Time
	tries int
}

const (
	runsFile = "state_runs.json"
	// historyFile has their history, historyCleaned is the interval of removing old runs from it.
	historyFile    = "state_history.db"
	historyCleaned = time.Hour
	// runsSaved is the interval in which they are saved.
	runsSaved = 30 * time.Second
	// runsSought bounds the jobs that are read after a start, runsBack their age.
	runsSought = 2000
	runsBack   = 7 * 24 * time.Hour
	// runsAsked is the interval of questions for returns of other masters, runsTries how often one is asked
	// for, and runsWaiting bounds those that wait.
	runsAsked   = 2 * time.Second
	runsTries   = 50
	runsWaiting = 20_000
	runsAtOnce  = 256
)

func openLastStates(own string, jobs jobStore, log *slog.Logger) *lastStates {
	store, err := lastrun.Open(filepath.Join(own, runsFile))
	if err != nil {
		log.Warn("cannot read the last runs of states; reading them from the job store again", "err", err)
	}
	past := lastrun.OpenHistory(filepath.Join(own, historyFile))
	store.Keep(past)
	return &lastStates{Store: store, jobs: jobs, log: log, past: past}
}

// run reads what was returned since the runs were saved, and saves them until ctx ends.
func (s *lastStates) run(ctx context.Context) error {
	if err := s.catchUp(ctx, time.Now()); err != nil {
		s.log.Warn("cannot read the last runs of states from the job store", "err", err)
	}
	tick := time.NewTicker(runsSaved)
	defer tick.Stop()
	ask := time.NewTicker(runsAsked)
	defer ask.Stop()
	clean := time.NewTicker(historyCleaned)
	defer clean.Stop()
	for {
		select {
		case <-ctx.Done():
			s.save()
			if err := s.past.Close(); err != nil {
				s.log.Warn("cannot close the history of runs of states", "err", err)
			}
			return nil
		case <-clean.C:
			if err := s.past.Clean(s.keep, steady.Removal()); err != nil {
				s.log.Warn("cannot remove old runs of states from the history; retrying", "err", err)
			}
		case <-tick.C:
			s.save()
		case <-ask.C:
			s.ask(ctx)
		}
	}
}

// later notes a return that another master stores.
func (s *lastStates) later(r shortRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contents != nil && r.tries < runsTries && len(s.short) < runsWaiting {
		s.short = append(s.short, r)
	}
}

// ask gets the noted returns from other masters.
func (s *lastStates) ask(ctx context.Context) {
	s.mu.Lock()
	all := s.short
	s.short = nil
	s.mu.Unlock()
	for some := range slices.Chunk(all, runsAtOnce) {
		if ctx.Err() != nil {
			return
		}
		places := make([]job.Place, len(some))
		for i, r := range some {
			places[i] = r.Place
		}
		contents := s.contents(places)
		for _, r := range some {
			ret, err := job.ReadReturn(contents[r.Name()])
			load, lerr := s.jobs.Load(r.JID)
			if err != nil || lerr != nil || load == nil {
				r.tries++
				s.later(r)
				continue
			}
			s.take(r.JID, r.ID, load, ret, r.at)
		}
	}
}

func (s *lastStates) save() {
	if err := s.Save(); err != nil {
		s.log.Warn("cannot save the last runs of states; retrying", "err", err)
	}
	if err := s.past.Flush(); err != nil {
		s.log.Warn("cannot save the history of runs of states; retrying", "err", err)
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
		returns, short, err := s.returns(j.JID)
		if err != nil {
			return err
		}
		s.Published(j.JID, readOrder(j.Load).fun(), j.Minions, at)
		for id, ret := range returns {
			s.take(j.JID, id, j.Load, ret, at)
		}
		for _, p := range short {
			s.later(shortRun{Place: p, at: at})
		}
	}
	return nil
}

// returns returns the returns of a job that this master stores, and those that others do.
func (s *lastStates) returns(jid string) (stored map[string]*value.Dict, short []job.Place, err error) {
	if store, ok := s.jobs.(*job.Store); ok {
		return store.Stored(jid)
	}
	stored, err = s.jobs.Returns(jid)
	return stored, nil, err
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
	if t.Short {
		if lastrun.Runs(readOrder(load).fun()) {
			s.later(shortRun{Place: job.Place{JID: t.JID, ID: t.ID, Receiver: t.Receiver}, at: time.Now()})
		}
		return
	}
	s.take(t.JID, t.ID, load, t.Return, time.Now())
}
