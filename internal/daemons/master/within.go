package master

import (
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/py/value"
)

// within commands minions and this master from inside: for the reactor, which
// the configuration has asked to, and for orchestrations, which were begun by
// somebody who may. All of it is on record.
type within struct {
	m *Master
	// user is whose name runners and wheel functions go by, how what they come
	// from: "reactor" or "orchestration".
	user, how string
}

func (w within) client() *client.Client {
	here := &client.InProcess{Publish: w.publish, OnMaster: w.onMaster, Events: w.m.bus, User: "root"}
	return client.New(w.m.cfg.Client, value.Str(w.m.cfg.Opts.At("conf_file")), here, here, w.m.log)
}

func (w within) publish(load *value.Dict) *value.Dict {
	reply := w.m.Publish(load)
	result := resultDone
	if reply.Has("error") || reply.Dict("load").Has("error") {
		result = resultFailed
	}
	w.record("publish", load, reply.Dict("load").Str("jid"), result)
	return reply
}

// onMaster runs a function of the master.
func (w within) onMaster(load *value.Dict) *value.Dict {
	fun := load.Str("fun")
	if load.Str("cmd") == "wheel" {
		r := (&wheels{w.m}).begin(fun, load, w.user)
		r.who, r.way = w.user, w.how
		w.record("wheel", load, r.jid, resultDone)
		return value.DictOf("tag", r.tag, "data", r.execute())
	}
	args, kwargs := runnerArgs(load)
	jid := salt.NewJID(time.Now())
	tag := salt.Tag("run", jid)
	w.record("runner", load, jid, resultDone)
	w.m.router.wg.Go(func() { (&runs{w.m}).run(tag, jid, fun, w.user, wire(args, kwargs), w.m.cfg.Opts) })
	return value.DictOf("tag", tag, "jid", jid)
}

func (w within) record(cmd string, load *value.Dict, jid, result string) {
	d := entry(w.user, w.how, load)
	d.Set("cmd", cmd)
	d.Set("result", result)
	if jid != "" {
		d.Set("jid", jid)
	}
	w.m.keep(d)
}
