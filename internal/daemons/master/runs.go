package master

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/net/channel"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// runs executes runners for the command line.
type runs struct{ m *Master }

// start takes {fun, kwarg: {arg, kwarg}, user, key} or credentials, answers at
// once with the tag under which the result will be on the event bus, and runs
// it.
func (r *runs) start(c *channel.Call) {
	who := r.m.sender(c)
	fun := c.Load.Str("fun")
	args, kwargs := runnerArgs(c.Load)
	if f, err := r.m.runners.Lookup(fun); err == nil && c.Load.Bool("lenient") {
		args, kwargs = f.Known(wire(args, kwargs))
	}
	if reply := r.m.mayRun(who, acl.Runner, fun, args, kwargs, c.Load); reply != nil {
		r.m.gripes.Log(slog.LevelWarn, "a runner was refused", "peer", c.Peer(), "fun", fmt.Sprintf("%.80s", fun))
		r.m.record(c, who, refusal(who), "")
		c.Reply(reply)
		return
	}
	jid := c.Load.Str("jid")
	if !salt.ValidJID(jid) {
		jid = salt.NewJID(time.Now())
	}
	tag := salt.Tag("run", jid)
	r.m.record(c, who, resultDone, jid)
	if value.Truth(c.Load.At("cluster")) {
		user, args := who.onMaster(r.m), wire(args, kwargs)
		r.m.router.wg.Go(func() { c.Reply(r.order(tag, jid, fun, user, args, value.Truth(c.Load.At("repeatable")))) })
		return
	}
	c.Reply(value.DictOf("tag", tag, "jid", jid))
	opts := r.m.cfg.Opts
	if value.Truth(c.Load.At("skip_grains")) {
		opts = opts.Clone()
		opts.Set("skip_grains", true)
	}
	r.m.router.wg.Go(func() { r.run(tag, jid, fun, who.onMaster(r.m), wire(args, kwargs), opts) })
}

// order has a runner run once in the whole cluster.
func (r *runs) order(tag, jid, fun, user string, args []any, repeatable bool) *value.Dict {
	r.m.bus.Fire(tag+"/new", value.DictOf("fun", "runner."+fun, "jid", jid, "user", user, "fun_args", &value.List{Items: plain(args)}))
	if err := r.m.works.order(jid, fun, user, args, repeatable); err != nil {
		return value.DictOf("error", value.DictOf("name", "SaltMasterError", "message", err.Error()))
	}
	return value.DictOf("tag", tag, "jid", jid)
}

// onMaster is the name under which functions of the master run.
func (c *caller) onMaster(m *Master) string {
	if c.how == byKey && strings.HasPrefix(c.name, "sudo_") {
		return processUser()
	}
	return c.name
}

// runnerArgs are the arguments of a runner, in the field kwarg or in the
// request itself. A field kwarg without arg and kwarg in it holds keywords.
func runnerArgs(load *value.Dict) (args []any, kwargs *value.Dict) {
	if in := load.Dict("kwarg"); in != nil {
		if !in.Has("arg") && !in.Has("kwarg") && !in.Has("kwargs") && !load.Has("arg") {
			kwargs = in.Clone()
			for k := range in.All() {
				if name, ok := k.(string); ok && clientWords[name] {
					kwargs.Delete(k)
				}
			}
			return nil, kwargs
		}
		load = in
	}
	args, kwargs = splitKwargs(load.List("arg"))
	kwargs.Update(load.Dict("kwarg"))
	kwargs.Update(load.Dict("kwargs"))
	kwargs.Delete("__kwarg__")
	return args, kwargs
}

// splitKwargs takes the maps of keywords out of arguments.
func splitKwargs(given []any) (args []any, kwargs *value.Dict) {
	kwargs = value.NewDict(4)
	for _, a := range given {
		if d, ok := a.(*value.Dict); ok && d.At("__kwarg__") == true {
			kwargs.Update(d)
			continue
		}
		args = append(args, a)
	}
	kwargs.Delete("__kwarg__")
	return args, kwargs
}

