// Package jobs tracks the jobs of one minion: those that run or ran in this
// process, whichever master published them, and those that other processes
// recorded.
package jobs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"brine/internal/base/salt"
	"brine/internal/daemons/minion/link"
	"brine/internal/host/proc"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Job is a job that this minion runs or ran.
type Job struct {
	JID  string
	Fun  any // a string, or a list for several functions
	Load *value.Dict
	// Pub has the keys of Load.
	Pub wire.Job
	// First is the master that published it first; nil for a scheduled job.
	First *link.Link

	// Guarded by the table's lock.
	origins []*link.Link // all masters that published it
	ret     *value.Dict  // nil until the job has finished
	cancel  context.CancelCauseFunc
	procs   *proc.Group
	begun   bool              // recorded, so that it does not run again after a crash
	what    [sha256.Size]byte // digest of the function and arguments: a running function may change Load
}

// NewJob returns the job of a publication, or of a record of one.
func NewJob(load *value.Dict) *Job {
	j := &Job{Load: load}
	wire.View(load, &j.Pub)
	j.JID, j.Fun = j.Pub.JID, j.Pub.Fun
	return j
}

// Table has all jobs of the process, whichever master published them. It ensures that a job
// that two masters publish under one jid runs once.
type Table struct {
	keep int                   // number of finished jobs to remember
	past func(jid string) bool // reports whether an earlier process ran a job; may be nil

	mu       sync.Mutex
	jobs     map[string]*Job
	running  map[string]*Job
	finished []string // oldest first

	// Numbers of finished jobs.
	succeeded, failed, statesSucceeded, statesFailed atomic.Int64
}

// New returns an empty table that remembers keep finished jobs, at least 100. past reports
// whether an earlier process ran a job; it may be nil.
func New(keep int, past func(jid string) bool) *Table {
	return &Table{keep: max(keep, 100), past: past, jobs: map[string]*Job{}, running: map[string]*Job{}}
}

// Taken is the error for a job that is not run because another job has its id.
type Taken struct {
	JID string
	// Fun is the function, or functions, of the job that has the id.
	Fun any
	// Other means that another master published that job. If it was the same master, no
	// return is sent for the second publication: the master would store it as that of the
	// first job.
	Other bool
}

// Error names the other job and says what to do.
func (e *Taken) Error() string {
	return fmt.Sprintf("the job was not run: this minion has another job with the id %s (%.100s), published by another master; run the command again",
		e.JID, value.Str(e.Fun))
}

// Admit registers a job that a master published. It returns a nil job if the job is already
// known. In that case the master is added to those that get the return; if the job has
// finished, Admit gives the return as ready, to be sent now. For a different job with the
// id of a known one the error is a *Taken.
func (t *Table) Admit(load *value.Dict, from *link.Link) (j *Job, ready *value.Dict, err error) {
	j = NewJob(load)
	jid := j.JID
	what := digest(value.ListOf(j.Fun, j.Pub.Arg))
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.jobs[jid]; ok {
		known := slices.Contains(old.origins, from)
		switch {
		case old.what != what:
			return nil, nil, &Taken{JID: jid, Fun: old.Fun, Other: !known}
		case known:
			return nil, nil, nil
		}
		old.origins = append(old.origins, from)
		return nil, old.ret, nil
	}
	if t.past != nil && t.past(jid) {
		return nil, nil, nil
	}
	j.First, j.origins, j.what = from, []*link.Link{from}, what
	t.jobs[jid] = j
	t.running[jid] = j
	return j, nil, nil
}

// digest is equal for equal values. The order of a map does not matter, nor whether a
// string came as bytes.
func digest(v any) (out [sha256.Size]byte) {
	h := sha256.New()
	switch x := v.(type) {
	case *value.Dict:
		entries := make([]string, 0, x.Len())
		for k, v := range x.All() {
			key, val := digest(k), digest(v)
			entries = append(entries, string(key[:])+string(val[:]))
		}
		slices.Sort(entries)
		io.WriteString(h, "map ")
		for _, e := range entries {
			io.WriteString(h, e)
		}
	case *value.List:
		io.WriteString(h, "list ")
		for i := range x.Len() {
			item := digest(x.Items[i])
			h.Write(item[:])
		}
	case string:
		io.WriteString(h, "text "+x)
	case []byte:
		io.WriteString(h, "text ")
		h.Write(x)
	default:
		io.WriteString(h, "other "+value.Repr(v))
	}
	h.Sum(out[:0])
	return out
}

// Start records how to cancel a job, and the processes that it starts.
func (t *Table) Start(j *Job, cancel context.CancelCauseFunc, procs *proc.Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j.cancel, j.procs = cancel, procs
}

// Finish stores the return, and gives the masters that it must be sent to. It drops the
// oldest finished jobs.
func (t *Table) Finish(j *Job, ret *value.Dict) []*link.Link {
	t.count(ret)
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

// Describe returns what saltutil.running reports of a job: its load and the process id.
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

// find returns the description of the running job with a jid, or nil.
func (t *Table) find(jid string) *value.Dict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j, ok := t.running[jid]; ok {
		return j.Describe()
	}
	return nil
}

// Returned returns the return of a finished job while it is remembered.
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

// Signalled is the cause with which a signal cancels a job's context.
type Signalled struct{ Signal syscall.Signal }

// Error names the signal.
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

// Begun marks a job as begun: its start is recorded, so it does not run again after a crash.
func (t *Table) Begun(j *Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j.begun = true
}

// RunningFor returns the ids of the running jobs that a master published. A job that has not begun
// is not among them, because the master must deliver it again if this process dies before.
func (t *Table) RunningFor(c *link.Link) (jids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.running {
		if j.begun && slices.Contains(j.origins, c) {
			jids = append(jids, j.JID)
		}
	}
	return jids
}

// Busy reports whether a job that a master published has not finished, begun or not.
func (t *Table) Busy(c *link.Link) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.running {
		if slices.Contains(j.origins, c) {
			return true
		}
	}
	return false
}
