package minion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"brine/internal/base/metrics"
	"brine/internal/base/trace"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/status"
	"brine/internal/net/event"
	"brine/internal/store/returner"
)

// Families returns the metrics of a minion.
func Families() []*metrics.Family {
	return slices.Concat(metrics.ProcessFamilies(), jobs.Families(), outbox.Families(), link.Families(), event.Families(), returner.Families(), trace.Families(),
		[]*metrics.Family{metrics.CertificateFamily()})
}

// Metrics implements metrics.Daemon.
func (m *Minion) Metrics(p *metrics.Page) {
	m.jobs.Metrics(p)
	m.outbox.Metrics(p)
	m.links.Metrics(p)
	event.Metrics(p, m.bus.Own(), m.busIPC)
	returner.Metrics(p, m.returners.Statuses())
	m.cfg.Tracer.Metrics(p)
	p.TLS("ssl", m.cfg.Dial.TLS)
}

// CheckLive implements metrics.Daemon. It asks what starts, plans and keeps jobs. Connections and
// the functions of jobs, which may wait for other machines, are no reason to restart.
func (m *Minion) CheckLive(context.Context) error {
	m.jobs.List("") // these block if the lock of the job table or of a link is never released
	for _, l := range m.links.All() {
		l.State()
	}
	if err := m.runner.CheckLive(); err != nil {
		return err
	}
	if err := m.schedule.CheckLive(); err != nil {
		return err
	}
	return m.outbox.CheckLive()
}

// CheckReady implements metrics.Daemon. A minion is ready while it is connected to an
// active master, or if its configuration names no master.
func (m *Minion) CheckReady(context.Context) error {
	if len(m.cfg.Options.Master) == 0 {
		return nil
	}
	var why []string
	for _, l := range m.links.All() {
		if l.Is(status.Connected) {
			return nil
		}
		s := l.State()
		if s.State == "" {
			s.State = "not tried yet"
		}
		why = append(why, fmt.Sprintf("%s: %s", s.Name, s.State))
	}
	return errors.New("the minion is connected to no master: " + strings.Join(why, "; "))
}
