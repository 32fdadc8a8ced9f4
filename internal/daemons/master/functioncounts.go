package master

import (
	"strings"
	"sync"
	"sync/atomic"

	"brine/internal/base/metrics"
	"brine/internal/base/salt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// The families of jobs by function have the names and labels of kpetremann/salt-exporter,
// which reads the event bus of a stock master; but no label has a minion's id.
var (
	newJobs = metrics.Family{Name: "salt_new_job_total", Kind: metrics.Counter,
		Help: "Jobs that this master has published.", Labels: []string{"function", "state"}}
	expectedJobs = metrics.Family{Name: "salt_expected_responses_total", Kind: metrics.Counter,
		Help: "Minions that these jobs were for, in sum.", Labels: []string{"function", "state"}}
	functionRets = metrics.Family{Name: "salt_function_responses_total", Kind: metrics.Counter,
		Help: "Returns of minions by function.", Labels: []string{"function", "state", "success"}}
	scheduledRets = metrics.Family{Name: "salt_scheduled_job_return_total", Kind: metrics.Counter,
		Help: "Returns of jobs of minions' schedules.", Labels: []string{"function", "state", "success"}}
	responses = metrics.Family{Name: "salt_responses_total", Kind: metrics.Counter,
		Help: "Returns of minions, those of schedules included.", Labels: []string{"success"}}
	stateRuns = metrics.Family{Name: "brine_master_state_runs_total", Kind: metrics.Counter, Help: "Returns of runs of states.", Labels: []string{"success"}}
)

func functionFamilies() []*metrics.Family {
	return []*metrics.Family{&newJobs, &expectedJobs, &functionRets, &scheduledRets, &responses, &stateRuns}
}

// functionCounts counts jobs and returns by function. Minions can invent functions in
// returns, so only publications create entries, and returns of unknown functions
// count as "other".
type functionCounts struct {
	states, rets outcomes // of all functions

	mu sync.RWMutex
	by map[functionKey]*functionCount
}

type functionKey struct{ fun, state string }

type functionCount struct {
	jobs, expected  atomic.Int64
	rets, scheduled outcomes
}

// outcomes counts by success.
type outcomes struct{ good, bad atomic.Int64 }

func (o *outcomes) add(success bool) {
	if success {
		o.good.Add(1)
	} else {
		o.bad.Add(1)
	}
}

func (o *outcomes) write(p *metrics.Page, f *metrics.Family, labels ...string) {
	p.Count(f, o.good.Load(), append(labels[:len(labels):len(labels)], "true")...)
	p.Count(f, o.bad.Load(), append(labels[:len(labels):len(labels)], "false")...)
}

const (
	// maxFunctions bounds the entries, and maxFunctionName each name, in bytes.
	maxFunctions    = 300
	maxFunctionName = 100
	otherFunction   = "other"
)

func newFunctionCounts() *functionCounts {
	c := &functionCounts{by: map[functionKey]*functionCount{{fun: otherFunction}: {}}}
	for _, k := range []functionKey{{"state.apply", "highstate"}, {"state.highstate", "highstate"}} {
		c.by[k] = &functionCount{} // minions' schedules run these without a publication
	}
	return c
}

// functionKeyOf returns the function and, if it runs states, their names.
func functionKeyOf(fun, arg any) functionKey {
	name, ok := fun.(string)
	if !ok || len(name) > maxFunctionName {
		return functionKey{fun: otherFunction}
	}
	k := functionKey{fun: name}
	if !salt.RunsStates(name) {
		return k
	}
	if items := value.Items(arg); len(items) > 0 {
		if s, ok := items[0].(string); ok && !strings.Contains(s, "=") {
			k.state = s
		}
	}
	if k.state == "" && (name == "state.apply" || name == "state.highstate") {
		k.state = "highstate"
	}
	if len(k.state) > maxFunctionName {
		k.state = otherFunction
	}
	return k
}

// of returns the entry of a function, or that of other functions. With add it
// creates a missing entry, unless there are maxFunctions.
func (c *functionCounts) of(k functionKey, add bool) *functionCount {
	c.mu.RLock()
	e := c.by[k]
	c.mu.RUnlock()
	if e != nil {
		return e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e = c.by[k]; e != nil {
		return e
	}
	if !add || len(c.by) >= maxFunctions {
		return c.by[functionKey{fun: otherFunction}]
	}
	e = &functionCount{}
	c.by[k] = e
	return e
}

// published counts a job.
func (c *functionCounts) published(o *order, minions int) {
	if c == nil { // in tests of handlers
		return
	}
	e := c.of(functionKeyOf(o.Fun, o.Arg), true)
	e.jobs.Add(1)
	e.expected.Add(int64(minions))
}

// returned counts a return. It must not be called for duplicates.
func (c *functionCounts) returned(ret *wire.Return) {
	if c == nil { // in tests of handlers
		return
	}
	k := functionKeyOf(ret.Fun, ret.FunArgs)
	success := ret.Succeeded()
	c.rets.add(success)
	if salt.RunsStates(k.fun) {
		c.states.add(success)
	}
	e := c.of(k, false)
	if name, _ := ret.Schedule.(string); name != "" {
		e.scheduled.add(success)
		return
	}
	e.rets.add(success)
}

func (c *functionCounts) metrics(p *metrics.Page) {
	c.rets.write(p, &responses)
	c.states.write(p, &stateRuns)
	c.mu.RLock()
	defer c.mu.RUnlock()
	for k, e := range c.by {
		p.Count(&newJobs, e.jobs.Load(), k.fun, k.state)
		p.Count(&expectedJobs, e.expected.Load(), k.fun, k.state)
		e.rets.write(p, &functionRets, k.fun, k.state)
		e.scheduled.write(p, &scheduledRets, k.fun, k.state)
	}
}
