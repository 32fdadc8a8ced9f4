package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Running is a job whose returns can be collected.
type Running struct {
	Published
	c      *Client
	job    Job
	events Events
	wait   *wait
}

// Result is the return of one minion, or its absence.
type Result struct {
	ID string
	// Absent means that the minion did not return; all fields below are then empty.
	Absent bool
	// Unknown means that an absent minion is unknown to the master.
	Unknown bool
	Return  any
	// Out is the outputter requested by the return, or "".
	Out string
	// Retcode is the exit status, the highest one of several functions.
	Retcode int
	// Event is the complete event of the return.
	Event *value.Dict
}

// Fields returns the return as salt.client has it: ret, retcode, jid, and out if the return has one.
func (r *Result) Fields(jid string) *value.Dict {
	d := value.DictOf("ret", r.Return)
	if r.Out != "" {
		d.Set("out", r.Out)
	}
	d.Set("retcode", int64(r.Retcode))
	d.Set("jid", jid)
	return d
}

// Close ends the subscription to events.
func (r *Running) Close() error { return r.events.Close() }

// Results yields the returns of minions as they arrive, and at the end those that did not return.
// An error is the last item: that of ctx, *Lost if the connection to the master was lost, *Refused
// if it rejected a question. Results can be called once.
func (r *Running) Results(ctx context.Context) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		for !r.wait.over(time.Now()) {
			if err := r.ask(ctx); err != nil {
				yield(Result{}, err)
				return
			}
			res, ok, err := r.next(ctx)
			if err != nil {
				yield(Result{}, err)
				return
			}
			if ok && !yield(res, nil) {
				return
			}
		}
		for _, id := range r.wait.unreturned() {
			if !yield(Result{ID: id, Absent: true}, nil) {
				return
			}
		}
		for _, id := range r.wait.absent() {
			if !yield(Result{ID: id, Absent: true, Unknown: true}, nil) {
				return
			}
		}
	}
}

// next waits for one event, or until the wait may have changed without an event. ok reports whether
// res is a return.
func (r *Running) next(ctx context.Context) (res Result, ok bool, err error) {
	limited, cancel := context.WithDeadline(ctx, r.wait.wake())
	defer cancel()
	for {
		e, err := nextEvent(ctx, limited, r.events)
		if e == nil || err != nil {
			return res, false, err
		}
		if k := r.wait.classify(e.Tag); k != foreign {
			return r.take(k, e.Data)
		}
	}
}

// nextEvent returns the next event, or nil when limited has expired but its parent ctx has not.
func nextEvent(ctx, limited context.Context, events Events) (*event.Event, error) {
	e, err := events.Next(limited)
	switch {
	case err == nil:
		return e, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil && errors.Is(err, limited.Err()):
		return nil, nil
	}
	return nil, &salt.Error{Kind: salt.Unavailable, Err: &Lost{err}}
}

// take handles one event of the job or of a question about it.
func (r *Running) take(k kind, data *value.Dict) (res Result, ok bool, err error) {
	now := time.Now()
	switch k {
	case announced, info:
		var e wire.JobEvent
		if err := wire.Decode(data, &e); err != nil {
			r.c.log.Debug("ignoring malformed job event", "jid", r.JID, "err", err)
			break
		}
		if e.Error != nil {
			return res, false, &salt.Error{Kind: salt.Denied, Err: &Refused{Name: "AuthorizationError", Text: "Authorization error occurred"}}
		}
		if k == announced {
			r.wait.info(&e, now)
		}
		r.state(&e, now)
	case ret:
		var e wire.Return
		if err := wire.Decode(data, &e); err != nil || e.ID == "" {
			r.c.log.Warn("ignoring return event without a minion id or a return", "jid", r.JID, "err", err)
			break
		}
		return result(&e, data), r.wait.returned(e.ID), nil
	case answer:
		r.takeAnswer(data, now)
	}
	return res, false, nil
}

// takeAnswer handles an event of the question which minions still run the job: its announcement, or an answer.
func (r *Running) takeAnswer(data *value.Dict, now time.Time) {
	var about wire.JobEvent
	if err := wire.Decode(data, &about); err == nil && isList(about.Minions) {
		r.wait.info(&wire.JobEvent{Minions: about.Minions}, now)
		return
	}
	var e wire.Return
	if err := wire.Decode(data, &e); err != nil {
		return // other events of the question
	}
	if retcode(e.Retcode) > 0 {
		r.c.log.Error("saltutil returning errors on minion " + e.ID)
	}
	if r.wait.answered(&e, now) && r.job.StillRunning != nil {
		r.job.StillRunning(e.ID)
	}
}

// state handles an event about the state of a minion.
func (r *Running) state(e *wire.JobEvent, now time.Time) {
	id, _ := e.ID.(string)
	state, _ := e.State.(string)
	if id == "" || state == "" {
		return
	}
	if state == Delivered {
		r.wait.delivered(id, now)
	}
	if r.job.StateChanged != nil {
		r.job.StateChanged(r.JID, id, state)
	}
}

func result(e *wire.Return, data *value.Dict) Result {
	out, _ := e.Out.(string)
	return Result{ID: e.ID, Return: e.Return, Out: out, Retcode: retcode(e.Retcode), Event: data}
}

// retcode returns the highest code of several, or the only one.
func retcode(v any) int {
	code := 0
	switch x := v.(type) {
	case int64:
		return int(x)
	case bool:
		if x {
			return 1
		}
	case *value.Dict:
		for _, c := range x.All() {
			code = max(code, retcode(c))
		}
	}
	return code
}

// ask publishes the question which minions still run the job, if it is due.
func (r *Running) ask(ctx context.Context) error {
	ids, due := r.wait.due(time.Now())
	if !due {
		return nil
	}
	kwargs := r.job.Kwargs.Clone()
	kwargs.Delete("show_timeout")
	kwargs.Delete("show_jid")
	for _, k := range []string{"metadata", "module_executors", "executor_opts"} { // these apply to the job, not to the question
		kwargs.Delete(k)
	}
	p := Published{}
	err := ErrNoMatch
	if len(ids) > 0 {
		p, err = r.c.Publish(ctx, Job{
			Target: value.Strings(ids), Type: "list", Fun: "saltutil.find_job", Arg: value.ListOf(r.JID),
			Kwargs: kwargs, Timeout: r.wait.gatherTimeout,
		})
	}
	if err != nil && !errors.Is(err, ErrNoMatch) {
		return err
	}
	r.wait.asked(p.JID, time.Now())
	return nil
}
