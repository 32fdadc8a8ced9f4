package master

import (
	"brine/internal/base/ratelimit"
	"brine/internal/daemons/master/sinks"
	"log/slog"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// returns takes the results of jobs.
type returns struct {
	settings *settings
	rules    *returnRules
	jobs     jobStore
	bus      *event.Bus
	queue    *queue
	sinks    *sinks.Jobs
	stock    *sinks.StockFiles
	standby  *standbyJobs
	log      *slog.Logger

	// told are the returns whose event was fired although they could not be
	// stored: when they come again no event is fired.
	told           boundedSet
	rateLimitedLog *ratelimit.Log
	own            quota // of returns that belong to no published job
}

// take stores a return and tells the bus. The minion gets its answer once the
// return is on disk, so what it has been relieved of cannot be lost. A return
// that was stored before is answered without being told again.
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
		r.rateLimitedLog.Log(slog.LevelWarn, "a malformed return was refused", "minion", c.ID, "err", err)
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
		r.rateLimitedLog.Log(slog.LevelWarn, "a return with an invalid job id was refused", "minion", c.ID, "jid", jid)
		c.Reply("")
		return
	}
	published, allowed := false, true
	if !minted {
		published, allowed = r.rules.belongs(jid, c.ID)
	}
	if !allowed {
		r.rateLimitedLog.Log(slog.LevelWarn, "a return was refused: the job was not for this minion", "minion", c.ID, "jid", jid)
		c.Reply("")
		return
	}
	if limit := int64(r.settings.options().MinionReturnQuota) << 20; !published && !r.own.take(c.ID, c.Size(), limit) {
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
			c.Reply("") // another attempt would not help
		default:
			c.Reply(value.DictOf(salt.KeepReturn, err.Error()))
		}
	})
}

// calledJID returns the id for a job of salt-call. Brine's proposes one, so that a
// return that is sent again does not become another job. An id that another job has
// already does not count.
func (r *returns) calledJID(id, proposed string) string {
	if salt.ValidJID(proposed) {
		known, err := r.jobs.Load(proposed)
		if err == nil && (known == nil || job.StartedBy(known, id)) {
			return proposed
		}
	}
	return salt.NewJID(time.Now())
}

// started returns the load of a job that the minion has started itself, nil if
// a master published the job. The job gets its id here (minted), or the minion
// says that its schedule or startup_states ran it; the latter counts only for a
// job that is not known, so that no minion can change what is known of a job.
// arg, tgt and tgt_type of the return are then those of the job, as Salt's
// masters have them; otherwise a return has none.
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

// store writes one return and fires its event, even if it cannot be written:
// its callers wait for it. A job that is not nil is the load of one that
// the minion has started itself.
func (r *returns) store(jid, id string, load, job *value.Dict, done func(error)) {
	if job != nil {
		r.stock.PutLoad(job, jid, []string{id})
	}
	r.jobs.ReturnStartedAsync(load, job, func(dup bool, err error) {
		if job != nil && !dup {
			r.sinks.SendLoad(job, jid, []string{id})
		}
		r.queue.returned(jid, id)
		// Also one that came twice: this master may have been killed in between.
		r.sinks.SendReturn(load)
		key := jid + "/" + id
		if err != nil {
			r.rateLimitedLog.Log(slog.LevelError, "cannot store a return; a minion of Brine keeps it and sends it again", "jid", jid, "minion", id, "err", err)
			dup = !r.told.add(key)
		} else if r.told.remove(key) {
			dup = true
		}
		if dup {
			r.log.Debug("a return came twice", "jid", jid, "minion", id)
		} else {
			r.bus.Fire(salt.Tag("job", jid, "ret", id), load)
		}
		if err == nil && !dup {
			r.stock.PutReturn(jid, id, load)
		}
		done(err)
	})
}

// maxTold bounds the returns that are remembered while the disk is full.
const maxTold = 100_000

// boundedSet is a set of at most maxTold texts; the one that came first makes
// room.
type boundedSet struct {
	mu    sync.Mutex
	has   map[string]bool
	order []string // with some that were removed
}

// add enters a text and reports whether it was not there.
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

// remove takes a text out and reports whether it was there.
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

// takeSyndic stores what a syndic collected for the minions below it.
func (r *returns) takeSyndic(c *channel.Call) {
	if !r.settings.options().OrderMasters {
		r.rateLimitedLog.Log(slog.LevelWarn, "returns of a syndic were refused: order_masters is off", "syndic", c.ID)
		c.Reply("")
		return
	}
	// One answer for all: it must not say that all is well when it is not.
	all := answerOnce{left: 1, reply: func(err error) {
		if err != nil {
			c.Reply("")
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
		rets, _ := entry.Return.(*value.Dict)
		for k, v := range rets.All() {
			id, _ := k.(string)
			d, ok := v.(*value.Dict)
			if !ok || salt.CheckID(id) != nil {
				continue
			}
			var ret wire.Return
			wire.View(d, &ret)
			load := value.DictOf("jid", entry.JID, "id", id, "fun", entry.Fun, "fun_args", ret.FunArgs)
			load.Update(d)
			load.Set("jid", entry.JID) // as they were checked, whatever the return says
			load.Set("id", id)
			if entry.MasterID != nil {
				load.Set("master_id", entry.MasterID)
			}
			all.begin()
			r.store(entry.JID, id, load, nil, all.end)
		}
	}
	all.end(nil)
}

// answerOnce waits for several ends and replies with an error of one, or nil.
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
