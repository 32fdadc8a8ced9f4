package salt

import (
	"context"
	"errors"
	"time"

	"brine/internal/call/client"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
	"brine/internal/py/value"
)

// textBadBatch is Salt's message for an invalid batch size.
const textBadBatch = "Invalid batch data sent: %s\nData must be in the form of %%10, 10%% or 3\n"

// newBatch returns the batch defined by the command line.
func (p *program) newBatch() (client.Batch, error) {
	size, ok := client.BatchSize(p.opts.Batch)
	if !ok {
		p.say(textBadBatch, p.opts.Batch)
		return client.Batch{}, exit{code: 1}
	}
	return client.Batch{Job: p.job(), Size: size, Rest: time.Duration(p.opts.BatchWait * float64(time.Second))}, nil
}

// batch runs the job on a few minions at a time. The exit code is their highest.
func (p *program) batch(ctx context.Context) error {
	b, err := p.newBatch()
	if err != nil {
		return err
	}
	var halted string
	if p.opts.Failhard {
		b.Stop = func(r client.Result) bool {
			if code := r.Retcode; code > 0 || r.Absent {
				halted = r.ID
			}
			return halted != ""
		}
	}
	code := 0
	progress := p.newProgress(nil)
	defer progress.stop()
	for step, err := range p.session.Client.RunBatch(ctx, b) {
		if err != nil {
			progress.stop()
			return p.stopped(p.batchError(err), "")
		}
		var n int
		err := progress.batchStep(step, func() (err error) {
			n, err = p.batchStep(step)
			return err
		})
		if err != nil {
			return err
		}
		code = max(code, n)
	}
	progress.stop()
	if halted != "" {
		p.session.Log.Error("Minion " + halted + " returned with non-zero exit code. Batch run stopped due to failhard")
	}
	if code != 0 {
		return exit{code: code}
	}
	return nil
}

// batchError adds Salt's messages for batches to an error.
func (p *program) batchError(err error) error {
	if !errors.Is(err, client.ErrNoMatch) {
		return err
	}
	p.say("%s\nNo minions matched the target.\n", err)
	return p.strict(frame.ExitNoReturn, textNoReturn)
}

// batchStep shows one step and returns the exit code of a result.
func (p *program) batchStep(s client.BatchStep) (code int, err error) {
	if len(s.Down) > 0 {
		code = p.opts.Strict(frame.ExitFailure)
	}
	for _, id := range s.Down {
		p.say("Minion %s did not respond. No job will be sent.\n", id)
	}
	if s.Begin != nil {
		p.say("\nExecuting run on %s\n\n", value.Repr(value.Strings(s.Begin)))
	}
	r := s.Result
	switch {
	case r == nil:
		return code, nil
	case r.Absent:
		p.say("Minion '%s' failed to respond to job sent\n", r.ID)
		return 1, nil
	}
	data := value.NewDict(3)
	if r.Event.Has("retcode") {
		data.Set("retcode", int64(r.Retcode))
	}
	if r.Event.Has("jid") {
		data.Set("jid", r.Event.At("jid"))
	}
	data.Set(r.ID, r.Return)
	if code = r.Retcode; code == 0 && p.falls(*r) {
		code = frame.ExitFailure
	}
	return code, p.session.Show.Show(data, r.Out, output.Call{})
}

// staticBatch runs a batch and shows all returns together at the end.
func (p *program) staticBatch(ctx context.Context) error {
	b, err := p.newBatch()
	if err != nil {
		return err
	}
	all := value.NewDict(0)
	failed := false
	progress := p.newProgress(nil)
	defer progress.stop()
	for step, err := range p.session.Client.RunBatch(ctx, b) {
		if err != nil {
			progress.stop()
			return p.stopped(err, "")
		}
		progress.batchStep(step, func() error { return nil })
		r := step.Result
		failed = failed || len(step.Down) > 0 || r != nil && p.falls(*r)
		if r != nil && !r.Absent {
			all.Set(r.ID, r.Return)
		}
	}
	progress.stop()
	return p.allPrinted(all, failed)
}
