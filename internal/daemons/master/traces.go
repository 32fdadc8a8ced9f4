package master

import (
	"strconv"
	"time"

	"brine/internal/base/trace"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// traces records the spans of a master.
type traces struct {
	id string // of this master
	to *trace.Tracer
}

// published records that this master has published a job.
func (t traces) published(o *order, minions int, began time.Time) {
	if jobControl[o.fun()] || !t.to.Wants(o.JID) {
		return
	}
	t.to.Add(trace.Span{JID: o.JID, Name: trace.Publish, Kind: trace.Producer, Start: began, End: time.Now(), Attributes: []string{
		"salt.function", value.Str(o.Fun), "salt.user", o.user(), "salt.master", t.id, "salt.minions", strconv.Itoa(minions)}})
}

// returned records that this master has stored a return, or why not.
func (t traces) returned(jid, minion string, ret *wire.Return, began time.Time, err error) {
	fun := value.Str(ret.Fun)
	if jobControl[fun] || !t.to.Wants(jid) {
		return
	}
	s := trace.Span{JID: jid, Name: trace.Return, Which: minion, Kind: trace.Consumer, Parent: trace.OfMinion(jid, minion), Start: began, End: time.Now(),
		Failed: err != nil, Attributes: []string{"salt.function", fun, "salt.minion", minion, "salt.master", t.id}}
	if err != nil {
		s.Attributes = append(s.Attributes, "error", err.Error())
	}
	t.to.Add(s)
}
