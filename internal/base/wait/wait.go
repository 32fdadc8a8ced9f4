// Package wait has ways for goroutines to wait: a sleep that ends with a context, a
// wait for an early event, and a wake-up that never blocks its sender.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d and reports whether it has passed; false means that ctx ended
// first. A d of 0 or less does not wait, but returns false if ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	return Until(ctx, nil, d)
}

// Until waits for d, without a limit if d is 0, and reports whether it has passed;
// false means that early or ctx came first. A nil early never does.
func Until(ctx context.Context, early <-chan struct{}, d time.Duration) bool {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-ctx.Done():
	case <-early:
	case <-over:
		return true
	}
	return false
}

// Jitter returns a random duration of at least 0 and less than d; 0 if d is not
// positive.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// Wakeup notifies one goroutine that there is something to do. Wake never blocks;
// several calls before the goroutine reacts count as one. Copies share the channel.
// The zero Wakeup wakes no goroutine.
type Wakeup struct{ c chan struct{} }

// NewWakeup returns a Wakeup without a pending call.
func NewWakeup() Wakeup { return Wakeup{make(chan struct{}, 1)} }

// Wake notifies the goroutine that receives from C, now or when it next receives.
func (w Wakeup) Wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// C receives once after any number of calls of Wake.
func (w Wakeup) C() <-chan struct{} { return w.c }
