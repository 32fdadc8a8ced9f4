package master

import (
	"brine/internal/base/ratelimit"
	"brine/internal/daemons/master/sinks"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"brine/internal/base/trace"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// runnerCalls runs runners, fires their events and stores what they return.
type runnerCalls struct {
	id       string // id of this master
	ctx      func() context.Context
	options  job.Options
	registry *fn.Registry
	running  *running
	jobs     jobStore
	sinks    *sinks.Jobs
	bus      *event.Bus
	traces   traces
	// sdb returns the user's drivers for sdb:// references.
	sdb    func() fn.SDB
	log    *slog.Logger
	prints bool // fire events with what functions in Python print

	rateLimitedLog *ratelimit.Log
}

// printing returns the same calls, with events of what functions in Python print.
func (r *runnerCalls) printing() *runnerCalls {
	calls := *r
	calls.prints = true
	return &calls
}

// run runs a runner, and is part of the trace that in names, if any.
func (r *runnerCalls) run(in trace.Link, tag, jid, fun, user string, args []any, opts *value.Dict) fn.Outcome {
	about := value.DictOf("fun", "runner."+fun, "jid", jid, "user", user, "fun_args", &value.List{Items: shownArgs(fun, args)})
	r.bus.Fire(tag+"/new", about)
	end := r.running.begin(about.Clone())
	o := r.call(trace.With(r.ctx(), in), tag, jid, fun, user, args, opts)
	end()
	done := about.Clone()
	done.Set("return", o.Return)
	done.Set("success", o.Success)
	if o.Retcode != 0 {
		done.Set("retcode", int64(o.Retcode))
	}
	if o.Out != "" {
		done.Set("outputter", o.Out)
	}
	r.keep(done)
	r.bus.Fire(tag+"/ret", done)
	return o
}

// keep stores the return of a runner as that of a job whose only minion is the master itself,
// like Salt. Runners that read the job cache are not stored: a program that polls the list of
// jobs would fill the disk.
func (r *runnerCalls) keep(done *value.Dict) {
	if o := r.options; !o.JobCache || !o.RunnerReturns {
		return
	}
	var in wire.Ran
	wire.View(done, &in)
	jid, fun := in.JID, in.Fun
	load := value.DictOf("id", r.id, "tgt", r.id, "jid", jid, "fun", fun, "user", in.User)
	run := &job.Whole{Job: job.Job{JID: jid, Load: load}}
	r.sinks.SendLoad(load, jid, nil)
	if !strings.HasPrefix(fun, "runner.jobs.") && !secretRunner(strings.TrimPrefix(fun, "runner.")) {
		run.Returns = map[string]*value.Dict{r.id: value.DictOf("return", done)}
		ret := load.Clone()
		ret.Set("return", done)
		r.sinks.SendReturn(ret)
	}
	if err := r.jobs.Put(run); err != nil {
		r.rateLimitedLog.Log(slog.LevelError, "cannot store the return of a runner", "jid", jid, "fun", fun, "err", err)
	}
}

func (r *runnerCalls) call(ctx context.Context, tag, jid, fun, user string, args []any, opts *value.Dict) fn.Outcome {
	c := &fn.Call{ID: r.id, User: user, JID: jid, Log: r.log, Config: fn.Tree{Dict: opts}, SDB: r.sdb()}
	c.Progress = func(part any) {
		d, ok := part.(*value.Dict)
		if !ok {
			d = value.DictOf("data", part)
		}
		r.bus.Fire(tag+"/progress", d)
	}
	if r.prints {
		c.Print = func(stream, text string) {
			r.bus.Fire(tag+"/"+wire.EventPrint, wire.Encode(wire.Printed{Stream: stream, Text: text}))
		}
	}
	inner, ended := r.traces.run(ctx, jid, fun, user)
	o := runners.Run(inner, r.registry, c, fn.Job{Fun: fun, Arg: args})
	ended(o.Success)
	return o
}

// running tracks the runners in progress.
type running struct {
	mu   sync.Mutex
	jobs []*value.Dict
}

// begin adds a runner and returns a function that removes it.
func (r *running) begin(about *value.Dict) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs = append(r.jobs, about)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.jobs = slices.DeleteFunc(r.jobs, func(d *value.Dict) bool { return d == about })
	}
}

// list returns the runners in the order of their start. They must not be modified.
func (r *running) list() []*value.Dict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs)
}
