package master

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/ha/cluster"
	"brine/internal/ha/replica"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// clusterJobs runs runners that were ordered for the whole cluster. Each runs
// once, on the master with the lease, whichever master received the order.
//
// An order is a replicated record (kindWork). The lease holder claims it with the
// voters (lease.Holder.Claim), writes its token into the record, runs the runner,
// and records the end. The next lease holder finds records that another master
// started but did not finish: it runs repeatable ones again, and marks all others
// as failed. Of two concurrent versions the one with the greater token wins
// (workRank), so that the result of a holder that was suspended is discarded.
type clusterJobs struct {
	id      string // id of this master
	opts    *value.Dict
	records *replica.Store
	cluster *cluster.Cluster
	calls   *runnerCalls
	bus     *event.Bus
	log     *slog.Logger
	wake    wait.Wakeup

	mu     sync.Mutex
	active map[string]uint64 // tokens of the jobs that run here, by job id
	told   map[string]bool   // jobs whose end was already processed; see tell
	wg     sync.WaitGroup
}

const kindWork = "work"

// The states of a cluster job.
const (
	workOrdered = "ordered"
	workRuns    = "running"
	workDone    = "done"
	workFailed  = "failed"
)

// Limits and times of cluster jobs.
const (
	// workStart is the maximum age of an order at its start; older ones fail.
	workStart = time.Hour
	// workKeep is the time after an order when the record of a finished job is
	// removed. After that, only the job cache has the job.
	workKeep = 24 * time.Hour
	// maxWorkRuns bounds how often a repeatable job is started: the job itself may
	// crash the masters.
	maxWorkRuns = 3
	// maxWorkReturn bounds a return in a record, maxWorkOrder a whole record, both
	// in bytes; maxOpenWork bounds the unfinished jobs.
	maxWorkReturn = 256 << 10
	maxWorkOrder  = 1 << 20
	maxOpenWork   = 1000
	// workLook is the time between checks while some job has not ended.
	workLook = 200 * time.Millisecond
	// workRest is the time between checks while all jobs have ended. A changed
	// record causes a check at once.
	workRest = time.Minute
	// workSpread bounds the wait until the other masters have an order, too.
	workSpread = time.Second
)

// workRank ranks concurrent versions of a record: by token, and with the same
// token an ended job wins. A malformed record has rank 0.
func workRank(content []byte) int {
	d := readWork(content)
	if d == nil {
		return 0
	}
	n := 2 * int(min(max(0, workOf(d).Token), 1<<60))
	if ended(d) {
		n++
	}
	return n + 1
}

func ended(d *value.Dict) bool {
	state := workOf(d).State
	return state == workDone || state == workFailed
}

// workOf decodes a record of a cluster job.
func workOf(d *value.Dict) (w wire.ClusterWork) {
	wire.View(d, &w)
	return w
}

func readWork(content []byte) *value.Dict {
	v, err := msgpack.Limits{Items: 1 << 16, Bytes: 2 * maxWorkOrder, Depth: 64}.UnmarshalTyped(content)
	d, _ := v.(*value.Dict)
	if err != nil || d == nil {
		return nil
	}
	return d
}

func newClusterJobs(w *clusterJobs) *clusterJobs {
	w.wake, w.active, w.told = wait.NewWakeup(), map[string]uint64{}, map[string]bool{}
	w.records.OnChange(func(kind, _ string) {
		if kind == kindWork {
			w.look()
		}
	})
	return w
}

func (w *clusterJobs) look() {
	w.wake.Wake()
}

