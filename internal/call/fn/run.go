package fn

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"

	"brine/internal/base/log/redact"
	"brine/internal/py/value"
)

// Exit codes of a job, the same as Salt's.
const (
	codeOK      = 0
	codeGeneric = 1
)

// Job is a function with its arguments as received.
type Job struct {
	// Fun is the full name.
	Fun string
	// Arg has the arguments in the form of a job, keywords in marked maps.
	Arg []any
	// Pub is the job's map, passed to functions with **kwargs. It may be nil.
	Pub *value.Dict
	// Blackout makes Run refuse the job if pillar or grains set minion_blackout.
	Blackout bool
	// Reported means that the caller reports a failure to the user, so that Run does not log it as
	// an error.
	Reported bool
	// By, if set, runs instead of the function, and may call it.
	By func(ctx context.Context, t Target) (any, error)
	// Missing makes Run call By also for a function that does not exist.
	Missing bool
}

// Target is a function that Job.By may call, with the arguments for it.
type Target struct {
	// Func is the function; nil if it does not exist.
	Func *Func
	// Call is the environment of the call.
	Call *Call
	// Args and Kwargs are the arguments of the function. Of one that does not exist, they are those of the job as received and the job's map.
	Args   []any
	Kwargs *value.Dict
}

// Outcome is the result of a job.
type Outcome struct {
	Return  any
	Retcode int
	Success bool
	// Out names the outputter to show Return with, "" for the default.
	Out string
	// Err is the failure that Return describes, or nil. Its type distinguishes expected failures
	// (CommandError), wrong arguments (InvocationError, ArgumentError), unknown functions
	// (UnknownError) and bugs (anything else, or PanicError).
	Err error
}

// Run executes the function of job, looked up in r, and waits for it. It never panics. It prepares
// c, which belongs to this run.
func (r *Registry) Run(ctx context.Context, c *Call, job Job) Outcome {
	if r != nil {
		c.Funcs = r
	}
	c.prepare()
	f, err := r.Lookup(job.Fun)
	doc, outputter := "", ""
	switch {
	case err == nil:
		outputter = f.out
	case !job.Missing || job.By == nil:
		return r.unknownOutcome(job.Fun, err)
	}
	ret, err := f.runLoaded(ctx, c, job)
	if err != nil {
		err = redact.Error(err) // it is returned, shown and logged
		logFailure(ctx, c.Log, job, err)
		if f != nil {
			doc = f.Doc()
		}
		return Outcome{Return: errorText(job.Fun, doc, err), Retcode: codeGeneric, Out: "nested", Err: err}
	}
	out := Outcome{Return: ret, Retcode: c.retcode, Out: outputter}
	if out.Retcode == codeOK && !resultHolds(ret) {
		out.Retcode = codeGeneric
	}
	if c.out != "" {
		out.Out = c.out
	}
	out.Success = out.Retcode == codeOK
	return out
}

// runLoaded runs f, or nil for a function that does not exist, with the arguments of job.
func (f *Func) runLoaded(ctx context.Context, c *Call, job Job) (ret any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if job.Blackout {
		if err := blackout(c, job.Fun); err != nil {
			return nil, err
		}
	}
	if f == nil {
		return job.By(ctx, Target{Call: c, Args: job.Arg, Kwargs: job.Pub})
	}
	args, kwargs, err := f.Load(job.Arg, job.Pub)
	if err != nil {
		return nil, err
	}
	if job.By != nil {
		return job.By(ctx, Target{Func: f, Call: c, Args: args, Kwargs: kwargs})
	}
	return f.Call(ctx, c, args, kwargs)
}

func logFailure(ctx context.Context, log *slog.Logger, job Job, err error) {
	log = log.With("fun", job.Fun)
	var p *PanicError
	if errors.As(err, &p) {
		log.ErrorContext(ctx, "function panicked", "err", err, "stack", string(p.Stack))
		return
	}
	level := slog.LevelError
	if job.Reported {
		level = slog.LevelDebug
	}
	log.Log(ctx, level, "function failed", "err", err)
}

// unknownOutcome lists the functions whose name begins like the requested one.
func (r *Registry) unknownOutcome(name string, err error) Outcome {
	out := Outcome{Return: err.Error(), Retcode: codeGeneric, Out: "nested", Err: err}
	if docs := r.Docs(name + "*"); docs.Len() > 0 {
		docs.Set(name, err.Error())
		out.Return = docs
		return out
	}
	return out
}

// blackout returns an error while pillar or grains set minion_blackout.
func blackout(c *Call, fun string) error {
	for _, r := range []Reader{c.Pillar, c.Grains} {
		if !value.Truth(r.Get("minion_blackout")) || fun == "saltutil.refresh_pillar" {
			continue
		}
		allowed, _ := r.Get("minion_blackout_whitelist").(*value.List)
		if allowed == nil || !slices.ContainsFunc(allowed.Items, func(v any) bool { return v == fun }) {
			return Invalidf(textBlackout)
		}
	}
	return nil
}

// resultHolds reports whether a result counts as a success: it is false for a map that reports its
// own failure.
func resultHolds(ret any) bool {
	d, ok := ret.(*value.Dict)
	if !ok {
		return true
	}
	for _, key := range []string{"result", "success"} {
		if v, ok := d.Get(key); ok && !value.Truth(v) {
			return false
		}
	}
	return true
}
