package runner

import (
	"context"
	"fmt"
	"time"

	"brine/internal/base/registry"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/py/value"
)

// executor runs before the function of a job, or calls the function. called reports which.
// A job's own executors replace the configured ones.
type executor func(ctx context.Context, r *Runner, j *jobs.Job, call func() fn.Outcome) (o fn.Outcome, called bool, err error)

var executors = registry.New[executor]("executor")

// directCall only calls the function.
const directCall = "direct_call"

func init() {
	executors.Register(directCall, func(_ context.Context, _ *Runner, _ *jobs.Job, call func() fn.Outcome) (fn.Outcome, bool, error) {
		return call(), true, nil
	})
	executors.Register("splay", func(ctx context.Context, r *Runner, j *jobs.Job, _ func() fn.Outcome) (fn.Outcome, bool, error) {
		return fn.Outcome{}, false, r.splay(ctx, j)
	})
}

// defaultSplay is the default splay time, in seconds.
const defaultSplay = 300

// ExecutorNames returns the names of the executors, sorted.
func ExecutorNames() []string { return executors.Names() }

// executorsOf returns the executors of a job, or an error if it cannot run.
func (r *Runner) executorsOf(j *jobs.Job) ([]string, error) {
	spec := j.Pub.ModuleExecutors
	if !value.Truth(spec) {
		spec = r.cfg.Options.ModuleExecutors
	}
	var names []string
	switch x := spec.(type) {
	case string:
		names = []string{x}
	case *value.List:
		for _, it := range x.Items {
			names = append(names, value.Str(it))
		}
	}
	if len(names) == 0 {
		//lint:ignore ST1005 it is Salt's text
		return nil, fmt.Errorf("Wrong executors specification: %s. String or non-empty list expected", value.Str(spec))
	}
	return names, nil
}

// Through runs a function through the job's executors. If none of them calls the function,
// the result is empty, as in Salt. Job control functions are called directly.
func (r *Runner) Through(ctx context.Context, j *jobs.Job, name string, call func() fn.Outcome) fn.Outcome {
	if controls[name] || j.Pub.ModuleExecutors == nil && r.cfg.Options.ModuleExecutors == any(directCall) {
		return call()
	}
	names, err := r.executorsOf(j)
	if err != nil {
		return notExecuted(name, err)
	}
	for _, e := range names {
		run, ok := executors.Lookup(e)
		if !ok {
			//lint:ignore ST1005 it is Salt's text
			return notExecuted(name, fmt.Errorf("Executor '%s' is not available", e))
		}
		o, called, err := run(ctx, r, j, call)
		switch {
		case err != nil:
			return notExecuted(name, err)
		case called:
			return o
		}
	}
	return fn.Outcome{Success: true}
}

func notExecuted(name string, err error) fn.Outcome {
	return fn.Outcome{Return: fmt.Sprintf("ERROR executing '%s': %s", name, err), Retcode: 1, Out: "nested", Err: err}
}

// splay waits for a part of the splay time, which is in the job's executor_opts. The part
// depends on the minion's id.
func (r *Runner) splay(ctx context.Context, j *jobs.Job) error {
	seconds := float64(defaultSplay)
	opts, _ := j.Pub.ExecutorOpts.(*value.Dict)
	if v, ok := opts.Get("splaytime"); ok {
		switch x := v.(type) {
		case int64:
			seconds = float64(x)
		case float64:
			seconds = x
		default:
			seconds = 0
		}
	}
	if !(seconds > 0) {
		return fmt.Errorf("splaytime must be a positive integer")
	}
	pause := time.Duration(seconds*splayShare(r.cfg.ID)) * time.Second
	r.cfg.Log.Debug("delaying job (splay)", "jid", j.JID, "wait", pause)
	wait.Sleep(ctx, pause)
	return nil
}

// splayShare returns that part, from 0 to below 1: Jenkins' one-at-a-time hash of the id,
// as in Salt, so that minions of both kinds spread evenly.
func splayShare(id string) float64 {
	var h uint32
	for i := range len(id) {
		h += uint32(id[i])
		h += h << 10
		h ^= h >> 6
	}
	h += h << 3
	h ^= h >> 11
	h += h << 15
	return float64(h&8191) / 8192
}
