package master

import (
	"time"

	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// queueRequests answers minions that ask which jobs they missed, and command
// lines that ask about the state of a job.
type queueRequests struct {
	id     string // of this master
	states *jobStates
	access *access
}

// tellPeers tells the other masters of a cluster something small about a minion.
func tellPeers(c *cluster.Cluster, n cluster.Note, id string) {
	if c != nil {
		c.Relay.Tell(n, id)
	}
}

// Bounds of one answer to a minion that asks what it missed.
const (
	missedJobs = 500
	missedSize = 8 << 20
)

// missed answers a minion that has just connected and asks which jobs it may
// not have, behind the number of the last answer if there was one: {after}.
// The answer is {jobs, after, more}.
func (q *queueRequests) missed(c *channel.Call) {
	var in wire.Missed
	wire.View(c.Load, &in)
	after := in.After
	tellPeers(q.states.cluster, cluster.NoteSpeaks, c.ID)
	out, more := q.states.queue.missed(c.ID, after, missedJobs)
	jobs := &value.List{}
	size := 0
	for _, h := range out {
		if size > missedSize {
			more = true
			break
		}
		after = h.number
		if q.states.returnedElsewhere(h.jid, c.ID) {
			continue
		}
		job := h.job
		if job == nil {
			job = q.states.storedJob(h.jid)
		}
		if job == nil {
			continue
		}
		size += textSize(job)
		jobs.Items = append(jobs.Items, job)
		if h.first {
			q.states.fire(h.jid, c.ID, stateDelivered, "waited", h.waited.Seconds())
		}
	}
	c.Reply(wire.Encode(wire.MissedJobs{Jobs: jobs, After: after, More: more}))
}

// runningJobs bounds the jobs that a minion names at a time.
const runningJobs = 1000

// running notes the jobs that a minion says it has run for a while: {jids}.
func (q *queueRequests) running(c *channel.Call) {
	defer c.Reply(nil)
	var in wire.RunningJobs
	wire.View(c.Load, &in)
	jids := value.Items(in.JIDs)
	for _, v := range jids[:min(len(jids), runningJobs)] {
		if jid, ok := v.(string); ok && q.states.queue.runs(jid, c.ID) {
			q.states.fire(jid, c.ID, stateRunning)
		}
	}
}

// record notes on disk that a minion begins a job, which has no room to note it
// itself: {jid}. The answer is {recorded}: true if the job was published to this
// minion, which has not begun it before, and is not handed out to it any more.
func (q *queueRequests) record(c *channel.Call) {
	var in wire.AboutJob
	wire.View(c.Load, &in)
	jid := in.JID
	recorded := q.states.queue.runs(jid, c.ID)
	if recorded {
		q.states.fire(jid, c.ID, stateRunning)
		_, forgets := q.states.jobs.(*job.Shared) // has no states of jobs on disk
		recorded = !forgets && q.states.tryStore() == nil
	}
	c.Reply(wire.Encode(wire.Recorded{Recorded: recorded}))
}

// report tells a command line what is known of a job: {jid, key, user}. The
// answer is {states: {ID: WORD}, delivered, expires}, or an empty map.
func (q *queueRequests) report(c *channel.Call) {
	if !q.access.authorize(c.Load) {
		c.Reply(refused())
		return
	}
	var in wire.JobStates
	wire.View(c.Load, &in)
	states, late, expires, known := q.states.queue.states(in.JID)
	if !known {
		c.Reply(value.NewDict(0))
		return
	}
	d := value.NewDict(len(states))
	for id, s := range states {
		d.Set(id, s)
	}
	c.Reply(value.DictOf("states", d, "delivered", late, "expires", float64(expires.UnixMilli())/1000))
}

// about tells a minion what compares masters: the time here and whose master
// this is.
func (q *queueRequests) about(c *channel.Call) {
	c.Reply(value.DictOf("time", float64(time.Now().UnixMicro())/1e6, "id", q.id, "brine", true))
}
