package client

import (
	"context"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Runner is a runner function to run on the master.
type Runner struct {
	Fun    string
	Args   []any
	Kwargs *value.Dict // may be nil
	// JID is the job id to use, "" to let the master choose.
	JID string
	// SkipGrains hides the master's grains from the function.
	SkipGrains bool
	// Lenient makes the master drop keywords that the function does not declare.
	Lenient bool
	// Cluster runs it once in the whole cluster, on the master that holds the lease. If that master
	// dies, another one runs it again if it is Repeatable.
	Cluster, Repeatable bool
	// Prints requests events with what a function in Python prints: see RunnerEvent.
	Prints bool
}

// RunnerEvent is an event fired by a running runner.
type RunnerEvent struct {
	// Name is the end of the tag: usually "progress", or wire.EventPrint.
	Name string
	Data *value.Dict
}

// RunAsync starts a runner and does not wait for it.
func (c *Client) RunAsync(ctx context.Context, r Runner) (jid, tag string, err error) {
	kwargs := r.Kwargs
	if kwargs == nil {
		kwargs = value.NewDict(0)
	}
	load := wire.Encode(wire.Run{
		Cmd: "runner", Fun: r.Fun, Kwarg: wire.Encode(wire.Arguments{Arg: value.ListOf(r.Args...), Kwarg: kwargs}), JID: r.JID,
		SkipGrains: r.SkipGrains, Lenient: r.Lenient, Cluster: r.Cluster, Repeatable: r.Cluster && r.Repeatable,
		Prints: r.Prints,
	})
	c.sign(load)
	reply, err := c.request(ctx, load, c.o.Timeout)
	if err != nil {
		return "", "", err
	}
	d, err := checkReply(reply)
	if err != nil {
		return "", "", err
	}
	var in wire.Started
	if err := wire.Decode(d, &in); err != nil {
		return "", "", unreadable(err)
	}
	if !salt.ValidJID(in.JID) || in.Tag == "" {
		return "", "", salt.Errorf(salt.Internal, "the master answered with %.200s instead of a job id and tag", value.Repr(d))
	}
	return in.JID, in.Tag, nil
}

// sign adds the caller's credentials to a load for the master itself.
func (c *Client) sign(load *value.Dict) {
	if c.creds != nil {
		load.Update(c.creds)
		return
	}
	load.Set("key", "")
	load.Set("user", "")
}

// Run starts a runner and waits for its result: the data of its last event, {fun, jid, user,
// return, success, ...}. progress, if not nil, receives its other events. The errors are those of
// Results.
func (c *Client) Run(ctx context.Context, r Runner, started func(jid string), progress func(RunnerEvent)) (*value.Dict, error) {
	events, err := c.subscribe(ctx, salt.Tag("run")+"/")
	if err != nil {
		return nil, err
	}
	defer events.Close()
	jid, tag, err := c.RunAsync(ctx, r)
	if err != nil {
		return nil, err
	}
	if started != nil {
		started(jid)
	}
	for {
		e, err := events.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, &salt.Error{Kind: salt.Unavailable, Err: &Lost{err}}
		}
		name, ok := strings.CutPrefix(e.Tag, tag+"/")
		switch {
		case !ok || name == "new" || name == "args": // events of jobs started by an orchestration are not its progress
		case name == "ret":
			return e.Data, nil
		case progress != nil:
			progress(RunnerEvent{Name: name, Data: e.Data})
		}
	}
}
