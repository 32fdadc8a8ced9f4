package client

import (
	"context"
	"time"

	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// States of a job on a minion, as known to the master.
const (
	Sent      = "sent"      // published; stock minions report no later state
	Queued    = "queued"    // stored for the minion, which has not reported it
	Delivered = "delivered" // sent to the minion when it reconnected
	Started   = "running"   // the minion has reported that it runs the job
	Returned  = "returned"
	Expired   = "expired" // the minion did not connect in time
)

// States are the states of a job on each minion, as known to the master.
type States struct {
	Minions map[string]string
	// Delivered are the minions that received the job later, when they reconnected.
	Delivered []string
	// Expires is the time until which the job is stored for unreachable minions.
	Expires time.Time
}

// States returns the states of a recent job, or nil if the master does not track them, as with
// stock masters.
func (c *Client) States(ctx context.Context, jid string) (*States, error) {
	load := wire.Encode(wire.JobStates{Cmd: "_brine_states", JID: jid, Key: "", User: ""})
	reply, err := c.request(ctx, load, c.o.Timeout)
	if err != nil {
		return nil, err
	}
	d, _ := reply.(*value.Dict)
	if d.Len() == 0 {
		return nil, nil
	}
	if _, err := checkReply(d); err != nil {
		return nil, err
	}
	var in wire.States
	if err := wire.Decode(d, &in); err != nil {
		return nil, unreadable(err)
	}
	if in.States == nil {
		return nil, nil
	}
	s := &States{Minions: map[string]string{}, Delivered: value.OnlyTexts(in.Delivered)}
	for k, v := range in.States.All() {
		s.Minions[value.Str(k)] = value.Str(v)
	}
	s.Expires, _ = unixTime(in.Expires)
	return s, nil
}
