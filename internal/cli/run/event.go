package run

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/catalogue/runners"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// redial is the pause between two attempts to reconnect to a master.
const redial = time.Second

// watch runs state.event here and not in the master. It prints without end, and its output must not
// become events again.
func (p *program) watch(ctx context.Context, r client.Runner) error {
	reg, err := fn.NewRegistry(nil, runners.State(p.listen, func(line string) error {
		_, err := fmt.Fprintln(p.Env.Stdout, line)
		return err
	}))
	if err != nil {
		return err
	}
	c := &fn.Call{Config: fn.Tree{Dict: value.DictOf("sock_dir", p.Conf.Events.SockDir)}}
	o := runners.Run(ctx, reg, c, fn.Job{Fun: r.Fun, Arg: fn.Wire(r.Args, r.Kwargs)})
	if errors.Is(o.Err, context.Canceled) || salt.KindOf(o.Err) == salt.Unavailable {
		return o.Err
	}
	if !p.opts.Quiet {
		if err := p.Show.Show(o.Return, "", output.Call{}); err != nil {
			return err
		}
	}
	if o.Retcode != 0 {
		return exit(o.Retcode)
	}
	return p.strict(r.Fun, !o.Success, o.Return)
}

// listen yields the master's events. It fails if the first connection fails; later it waits until
// the master is reachable again.
func (p *program) listen(ctx context.Context) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		at := p.Conf.Events.Sockets()
		r, err := event.Dial(ctx, at)
		if err != nil {
			yield(nil, err)
			return
		}
		for {
			for e, err := range r.Events() {
				if err != nil {
					break
				}
				if !yield(e, nil) {
					r.Close()
					return
				}
			}
			r.Close()
			if ctx.Err() != nil {
				return
			}
			p.Log.Warn("lost the master's event bus; reconnecting")
			for {
				if !wait.Sleep(ctx, redial) {
					return
				}
				if r, err = event.Dial(ctx, at); err == nil {
					break
				}
			}
		}
	}
}
