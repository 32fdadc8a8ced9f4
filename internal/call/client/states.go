package client

import (
	"context"
	"time"

	"brine/internal/py/value"
)

// States of a job on a minion, as known to the master.
const (
	Sent      = "sent"      // published; a stock minion reports no more
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
	// Expires is how long the job is stored for unreachable minions.
	Expires time.Time
}

// States returns the states of a recent job, or nil if the master does not track them, as stock masters.
func (c *Client) States(ctx context.Context, jid string) (*States, error) {
	load := value.DictOf("cmd", "_brine_states", "jid", jid, "key", "", "user", "")
	reply, err := c.request(ctx, load, c.o.Timeout)
	if err != nil {
		return nil, err
	}
	d, _ := reply.(*value.Dict)
	if d.Has("error") {
		_, err := checkReply(d)
		return nil, err
	}
	if !d.Has("states") {
		return nil, nil
	}
	s := &States{Minions: map[string]string{}}
	for k, v := range d.Dict("states").All() {
		s.Minions[value.Str(k)] = value.Str(v)
	}
	s.Delivered = texts(d.List("delivered"))
	if at, ok := d.At("expires").(float64); ok {
		s.Expires = time.UnixMilli(int64(at * 1000))
	}
	return s, nil
}
