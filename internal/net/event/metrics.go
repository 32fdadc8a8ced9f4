package event

import "brine/internal/base/metrics"

var (
	fired   = metrics.Family{Name: "brine_events_total", Kind: metrics.Counter, Help: "Events on the bus."}
	dropped = metrics.Family{Name: "brine_events_dropped_total", Kind: metrics.Counter,
		Help: "Events that a slow reader missed: a part of this daemon, or another program.", Labels: []string{"reader"}}
)

// Families returns the metrics of a bus.
func Families() []*metrics.Family { return []*metrics.Family{&fired, &dropped} }

// Metrics writes what a bus has carried. The server may be nil.
func Metrics(p *metrics.Page, b *Bus, s *Server) {
	p.Count(&fired, int64(b.fired.Load()))
	p.Count(&dropped, int64(b.dropped.Load()), "part")
	if s != nil {
		p.Count(&dropped, int64(s.backlog.allMissed()), "program")
	}
}
