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

// latency is the measured response time of a master.
type latency struct {
	mu sync.Mutex
	l  roster.Latency
}

func (l *latency) class(now time.Time) (class int, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.l.Class(now)
}

// Class returns the class of the response time, if known; 0 is the fastest.
func (c *Link) Class(now time.Time) (class int, known bool) { return c.latency.class(now) }

// answered records the response time of a request, and reports whether the class of the
// master changed.
func (l *latency) answered(cfg *Config, took time.Duration, log *slog.Logger) bool {
	if cfg.Members == nil {
		return false
	}
	l.mu.Lock()
	changed := l.l.Add(took, time.Now(), cfg.Options.Bounds())
	class, _ := l.l.Class(time.Now())
	l.mu.Unlock()
	if changed {
		log.Info("measured the response time of the master", "class", class, "milliseconds", took.Seconds()*1000)
	}
	return changed
}

// getting reports whether the class is not known yet and is needed.
func (l *latency) getting(cfg *Config) bool {
	_, known := l.class(time.Now())
	return !known && cfg.Members != nil && len(cfg.Options.Latency) > 0
}

// learn requests the list of masters if version is newer than the known list, and stores
// it.
func (c *Link) learn(ctx context.Context, version int64) {
	s := c.cfg.Members
	if s == nil || !s.Wants(version) {
		return
	}
	v, err := c.Client.Request(ctx, value.DictOf("cmd", "_brine_members", "id", c.cfg.ID))
	d, _ := v.(*value.Dict)
	if err != nil {
		c.log.Debug("the master sent no list of cluster masters", "err", err)
		return
	}
	var in wire.MembersAnswer
	wire.View(d, &in)
	news, err := s.Take(in.Members)
	if err != nil {
		s.Refuse(version)
		c.log.Warn("rejected the master's list of cluster masters", "err", err)
		return
	}
	if !news {
		return
	}
	if err := s.Keep(in.Members); err != nil {
		c.log.Warn("cannot save the list of cluster masters", "err", err)
	}
	c.cfg.Learned()
}
