package catalogue

import (
	"context"
	"errors"
	"iter"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/control"
	"brine/internal/py/value"
)

// LocalMaster gives commands to the master on this machine, as salt and
// salt-run do. Each call opens a new connection, since the master may restart.
type LocalMaster struct {
	// Open returns a client of the master, and a function that closes it.
	Open func() (*client.Client, func(), error)
}

var _ control.LocalMaster = LocalMaster{}

// Run implements control.LocalMaster.
func (l LocalMaster) Run(ctx context.Context, fun string, args []any, kwargs *value.Dict, jid string) (*value.Dict, error) {
	c, done, err := l.Open()
	if err != nil {
		return nil, err
	}
	defer done()
	return c.Run(ctx, client.Runner{Fun: fun, Args: fn.Wire(args, nil), Kwargs: kwargs, JID: jid}, nil, nil)
}

// Wheel implements control.LocalMaster.
func (l LocalMaster) Wheel(ctx context.Context, fun string, args []any, kwargs *value.Dict) (*value.Dict, error) {
	c, done, err := l.Open()
	if err != nil {
		return nil, err
	}
	defer done()
	return c.Wheel(ctx, fun, args, kwargs)
}

// Command implements control.LocalMaster. Minions that do not return are
// missing in the result; if no minion matches, the result is empty.
func (l LocalMaster) Command(ctx context.Context, o control.Order) iter.Seq2[*value.Dict, error] {
	return func(yield func(*value.Dict, error) bool) {
		c, done, err := l.Open()
		if err != nil {
			yield(nil, err)
			return
		}
		defer done()
		j := client.Job{Target: o.Target, Type: o.Type, Fun: o.Fun, Arg: value.ListOf(fn.Wire(o.Arg, o.Kwargs)...), Ret: o.Ret, Timeout: o.Timeout, Kwargs: o.Publish}
		if o.Batch != "" {
			batch(ctx, c, j, o, yield)
			return
		}
		if o.Subset > 0 {
			ids, err := c.Pick(ctx, j, o.Subset)
			if err != nil || len(ids) == 0 {
				if err != nil && !errors.Is(err, client.ErrNoMatch) {
					yield(nil, err)
				}
				return
			}
			j.Target, j.Type = value.Strings(ids), "list"
		}
		run, err := c.Start(ctx, j)
		if err != nil {
			if !errors.Is(err, client.ErrNoMatch) {
				yield(nil, err)
			}
			return
		}
		defer run.Close()
		for r, err := range run.Results(ctx) {
			switch {
			case err != nil:
				yield(nil, err)
				return
			case r.Absent && o.Expect:
				if !yield(value.DictOf(r.ID, value.DictOf("failed", true)), nil) {
					return
				}
				continue
			case r.Absent:
				continue
			}
			if !yield(value.DictOf(r.ID, r.Fields(run.JID)), nil) {
				return
			}
		}
	}
}

// batch runs a job on a limited number of minions at a time. A minion that
// does not answer returns false, as in Salt.
func batch(ctx context.Context, c *client.Client, j client.Job, o control.Order, yield func(*value.Dict, error) bool) {
	size, ok := client.BatchSize(o.Batch)
	if !ok {
		yield(nil, salt.Errorf(salt.Invalid, "batch must be a number or a percentage such as 3 or 10%%, not %s", value.Repr(o.Batch)))
		return
	}
	var stop func(client.Result) bool
	if o.Failhard {
		stop = func(r client.Result) bool { return r.Absent || r.Retcode != 0 }
	}
	for step, err := range c.RunBatch(ctx, client.Batch{Job: j, Size: size, Stop: stop}) {
		switch r := step.Result; {
		case errors.Is(err, client.ErrNoMatch):
			return
		case err != nil:
			yield(nil, err)
			return
		case r != nil:
			ret, out := any(false), "highstate"
			if !r.Absent {
				ret = r.Return
			}
			if d, ok := ret.(*value.Dict); ok && d.Has("out") {
				out = d.Str("out")
			}
			if !yield(value.DictOf(r.ID, value.DictOf("out", out, "ret", ret)), nil) {
				return
			}
		}
	}
}
