package frame

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// SignalError is the cause of a context cancelled by Signals.
type SignalError struct{ Signal os.Signal }

func (e SignalError) Error() string { return "received the signal: " + e.Signal.String() }

// Signals returns a context that SIGINT and SIGTERM cancel with the cause SignalError. The program
// must call stop at its end; after that, the signals end it at once.
func Signals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	received := make(chan os.Signal, 1)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-received:
			cancel(SignalError{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(received)
		cancel(context.Canceled)
	}
}
