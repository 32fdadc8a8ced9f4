package witness

import (
	"context"
	"errors"

	"brine/internal/base/metrics"
)

var (
	masters = metrics.Family{Name: "brine_witness_masters_connected", Help: "Masters that are connected to this witness."}
	led     = metrics.Family{Name: "brine_witness_leader_known", Help: "1 while this witness knows which voter leads."}
	leading = metrics.Family{Name: "brine_witness_leads", Help: "1 while this witness leads the voters, as it does only without a master that can."}
	term    = metrics.Family{Name: "brine_witness_term", Help: "Term of the voters, which grows with each election."}
)

// Families returns the metrics of a witness.
func Families() []*metrics.Family {
	return append(metrics.ProcessFamilies(), &masters, &led, &leading, &term, metrics.CertificateFamily())
}

// connected returns the number of connected masters.
func (w *Server) connected() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.live)
}

// Metrics implements metrics.Daemon.
func (w *Server) Metrics(p *metrics.Page) {
	h := w.voter.Health()
	p.Count(&masters, int64(w.connected()))
	p.Bool(&led, h.Led)
	p.Bool(&leading, h.Leads)
	p.Count(&term, int64(h.Term))
	p.Certificate("witness:"+w.o.ID, w.identity.Expires())
}

// CheckLive implements metrics.Daemon.
func (w *Server) CheckLive(context.Context) error {
	w.connected() // blocks if the lock of the connections is never released
	return w.voter.CheckLive()
}

// CheckReady implements metrics.Daemon: a witness is ready if it can vote and a master is
// connected.
func (w *Server) CheckReady(context.Context) error {
	if h := w.voter.Health(); h.Problem != "" {
		return errors.New("the witness cannot vote: " + h.Problem)
	}
	if w.connected() == 0 {
		return errors.New("no master is connected to the witness")
	}
	return nil
}
