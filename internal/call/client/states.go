package client

import (
	"context"
	"time"

	"brine/internal/py/value"
)

// What a master knows of a job on a minion.
const (
	Sent      = "sent"      // published; the minion is not one of Brine's and says no more
	Queued    = "queued"    // kept for the minion, which has given no sign of it
	Delivered = "delivered" // handed to the minion when it came back
	Started   = "running"   // the minion has said that it runs it
	Returned  = "returned"
	Expired   = "expired" // the time was over before the minion came
)

// States are what a master knows of a job on each minion.
type States struct {
	Minions map[string]string
	// Delivered are the minions that got the job later, when they came back.
	Delivered []string
	// Expires is until when the job is kept for minions that are away.
	Expires time.Time
}

// States asks what became of a job that was published lately. A master that
// does not know, as Salt's, gives nil.
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
