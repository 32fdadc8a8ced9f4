package client

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"brine/internal/py/value"
)

// Batch is a job that runs on a limited number of minions at a time.
type Batch struct {
	Job Job
	// Size returns the number of minions that may run the job at once, for a number of targets.
	Size func(minions int) int
	// Rest is the pause after a return before another minion starts in its place.
	Rest time.Duration
	// Stop, if set, is called after each result. If it returns true, no more minions are started,
	// and running ones are not waited for.
	Stop func(Result) bool
}

// BatchStep is a step of a batch. The first step has Up and Down, of which one may be empty; each
// other step has a single field.
type BatchStep struct {
	// Up are the minions that answered the first ping and will get the job.
	Up []string
	// Down are minions that did not answer the first ping and get no job.
	Down []string
	// Begin are the minions that get the job now.
	Begin []string
	// Result is the result of one minion, possibly absent.
	Result *Result
}

// batchRun is a running batch.
type batchRun struct {
	*Batch
	c       *Client
	events  Events
	todo    []string
	size    int
	active  map[string]bool
	resting []time.Time // when slots become free
	running []*Running
}

// RunBatch pings the target of a batch and then runs its job on all minions that answered, a few at
// a time. Its errors are those of Start and Results.
func (c *Client) RunBatch(ctx context.Context, b Batch) iter.Seq2[BatchStep, error] {
	return func(yield func(BatchStep, error) bool) {
		events, err := c.jobEvents(ctx)
		if err != nil {
			yield(BatchStep{}, err)
			return
		}
		defer events.Close()
		r := &batchRun{Batch: &b, c: c, events: events, active: map[string]bool{}}
		down, err := r.ping(ctx)
		if err != nil {
			yield(BatchStep{}, err)
			return
		}
		if !yield(BatchStep{Up: slices.Clone(r.todo), Down: down}, nil) {
			return
		}
		r.run(ctx, yield)
	}
}

// ping finds the minions that answer.
func (r *batchRun) ping(ctx context.Context) (down []string, err error) {
	j := r.Job
	j.Fun, j.Arg, j.Ret, j.Kwargs = "test.ping", nil, "", delimiterOf(j.Kwargs)
	p, err := r.c.startOn(ctx, r.events, j)
	if err != nil {
		return nil, err
	}
	for res, err := range p.Results(ctx) {
		switch {
		case err != nil:
			return nil, err
		case res.Absent:
			down = append(down, res.ID)
		default:
			r.todo = append(r.todo, res.ID)
		}
	}
	slices.Sort(r.todo)
	slices.Sort(down)
	r.size = max(r.Size(len(r.todo)), 1)
	return down, nil
}

func delimiterOf(kwargs *value.Dict) *value.Dict {
	d, ok := kwargs.Get("delimiter")
	if !ok {
		return nil
	}
	return value.DictOf("delimiter", d)
}

func (r *batchRun) run(ctx context.Context, yield func(BatchStep, error) bool) {
	for len(r.todo)+len(r.active) > 0 {
		if ids := r.begin(time.Now()); len(ids) > 0 {
			if !yield(BatchStep{Begin: ids}, nil) {
				return
			}
			if err := r.start(ctx, ids); err != nil {
				yield(BatchStep{}, err)
				return
			}
		}
		results, err := r.next(ctx)
		if err != nil {
			yield(BatchStep{}, err)
			return
		}
		for _, res := range results {
			if !yield(BatchStep{Result: &res}, nil) || r.Stop != nil && r.Stop(res) {
				return
			}
		}
	}
}

// begin removes from the waiting minions as many as the batch size allows to start now, and returns their ids.
func (r *batchRun) begin(now time.Time) []string {
	r.resting = slices.DeleteFunc(r.resting, func(t time.Time) bool { return !now.Before(t) })
	n := min(r.size-len(r.active)-len(r.resting), len(r.todo))
	if n <= 0 {
		return nil
	}
	ids := slices.Clone(r.todo[:n])
	r.todo = r.todo[n:]
	return ids
}

func (r *batchRun) start(ctx context.Context, ids []string) error {
	j := r.Job
	j.Target, j.Type, j.JID, j.Kwargs = value.Strings(ids), "list", "", r.Job.Kwargs.Clone()
	j.Kwargs.Delete("delimiter")
	run, err := r.c.startOn(ctx, r.events, j)
	if errors.Is(err, ErrNoMatch) { // their keys were deleted after the ping
		run, err = &Running{c: r.c, job: j, wait: r.c.newWait(Published{Missing: ids}, &j, time.Now())}, nil
	}
	if err != nil {
		return err
	}
	for _, id := range ids {
		r.active[id] = true
	}
	r.running = append(r.running, run)
	return nil
}

// next waits until the state may have changed and returns new results.
func (r *batchRun) next(ctx context.Context) ([]Result, error) {
	if results := r.ended(); len(results) > 0 {
		return results, nil
	}
	limited, cancel := context.WithDeadline(ctx, r.wake())
	defer cancel()
	e, err := nextEvent(ctx, limited, r.events)
	if err != nil {
		return nil, err
	}
	var results []Result
	if e != nil {
		for _, run := range r.running {
			k := run.wait.classify(e.Tag)
			if k == foreign {
				continue
			}
			res, ok, err := run.take(k, e.Data)
			if err != nil {
				return nil, err
			}
			if ok {
				results = append(results, r.finish(res))
			}
		}
	}
	for _, run := range r.running {
		if err := run.ask(ctx); err != nil {
			return nil, err
		}
	}
	return append(results, r.ended()...), nil
}

// ended removes finished jobs and returns their absent minions.
func (r *batchRun) ended() []Result {
	var results []Result
	now := time.Now()
	r.running = slices.DeleteFunc(r.running, func(run *Running) bool {
		if !run.wait.over(now) {
			return false
		}
		for _, id := range append(run.wait.left(), run.wait.absent()...) {
			results = append(results, r.finish(Result{ID: id, Absent: true}))
		}
		return true
	})
	return results
}

func (r *batchRun) finish(res Result) Result {
	if r.active[res.ID] {
		delete(r.active, res.ID)
		if r.Rest > 0 {
			r.resting = append(r.resting, time.Now().Add(r.Rest))
		}
	}
	return res
}

// wake returns when the state may change without an event.
func (r *batchRun) wake() time.Time {
	at := time.Now().Add(time.Hour)
	for _, t := range r.resting {
		if t.Before(at) {
			at = t
		}
	}
	for _, run := range r.running {
		if t := run.wait.wake(); t.Before(at) {
			at = t
		}
	}
	return at
}
