package client

import (
	"context"
	"fmt"

	"brine/internal/base/salt"
	"brine/internal/base/trace"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// InProcess is the Master and the Bus for functions that a master runs itself.
type InProcess struct {
	// Publish starts a job and returns the reply that a client would get.
	Publish func(load *value.Dict) *value.Dict
	// OnMaster starts a runner, or runs a wheel function, for a request with the corresponding cmd.
	// If nil, both are refused.
	OnMaster func(load *value.Dict) *value.Dict
	// Events is the master's bus.
	Events *event.Bus
	// User is the user of the jobs.
	User string
}

var (
	_ Master = (*InProcess)(nil)
	_ Bus    = (*InProcess)(nil)
)

// Request implements Master. It supports jobs, and functions of the master if OnMaster is set.
func (p *InProcess) Request(ctx context.Context, load *value.Dict) (any, error) {
	cmd := load.Str("cmd")
	if link := trace.From(ctx); link.Root != "" {
		if cmd == "publish" {
			var in wire.Publish
			wire.View(load, &in)
			kwargs := in.Kwargs.Clone()
			kwargs.Set(wire.TraceKey, link.String())
			load.Set("kwargs", kwargs)
		} else {
			load.Set(wire.TraceKey, link.String())
		}
	}
	if p.OnMaster != nil && (cmd == "runner" || cmd == "wheel") && ctx.Err() == nil {
		return p.OnMaster(load), nil
	}
	if cmd != "publish" {
		return nil, salt.Errorf(salt.Invalid, "a runner cannot send the request %q", cmd)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	load.Delete("key")
	load.Set("user", p.User)
	return p.Publish(load), nil
}

// inProcessQueue is how many events are buffered for a runner. A runner only consumes events, so
// that this suffices for any burst.
const inProcessQueue = 1 << 16

// Subscribe implements Bus.
func (p *InProcess) Subscribe(_ context.Context, prefixes ...string) (Events, error) {
	return &inProcessEvents{p.Events.Subscribe(inProcessQueue, prefixes...)}, nil
}

type inProcessEvents struct{ s *event.Subscription }

func (e *inProcessEvents) Next(ctx context.Context) (*event.Event, error) {
	if n := e.s.Dropped(); n > 0 {
		return nil, fmt.Errorf("%d events were lost: they arrived faster than they were read", n)
	}
	select {
	case ev, ok := <-e.s.C:
		if !ok {
			return nil, errEnded
		}
		return ev, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *inProcessEvents) Close() error {
	e.s.Close()
	return nil
}
