package minion

import (
	"context"
	"errors"
	"iter"

	"brine/internal/client"
	"brine/internal/fn"
	"brine/internal/modules/control"
	"brine/internal/salt"
	"brine/internal/value"
)

// localMaster commands the master on this machine, as salt and salt-run do.
// Each call opens the way anew: the master may come and go.
type localMaster struct{ m *Minion }

var _ control.LocalMaster = localMaster{}

func (l localMaster) open() (*client.Client, func(), error) {
	if l.m.cfg.LocalMaster == nil {
		return nil, nil, salt.Errorf(salt.Unavailable, "there is no configuration of a master")
	}
	return l.m.cfg.LocalMaster()
}

// Run implements control.LocalMaster.
func (l localMaster) Run(ctx context.Context, fun string, args []any, kwargs *value.Dict, jid string) (*value.Dict, error) {
	c, done, err := l.open()
	if err != nil {
		return nil, err
	}
	defer done()
	return c.Run(ctx, client.Runner{Fun: fun, Args: fn.Wire(args, nil), Kwargs: kwargs, JID: jid}, nil, nil)
}

// Command implements control.LocalMaster. Minions that do not return are left
// out, and so is a target that means nobody.
func (l localMaster) Command(ctx context.Context, o control.Order) iter.Seq2[*value.Dict, error] {
	return func(yield func(*value.Dict, error) bool) {
		c, done, err := l.open()
		if err != nil {
			yield(nil, err)
			return
		}
		defer done()
		run, err := c.Start(ctx, client.Job{Target: o.Target, Type: o.Type, Fun: o.Fun, Arg: value.ListOf(fn.Wire(o.Arg, o.Kwargs)...), Ret: o.Ret, Timeout: o.Timeout})
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
			case r.Absent:
				continue
			}
			one := value.DictOf("ret", r.Return)
			if r.Out != "" {
				one.Set("out", r.Out)
			}
			one.Set("retcode", int64(r.Retcode))
			one.Set("jid", run.JID)
			if !yield(value.DictOf(r.ID, one), nil) {
				return
			}
		}
	}
}
