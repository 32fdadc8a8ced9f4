package master

import (
	"cmp"

	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// order is a decoded publish request, with the keywords in its kwargs. Stored jobs have the
// same form.
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

// targetType returns the type of the target; default: glob.
func (o *order) targetType() string { return cmp.Or(o.TgtType, "glob") }

// fun returns the function name, "" for several functions.
func (o *order) fun() string {
	name, _ := o.Fun.(string)
	return name
}

// user returns the user name in the request, or "".
func (o *order) user() string {
	name, _ := o.User.(string)
	return name
}

// outcome is the result of publishing.
type outcome struct {
	jid     string
	minions *value.List
	refused bool // an error replaces the reply
	failed  bool // the reply contains an error
}

// outcomeOfReply converts the reply of publisher.publish.
func outcomeOfReply(reply *value.Dict) outcome {
	var outer wire.ClearReply
	var in wire.Published
	wire.View(reply, &outer)
	wire.View(outer.Load, &in)
	jid, _ := in.JID.(string)
	return outcome{jid: jid, minions: in.Minions, refused: outer.Load == nil, failed: outer.Load == nil || in.Error != ""}
}
