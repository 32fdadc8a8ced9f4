package link

import (
	"context"
	"sync"
	"time"

	"brine/internal/ha/roster"
	"brine/internal/py/value"
)

// latency is what is known of how quickly a master answers.
type latency struct {
	mu sync.Mutex
	l  roster.Latency
}

func (l *latency) class(now time.Time) (class int, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.l.Class(now)
}

// Class is how quickly the master answers, if that is known; 0 is the quickest.
func (c *Link) Class(now time.Time) (class int, known bool) { return c.latency.class(now) }

// answered notes how long the master took for a sign of life.
func (c *Link) answered(took time.Duration) {
	if c.cfg.Members == nil {
		return
	}
	c.latency.mu.Lock()
	changed := c.latency.l.Add(took, time.Now(), c.cfg.Options.Bounds())
	class, _ := c.latency.l.Class(time.Now())
	c.latency.mu.Unlock()
	if changed {
		c.log.Info("how quickly the master answers", "class", class, "milliseconds", took.Seconds()*1000)
		c.cfg.Learned()
	}
}

// getting reports whether it is still to be found out how quickly the master
// answers.
func (c *Link) getting() bool {
	_, known := c.latency.class(time.Now())
	return !known && c.cfg.Members != nil && len(c.cfg.Options.Latency) > 0
}

// Bounds are those of the option master_latency.
func (o *Options) Bounds() (out roster.Bounds) {
	for _, ms := range o.Latency {
		out = append(out, time.Duration(ms*float64(time.Millisecond)))
	}
	return out
}

// learn asks a master for the list if it has a newer one, and uses it.
func (c *Link) learn(ctx context.Context, version int64) {
	s := c.cfg.Members
	if s == nil || !s.Wants(version) {
		return
	}
	v, err := c.Client.Request(ctx, value.DictOf("cmd", "_brine_members", "id", c.cfg.ID))
	d, _ := v.(*value.Dict)
	if err != nil {
		c.log.Debug("the master does not tell which others there are", "err", err)
		return
	}
	signed := d.Bytes("members")
	news, err := s.Take(signed)
	if err != nil {
		s.Refuse(version)
		c.log.Warn("the list of masters that this one has is not used", "err", err)
		return
	}
	if !news {
		return
	}
	if err := s.Keep(signed); err != nil {
		c.log.Warn("the list of masters is not kept", "err", err)
	}
	c.cfg.Learned()
}