// order records a runner to run once in the cluster.
func (w *clusterJobs) order(jid, fun, user string, args []any, repeatable bool) error {
	if w == nil || !w.cluster.Voting.Votes() {
		return salt.Errorf(salt.Invalid,
			"no lease service is configured to decide which master runs it: it needs a cluster without a shared directory "+
				"(cluster_isolated_filesystem) with cluster_voters")
	}
	open := 0
	if err := w.each(func(_ string, d *value.Dict) {
		if !ended(d) {
			open++
		}
	}); err != nil {
		return err
	}
	if open >= maxOpenWork {
		return salt.Errorf(salt.Unavailable, "%d runners wait to be run once: see salt-run cluster.work, and salt-run cluster.lease for who should run them",
			open)
	}
	d := value.DictOf("fun", fun, "user", user, "arg", &value.List{Items: args}, "by", w.id, "at", time.Now().Unix(),
		"repeatable", repeatable, "state", workOrdered, "token", int64(0), "runs", int64(0))
	did, err := w.change(jid, func(now *value.Dict) *value.Dict {
		if now != nil {
			return nil
		}
		return d
	})
	if err != nil {
		return err
	}
	if !did {
		return salt.Errorf(salt.Exists, "there is work with the id %s already", jid)
	}
	// Wait until the other masters have the order, in case this one fails now.
	for end := time.Now().Add(workSpread); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, all, err := w.cluster.Feeds.HandedOver(); err != nil || all {
			break
		}
	}
	return nil
}

// change replaces a record by the result of fn, unless that is nil. The argument
// of fn is nil if there is no record.
func (w *clusterJobs) change(jid string, fn func(now *value.Dict) *value.Dict) (did bool, err error) {
	did, err = w.records.Change(kindWork, jid, func(now *replica.Record) ([]byte, bool) {
		var d *value.Dict
		if now != nil {
			d = readWork(now.Value)
		}
		if d = fn(d); d == nil {
			return nil, false
		}
		b, merr := msgpack.Marshal(d, msgpack.NewSpec)
		if merr == nil && len(b) > maxWorkOrder {
			merr = salt.Errorf(salt.Invalid, "the arguments are too large: %d bytes, of %d that there may be", len(b), maxWorkOrder)
		}
		if merr != nil {
			err = merr
		}
		return b, merr == nil
	})
	w.look()
	return did, err
}

func (w *clusterJobs) each(fn func(jid string, d *value.Dict)) error {
	return w.records.Each(kindWork, func(r *replica.Record) {
		if d := readWork(r.Value); d != nil && salt.ValidJID(r.Name) {
			fn(r.Name, d)
		}
	})
}

// run runs cluster jobs until ctx ends.
func (w *clusterJobs) run(ctx context.Context) {
	defer w.wg.Wait()
	if err := w.each(func(jid string, d *value.Dict) { w.told[jid] = ended(d) }); err != nil {
		w.log.Error("cannot read cluster jobs", "err", err)
	}
	for {
		pause := workRest
		if w.round(ctx) {
			pause = workLook
		}
		if wait.Until(ctx, w.wake.C(), pause); ctx.Err() != nil {
			return
		}
	}
}

// round checks each record once and starts, takes over, reports or removes its
// job. open means that some job has not ended, or that reading the records failed.
func (w *clusterJobs) round(ctx context.Context) (open bool) {
	type item struct {
		jid string
		d   *value.Dict
	}
	var all []item
	if err := w.each(func(jid string, d *value.Dict) { all = append(all, item{jid, d}) }); err != nil {
		w.log.Error("cannot read cluster jobs", "err", err)
		return true
	}
	token, holds := w.cluster.Voting.Once()
	for _, it := range all {
		rec := workOf(it.d)
		age := time.Since(time.Unix(rec.At, 0))
		open = open || !ended(it.d)
		switch {
		case ended(it.d):
			w.tell(it.jid, it.d)
			if steady.Removal().Sub(time.Unix(rec.At, 0)) > workKeep {
				w.mu.Lock()
				delete(w.told, it.jid)
				w.mu.Unlock()
				if err := w.records.Drop(kindWork, it.jid); err != nil {
					w.log.Error("cannot remove old cluster jobs", "err", err)
				}
			}
		case !holds || !w.cluster.Voting.Votes() || w.here(it.jid) || ctx.Err() != nil:
		case rec.State == workRuns:
			if uint64(rec.Token) < token || rec.On == w.id {
				w.takeOver(ctx, it.jid, it.d, rec.On, token)
			}
		default:
			w.begin(ctx, it.jid, it.d, age)
		}
	}
	return open
}

func (w *clusterJobs) here(jid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.active[jid]
	return ok
}