// wire puts keywords behind the arguments, as jobs have them.
func wire(args []any, kwargs *value.Dict) []any {
	if kwargs.Len() == 0 {
		return args
	}
	kw := kwargs.Clone()
	kw.Set("__kwarg__", true)
	return append(args, kw)
}

// secretRunner reports whether a runner gets or returns passwords or tokens. Its
// arguments are not shown to others, and its return is not kept.
func secretRunner(fun string) bool { return strings.HasPrefix(fun, "auth.") }

// shownArgs are the arguments of a runner for events and the job cache.
func shownArgs(fun string, args []any) []any {
	if secretRunner(fun) {
		return []any{}
	}
	return plain(args)
}

// plain are arguments as events tell them: keywords are a map without the sign
// that they are some.
func plain(args []any) []any {
	out := slices.Clone(args)
	for i, a := range out {
		if d, ok := a.(*value.Dict); ok && d.At("__kwarg__") == true {
			d = d.Clone()
			d.Delete("__kwarg__")
			out[i] = d
		}
	}
	return out
}

func (r *runs) run(tag, jid, fun, user string, args []any, opts *value.Dict) fn.Outcome {
	m := r.m
	about := value.DictOf("fun", "runner."+fun, "jid", jid, "user", user, "fun_args", &value.List{Items: shownArgs(fun, args)})
	m.bus.Fire(tag+"/new", about)
	end := m.running.begin(about.Clone())
	o := m.runRunner(m.run, tag, jid, fun, args, opts)
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
	m.keepRun(done)
	m.bus.Fire(tag+"/ret", done)
	return o
}

// keepRun stores what a runner returned, as that of a job whose only minion is
// the master itself, which is how Salt's runners stand in its job cache. What
// is read from the job cache does not go into it once more: whoever lists the
// jobs time and again would fill the disk.
func (m *Master) keepRun(done *value.Dict) {
	if o := m.cfg.Jobs; !o.JobCache || !o.RunnerReturns {
		return
	}
	jid, fun := done.Str("jid"), done.Str("fun")
	load := value.DictOf("id", m.cfg.ID, "tgt", m.cfg.ID, "jid", jid, "fun", fun, "user", done.At("user"))
	run := &job.Whole{Job: job.Job{JID: jid, Load: load}}
	m.sendLoad(load, jid, nil)
	if !strings.HasPrefix(fun, "runner.jobs.") && !secretRunner(strings.TrimPrefix(fun, "runner.")) {
		run.Returns = map[string]*value.Dict{m.cfg.ID: value.DictOf("return", done)}
		ret := load.Clone()
		ret.Set("return", done)
		m.sendReturn(ret)
	}
	if err := m.jobs.Put(run); err != nil {
		m.gripes.Log(slog.LevelError, "cannot keep what a runner returned", "jid", jid, "fun", fun, "err", err)
	}
}

func (m *Master) runRunner(ctx context.Context, tag, jid, fun string, args []any, opts *value.Dict) fn.Outcome {
	c := &fn.Call{ID: m.cfg.ID, JID: jid, Log: m.log, Config: fn.Tree{Dict: opts}}
	c.Progress = func(part any) {
		d, ok := part.(*value.Dict)
		if !ok {
			d = value.DictOf("data", part)
		}
		m.bus.Fire(tag+"/progress", d)
	}
	return runners.Run(ctx, m.runners, c, fn.Job{Fun: fun, Arg: args})
}

// Job returns the stored load of a job, nil if it is not known.
func (m *Master) Job(jid string) (*value.Dict, error) { return m.history().Load(jid) }

// JobReturns returns what is stored of a job, by minion.
func (m *Master) JobReturns(jid string) (map[string]*value.Dict, error) {
	return m.history().Returns(jid)
}
