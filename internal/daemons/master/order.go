package master

import (
	"cmp"

	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// order is a request to publish a job as this master reads it, with the keywords in
// its kwargs. Jobs are stored as such requests.
type order struct {
	wire.Publish
	kw wire.PublishKwargs
}

func readOrder(load *value.Dict) *order {
	o := &order{}
	wire.View(load, &o.Publish)
	if o.Kwargs != nil {
		wire.View(o.Kwargs, &o.kw)
	}
	return o
}

// targetType is the kind of the target: glob where none is named.
func (o *order) targetType() string { return cmp.Or(o.TgtType, "glob") }

// fun is the name of the function, "" for several.
func (o *order) fun() string {
	name, _ := o.Fun.(string)
	return name
}

// user is the name that the request gives, "" for none.
func (o *order) user() string {
	name, _ := o.User.(string)
	return name
}

// outcome is what publishing has come to.
type outcome struct {
	jid     string
	minions *value.List
	refused bool // with an error in place of a reply
	failed  bool // or with an error in the reply
}

// outcomeOfReply reads the reply of publisher.publish.
func outcomeOfReply(reply *value.Dict) outcome {
	var outer wire.ClearReply
	var in wire.Published
	wire.View(reply, &outer)
	wire.View(outer.Load, &in)
	jid, _ := in.JID.(string)
	return outcome{jid: jid, minions: in.Minions, refused: outer.Load == nil, failed: outer.Load == nil || in.Error != ""}
}