// begin claims an order that no master has started yet, as far as this master
// knows, and runs it.
func (w *clusterJobs) begin(ctx context.Context, jid string, d *value.Dict, age time.Duration) {
	token, by, err := w.cluster.Voting.Claim(ctx, "work/"+jid)
	switch {
	case err != nil:
		w.log.Debug("cannot claim cluster job now", "jid", jid, "err", err)
	case by != "":
		w.takeOver(ctx, jid, d, by, token)
	case age > workStart:
		w.fail(jid, token, "", fmt.Sprintf("No master could run it within %v, and it is not run any more.", workStart))
	default:
		w.start(ctx, jid, token)
	}
}

// takeOver handles a job that another master started, or this one before a
// restart or with an earlier token. It runs the job again or records its failure.
func (w *clusterJobs) takeOver(ctx context.Context, jid string, d *value.Dict, from string, token uint64) {
	rec := workOf(d)
	again := rec.Repeatable && rec.Runs < maxWorkRuns
	w.log.Warn("master lost the lease or died while it ran a cluster job", "jid", jid, "fun", rec.Fun, "master", from,
		"runs_again", again)
	if again {
		w.start(ctx, jid, token)
		return
	}
	w.fail(jid, token, from, fmt.Sprintf("The master %s died, or lost the lease, while it ran %s. It may have been done in part, and is not run again.", from,
		rec.Fun))
}

// start records that this master runs a job with a token, and runs it in the
// background.
func (w *clusterJobs) start(ctx context.Context, jid string, token uint64) {
	var d *value.Dict
	did, err := w.change(jid, func(now *value.Dict) *value.Dict {
		if now == nil || ended(now) || uint64(workOf(now).Token) > token {
			return nil
		}
		d = now.Clone()
		d.Set("state", workRuns)
		d.Set("token", int64(token))
		d.Set("on", w.id)
		d.Set("runs", workOf(d).Runs+1)
		return d
	})
	if err != nil || !did {
		if err != nil {
			w.log.Error("cannot start cluster job", "jid", jid, "err", err)
		}
		return
	}
	w.event(jid, d)
	w.mu.Lock()
	w.active[jid] = token
	w.mu.Unlock()
	w.wg.Go(func() {
		defer w.look()
		defer func() {
			w.mu.Lock()
			delete(w.active, jid)
			w.mu.Unlock()
		}()
		w.execute(ctx, jid, token, d)
	})
}

// holds reports whether this master holds the lease with a token.
func (w *clusterJobs) holds(token uint64) bool {
	now, holds := w.cluster.Voting.Once()
	return holds && now == token
}

// execute runs the runner, and cancels it when the lease is lost.
func (w *clusterJobs) execute(ctx context.Context, jid string, token uint64, d *value.Dict) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(workLook / 2)
		defer tick.Stop()
		for w.holds(token) {
			select {
			case <-inner.Done():
				return
			case <-tick.C:
			}
		}
		cancel()
	}()
	defer func() { cancel(); <-watched }()
	if !w.holds(token) {
		return
	}
	tag, about, rec := salt.Tag("run", jid), aboutWork(jid, d), workOf(d)
	end := w.calls.running.begin(about.Clone())
	o := w.calls.call(inner, tag, jid, rec.Fun, rec.User, value.Items(rec.Arg), w.opts)
	end()
	switch {
	case ctx.Err() != nil && rec.Repeatable:
		return // the next holder of the lease runs it again
	case ctx.Err() != nil:
		w.fail(jid, token, w.id, fmt.Sprintf("The master %s was stopped while it ran %s. It may have been done in part, and is not run again.", w.id, rec.Fun))
		return
	case !w.holds(token):
		w.log.Warn("discarding runner result: lease lost", "jid", jid, "fun", rec.Fun, "token", token)
		return
	}
	w.calls.keep(outcomeOf(about, o.Return, o))
	w.end(jid, token, func(d *value.Dict) {
		d.Set("state", workDone)
		d.Set("success", o.Success)
		d.Set("retcode", int64(o.Retcode))
		d.Set("out", o.Out)
		d.Set("return", o.Return)
		if b, err := msgpack.Marshal(o.Return, msgpack.NewSpec); err != nil || len(b) > maxWorkReturn {
			d.Set("return", "It has returned more than is handed on this way: salt-run jobs.lookup_jid "+jid)
		}
	})
}

