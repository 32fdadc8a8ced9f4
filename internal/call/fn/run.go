package fn

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"

	"brine/internal/py/value"
)

// Exit codes of a job, as Salt has them.
const (
	codeOK      = 0
	codeGeneric = 1
)

// Job names a function and its arguments as they arrive.
type Job struct {
	// Fun is the full name.
	Fun string
	// Arg holds the arguments as a job carries them, keywords in marked maps.
	Arg []any
	// Pub is the job's map, of which a function with **kwargs is told. It may
	// be nil.
	Pub *value.Dict
	// Blackout says that minion_blackout in pillar or grains refuses the job.
	Blackout bool
	// Told says that whoever runs the job tells the user of its failure, which
	// is then not logged as an error.
	Told bool
}

// Outcome is what a job returns.
type Outcome struct {
	Return  any
	Retcode int
	Success bool
	// Out names the outputter to show Return with, "" for the default.
	Out string
	// Err is the failure that Return describes, or nil. Its type tells an
	// expected failure (CommandError) from wrong arguments (InvocationError,
	// ArgumentError), an unknown function (UnknownError) and a fault
	// (anything else, or PanicError).
	Err error
}

// Run executes the function of job, with r as the functions there are, and
// waits for it. It never panics. c is prepared and used by the function; it
// belongs to this one run.
func (r *Registry) Run(ctx context.Context, c *Call, job Job) Outcome {
	if r != nil {
		c.Funcs = r
	}
	c.prepare()
	f, err := r.Lookup(job.Fun)
	if err != nil {
		return r.unknownOutcome(job.Fun, err)
	}
	ret, err := f.runLoaded(ctx, c, job)
	if err != nil {
		logFailure(ctx, c.Log, job, err)
		return Outcome{Return: errorText(job.Fun, f.Doc(), err), Retcode: codeGeneric, Out: "nested", Err: err}
	}
	out := Outcome{Return: ret, Retcode: c.retcode, Out: f.out}
	if out.Retcode == codeOK && !resultHolds(ret) {
		out.Retcode = codeGeneric
	}
	if c.out != "" {
		out.Out = c.out
	}
	out.Success = out.Retcode == codeOK
	return out
}

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
	args, kwargs, err := f.Load(job.Arg, job.Pub)
	if err != nil {
		return nil, err
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
	if job.Told {
		level = slog.LevelDebug
	}
	log.Log(ctx, level, "function failed", "err", err)
}

// unknownOutcome lists the functions whose name begins like the wanted one.
func (r *Registry) unknownOutcome(name string, err error) Outcome {
	out := Outcome{Return: err.Error(), Retcode: codeGeneric, Out: "nested", Err: err}
	if docs := r.Docs(name + "*"); docs.Len() > 0 {
		docs.Set(name, err.Error())
		out.Return = docs
		return out
	}
	return out
}

// blackout refuses a job while pillar or grains say so.
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

// resultHolds is false for a map that says of itself that it failed.
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
