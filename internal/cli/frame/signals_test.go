package frame

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestSignals(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx, stop := Signals(t.Context())
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
			t.Fatalf("%v does not end the context", s)
		}
		var cause SignalError
		if !errors.As(context.Cause(ctx), &cause) || cause.Signal != s {
			t.Errorf("cause: %v, want %v", context.Cause(ctx), s)
		}
		stop()
	}
	ctx, stop := Signals(t.Context())
	stop()
	if !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("cause after stop: %v", context.Cause(ctx))
	}
}
