package master

import (
	"time"

	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// queueRequests answers minions that ask for missed jobs, and command lines
// that query job states.
type queueRequests struct {
	id     string // id of this master
	states *jobStates
	access *access
}

// tellPeers sends the other masters of a cluster a short message about a minion.
func tellPeers(c *cluster.Cluster, n cluster.Note, id string) {
	if c != nil {
		c.Relay.Tell(n, id)
	}
}

// Limits of one answer to a request for missed jobs.
const (
	missedJobs = 500
	missedSize = 8 << 20
)

// missed answers a minion that just connected and asks for missed jobs, after
// the number of the last answer if there was one: {after}. The answer is {jobs,
// after, more}.
func (q *queueRequests) missed(c *channel.Call) {
	var in wire.Missed
	wire.View(c.Load, &in)
	after := in.After
	tellPeers(q.states.cluster, cluster.NoteSpeaks, c.ID)
	out, more := q.states.queue.missedBelow(after, missedJobs)
	if !in.Syndic {
		out, more = q.states.queue.missed(c.ID, after, missedJobs)
	}
	jobs := &value.List{}
	size := 0
	for _, h := range out {
		if size > missedSize {
			more = true
			break
		}
		after = h.number
		if !in.Syndic && q.states.returnedElsewhere(h.jid, c.ID) {
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

// runningJobs bounds the jobs in one report of a minion.
const runningJobs = 1000

// running handles a minion's report of jobs that it has been running for a
// while: {jids}.
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

// record records on disk that a minion starts a job, for a minion whose own disk
// is full: {jid}. The answer is {recorded}: true if the job was published to
// this minion, which has not started it before, and is no longer delivered to
// it.
func (q *queueRequests) record(c *channel.Call) {
	var in wire.AboutJob
	wire.View(c.Load, &in)
	jid := in.JID
	recorded := q.states.queue.runs(jid, c.ID)
	if recorded {
		q.states.fire(jid, c.ID, stateRunning)
		_, forgets := q.states.jobs.(*job.Shared) // stores no job states
		recorded = !forgets && q.states.tryStore() == nil
	}
	c.Reply(wire.Encode(wire.Recorded{Recorded: recorded}))
}

// report answers a command line with the state of a job: {jid, key, user}. The
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

// about returns data by which a minion compares masters: the time here and the
// master's id.
func (q *queueRequests) about(c *channel.Call) {
	c.Reply(value.DictOf("time", float64(time.Now().UnixMicro())/1e6, "id", q.id, "brine", true))
}
