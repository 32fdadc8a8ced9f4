// Package control holds the execution modules that steer a living minion:
// saltutil, event and mine. Each is built by the daemon from the few powers
// it needs, which the interfaces here name. Their methods may be called from
// several goroutines.
package control

import (
	"context"

	"brine/internal/py/value"
)

// Masters reaches the masters that the minion is connected to. It adds what
// authenticates a message; the load carries cmd, id and content.
type Masters interface {
	// Request asks one master and returns its answer.
	Request(ctx context.Context, load *value.Dict) (any, error)
	// Send gives a message to every connected master. It fails if none took it.
	Send(ctx context.Context, load *value.Dict) error
}

// Bus is the minion's own event bus.
type Bus interface {
	Fire(ctx context.Context, tag string, data *value.Dict) error
}

// none is the argument of functions without any.
type none struct{}
