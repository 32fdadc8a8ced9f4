package master

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/ratelimit"

	"brine/internal/base/salt"
	"brine/internal/base/trace"
	"brine/internal/call/acl"
	"brine/internal/call/fn"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
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

	rateLimitedLog *ratelimit.Log // limits log messages about refused requests
}

// start handles {fun, kwarg: {arg, kwarg}, user, key} or credentials. It
// answers at once with the event tag of the result, and runs the runner.
func (r *runs) start(c *channel.Call) {
	who := r.access.sender(c)
	var in wire.Run
	wire.View(c.Load, &in)
	fun := in.Fun
	if who == nil { // refuse before copying the arguments
		r.refuse(c, nil, refusedOnMaster(c.Load, nil))
		return
	}
	args, kwargs := runnerArgs(c.Load)
	if f, err := r.calls.registry.Lookup(fun); err == nil && in.Lenient {
		args, kwargs = f.Known(positional(args, kwargs))
	}
	if reply := mayRun(who, acl.Runner, fun, args, kwargs, c.Load); reply != nil {
		r.refuse(c, who, reply)
		return
	}
	jid := in.JID
	if !salt.ValidJID(jid) {
		jid = salt.NewJID(time.Now())
	}
	tag := salt.Tag("run", jid)
	r.recorder.record(c, who, resultDone, jid)
	if in.Cluster {
		user, args := who.onMaster(), positional(args, kwargs)
		r.background.Go(func() { c.Reply(r.order(tag, jid, fun, user, args, in.Repeatable)) })
		return
	}
	c.Reply(value.DictOf("tag", tag, "jid", jid))
	opts := r.opts
	if in.SkipGrains {
		opts = opts.Clone()
		opts.Set("skip_grains", true)
	}
	calls := r.calls
	if in.Prints {
		calls = calls.printing()
	}
	r.background.Go(func() { calls.run(trace.Link{}, tag, jid, fun, who.onMaster(), positional(args, kwargs), opts) })
}

func (r *runs) refuse(c *channel.Call, who *caller, reply *value.Dict) {
	r.rateLimitedLog.Log(slog.LevelWarn, "refused runner function", "peer", c.Peer(), "fun", fmt.Sprintf("%.80s", readOrder(c.Load).fun()))
	r.recorder.record(c, who, refusal(who), "")
	c.Reply(reply)
}

// order makes a runner run once in the whole cluster.
func (r *runs) order(tag, jid, fun, user string, args []any, repeatable bool) *value.Dict {
	r.bus.Fire(tag+"/new", value.DictOf("fun", "runner."+fun, "jid", jid, "user", user, "fun_args", &value.List{Items: plain(args)}))
	if err := r.works.order(jid, fun, user, args, repeatable); err != nil {
		return value.DictOf("error", value.DictOf("name", "SaltMasterError", "message", err.Error()))
	}
	return value.DictOf("tag", tag, "jid", jid)
}

// onMaster returns the user name under which runners and wheel functions run. For a sudo user
// with the local key it is the account of the master process.
func (c *caller) onMaster() string {
	if c.how == byKey && strings.HasPrefix(c.name, "sudo_") {
		return processUser()
	}
	return c.name
}

// runnerArgs returns the arguments of a runner, from the field kwarg or the
// request itself. A field kwarg without arg and kwarg contains keywords.
func runnerArgs(load *value.Dict) (args []any, kwargs *value.Dict) {
	var in wire.Arguments
	wire.View(load, &in)
	if inner := in.Kwarg; inner != nil {
		var nested wire.Arguments
		wire.View(inner, &nested)
		if !inner.Has("arg") && !inner.Has("kwarg") && !inner.Has("kwargs") && !load.Has("arg") {
			kwargs = inner.Clone()
			for k := range inner.All() {
				if name, ok := k.(string); ok && clientWords[name] {
					kwargs.Delete(k)
				}
			}
			return nil, kwargs
		}
		in = nested
	}
	args, kwargs = splitKwargs(value.Items(in.Arg))
	kwargs.Update(in.Kwarg)
	kwargs.Update(in.Kwargs)
	fn.Unmark(kwargs)
	return args, kwargs
}

// splitKwargs removes the maps of keywords from arguments.
func splitKwargs(given []any) (args []any, kwargs *value.Dict) {
	kwargs = value.NewDict(4)
	for _, a := range given {
		if d := fn.Keywords(a); d != nil {
			kwargs.Update(d)
			continue
		}
		args = append(args, a)
	}
	fn.Unmark(kwargs)
	return args, kwargs
}

// positional appends keywords to the arguments, as in jobs.
func positional(args []any, kwargs *value.Dict) []any {
	if kwargs.Len() == 0 {
		return args
	}
	kw := kwargs.Clone()
	fn.Mark(kw)
	return append(args, kw)
}

// secretRunner reports whether a runner takes or returns passwords or tokens.
// Its arguments are hidden, and its return is not stored.
func secretRunner(fun string) bool { return strings.HasPrefix(fun, "auth.") }

// shownArgs returns the arguments of a runner for events and the job cache.
func shownArgs(fun string, args []any) []any {
	if secretRunner(fun) {
		return []any{}
	}
	return plain(args)
}

// plain returns arguments as events show them: a map of keywords loses its
// marker.
func plain(args []any) []any {
	out := slices.Clone(args)
	for i, a := range out {
		if d := fn.Keywords(a); d != nil {
			d = d.Clone()
			fn.Unmark(d)
			out[i] = d
		}
	}
	return out
}
