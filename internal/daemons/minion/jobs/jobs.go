// Package jobs knows the jobs of one minion: those that run in this process or were
// run by it, whichever master sent them, and those that other processes have noted.
package jobs

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"brine/internal/base/salt"
	"brine/internal/daemons/minion/link"
	"brine/internal/host/proc"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Job is one job that this minion runs or has run.
type Job struct {
	JID  string
	Fun  any // a string, or a list for several functions
	Load *value.Dict
	// Pub has the keys of Load.
	Pub wire.Job
	// First is the master that published it first; nil for a job of the schedule.
	First *link.Link

	// Guarded by the table's lock.
	origins []*link.Link // the masters that published it
	ret     *value.Dict  // the return, once there is one
	cancel  context.CancelCauseFunc
	procs   *proc.Group
}

// NewJob returns the job of a publication, or of what was noted of one.
func NewJob(load *value.Dict) *Job {
	j := &Job{Load: load}
	wire.View(load, &j.Pub)
	j.JID, j.Fun = j.Pub.JID, j.Pub.Fun
	return j
}

// Table knows all jobs of the process, whichever master sent them. It is
// why a job that two masters publish under one jid runs once.
type Table struct {
	keep int                   // finished jobs that are remembered
	past func(jid string) bool // knows the jobs of earlier processes; may be nil

	mu       sync.Mutex
	jobs     map[string]*Job
	running  map[string]*Job
	finished []string // oldest first
}

// New returns an empty table that remembers keep finished jobs, at least 100. past
// knows the jobs of earlier processes; it may be nil.
func New(keep int, past func(jid string) bool) *Table {
	return &Table{keep: max(keep, 100), past: past, jobs: map[string]*Job{}, running: map[string]*Job{}}
}

// Admit registers a job that a master published. It returns nil if the job is
// known already: then the master, if it is another than before, will get the
// return too; if that is there already, it is handed back for sending.
func (t *Table) Admit(load *value.Dict, from *link.Link) (j *Job, ready *value.Dict) {
	j = NewJob(load)
	jid := j.JID
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.jobs[jid]; ok {
		for _, o := range old.origins {
			if o == from {
				return nil, nil
			}
		}
		old.origins = append(old.origins, from)
		return nil, old.ret
	}
	if t.past != nil && t.past(jid) {
		return nil, nil
	}
	j.First, j.origins = from, []*link.Link{from}
	t.jobs[jid] = j
	t.running[jid] = j
	return j, nil
}

// Start notes how a job and the processes that it starts can be reached.
func (t *Table) Start(j *Job, cancel context.CancelCauseFunc, procs *proc.Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j.cancel, j.procs = cancel, procs
}

// Finish stores the return and names the masters that wait for it. Old jobs
// are forgotten.
func (t *Table) Finish(j *Job, ret *value.Dict) []*link.Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	j.ret, j.cancel = ret, nil
	delete(t.running, j.JID)
	t.finished = append(t.finished, j.JID)
	for len(t.finished) > t.keep {
		delete(t.jobs, t.finished[0])
		t.finished = t.finished[1:]
	}
	return append([]*link.Link(nil), j.origins...)
}

// Describe returns what saltutil.running reports of a job: its map and the
// process that it runs in.
func (j *Job) Describe() *value.Dict {
	d := j.Load.Clone()
	d.Set("pid", int64(os.Getpid()))
	return d
}

// List returns the running jobs other than the one given.
func (t *Table) List(except string) []*Job {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*Job, 0, len(t.running))
	for _, j := range t.running {
		if j.JID != except {
			out = append(out, j)
		}
	}
	return out
}

// find returns the running job of a jid, or nil.
func (t *Table) find(jid string) *value.Dict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j, ok := t.running[jid]; ok {
		return j.Describe()
	}
	return nil
}

// Returned returns what a finished job returned, as long as it is remembered.
func (t *Table) Returned(jid string) (*value.Dict, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j, ok := t.jobs[jid]
	if !ok || j.ret == nil {
		return nil, false
	}
	return j.ret, true
}

// Finished returns the ids of the finished jobs that are remembered, oldest first.
func (t *Table) Finished() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.finished)
}

// Signalled is the cause with which a job's context ends.
type Signalled struct{ Signal syscall.Signal }

// Error says which signal.
func (s Signalled) Error() string {
	return fmt.Sprintf("the job was ended by signal %d", int(s.Signal))
}

// Signal sends a signal to the processes of a running job. SIGTERM and
// SIGKILL also end the job itself.
func (t *Table) Signal(jid string, sig syscall.Signal) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	j, ok := t.running[jid]
	switch {
	case !ok:
		return salt.Errorf(salt.NotFound, "no job %s is running", jid)
	case j.cancel == nil:
		return salt.Errorf(salt.Unavailable, "job %s has not begun", jid)
	}
	j.procs.Signal(sig)
	if sig == syscall.SIGTERM || sig == syscall.SIGKILL {
		j.cancel(Signalled{sig})
	}
	return nil
}

// Origins returns the masters that published a job.
func (t *Table) Origins(j *Job) []*link.Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(j.origins)
}

// RunningFor returns the ids of the running jobs that a master published.
func (t *Table) RunningFor(c *link.Link) (jids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.running {
		if slices.Contains(j.origins, c) {
			jids = append(jids, j.JID)
		}
	}
	return jids
}
