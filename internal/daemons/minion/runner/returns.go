package runner

import (
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// note remembers that a job begins, and what it starts, and tells its masters
// that it runs if it takes longer than a moment. It returns what ends that.
func (r *Runner) note(j *jobs.Job, procs *proc.Group) (end func()) {
	procs.Started = func(pid int) { r.cfg.Outbox.Started(j.JID, pid) }
	r.cfg.Outbox.Begin(j.JID, j.Fun, j.Load, queues(r.cfg.Jobs.Origins(j)))
	long := time.AfterFunc(sayRunning, func() { r.sayRuns(j) })
	return func() { long.Stop() }
}

// sayRunning is how long a job runs before its masters are told: a return that
// comes sooner says it as well.
const sayRunning = time.Second

// sayRuns tells the masters of a job that it runs.
func (r *Runner) sayRuns(j *jobs.Job) {
	for _, c := range r.cfg.Jobs.Origins(j) {
		if c.KeepsJobs() {
			c.SayRunning(r.cfg.Background.Context(), j.JID)
		}
	}
}

// queues are the queues of masters; that of none, for a job of the minion itself,
// is nil.
func queues(conns []*link.Link) []*outbox.Queue {
	out := make([]*outbox.Queue, 0, len(conns))
	for _, c := range conns {
		if c != nil {
			out = append(out, c.Out)
		}
	}
	return out
}

// Interrupted is what a job returns whose minion was stopped or killed while it
// ran.
func (r *Runner) Interrupted(d *value.Dict, reason string) *value.Dict {
	r.cfg.Log.Warn("a job was interrupted by the end of the process that ran it", "jid", d.Str("jid"), "fun", value.Str(d.At("fun")))
	j := &jobs.Job{JID: d.Str("jid"), Fun: d.At("fun"), Load: d}
	ret := r.returnLoad(j, fn.Outcome{Return: reason, Retcode: 1, Out: "nested", Err: salt.Errorf(salt.Unavailable, "%s", reason)})
	ret.Set("interrupted", true)
	return ret
}
