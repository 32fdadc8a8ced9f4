// Package control holds the execution modules that control a running minion:
// saltutil, event, mine and others. The daemon builds each with the few
// interfaces that it needs. Their methods may be called from several
// goroutines.
package control

import (
	"context"

	"brine/internal/py/value"
)

// Masters sends requests to the masters that the minion is connected to. It
// adds the authentication; load has cmd, id and the content.
type Masters interface {
	// Request asks one master and returns its answer.
	Request(ctx context.Context, load *value.Dict) (any, error)
	// Send sends a message to every connected master. It fails if no master
	// accepted it.
	Send(ctx context.Context, load *value.Dict) error
}

// Bus is the minion's own event bus.
type Bus interface {
	Fire(ctx context.Context, tag string, data *value.Dict) error
}

// none is the argument type of functions without arguments.
type none struct{}
