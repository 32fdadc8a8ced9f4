package runner

import (
	"context"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// note records the start of a job and of its processes. If the job takes longer than a
// moment, note also reports to its masters that it is running. It returns a function that
// stops that report. An error means that the job must not run: neither this minion nor its
// masters could record it, so it might run again after a crash.
func (r *Runner) note(ctx context.Context, j *jobs.Job, procs *proc.Group) (end func(), err error) {
	procs.Started = func(pid int) { r.cfg.Outbox.Started(j.JID, pid) }
	origins := r.cfg.Jobs.Origins(j)
	err = r.cfg.Outbox.Begin(j.JID, j.Fun, j.Load, queues(origins))
	if err != nil && !j.Load.Has(startupKey) && !recorded(ctx, origins, j.JID) {
		r.cfg.Log.Error("not running job: cannot record it", "jid", j.JID, "err", err)
		return nil, salt.Errorf(salt.Unavailable,
			"the job was not run: neither this minion nor the master can record it, so that it could run twice; free disk space on the minion: %w", err)
	}
	long := time.AfterFunc(sayRunning, func() { r.sayRuns(j) })
	return func() { long.Stop() }, nil
}

// recordTime bounds how long a job waits for its masters to record it.
const recordTime = 10 * time.Second

// recorded asks the masters of a job to record its start, and reports whether all did.
func recorded(ctx context.Context, origins []*link.Link, jid string) bool {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	for _, c := range origins {
		if !c.RecordBegun(ctx, jid) {
			return false
		}
	}
	return len(origins) > 0
}

// sayRunning is the delay of the report that a job is running. A job that ends earlier
// needs none.
const sayRunning = time.Second

// sayRuns reports to the masters of a job that it is running.
func (r *Runner) sayRuns(j *jobs.Job) {
	for _, c := range r.cfg.Jobs.Origins(j) {
		if c.KeepsJobs() {
			c.SayRunning(r.cfg.Background.Context(), j.JID)
		}
	}
}

// queues returns the queues of masters. It skips nil, which is the origin of the minion's
// own jobs.
func queues(conns []*link.Link) []*outbox.Queue {
	out := make([]*outbox.Queue, 0, len(conns))
	for _, c := range conns {
		if c != nil {
			out = append(out, c.Out)
		}
	}
	return out
}

// Interrupted returns the return of a job that was interrupted because its
// minion was stopped or killed.
func (r *Runner) Interrupted(d *value.Dict, reason string) *value.Dict {
	j := jobs.NewJob(d)
	r.cfg.Log.Warn("job was interrupted by the end of its process", "jid", j.JID, "fun", value.Str(j.Fun))
	ret := r.returnLoad(j, fn.Outcome{Return: reason, Retcode: 1, Out: "nested", Err: salt.Errorf(salt.Unavailable, "%s", reason)})
	ret.Set("interrupted", true)
	return ret
}
