package returner

import "brine/internal/base/metrics"

var (
	queued = metrics.Family{Name: "brine_returner_queued", Help: "Jobs and returns that wait for the server of a returner.", Labels: []string{"returner"}}
	up     = metrics.Family{Name: "brine_returner_up", Help: "1 while the last delivery to this server succeeded.", Labels: []string{"returner"}}
)

// Families returns the metrics of outboxes.
func Families() []*metrics.Family { return []*metrics.Family{&queued, &up} }

// Metrics writes the state of outboxes. Their names come from the configuration or from commands of
// operators.
func Metrics(p *metrics.Page, boxes []OutboxStatus) {
	for _, s := range boxes {
		p.Count(&queued, int64(s.Waiting), s.Name)
		p.Bool(&up, s.Unreachable == nil, s.Name)
	}
}
