package minion

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/daemons/minion/link"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// job is one job that this minion runs or has run.
type job struct {
	jid     string
	fun     any // text, or a list for several functions
	load    *value.Dict
	started time.Time
	first   *link.Link // the master that published it first

	// Guarded by the table's lock.
	origins []*link.Link // the masters that published it
	ret     *value.Dict  // the return, once there is one
	cancel  context.CancelCauseFunc
	procs   *proc.Group
}

// jobTable knows all jobs of the process, whichever master sent them. It is
// why a job that two masters publish under one jid runs once.
type jobTable struct {
	keep int                   // finished jobs that are remembered
	past func(jid string) bool // knows the jobs of earlier processes; may be nil

	mu       sync.Mutex
	jobs     map[string]*job
	running  map[string]*job
	finished []string // oldest first
}

func newJobTable(keep int) *jobTable {
	return &jobTable{keep: max(keep, 100), jobs: map[string]*job{}, running: map[string]*job{}}
}

// admit registers a job that a master published. It returns nil if the job is
// known already: then the master, if it is another than before, will get the
// return too; if that is there already, it is handed back for sending.
func (t *jobTable) admit(load *value.Dict, from *link.Link, now time.Time) (j *job, ready *value.Dict) {
	jid := load.Str("jid")
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
	j = &job{jid: jid, fun: load.At("fun"), load: load, started: now, first: from, origins: []*link.Link{from}}
	t.jobs[jid] = j
	t.running[jid] = j
	return j, nil
}

// start notes how a job and the processes that it starts can be reached.
func (t *jobTable) start(j *job, cancel context.CancelCauseFunc, procs *proc.Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j.cancel, j.procs = cancel, procs
}

// finish stores the return and names the masters that wait for it. Old jobs
// are forgotten.
func (t *jobTable) finish(j *job, ret *value.Dict) []*link.Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	j.ret, j.cancel = ret, nil
	delete(t.running, j.jid)
	t.finished = append(t.finished, j.jid)
	for len(t.finished) > t.keep {
		delete(t.jobs, t.finished[0])
		t.finished = t.finished[1:]
	}
	return append([]*link.Link(nil), j.origins...)
}

// describe returns what saltutil.running tells of a job: its map and the
// process that it runs in.
func (j *job) describe() *value.Dict {
	d := j.load.Clone()
	d.Set("pid", int64(os.Getpid()))
	return d
}

// list returns the running jobs other than the one given.
func (t *jobTable) list(except string) []*value.Dict {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*value.Dict, 0, len(t.running))
	for _, j := range t.running {
		if j.jid != except {
			out = append(out, j.describe())
		}
	}
	return out
}

// find returns the running job of a jid, or nil.
func (t *jobTable) find(jid string) *value.Dict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j, ok := t.running[jid]; ok {
		return j.describe()
	}
	return nil
}

// returned returns what a finished job returned, as long as it is remembered.
func (t *jobTable) returned(jid string) (*value.Dict, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j, ok := t.jobs[jid]
	if !ok || j.ret == nil {
		return nil, false
	}
	return j.ret, true
}

// signalled is the cause with which a job's context ends.
type signalled struct{ sig syscall.Signal }

func (s signalled) Error() string {
	return fmt.Sprintf("the job was ended by signal %d", int(s.sig))
}

// signal sends a signal to the processes of a running job. SIGTERM and
// SIGKILL also end the job itself.
func (t *jobTable) signal(jid string, sig syscall.Signal) error {
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
		j.cancel(signalled{sig})
	}
	return nil
}

// originsOf returns the masters that published a job.
func (t *jobTable) originsOf(j *job) []*link.Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(j.origins)
}

// runningFor returns the ids of the running jobs that a master published.
func (t *jobTable) runningFor(c *link.Link) (jids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.running {
		if slices.Contains(j.origins, c) {
			jids = append(jids, j.jid)
		}
	}
	return jids
}
