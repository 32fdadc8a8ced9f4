package master

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"brine/internal/base/ratelimit"

	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/call/fn"
	"brine/internal/catalogue/wheel"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// wheels answers requests for wheel functions.
type wheels struct {
	access   *access
	recorder *recorder
	calls    *wheelCalls

	rateLimitedLog *ratelimit.Log // limits log messages about refused requests
}

// wheelCalls runs wheel functions and fires their events.
type wheelCalls struct {
	id       string // id of this master
	ctx      func() context.Context
	settings *settings
	registry *fn.Registry
	keys     keyBook
	bus      *event.Bus
	log      *slog.Logger
}

// clientWords are the keywords that Salt's clients add to the arguments of a
// wheel function. A function that does not declare them does not get them.
var clientWords = map[string]bool{
	"client": true, "cmd": true, "eauth": true, "fun": true, "kwarg": true, "match": true, "token": true, "__jid__": true, "__tag__": true,
	"__user__": true, "username": true, "password": true, "full_return": true, "print_event": true,
	"user": true, "key": true, "timeout": true, "jid": true, "__current_eauth": true,
}

// wheelFields are the request fields that are never arguments, whatever the
// function declares.
var wheelFields = map[string]bool{
	"cmd": true, "fun": true, "arg": true, "kwarg": true, "kwargs": true, "token": true, "eauth": true, "username": true, "password": true,
}

// declares reports whether a function has a parameter of a name. f may be nil.
func declares(f *fn.Func) func(name string) bool {
	return func(name string) bool {
		if f == nil {
			return false
		}
		_, ok := f.Param(name)
		return ok
	}
}

// wheelArgs returns the arguments of a request: its fields arg and kwarg, and
// all others that do not describe the request itself. declares says which of
// clientWords the function takes.
func wheelArgs(load *value.Dict, declares func(name string) bool) (args []any, kwargs *value.Dict) {
	kwargs = value.NewDict(4)
	for k, v := range load.All() {
		name, ok := k.(string)
		if !ok || wheelFields[name] || (name == "key" || name == "user") && howOf(load) == byKey {
			continue // byKey uses these two for authentication
		}
		kwargs.Set(name, v)
	}
	var in wire.Arguments
	wire.View(load, &in)
	args, kw := splitKwargs(value.Items(in.Arg))
	kwargs.Update(kw)
	kwargs.Update(in.Kwarg)
	fn.Unmark(kwargs)
	for name := range clientWords {
		if !declares(name) {
			kwargs.Delete(name)
		}
	}
	return args, kwargs
}

// wheelRun is a wheel function about to run.
type wheelRun struct {
	calls    *wheelCalls
	fun      string
	args     []any
	kwargs   *value.Dict
	jid, tag string
	data     *value.Dict
	// who made the request; way is how, if not by an ordinary request.
	who, way string
}

// take authenticates and authorizes a request, and answers a refused one.
func (w *wheels) take(c *channel.Call) (*wheelRun, bool) {
	who := w.access.sender(c)
	if who == nil { // refuse before copying the arguments
		w.refuse(c, nil, refusedOnMaster(c.Load, nil))
		return nil, false
	}
	fun := readOrder(c.Load).fun()
	if _, own := w.calls.registry.Own(fun); !own {
		// Looking up a function in Python loads its module, which must not happen for users who
		// may not call it. Its parameters are not known yet; the final arguments are checked
		// below.
		args, kwargs := wheelArgs(c.Load, func(string) bool { return true })
		if reply := mayRun(who, acl.Wheel, fun, args, kwargs, c.Load); reply != nil {
			w.refuse(c, who, reply)
			return nil, false
		}
	}
	r := w.calls.begin(fun, c.Load, "")
	if reply := mayRun(who, acl.Wheel, r.fun, r.args, r.kwargs, c.Load); reply != nil {
		w.refuse(c, who, reply)
		return nil, false
	}
	w.recorder.record(c, who, resultDone, r.jid)
	r.data.Set("user", who.onMaster())
	r.who = who.name
	if who.how != byKey {
		r.way = who.how
	}
	return r, true
}

func (w *wheels) refuse(c *channel.Call, who *caller, reply *value.Dict) {
	w.rateLimitedLog.Log(slog.LevelWarn, "refused wheel function", "peer", c.Peer(), "fun", fmt.Sprintf("%.80s", readOrder(c.Load).fun()))
	w.recorder.record(c, who, refusal(who), "")
	c.Reply(reply)
}

// begin prepares the run for an authorized caller.
func (w *wheelCalls) begin(fun string, load *value.Dict, user string) *wheelRun {
	r := &wheelRun{calls: w, fun: fun, jid: salt.NewJID(time.Now())}
	f, _ := w.registry.Lookup(fun) // without f, r reports that there is no such function
	r.args, r.kwargs = wheelArgs(load, declares(f))
	r.tag = salt.Tag("wheel", r.jid)
	r.data = value.DictOf("fun", "wheel."+r.fun, "jid", r.jid, "tag", r.tag, "user", user)
	return r
}

// execute runs the function between its two events and returns the data of the
// last one.
func (r *wheelRun) execute(ctx context.Context) *value.Dict {
	w := r.calls
	w.bus.Fire(r.tag+"/new", r.data)
	c := &fn.Call{ID: w.id, JID: r.jid, Log: w.log, Config: fn.Tree{Dict: w.settings.current().opts}}
	how := "wheel " + r.fun
	if r.way != "" {
		how += " (" + r.way + ")"
	}
	ret, ok := wheel.Run(wheel.As(wheel.With(ctx, w.keys.as(r.who, how)), r.who), w.registry, c, r.fun, r.args, r.kwargs)
	done := r.data.Clone()
	done.Set("_stamp", event.Stamp(time.Now()))
	done.Set("return", ret)
	done.Set("success", ok)
	told := done.Clone()
	told.Delete("_stamp") // the bus adds its own
	w.bus.Fire(r.tag+"/ret", told)
	return done
}

// run answers with {tag, data} when the function has ended.
func (w *wheels) run(c *channel.Call) {
	if r, ok := w.take(c); ok {
		c.Reply(value.DictOf("tag", r.tag, "data", r.execute(w.calls.ctx())))
	}
}

// start answers with {tag, jid} at once. Salt's API does so before it checks
// the permission.
func (w *wheels) start(c *channel.Call) {
	if r, ok := w.take(c); ok {
		c.Reply(value.DictOf("tag", r.tag, "jid", r.jid))
		r.execute(w.calls.ctx())
	}
}
