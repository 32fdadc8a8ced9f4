package master

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/py/value"
)

// overseers are the functions by which command lines ask about jobs. An answer
// that comes late is worth nothing, so they are kept for nobody.
var overseers = map[string]bool{
	"saltutil.find_job": true, "saltutil.running": true, "saltutil.is_running": true,
}

// expiry is until when a job is kept for minions that are away: for as long as
// its sender says (kwargs: expire, in seconds), or as long as commands wait.
func (m *Master) expiry(load *value.Dict, now time.Time) time.Time {
	if overseers[load.Str("fun")] {
		return now
	}
	o := m.options()
	d := o.Timeout + o.GatherJobTimeout
	switch x := load.Dict("kwargs").At("expire").(type) {
	case int64:
		d = time.Duration(min(max(x, 0), maxExpire)) * time.Second
	case float64:
		d = time.Duration(min(max(x, 0), maxExpire) * float64(time.Second))
	}
	if keep := m.cfg.Jobs.Keep(); keep > 0 {
		d = min(d, keep)
	}
	return now.Add(d)
}

// maxExpire is a year, in seconds.
const maxExpire = 365 * 24 * 3600

// loadQueue takes over the jobs that were kept when the master ended.
func (m *Master) loadQueue() error {
	speakers, err := m.jobs.Speakers()
	m.queue.restoreSpeakers(speakers)
	jobs, err2 := m.jobs.Queued(m.queue.now(), queueJobs)
	for _, j := range jobs {
		if m.cluster != nil && j.From != "" {
			m.cluster.SetOrigin(j.JID, j.From)
		}
		m.queue.restore(j)
	}
	return errors.Join(err, err2)
}

// noteStates puts what is known of jobs on the disk, for the time after a
// restart.
func (m *Master) noteStates() {
	m.noting.Lock() // so that no older notes replace newer ones
	defer m.noting.Unlock()
	notes, any := m.queue.unstored()
	if !any {
		return
	}
	if err := m.jobs.Note(notes); err != nil {
		m.queue.notStored(notes)
		m.gripes.Log(slog.LevelWarn, "cannot write the state of jobs to disk; trying again, a restart before that forgets it", "err", err)
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
func (p *commands) missed(c *channel.Call) {
	after := c.Load.Int("after")
	p.m.tellPeers(cluster.NoteSpeaks, c.ID)
	out, more := p.m.queue.missed(c.ID, after, missedJobs)
	jobs := &value.List{}
	size := 0
	for _, h := range out {
		if size > missedSize {
			more = true
			break
		}
		after = h.number
		if p.m.returnedElsewhere(h.jid, c.ID) {
			continue
		}
		job := h.job
		if job == nil {
			job = p.m.storedJob(h.jid)
		}
		if job == nil {
			continue
		}
		size += textSize(job)
		jobs.Items = append(jobs.Items, job)
		if h.first {
			p.m.fireState(h.jid, c.ID, stateDelivered, "waited", h.waited.Seconds())
		}
	}
	c.Reply(value.DictOf("jobs", jobs, "after", after, "more", more))
}

// storedJob makes the map that minions get from what the job store has, or nil.
func (m *Master) storedJob(jid string) *value.Dict {
	load, err := m.jobs.Load(jid)
	if err != nil || load == nil {
		m.log.Error("a job that waits for a minion cannot be read", "jid", jid, "err", err)
		return nil
	}
	return jobMap(load, jid, m.cfg.MasterID)
}

// runningJobs bounds the jobs that a minion names at a time.
const runningJobs = 1000

// running notes the jobs that a minion says it has run for a while: {jids}.
func (p *commands) running(c *channel.Call) {
	defer c.Reply(nil)
	jids := c.Load.List("jids")
	for _, v := range jids[:min(len(jids), runningJobs)] {
		if jid, ok := v.(string); ok && p.m.queue.runs(jid, c.ID) {
			p.m.fireState(jid, c.ID, stateRunning)
		}
	}
}

// fireState tells the bus what became of a job on one minion.
func (m *Master) fireState(jid, id, state string, more ...any) {
	d := value.DictOf("jid", jid, "id", id, "state", state)
	d.Update(value.DictOf(more...))
	m.bus.Fire(salt.Tag("job", jid, "state", id), d)
}

// expiredIDs bounds the minions that one event names.
const expiredIDs = 1000

// expireQueued gives up jobs that nobody came for.
func (m *Master) expireQueued() {
	for _, e := range m.queue.expire() {
		// Returns go to one master of a cluster, and are told to that which the
		// job was given to.
		e.never = slices.DeleteFunc(e.never, func(id string) bool { return m.returnedElsewhere(e.jid, id) })
		if len(e.never) == 0 {
			continue
		}
		m.log.Info("a job has expired that some minions never got", "jid", e.jid, "minions", len(e.never))
		ids := e.never[:min(len(e.never), expiredIDs)]
		m.bus.Fire(salt.Tag("job", e.jid, "expired"), value.DictOf("jid", e.jid, "ids", ids, "count", len(e.never)))
	}
}

// states tells a command line what is known of a job: {jid, key, user}. The
// answer is {states: {ID: WORD}, delivered, expires}, or an empty map.
func (p *commands) states(c *channel.Call) {
	if !p.m.authorize(c.Load) {
		c.Reply(refused())
		return
	}
	states, late, expires, known := p.m.queue.states(c.Load.Str("jid"))
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
func (p *commands) about(c *channel.Call) {
	c.Reply(value.DictOf("time", float64(time.Now().UnixMicro())/1e6, "id", p.m.cfg.ID, "brine", true))
}
