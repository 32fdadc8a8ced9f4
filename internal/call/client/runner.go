package client

import (
	"context"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// Runner is a function for the master itself to run.
type Runner struct {
	Fun    string
	Args   []any
	Kwargs *value.Dict // may be nil
	// JID is the job id to use, "" for one that the master chooses.
	JID string
	// SkipGrains has functions that look at the master's grains see none.
	SkipGrains bool
	// Lenient has the master drop keywords that the function does not declare.
	Lenient bool
	// Cluster has it run once in the whole cluster, by the master that has the
	// lease. If that dies meanwhile another runs it again if it is Repeatable.
	Cluster, Repeatable bool
}

// RunnerEvent is something that a runner tells while it works.
type RunnerEvent struct {
	// Name is the end of the tag, "progress" mostly.
	Name string
	Data *value.Dict
}

// RunAsync starts a runner and does not wait for it.
func (c *Client) RunAsync(ctx context.Context, r Runner) (jid, tag string, err error) {
	kwargs := r.Kwargs
	if kwargs == nil {
		kwargs = value.NewDict(0)
	}
	load := value.DictOf("cmd", "runner", "fun", r.Fun,
		"kwarg", value.DictOf("arg", value.ListOf(r.Args...), "kwarg", kwargs))
	if r.JID != "" {
		load.Set("jid", r.JID)
	}
	if r.SkipGrains {
		load.Set("skip_grains", true)
	}
	if r.Lenient {
		load.Set("lenient", true)
	}
	if r.Cluster {
		load.Set("cluster", true)
		load.Set("repeatable", r.Repeatable)
	}
	c.sign(load)
	reply, err := c.request(ctx, load, c.o.Timeout)
	if err != nil {
		return "", "", err
	}
	d, err := checkReply(reply)
	if err != nil {
		return "", "", err
	}
	jid, tag = d.Str("jid"), d.Str("tag")
	if !salt.ValidJID(jid) || tag == "" {
		return "", "", salt.Errorf(salt.Internal, "the master answered with %.200s in place of a job id and tag", value.Repr(d))
	}
	return jid, tag, nil
}

// sign puts into a load for the master itself who asks.
func (c *Client) sign(load *value.Dict) {
	if c.creds != nil {
		load.Update(c.creds)
		return
	}
	load.Set("key", "")
	load.Set("user", "")
}

// Run starts a runner and waits for what it returns: the data of its last
// event, {fun, jid, user, return, success, ...}. progress, if not nil, is told
// of the other events. The errors are those of Results.
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
		case !ok || name == "new" || name == "args": // what an orchestration orders is for others to see
		case name == "ret":
			return e.Data, nil
		case progress != nil:
			progress(RunnerEvent{Name: name, Data: e.Data})
		}
	}
}
