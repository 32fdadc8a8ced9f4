package link

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"brine/internal/ha/roster"
	"brine/internal/net/wire"
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

// answered notes how long the master took for a sign of life, and reports whether
// its class has changed.
func (l *latency) answered(cfg *Config, took time.Duration, log *slog.Logger) bool {
	if cfg.Members == nil {
		return false
	}
	l.mu.Lock()
	changed := l.l.Add(took, time.Now(), cfg.Options.Bounds())
	class, _ := l.l.Class(time.Now())
	l.mu.Unlock()
	if changed {
		log.Info("how quickly the master answers", "class", class, "milliseconds", took.Seconds()*1000)
	}
	return changed
}

// getting reports whether it is still to be found out how quickly the master
// answers.
func (l *latency) getting(cfg *Config) bool {
	_, known := l.class(time.Now())
	return !known && cfg.Members != nil && len(cfg.Options.Latency) > 0
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
	var in wire.MembersAnswer
	wire.View(d, &in)
	news, err := s.Take(in.Members)
	if err != nil {
		s.Refuse(version)
		c.log.Warn("the list of masters that this one has is not used", "err", err)
		return
	}
	if !news {
		return
	}
	if err := s.Keep(in.Members); err != nil {
		c.log.Warn("the list of masters is not kept", "err", err)
	}
	c.cfg.Learned()
}
