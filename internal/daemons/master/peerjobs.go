package master

import (
	"brine/internal/daemons/master/sinks"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/ha/cluster"
	"brine/internal/ha/copies"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// peerJobs handles the jobs and returns of the other masters of a cluster.
type peerJobs struct {
	id        string // id of this master
	masterID  string // stamped on jobs; "" for none
	cacheDir  string
	cluster   *cluster.Cluster
	jobs      jobStore
	states    *jobStates
	publisher *publisher
	server    *channel.PublishServer
	stock     *sinks.StockFiles
	runs      *lastStates
	bus       *event.Bus
	copies    *copies.Keeper // nil if all masters store all returns
	log       *slog.Logger

	// told contains the returns from other masters whose event was fired here; the peer's own
	// event may still arrive. telling is held while this is checked.
	telling sync.Mutex
	told    boundedSet

	searching sync.Mutex
	// search requests a search for jobs.
	search atomic.Bool
}

// took handles jobs that other masters stored. If this master does not know a
// job, the publishing master did not forward it, because it died or this one
// was down: the job is published here if it is still due.
func (p *peerJobs) took(news []job.Taken) {
	for _, t := range news {
		if t.ID == "" {
			continue
		}
		if !t.Short {
			p.stock.PutReturn(t.JID, t.ID, t.Return)
		}
		p.runs.took(t)
		p.tookReturn(t)
	}
	if p.copies != nil {
		p.copies.Took(news)
	}
	for _, t := range news {
		if t.ID != "" || p.states.queue.knows(t.JID) || !t.Until.After(steady.Early()) {
			continue
		}
		p.cluster.Relay.SetOrigin(t.JID, t.From)
		returned, err := p.jobs.ReturnedBy(t.JID)
		if err != nil {
			p.log.Error("cannot read the returns of a job", "jid", t.JID, "err", err)
		}
		if len(returned) < len(t.Minions) {
			p.log.Debug("published a job that was assigned to another master", "peer", t.From, "jid", t.JID)
			p.publish(cluster.Job{JID: t.JID, Map: jobMap(t.Load, t.JID, p.masterID), Minions: t.Minions, Until: t.Until, From: t.From})
		}
		for _, id := range returned {
			p.states.queue.returned(t.JID, id)
		}
	}
}

// tookReturn fires the event of a return if the peer's event has not arrived and this master
// published the job: the waiting client is connected here.
func (p *peerJobs) tookReturn(t job.Taken) {
	p.telling.Lock()
	defer p.telling.Unlock()
	issued := p.cluster.Relay.Origin(t.JID) == p.id
	if t.Short && issued {
		return // the content follows, since this master stores all returns of its jobs
	}
	if !p.states.queue.returned(t.JID, t.ID) || !issued {
		return
	}
	load := t.Return.Clone()
	load.Set("jid", t.JID)
	load.Set("id", t.ID)
	if l, err := p.jobs.Load(t.JID); err == nil && l != nil {
		o := readOrder(l)
		load.Set("fun", o.Fun)
		load.Set("fun_args", o.Arg)
	}
	p.told.add(t.JID + "/" + t.ID)
	p.bus.Fire(salt.Tag("job", t.JID, "ret", t.ID), load)
}

// heard records that a peer's event of a return arrived, and reports whether that event was
// already fired here.
func (p *peerJobs) heard(jid, id string) bool {
	if !p.cluster.Isolated() {
		return false
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	p.states.queue.returned(jid, id)
	return p.told.remove(jid + "/" + id)
}

// fromStock publishes a job of a stock master, which arrives as an event. Brine
// masters forward jobs, so their events are usually known already, unless this
// master restarted in between.
func (p *peerJobs) fromStock(from, jid string, data *value.Dict) {
	if !salt.ValidJID(jid) || p.states.queue.knows(jid) {
		return
	}
	jobMap := data.Clone()
	jobMap.Delete("_stamp")
	jobMap.Delete(cluster.PeerID)
	minions, err := p.jobs.Minions(jid)
	if err != nil {
		p.log.Warn("cannot look up a peer's job", "peer", from, "jid", jid, "err", err)
	}
	if load, err := p.jobs.Load(jid); err == nil && load == nil && !strings.HasSuffix(jid, "nocache") {
		p.log.Error("peer published a job that is not in the shared directory: its cachedir differs from this master's", "peer", from, "jid", jid,
			"cachedir", p.cacheDir)
	}
	p.cluster.Relay.SetOrigin(jid, from)
	p.publish(cluster.Job{JID: jid, Map: jobMap, Minions: minions, Until: p.publisher.expiry(readOrder(jobMap), steady.Early()), From: from})
}

// publish publishes another master's job to the minions of this one.
func (p *peerJobs) publish(j cluster.Job) {
	if p.states.queue.knows(j.JID) {
		return
	}
	if j.Minions == nil {
		j.Minions, _ = p.jobs.Minions(j.JID)
	}
	until := time.Now().Add(timeLeft(j.JID, j.Until, steady.Early()))
	p.states.queue.add(j.Map, j.JID, j.Minions, p.publisher.redelivery.absent(j.Minions, until), until)
	o := readOrder(j.Map)
	p.runs.Published(j.JID, o.fun(), j.Minions, time.Now())
	if err := p.server.Publish(j.Map, receivers(o.TgtType, o.Tgt, j.Minions)); err != nil {
		p.log.Error("cannot publish a peer's job", "jid", j.JID, "peer", j.From, "err", err)
	}
}

// clockSlack is more than the clocks and the time zones of masters differ.
const clockSlack = 26 * time.Hour

// timeLeft returns how long another master's job is queued from a moment on. If that is days longer than the job was queued when its id was
// made, the clock of that master was ahead, or that of this one is behind.
func timeLeft(jid string, until, now time.Time) time.Duration {
	left := until.Sub(now)
	made, err := salt.JIDTime(jid)
	if whole := until.Sub(made); err == nil && whole > 0 && left > whole+clockSlack {
		return whole
	}
	return left
}

// takeOver publishes jobs from the shared directory that a peer stored but did
// not forward before it died.
func (p *peerJobs) takeOver(peer string) {
	if !p.search.CompareAndSwap(false, true) {
		return // a search is already requested
	}
	go func() {
		p.searching.Lock()
		defer p.searching.Unlock()
		p.search.Store(false)
		jobs, err := p.unknown()
		if err != nil {
			p.log.Error("cannot look up the jobs of peers", "peer", peer, "err", err)
		}
		for _, j := range jobs {
			if p.states.queue.knows(j.JID) || !j.Until.After(steady.Early()) {
				continue
			}
			p.log.Info("published a job that a peer had not forwarded", "peer", j.From, "jid", j.JID)
			p.cluster.Relay.SetOrigin(j.JID, j.From)
			p.publish(cluster.Job{JID: j.JID, Map: jobMap(j.Load, j.JID, p.masterID), Minions: j.Minions, Until: j.Until, From: j.From})
		}
	}()
}

// unknown returns queued jobs that this master has not published.
func (p *peerJobs) unknown() ([]job.Queued, error) {
	if s, ok := p.jobs.(*job.Shared); ok {
		return s.QueuedBut(steady.Early(), queueJobs, p.states.queue.knows)
	}
	return p.jobs.Queued(steady.Early(), queueJobs)
}
