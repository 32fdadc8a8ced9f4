package jobs

import (
	"brine/internal/base/metrics"
	"brine/internal/base/salt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

var (
	running  = metrics.Family{Name: "brine_minion_jobs_running", Help: "Jobs that run now."}
	finished = metrics.Family{Name: "brine_minion_jobs_total", Kind: metrics.Counter,
		Help: "Finished jobs, those of the schedule included.", Labels: []string{"success"}}
	stateRuns = metrics.Family{Name: "brine_minion_state_runs_total", Kind: metrics.Counter, Help: "Finished runs of states.", Labels: []string{"success"}}
)

// Families returns the metrics of a Table.
func Families() []*metrics.Family { return []*metrics.Family{&running, &finished, &stateRuns} }

// count counts a finished job.
func (t *Table) count(ret *value.Dict) {
	var in wire.Return
	wire.View(ret, &in)
	fun, _ := in.Fun.(string)
	all, states := &t.failed, &t.statesFailed
	if in.Succeeded() {
		all, states = &t.succeeded, &t.statesSucceeded
	}
	all.Add(1)
	if salt.RunsStates(fun) {
		states.Add(1)
	}
}

// Metrics writes the numbers of running and finished jobs.
func (t *Table) Metrics(p *metrics.Page) {
	t.mu.Lock()
	n := len(t.running)
	t.mu.Unlock()
	p.Count(&running, int64(n))
	p.Count(&finished, t.succeeded.Load(), "true")
	p.Count(&finished, t.failed.Load(), "false")
	p.Count(&stateRuns, t.statesSucceeded.Load(), "true")
	p.Count(&stateRuns, t.statesFailed.Load(), "false")
}
