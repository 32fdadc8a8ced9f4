package master

import (
	"brine/internal/base/ratelimit"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// jobStates connects the job queue with the job store and the event bus.
type jobStates struct {
	queue    *queue
	jobs     jobStore
	cluster  *cluster.Cluster // nil without a cluster
	bus      *event.Bus
	masterID string
	log      *slog.Logger

	rateLimitedLog *ratelimit.Log
	storing        sync.Mutex // prevents older states from replacing newer ones
}

// load restores the jobs that were queued when the master stopped.
func (s *jobStates) load() error {
	speakers, err := s.jobs.Speakers()
	s.queue.restoreSpeakers(speakers)
	jobs, err2 := s.jobs.Queued(s.queue.now(), queueJobs)
	for _, j := range jobs {
		if s.cluster != nil && j.From != "" {
			s.cluster.Relay.SetOrigin(j.JID, j.From)
		}
		s.queue.restore(j)
	}
	return errors.Join(err, err2)
}

// store writes the job states to disk for the next start.
func (s *jobStates) store() {
	if err := s.tryStore(); err != nil {
		s.rateLimitedLog.Log(slog.LevelWarn, "cannot save job states; retrying (a restart before then loses them)", "err", err)
	}
}

// tryStore is store, but returns the error.
func (s *jobStates) tryStore() error {
	s.storing.Lock()
	defer s.storing.Unlock()
	notes, any := s.queue.unstored()
	if !any {
		return nil
	}
	err := s.jobs.Note(notes)
	if err != nil {
		s.queue.notStored(notes)
	}
	return err
}

// storedJob returns a job from the job store in the form that minions receive, or
// nil on an error.
func (s *jobStates) storedJob(jid string) *value.Dict {
	load, err := s.jobs.Load(jid)
	if err != nil || load == nil {
		s.log.Error("cannot read a job that is queued for a minion", "jid", jid, "err", err)
		return nil
	}
	return jobMap(load, jid, s.masterID)
}

// fire fires an event with the state of a job on one minion. more are additional
// keys and values.
func (s *jobStates) fire(jid, id, state string, more ...any) {
	d := value.DictOf("jid", jid, "id", id, "state", state)
	d.Update(value.DictOf(more...))
	s.bus.Fire(salt.Tag("job", jid, "state", id), d)
}

// expire drops expired jobs from the queue, and reports the minions that never
// received them.
func (s *jobStates) expire() {
	for _, e := range s.queue.expire() {
		// A minion returns to one master of a cluster, which reports the return only to
		// the master that published the job.
		e.never = slices.DeleteFunc(e.never, func(id string) bool { return s.returnedElsewhere(e.jid, id) })
		if len(e.never) == 0 {
			continue
		}
		s.log.Info("job expired before some minions received it", "jid", e.jid, "minions", len(e.never))
		ids := e.never[:min(len(e.never), expiredIDs)]
		s.bus.Fire(salt.Tag("job", e.jid, "expired"), value.DictOf("jid", e.jid, "ids", ids, "count", len(e.never)))
	}
}

// returnedElsewhere reports whether a minion has returned for a job, maybe to
// another master.
func (s *jobStates) returnedElsewhere(jid, id string) bool {
	shared, ok := s.jobs.(*job.Shared)
	if !ok || !shared.Returned(jid, id) {
		return false
	}
	s.queue.returned(jid, id)
	return true
}

// expiredIDs bounds the minions in one event.
const expiredIDs = 1000
