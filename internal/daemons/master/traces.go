package master

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"brine/internal/base/trace"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// traces records the spans of a master. A job that a run or a master above has started has a link in
// its kwargs: it is part of their trace.
type traces struct {
	id string // of this master
	to *trace.Tracer
}

// admit removes the link from a request, unless a syndic has sent it: others could make their jobs
// part of any trace. A job of a syndic without one is part of the trace of the master above.
func (t traces) admit(load *value.Dict, o *order, fromSyndic bool) {
	if !fromSyndic && o.kw.Trace == "" {
		return
	}
	kwargs := o.Kwargs.Clone()
	if fromSyndic {
		t.below(kwargs, o.Kwargs, o.JID)
	} else {
		kwargs.Delete(wire.TraceKey)
	}
	o.Kwargs = kwargs
	load.Set("kwargs", kwargs)
}

// below sets the link of a job of a master above in kwargs: the one that came with it, or its
// publication there.
func (t traces) below(kwargs, above *value.Dict, jid string) {
	var in wire.PublishKwargs
	wire.View(above, &in)
	link := trace.ParseLink(in.Trace)
	if link.Root == "" {
		link = trace.Link{Root: jid, Parent: trace.OfPublish(jid)}
	}
	kwargs.Set(wire.TraceKey, link.String())
}

// place returns the link of a job, and replaces it in the load by the one of its minions and of
// masters below.
func (t traces) place(load *value.Dict, o *order) trace.Link {
	var in wire.PublishKwargs
	if o.Kwargs != nil {
		wire.View(o.Kwargs, &in)
	}
	if in.Trace == "" {
		return trace.Link{}
	}
	link, kwargs := trace.ParseLink(in.Trace), o.Kwargs.Clone()
	if jobControl[o.fun()] || !t.to.Wants(link.Root) {
		link = trace.Link{}
		kwargs.Delete(wire.TraceKey)
	} else {
		kwargs.Set(wire.TraceKey, trace.Link{Root: link.Root, Parent: trace.OfPublishBy(o.JID, t.id)}.String())
	}
	o.Kwargs = kwargs
	load.Set("kwargs", kwargs)
	return link
}

// published records that this master has published a job.
func (t traces) published(o *order, link trace.Link, minions int, began time.Time) {
	if jobControl[o.fun()] || !t.to.Wants(cmp.Or(link.Root, o.JID)) {
		return
	}
	s := trace.Span{JID: o.JID, Trace: link.Root, Name: trace.Publish, Kind: trace.Producer, Parent: link.Parent, Start: began, End: time.Now(),
		Attributes: []string{"salt.function", value.Str(o.Fun), "salt.user", o.user(), "salt.master", t.id, "salt.minions", strconv.Itoa(minions)}}
	if link.Root != "" {
		s.Which = t.id // the trace may have the publications of several masters
	}
	t.to.Add(s)
}

// ofJob returns the link of a stored job. Without traces it reads nothing.
func (t traces) ofJob(jid string, jobs jobStore) trace.Link {
	if t.to == nil {
		return trace.Link{}
	}
	load, err := jobs.Load(jid)
	if load == nil || err != nil {
		return trace.Link{}
	}
	return trace.ParseLink(readOrder(load).kw.Trace)
}

// returned records that this master has stored a return, or why not.
func (t traces) returned(jid, minion string, link trace.Link, ret *wire.Return, began time.Time, err error) {
	fun := value.Str(ret.Fun)
	if jobControl[fun] || !t.to.Wants(cmp.Or(link.Root, jid)) {
		return
	}
	s := trace.Span{JID: jid, Trace: link.Root, Name: trace.Return, Which: minion + "\x00" + t.id, Kind: trace.Consumer, Parent: trace.OfMinion(jid, minion),
		Start: began, End: time.Now(), Failed: err != nil, Attributes: []string{"salt.function", fun, "salt.minion", minion, "salt.master", t.id}}
	if err != nil {
		s.Attributes = append(s.Attributes, "error", err.Error())
	}
	t.to.Add(s)
}

// run begins the span of a runner. The jobs and runs that it starts in the context are part of its
// trace. ended records its end.
func (t traces) run(ctx context.Context, jid, fun, user string) (inner context.Context, ended func(success bool)) {
	link := trace.From(ctx)
	root := cmp.Or(link.Root, jid)
	if !t.to.Wants(root) {
		return trace.With(ctx, trace.Link{}), func(bool) {}
	}
	began := time.Now()
	return trace.With(ctx, trace.Link{Root: root, Parent: trace.OfRun(jid)}), func(success bool) {
		t.to.Add(trace.Span{JID: jid, Trace: root, Name: trace.Run, Kind: trace.Internal, Parent: link.Parent, Start: began, End: time.Now(), Failed: !success,
			Attributes: []string{"salt.function", fun, "salt.user", user, "salt.master", t.id}})
	}
}
