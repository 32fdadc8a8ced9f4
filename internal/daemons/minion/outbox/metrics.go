package outbox

import "brine/internal/base/metrics"

var (
	messages = metrics.Family{Name: "brine_minion_outbox_messages", Help: "Returns and events that wait in memory for a master.", Labels: []string{"master"}}
	returns  = metrics.Family{Name: "brine_minion_outbox_returns", Help: "Returns on disk that some master has not had yet."}
	bytes    = metrics.Family{Name: "brine_minion_outbox_bytes", Help: "Size of these returns, in bytes."}
	broken   = metrics.Family{Name: "brine_minion_outbox_failing", Help: "1 while the last write to the journal of jobs and returns has failed."}
)

// Families returns the metrics of an Outbox.
func Families() []*metrics.Family { return []*metrics.Family{&messages, &returns, &bytes, &broken} }

// Metrics writes the numbers of queued messages. The names of masters come from the
// configuration, or from the signed list of a cluster.
func (o *Outbox) Metrics(p *metrics.Page) {
	for _, q := range o.all() {
		q.mu.Lock()
		n := len(q.queue) + len(q.kept)
		q.mu.Unlock()
		p.Count(&messages, int64(n), q.addr)
	}
	n, size, failing := o.journal.load()
	p.Count(&returns, int64(n))
	p.Count(&bytes, size)
	p.Bool(&broken, failing)
}

// load returns the number of returns in delivery, their bytes, and whether the last
// write has failed.
func (j *jobJournal) load() (n int, size int64, failing bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.parcels), j.live, j.failing || j.path != "" && j.file == nil
}
