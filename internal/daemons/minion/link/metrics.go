package link

import (
	"brine/internal/base/metrics"
	"brine/internal/daemons/minion/status"
)

var connected = metrics.Family{Name: "brine_minion_master_connected",
	Help: "1 while the minion is connected to this master in this role: active, which commands it, or standby.", Labels: []string{"master", "role"}}

// Families returns the metrics of a Set.
func Families() []*metrics.Family { return []*metrics.Family{&connected} }

// Metrics reports to which masters the minion is connected, and in which role.
func (s *Set) Metrics(p *metrics.Page) {
	for _, c := range s.All() {
		p.Bool(&connected, c.Is(status.Connected), c.Addr.Text, "active")
		p.Bool(&connected, c.Is(status.Standby), c.Addr.Text, "standby")
	}
}
