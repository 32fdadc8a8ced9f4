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

// jobStates joins the queue of jobs with the job store and the event bus.
type jobStates struct {
	queue    *queue
	jobs     jobStore
	cluster  *cluster.Cluster // nil for a master of its own
	bus      *event.Bus
	masterID string
	log      *slog.Logger

	rateLimitedLog *ratelimit.Log
	storing        sync.Mutex // so that no older notes replace newer ones
}

// load takes over the jobs that were kept when the master ended.
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

// store puts what is known of jobs on the disk, for the time after a
// restart.
func (s *jobStates) store() {
	if err := s.tryStore(); err != nil {
		s.rateLimitedLog.Log(slog.LevelWarn, "cannot write the state of jobs to disk; trying again, a restart before that forgets it", "err", err)
	}
}

// tryStore is store with the error in place of a warning.
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

// storedJob makes the map that minions get from what the job store has, or nil.
func (s *jobStates) storedJob(jid string) *value.Dict {
	load, err := s.jobs.Load(jid)
	if err != nil || load == nil {
		s.log.Error("a job that waits for a minion cannot be read", "jid", jid, "err", err)
		return nil
	}
	return jobMap(load, jid, s.masterID)
}

// fire tells the bus what became of a job on one minion.
func (s *jobStates) fire(jid, id, state string, more ...any) {
	d := value.DictOf("jid", jid, "id", id, "state", state)
	d.Update(value.DictOf(more...))
	s.bus.Fire(salt.Tag("job", jid, "state", id), d)
}

// expire gives up jobs whose minions have not come.
func (s *jobStates) expire() {
	for _, e := range s.queue.expire() {
		// Returns go to one master of a cluster, and are told to that which the
		// job was given to.
		e.never = slices.DeleteFunc(e.never, func(id string) bool { return s.returnedElsewhere(e.jid, id) })
		if len(e.never) == 0 {
			continue
		}
		s.log.Info("a job has expired that some minions never got", "jid", e.jid, "minions", len(e.never))
		ids := e.never[:min(len(e.never), expiredIDs)]
		s.bus.Fire(salt.Tag("job", e.jid, "expired"), value.DictOf("jid", e.jid, "ids", ids, "count", len(e.never)))
	}
}

// returnedElsewhere reports whether a minion has returned for a job, maybe to
// another master of the cluster.
func (s *jobStates) returnedElsewhere(jid, id string) bool {
	shared, ok := s.jobs.(*job.Shared)
	if !ok || !shared.Returned(jid, id) {
		return false
	}
	s.queue.returned(jid, id)
	return true
}

// expiredIDs bounds the minions that one event names.
const expiredIDs = 1000
