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
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/ha/cluster"
	"brine/internal/ha/replica"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// clusterJobs has runners run that were ordered for a whole cluster: by the master
// that holds the lease, whichever one they were given to, and once.
//
// An order is a record that all masters get (kindWork). The holder claims it with
// the voters (lease.Holder.Claim), notes in the record with which token it has
// begun, runs it, and notes the end. Who has the lease next finds records that
// another has begun and not ended: it runs again what may be run twice, and
// notes of all else that it was begun and is not done again. What a holder that
// stood still notes afterwards does not count, since of two versions that were
// made apart the one with the greater token does (workRank).
type clusterJobs struct {
	id      string // of this master
	opts    *value.Dict
	records *replica.Store
	cluster *cluster.Cluster
	calls   *runnerCalls
	bus     *event.Bus
	log     *slog.Logger
	wake    wait.Wakeup

	mu     sync.Mutex
	active map[string]uint64 // job ids of what runs here, and the token
	told   map[string]bool   // whose end this master's bus has heard
	wg     sync.WaitGroup
}

const kindWork = "work"

// The states of work.
const (
	workOrdered = "ordered"
	workRuns    = "running"
	workDone    = "done"
	workFailed  = "failed"
)

// Bounds and times of work.
const (
	// workStart is how old an order may be that is begun: less than what claims
	// are kept for (lease.ClaimTime), by more than clocks may differ.
	workStart = time.Hour
	// workKeep is how long the record of what has ended is kept. It is in the job
	// cache after that.
	workKeep = 24 * time.Hour
	// maxWorkRuns bounds how often something is begun that may be run twice: it may
	// be what kills the masters.
	maxWorkRuns = 3
	// maxWorkReturn bounds what a record has of what was returned, maxWorkOrder a
	// whole one, in bytes; maxOpenWork what is not ended.
	maxWorkReturn = 256 << 10
	maxWorkOrder  = 1 << 20
	maxOpenWork   = 1000
	workLook      = 200 * time.Millisecond
	// workRest is between two looks while all work has ended; a new order is told.
	workRest = time.Minute
	// workSpread bounds the wait until another master has an order, too.
	workSpread = time.Second
)

// workRank orders versions that were made apart.
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

// workOf reads a record of work.
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

// order takes a runner that the cluster is to run once.
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
	// If this master dies now another one is to know of it.
	for end := time.Now().Add(workSpread); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, all, err := w.cluster.Feeds.HandedOver(); err != nil || all {
			break
		}
	}
	return nil
}

// change replaces a record by what fn makes of it, unless that is nil.
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

// run does what is to be done with work until ctx ends.
func (w *clusterJobs) run(ctx context.Context) {
	defer w.wg.Wait()
	if err := w.each(func(jid string, d *value.Dict) { w.told[jid] = ended(d) }); err != nil {
		w.log.Error("the work of the cluster cannot be read", "err", err)
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

// round does what is to be done now, and reports whether there is work that has
// not ended, or no telling.
func (w *clusterJobs) round(ctx context.Context) (open bool) {
	type item struct {
		jid string
		d   *value.Dict
	}
	var all []item
	if err := w.each(func(jid string, d *value.Dict) { all = append(all, item{jid, d}) }); err != nil {
		w.log.Error("the work of the cluster cannot be read", "err", err)
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
			if age > workKeep {
				w.mu.Lock()
				delete(w.told, it.jid)
				w.mu.Unlock()
				if err := w.records.Drop(kindWork, it.jid); err != nil {
					w.log.Error("old work of the cluster cannot be forgotten", "err", err)
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

// begin claims an order, and runs it. No master has begun it as far as this one
// knows, nor has it itself: it notes that in the record before.
func (w *clusterJobs) begin(ctx context.Context, jid string, d *value.Dict, age time.Duration) {
	token, by, err := w.cluster.Voting.Claim(ctx, "work/"+jid)
	switch {
	case err != nil:
		w.log.Debug("work of the cluster cannot be claimed now", "jid", jid, "err", err)
	case by != "":
		w.takeOver(ctx, jid, d, by, token)
	case age > workStart:
		w.fail(jid, token, "", fmt.Sprintf("No master could run it within %v, and it is not run any more.", workStart))
	default:
		w.start(ctx, jid, token)
	}
}

// takeOver goes on with what another master, or this one in an earlier life or
// with an earlier token, has begun.
func (w *clusterJobs) takeOver(ctx context.Context, jid string, d *value.Dict, from string, token uint64) {
	rec := workOf(d)
	again := rec.Repeatable && rec.Runs < maxWorkRuns
	w.log.Warn("a master has begun work of the cluster, and lost the lease or died before its end", "jid", jid, "fun", rec.Fun, "master", from,
		"runs_again", again)
	if again {
		w.start(ctx, jid, token)
		return
	}
	w.fail(jid, token, from, fmt.Sprintf("The master %s died, or lost the lease, while it ran %s. It may have been done in part, and is not run again.", from,
		rec.Fun))
}

// start runs a record's runner with a token.
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
			w.log.Error("work of the cluster cannot be begun", "jid", jid, "err", err)
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

// holds reports whether this master has the lease with a token.
func (w *clusterJobs) holds(token uint64) bool {
	now, holds := w.cluster.Voting.Once()
	return holds && now == token
}

// execute runs the runner, and ends it when the lease is lost.
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
	o := w.calls.call(inner, tag, jid, rec.Fun, value.Items(rec.Arg), w.opts)
	end()
	switch {
	case ctx.Err() != nil && rec.Repeatable:
		return // the next holder of the lease runs it again
	case ctx.Err() != nil:
		w.fail(jid, token, w.id, fmt.Sprintf("The master %s was stopped while it ran %s. It may have been done in part, and is not run again.", w.id, rec.Fun))
		return
	case !w.holds(token):
		w.log.Warn("discarding the result of a runner of the cluster: lease lost", "jid", jid, "fun", rec.Fun, "token", token)
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

// fail notes that something was not done, or maybe in part.
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
		w.log.Error("work of the cluster has failed", "jid", jid, "reason", why)
		w.calls.keep(outcomeOf(about, why, fn.Outcome{Retcode: 1}))
	}
}

// end notes an end, unless another one counts, and reports whether it did.
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
		w.log.Error("the end of work of the cluster cannot be noted", "jid", jid, "err", err)
	}
	if did {
		w.event(jid, d)
	} else if err == nil {
		w.log.Warn("discarding the result of a runner of the cluster: another master has continued it", "jid", jid, "token", token)
	}
	return did
}

// event tells the bus how work is.
func (w *clusterJobs) event(jid string, d *value.Dict) {
	e := value.DictOf("jid", jid)
	for _, k := range []string{"fun", "user", "by", "on", "state", "token", "runs", "lost"} {
		if d.Has(k) {
			e.Set(k, d.At(k))
		}
	}
	w.bus.Fire(salt.Tag("cluster", "work", jid), e)
}

// tell fires the end on the bus of the master that took the order.
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

// aboutWork is what events and the job cache have of a runner.
func aboutWork(jid string, d *value.Dict) *value.Dict {
	rec := workOf(d)
	return value.DictOf("fun", "runner."+rec.Fun, "jid", jid, "user", rec.User, "fun_args", &value.List{Items: plain(value.Items(rec.Arg))})
}

// outcomeOf adds what a runner returned.
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

// maxShownWork bounds a list.
const maxShownWork = 100

// show returns one record, or the newest without what they returned.
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
