package master

import (
	"brine/internal/base/ratelimit"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// runs executes runners for the command line.
type runs struct {
	access     *access
	recorder   *recorder
	calls      *runnerCalls
	works      *clusterJobs
	bus        *event.Bus
	background *sync.WaitGroup
	opts       *value.Dict

	rateLimitedLog *ratelimit.Log // about refused requests
}

// start takes {fun, kwarg: {arg, kwarg}, user, key} or credentials, answers at
// once with the tag under which the result will be on the event bus, and runs
// it.
func (r *runs) start(c *channel.Call) {
	who := r.access.sender(c)
	fun := c.Load.Str("fun")
	if who == nil { // before its arguments are copied
		r.refuse(c, nil, refusedOnMaster(c.Load, nil))
		return
	}
	args, kwargs := runnerArgs(c.Load)
	if f, err := r.calls.registry.Lookup(fun); err == nil && c.Load.Bool("lenient") {
		args, kwargs = f.Known(wire(args, kwargs))
	}
	if reply := mayRun(who, acl.Runner, fun, args, kwargs, c.Load); reply != nil {
		r.refuse(c, who, reply)
		return
	}
	jid := c.Load.Str("jid")
	if !salt.ValidJID(jid) {
		jid = salt.NewJID(time.Now())
	}
	tag := salt.Tag("run", jid)
	r.recorder.record(c, who, resultDone, jid)
	if value.Truth(c.Load.At("cluster")) {
		user, args := who.onMaster(), wire(args, kwargs)
		r.background.Go(func() { c.Reply(r.order(tag, jid, fun, user, args, value.Truth(c.Load.At("repeatable")))) })
		return
	}
	c.Reply(value.DictOf("tag", tag, "jid", jid))
	opts := r.opts
	if value.Truth(c.Load.At("skip_grains")) {
		opts = opts.Clone()
		opts.Set("skip_grains", true)
	}
	r.background.Go(func() { r.calls.run(tag, jid, fun, who.onMaster(), wire(args, kwargs), opts) })
}

func (r *runs) refuse(c *channel.Call, who *caller, reply *value.Dict) {
	r.rateLimitedLog.Log(slog.LevelWarn, "a runner was refused", "peer", c.Peer(), "fun", fmt.Sprintf("%.80s", c.Load.Str("fun")))
	r.recorder.record(c, who, refusal(who), "")
	c.Reply(reply)
}

// order has a runner run once in the whole cluster.
func (r *runs) order(tag, jid, fun, user string, args []any, repeatable bool) *value.Dict {
	r.bus.Fire(tag+"/new", value.DictOf("fun", "runner."+fun, "jid", jid, "user", user, "fun_args", &value.List{Items: plain(args)}))
	if err := r.works.order(jid, fun, user, args, repeatable); err != nil {
		return value.DictOf("error", value.DictOf("name", "SaltMasterError", "message", err.Error()))
	}
	return value.DictOf("tag", tag, "jid", jid)
}

// onMaster is the name under which functions of the master run.
func (c *caller) onMaster() string {
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
