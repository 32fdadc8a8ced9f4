// Package wait has what goroutines wait with: a sleep that a context ends, a wait
// for whichever comes first, and a wake-up that never blocks its sender. It knows
// nothing of what is waited for.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d and reports whether that time has passed; false means that ctx
// ended first. A d of 0 or less does not wait, but still fails after the end of ctx.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	return Until(ctx, nil, d)
}

// Until waits for d, without a limit if d is 0, and reports whether that time has
// passed; false means that early or ctx came first. A nil early never comes.
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

// Jitter returns a random duration from 0 to below d, and 0 if d is not positive.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// Wakeup tells one goroutine that there is something to do. Wake never blocks;
// several calls before the goroutine looks count as one. Copies share the channel.
// The zero Wakeup wakes no goroutine.
type Wakeup struct{ c chan struct{} }

// NewWakeup returns a Wakeup without a pending call.
func NewWakeup() Wakeup { return Wakeup{make(chan struct{}, 1)} }

// Wake has the goroutine that receives from C look, now or when it next receives.
func (w Wakeup) Wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// C receives once after any number of calls of Wake.
func (w Wakeup) C() <-chan struct{} { return w.c }
