package minion

import (
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// note remembers that a job begins, and what it starts, and tells its masters
// that it runs if it takes longer than a moment. It returns what ends that.
func (m *Minion) note(j *job, procs *proc.Group) (end func()) {
	procs.Started = func(pid int) { m.outbox.Started(j.jid, pid) }
	m.outbox.Begin(j.jid, j.fun, j.load, queues(m.jobs.originsOf(j)))
	long := time.AfterFunc(sayRunning, func() { m.sayRuns(j) })
	return func() { long.Stop() }
}

// sayRunning is how long a job runs before its masters are told: a return that
// comes sooner says it as well.
const sayRunning = time.Second

// sayRuns tells the masters of a job that it runs.
func (m *Minion) sayRuns(j *job) {
	for _, c := range m.jobs.originsOf(j) {
		if c.KeepsJobs() {
			c.SayRunning(m.run, j.jid)
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

// interrupted is what a job returns whose minion was stopped or killed while it
// ran.
func (m *Minion) interrupted(d *value.Dict, reason string) *value.Dict {
	m.log.Warn("a job was interrupted by the end of the process that ran it", "jid", d.Str("jid"), "fun", value.Str(d.At("fun")))
	j := &job{jid: d.Str("jid"), fun: d.At("fun"), load: d}
	ret := m.returnLoad(j, fn.Outcome{Return: reason, Retcode: 1, Out: "nested", Err: salt.Errorf(salt.Unavailable, "%s", reason)})
	ret.Set("interrupted", true)
	return ret
}
