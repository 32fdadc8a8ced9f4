package master

import (
	"brine/internal/base/ratelimit"
	"brine/internal/daemons/master/sinks"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/metrics"
	"brine/internal/base/salt"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// returns handles the results of jobs.
type returns struct {
	settings *settings
	rules    *returnRules
	jobs     jobStore
	bus      *event.Bus
	repeat   func(tag string, load *value.Dict) // an event that the previous process may not have fired
	queue    *queue
	sinks    *sinks.Jobs
	stock    *sinks.StockFiles
	standby  *standbyJobs
	runs     *lastStates
	traces   traces
	log      *slog.Logger

	functions                             *functionCounts
	syndics                               *syndics
	stored, repeated, notStored, rejected atomic.Int64

	// told are returns whose event was fired although they could not be stored:
	// when they arrive again, no event is fired.
	told           boundedSet
	rateLimitedLog *ratelimit.Log
	own            quota // returns that belong to no published job
}

// take stores a return and fires its event. It answers once the return is on
// disk, so that the minion can safely drop it. A return that is already stored
// is answered without another event.
func (r *returns) take(c *channel.Call) {
	record, has := c.Load.Get(salt.JobRecord)
	c.Load.Delete(salt.JobRecord)
	if b, ok := record.([]byte); has && ok {
		r.standby.take(c, b, func() { r.takeReturn(c) })
		return
	}
	r.takeReturn(c)
}

func (r *returns) takeReturn(c *channel.Call) {
	load := c.Load
	load.Set("id", c.ID)
	if !load.Has("jid") {
		c.Reply("")
		return
	}
	var in wire.Return
	if err := wire.Decode(load, &in); err != nil {
		r.rejected.Add(1)
		r.rateLimitedLog.Log(slog.LevelWarn, "refused malformed return", "minion", c.ID, "err", err)
		c.Reply("")
		return
	}
	jid := in.JID
	minted := jid == "req" || jid == ""
	switch {
	case minted:
		jid = r.calledJID(c.ID, in.CallJID)
		load.Set("jid", jid)
		load.Delete("call_jid")
	case jid == "nocache": // a scheduled job with return_job: nocache
		r.bus.Fire(salt.Tag("job", jid, "ret", c.ID), load)
		c.Reply(nil)
		return
	case !salt.ValidJID(jid):
		r.rejected.Add(1)
		r.rateLimitedLog.Log(slog.LevelWarn, "refused return: invalid job id", "minion", c.ID, "jid", jid)
		c.Reply("")
		return
	}
	r.syndics.minion(c.ID)
	published, allowed := false, true
	if !minted {
		published, allowed = r.rules.belongs(jid, c.ID)
	}
	if !allowed {
		r.rejected.Add(1)
		r.rateLimitedLog.Log(slog.LevelWarn, "refused return: the job did not target this minion", "minion", c.ID, "jid", jid)
		c.Reply("")
		return
	}
	if limit := int64(r.settings.options().MinionReturnQuota) << 20; !published && !r.own.take(c.ID, c.Size(), limit) {
		r.rejected.Add(1)
		const full = "a minion's returns of jobs that no master published exceed minion_return_quota in this hour; a Brine minion keeps them"
		r.rateLimitedLog.Log(slog.LevelError, full, "minion", c.ID, "jid", jid, "quota_mb", limit>>20)
		c.Reply(value.DictOf(salt.KeepReturn, full))
		return
	}
	in.JID = jid
	job, err := r.started(load, &in, minted)
	if err != nil {
		r.rateLimitedLog.Log(slog.LevelError, "cannot look up the job of a return", "jid", jid, "minion", c.ID, "err", err)
	}
	r.store(jid, c.ID, load, job, func(err error) {
		if err != nil && !published {
			r.own.giveBack(c.ID, c.Size())
		}
		switch {
		case err == nil:
			c.Reply(nil)
		case salt.KindOf(err) == salt.Invalid:
			c.Reply("") // a retry would not help
		default:
			c.Reply(value.DictOf(salt.KeepReturn, err.Error()))
		}
	})
}

// calledJID returns the job id for a return of salt-call. Brine's salt-call
// proposes one, so that a repeated return does not become another job. A proposal
// that another job already uses is ignored.
func (r *returns) calledJID(id, proposed string) string {
	if salt.ValidJID(proposed) {
		known, err := r.jobs.Load(proposed)
		if err == nil && (known == nil || job.StartedBy(known, id)) {
			return proposed
		}
	}
	return salt.NewJID(time.Now())
}

// started returns the load of a job that the minion started itself, nil if a
// master published the job. Either the id is created here (minted), or the
// minion reports a run of its schedule or startup_states; a report counts only
// for an unknown job, so that no minion can change existing data. arg, tgt and
// tgt_type of the return are then those of the job, as in Salt; other returns
// lack them.
func (r *returns) started(load *value.Dict, in *wire.Return, minted bool) (*value.Dict, error) {
	jid, id := in.JID, in.ID
	schedule, _ := in.Schedule.(string)
	own := minted || schedule != "" || in.Tgt == id
	for _, k := range []string{"arg", "tgt", "tgt_type"} {
		load.Delete(k)
	}
	if own && !minted {
		known, err := r.jobs.Load(jid)
		if known != nil || err != nil {
			return nil, err
		}
	}
	if !own {
		return nil, nil
	}
	job := job.StartedLoad(jid, id, load)
	for _, k := range []string{"arg", "tgt", "tgt_type"} {
		load.Set(k, job.At(k))
	}
	return job, nil
}

// store writes a return and fires its event, even if the write fails, because
// clients wait for it. A non-nil job is the load of a job that the minion
// started itself.
func (r *returns) store(jid, id string, load, job *value.Dict, done func(error)) {
	if job != nil {
		r.stock.PutLoad(job, jid, []string{id})
	}
	began, link := time.Now(), r.traces.ofJob(jid, r.jobs)
	r.jobs.ReturnStartedAsync(load, job, func(dup bool, err error) {
		if job != nil && !dup {
			r.sinks.SendLoad(job, jid, []string{id})
		}
		r.queue.returned(jid, id)
		// Also for a repeated return: this master may have been killed after it stored the
		// first one.
		r.sinks.SendReturn(load)
		key := jid + "/" + id
		if err != nil {
			r.rateLimitedLog.Log(slog.LevelError, "cannot store return; a Brine minion keeps it and sends it again", "jid", jid, "minion", id, "err", err)
			dup = !r.told.add(key)
		} else if r.told.remove(key) {
			dup = true
		}
		if err != nil {
			r.notStored.Add(1)
		}
		if dup {
			r.repeated.Add(1)
			r.log.Debug("received a duplicate return", "jid", jid, "minion", id)
			if err == nil {
				r.repeat(salt.Tag("job", jid, "ret", id), load)
			}
		} else {
			if err == nil {
				r.stored.Add(1)
			}
			var ret wire.Return
			wire.View(load, &ret)
			r.functions.returned(&ret)
			r.traces.returned(jid, id, link, &ret, began, err)
			if fun, ok := ret.Fun.(string); ok && err == nil {
				r.runs.Returned(id, jid, fun, ret.FunArgs, load, time.Now())
			}
			r.bus.Fire(salt.Tag("job", jid, "ret", id), load)
		}
		if err == nil && !dup {
			r.stock.PutReturn(jid, id, load)
		}
		done(err)
	})
}

var returnResults = metrics.Family{Name: "brine_master_returns_total", Kind: metrics.Counter,
	Help: "Returns that arrived, by what became of them. One that could not be stored is sent again by a Brine minion.", Labels: []string{"result"}}

func (r *returns) metrics(p *metrics.Page) {
	p.Count(&returnResults, r.stored.Load(), "stored")
	p.Count(&returnResults, r.repeated.Load(), "repeated")
	p.Count(&returnResults, r.notStored.Load(), "not_stored")
	p.Count(&returnResults, r.rejected.Load(), "rejected")
}

// tellOfConflicts logs that a minion has returned a job twice with different results.
func tellOfConflicts(log *ratelimit.Log) func(jid, minion string) {
	return func(jid, minion string) {
		log.Log(slog.LevelWarn, "a minion returned a job twice with different results, and the first one counts: two machines may use its id and key, "+
			"as after a copy of a machine; delete the minion's key, and give one of them another id", "minion", minion, "jid", jid)
	}
}

// maxTold bounds the returns that are remembered while the disk is full.
const maxTold = 100_000

// boundedSet is a set of at most maxTold strings; it drops the oldest one.
type boundedSet struct {
	mu    sync.Mutex
	has   map[string]bool
	order []string // includes removed ones
}

// add adds a string and reports whether it was absent.
func (b *boundedSet) add(s string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.has[s] {
		return false
	}
	if b.has == nil {
		b.has = map[string]bool{}
	}
	if len(b.order) >= maxTold {
		delete(b.has, b.order[0])
		b.order = b.order[1:]
	}
	b.has[s] = true
	b.order = append(b.order, s)
	return true
}

// remove removes a string and reports whether it was present.
func (b *boundedSet) remove(s string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.has[s] {
		return false
	}
	delete(b.has, s)
	if len(b.has) == 0 {
		b.has, b.order = nil, nil
	}
	return true
}

// takeSyndic stores the returns that a syndic collected from its minions. It answers once they are
// on disk. A syndic of Brine keeps them after any other answer than nil, and sends them again.
func (r *returns) takeSyndic(c *channel.Call) {
	if !r.settings.options().OrderMasters {
		const off = "order_masters is off: set it on the master above"
		r.rateLimitedLog.Log(slog.LevelWarn, "refused returns of a syndic: order_masters is off", "syndic", c.ID)
		c.Reply(value.DictOf(salt.KeepReturn, off))
		return
	}
	below := r.syndics.minions()
	if err := below.isSyndic(c.ID); err != nil {
		r.rateLimitedLog.Log(slog.LevelWarn, "refused returns of a syndic", "syndic", c.ID, "reason", err)
		c.Reply(value.DictOf(salt.KeepReturn, err.Error()))
		return
	}
	r.syndics.seen(c.ID)
	// One answer for all: it reports an error if any return failed.
	all := answerOnce{left: 1, reply: func(err error) {
		if err != nil {
			c.Reply(value.DictOf(salt.KeepReturn, err.Error()))
			return
		}
		c.Reply(nil)
	}}
	var in wire.SyndicReturn
	wire.View(c.Load, &in)
	for _, e := range value.Items(in.Load) {
		d, ok := e.(*value.Dict)
		var entry wire.SyndicEntry
		if wire.View(d, &entry); !ok || !salt.ValidJID(entry.JID) {
			continue
		}
		about := r.described(&entry)
		rets, _ := entry.Return.(*value.Dict)
		for k, v := range rets.All() {
			id, _ := k.(string)
			d, ok := v.(*value.Dict)
			if !ok || salt.CheckID(id) != nil {
				continue
			}
			if err := below.may(c.ID, id); err != nil {
				if err = r.refuseBelow(c.ID, entry.JID, id, err); err != nil {
					all.begin()
					all.end(err)
				}
				continue
			}
			all.begin()
			r.store(entry.JID, id, syndicReturn(&entry, id, d), about, func(err error) {
				if salt.KindOf(err) == salt.Invalid {
					err = nil // a retry would not help
				}
				all.end(err)
			})
		}
	}
	all.end(nil)
}

// refuseBelow logs that a syndic returned for a minion that is not below it. The returned error
// makes the syndic keep the return, for the case that the administrator allows it in time. A return
// that is stored already is not needed.
func (r *returns) refuseBelow(syndic, jid, minion string, err error) error {
	if rets, failed := r.jobs.Returns(jid); failed == nil && rets[minion] != nil {
		return nil
	}
	r.rejected.Add(1)
	r.rateLimitedLog.Log(slog.LevelWarn, "refused return: the minion is not below this syndic", "syndic", syndic, "minion", minion, "jid", jid, "reason", err)
	return err
}

// syndicReturn returns the load of one return of a syndic's entry.
func syndicReturn(entry *wire.SyndicEntry, id string, d *value.Dict) *value.Dict {
	var ret wire.Return
	wire.View(d, &ret)
	load := value.DictOf("jid", entry.JID, "id", id, "fun", entry.Fun, "fun_args", ret.FunArgs)
	if entry.Out != nil {
		load.Set("out", entry.Out)
	}
	load.Update(d)
	load.Set("jid", entry.JID) // the checked id, whatever the return contains
	load.Set("id", id)
	if entry.MasterID != nil {
		load.Set("master_id", entry.MasterID)
	}
	return load
}

// described returns the description that a syndic sent of a job of the master below, nil if there
// is none or the job is known here.
func (r *returns) described(entry *wire.SyndicEntry) *value.Dict {
	if entry.Load.Len() == 0 {
		return nil
	}
	if known, err := r.jobs.Load(entry.JID); known != nil || err != nil {
		return nil
	}
	load := entry.Load.Clone()
	load.Set("jid", entry.JID)
	for _, k := range []string{"key", "token", "eauth", authListKey, "id"} {
		load.Delete(k)
	}
	return load
}

// answerOnce waits for several completions and replies with the first error, or
// nil.
type answerOnce struct {
	mu    sync.Mutex
	left  int
	err   error
	reply func(error)
}

func (a *answerOnce) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left++
}

func (a *answerOnce) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.err = err
	}
	if a.left--; a.left == 0 {
		a.reply(a.err)
	}
}
