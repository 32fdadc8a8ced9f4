package master

import (
	"context"
	"time"

	"brine/internal/channel"
	"brine/internal/fn"
	"brine/internal/runners"
	"brine/internal/salt"
	"brine/internal/value"
)

// runs executes runners for the command line.
type runs struct{ m *Master }

// start takes {fun, kwarg: {arg, kwarg}, user, key}, answers at once with the
// tag under which the result will be on the event bus, and runs it.
func (r *runs) start(c *channel.Call) {
	if !r.m.authorize(c.Load) {
		c.Reply(refused(c.Load))
		return
	}
	jid := c.Load.Str("jid")
	if !salt.ValidJID(jid) {
		jid = salt.NewJID(time.Now())
	}
	tag := salt.Tag("run", jid)
	c.Reply(value.DictOf("tag", tag, "jid", jid))
	args := runnerArgs(c.Load)
	fun, user := c.Load.Str("fun"), c.Load.Str("user")
	opts := r.m.cfg.Opts
	if value.Truth(c.Load.At("skip_grains")) {
		opts = opts.Clone()
		opts.Set("skip_grains", true)
	}
	r.m.router.wg.Go(func() { r.run(tag, jid, fun, user, args, opts) })
}

func runnerArgs(load *value.Dict) []any {
	in := load.Dict("kwarg")
	if in == nil {
		in = load
	}
	args := append([]any(nil), in.List("arg")...)
	kw := value.NewDict(4)
	for _, a := range []string{"kwarg", "kwargs"} {
		kw.Update(in.Dict(a))
	}
	if kw.Len() > 0 {
		kw.Set("__kwarg__", true)
		args = append(args, kw)
	}
	return args
}

func (r *runs) run(tag, jid, fun, user string, args []any, opts *value.Dict) fn.Outcome {
	m := r.m
	about := value.DictOf("fun", "runner."+fun, "jid", jid, "user", user, "fun_args", &value.List{Items: args})
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
	m.bus.Fire(tag+"/ret", done)
	return o
}

func (m *Master) runRunner(ctx context.Context, tag, jid, fun string, args []any, opts *value.Dict) fn.Outcome {
	c := &fn.Call{ID: m.cfg.ID, JID: jid, Log: m.log, Config: fn.Tree{Dict: opts}}
	c.Progress = func(part any) {
		m.bus.Fire(tag+"/progress", value.DictOf("data", part, "outputter", "pprint"))
	}
	return runners.Run(ctx, m.runners, c, fn.Job{Fun: fun, Arg: args})
}

// JobReturns returns what is stored of a job, by minion.
func (m *Master) JobReturns(jid string) (map[string]*value.Dict, error) { return m.jobs.Returns(jid) }