// fail records that a job did not run, or only partly. from is the master that
// ran it, or "".
func (w *clusterJobs) fail(jid string, token uint64, from, why string) {
	var about *value.Dict
	if w.end(jid, token, func(d *value.Dict) {
		d.Set("state", workFailed)
		d.Set("success", false)
		d.Set("retcode", int64(1))
		d.Set("return", why)
		d.Set("lost", from)
		about = aboutWork(jid, d)
	}) {
		w.log.Error("cluster job failed", "jid", jid, "reason", why)
		w.calls.keep(outcomeOf(about, why, fn.Outcome{Retcode: 1}))
	}
}

// end records the end of a job, unless the job has already ended or has a greater
// token by now. It reports whether it did.
func (w *clusterJobs) end(jid string, token uint64, set func(d *value.Dict)) bool {
	var d *value.Dict
	did, err := w.change(jid, func(now *value.Dict) *value.Dict {
		if now == nil || ended(now) || uint64(workOf(now).Token) > token {
			return nil
		}
		d = now.Clone()
		d.Set("token", int64(token))
		d.Set("on", w.id)
		d.Set("ended", time.Now().Unix())
		set(d)
		return d
	})
	if err != nil {
		w.log.Error("cannot record the end of a cluster job", "jid", jid, "err", err)
	}
	if did {
		w.event(jid, d)
	} else if err == nil {
		w.log.Warn("discarding runner result: another master continued the cluster job", "jid", jid, "token", token)
	}
	return did
}

// event fires an event with the state of a job.
func (w *clusterJobs) event(jid string, d *value.Dict) {
	e := value.DictOf("jid", jid)
	for _, k := range []string{"fun", "user", "by", "on", "state", "token", "runs", "lost"} {
		if d.Has(k) {
			e.Set(k, d.At(k))
		}
	}
	w.bus.Fire(salt.Tag("cluster", "work", jid), e)
}

// tell fires the return event of an ended job once, if this master received the
// order.
func (w *clusterJobs) tell(jid string, d *value.Dict) {
	w.mu.Lock()
	told := w.told[jid]
	w.told[jid] = true
	w.mu.Unlock()
	rec := workOf(d)
	if told || rec.By != w.id {
		return
	}
	o := fn.Outcome{Success: value.Truth(rec.Success), Retcode: int(rec.Retcode), Out: rec.Out}
	w.bus.Fire(salt.Tag("run", jid, "ret"), outcomeOf(aboutWork(jid, d), rec.Return, o))
}

// aboutWork returns the fields of a runner that events and the job cache contain.
func aboutWork(jid string, d *value.Dict) *value.Dict {
	rec := workOf(d)
	return value.DictOf("fun", "runner."+rec.Fun, "jid", jid, "user", rec.User, "fun_args", &value.List{Items: plain(value.Items(rec.Arg))})
}

// outcomeOf returns the result of aboutWork with the return of the runner added.
func outcomeOf(about *value.Dict, ret any, o fn.Outcome) *value.Dict {
	done := about.Clone()
	done.Set("return", ret)
	done.Set("success", o.Success)
	if o.Retcode != 0 {
		done.Set("retcode", int64(o.Retcode))
	}
	if o.Out != "" {
		done.Set("outputter", o.Out)
	}
	return done
}

// maxShownWork bounds the jobs that show lists.
const maxShownWork = 100

// show returns the record of a job or, if jid is "", the newest ones without
// arguments and returns.
func (w *clusterJobs) show(jid string) (*value.Dict, error) {
	if w == nil {
		return nil, salt.Errorf(salt.Invalid, "only masters of a cluster without a shared directory have work in common")
	}
	all := map[string]*value.Dict{}
	if err := w.each(func(id string, d *value.Dict) {
		if jid == "" || jid == id {
			d = d.Clone()
			if jid == "" {
				d.Delete("return")
				d.Delete("arg")
			}
			rec := workOf(d)
			d.Set("at", time.Unix(rec.At, 0).UTC().Format(time.RFC3339))
			if rec.Ended != 0 {
				d.Set("ended", time.Unix(rec.Ended, 0).UTC().Format(time.RFC3339))
			}
			all[id] = d
		}
	}); err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(all))
	for id := range all {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(b, a) })
	out := value.NewDict(len(ids))
	for _, id := range ids[:min(len(ids), maxShownWork)] {
		out.Set(id, all[id])
	}
	return out, nil
}
