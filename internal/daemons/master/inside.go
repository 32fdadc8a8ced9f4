package master

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/trace"
	"brine/internal/call/client"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// within publishes jobs and runs functions of this master for internal callers:
// the reactor, which the operator configured, and orchestrations, which an
// authorized user started. All its commands are recorded.
type within struct {
	*insideCalls
	// user is the name under which runners and wheel functions run; how is their
	// origin: "reactor", "orchestration", "runner" or "template".
	user, how string
}

// insideCalls is the shared part of all within.
type insideCalls struct {
	options    client.Options
	opts       *value.Dict
	publisher  *publisher
	runners    *runnerCalls
	wheels     *wheelCalls
	recorder   *recorder
	bus        *event.Bus
	background *sync.WaitGroup
	log        *slog.Logger
}

func (w within) client() *client.Client {
	here := &client.InProcess{Publish: w.publish, OnMaster: w.onMaster, Events: w.bus, User: "root"}
	return client.New(w.options, value.Str(w.opts.At("conf_file")), here, here, w.log)
}

func (w within) publish(load *value.Dict) *value.Dict {
	reply := w.publisher.publish(load)
	result, did := resultDone, outcomeOfReply(reply)
	if did.failed {
		result = resultFailed
	}
	w.record("publish", load, did.jid, result)
	return reply
}

// onMaster runs a wheel function, or starts a runner in the background.
func (w within) onMaster(load *value.Dict) *value.Dict {
	var in wire.Run
	wire.View(load, &in)
	fun := in.Fun
	if in.Cmd == "wheel" {
		tag, done := w.wheel(w.wheels.ctx(), fun, load)
		return value.DictOf("tag", tag, "data", done)
	}
	args, kwargs := runnerArgs(load)
	jid := salt.NewJID(time.Now())
	tag := salt.Tag("run", jid)
	w.record("runner", load, jid, resultDone)
	w.background.Go(func() {
		w.runners.run(trace.ParseLink(in.Trace), tag, jid, fun, w.user, positional(args, kwargs), w.opts)
	})
	return value.DictOf("tag", tag, "jid", jid)
}

// wheel runs a wheel function and returns the data of its final event.
func (w within) wheel(ctx context.Context, fun string, load *value.Dict) (tag string, done *value.Dict) {
	r := w.wheels.begin(fun, load, w.user)
	r.who, r.way = w.user, w.how
	w.record("wheel", load, r.jid, resultDone)
	return r.tag, r.execute(ctx)
}

func (w within) record(cmd string, load *value.Dict, jid, result string) {
	d := entry(w.user, w.how, load)
	d.Set("cmd", cmd)
	d.Set("result", result)
	if jid != "" {
		d.Set("jid", jid)
	}
	w.recorder.keep(d)
}
