// Package ratelimit bounds how often something happens: a number of times per interval (Window), once
// per interval for each key (Keys), evenly spaced (Pace), at a rate with bursts (Bucket), or written to
// a log (Log). It has no goroutines.
package ratelimit

import (
	"context"
	"sync"
	"time"

	"brine/internal/base/wait"
)

// Window admits Most events in an interval of length Every. An interval begins with the
// first event after the previous one. It is safe for concurrent use.
type Window struct {
	Most  int
	Every time.Duration

	mu      sync.Mutex
	start   time.Time
	n       int
	skipped int
}

// Admit reports whether an event at that time is within the limit. skipped, returned
// with the first admitted event of an interval, is the number of rejected events since
// the last admitted one.
func (w *Window) Admit(now time.Time) (skipped int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if since := now.Sub(w.start); since >= w.Every || since < 0 {
		w.start, w.n = now, 0
	}
	if w.n >= w.Most {
		w.skipped++
		return 0, false
	}
	w.n++
	skipped, w.skipped = w.skipped, 0
	return skipped, true
}

// Wait waits until an event is within the limit and returns true, or false if ctx ends
// first. Here, a Most of 0 or less means no limit.
func (w *Window) Wait(ctx context.Context) bool {
	for w.Most > 0 {
		w.mu.Lock()
		now := time.Now()
		if now.Sub(w.start) >= w.Every {
			w.start, w.n = now, 0
		}
		if w.n < w.Most {
			w.n++
			w.mu.Unlock()
			break
		}
		left := w.start.Add(w.Every).Sub(now)
		w.mu.Unlock()
		if !wait.Sleep(ctx, left) {
			return false
		}
	}
	return ctx.Err() == nil
}

// Keys admits one event per key and interval. It remembers at most Most keys and then
// starts again with none. So a peer that invents keys is limited by the cost of
// inventing Most of them. It is safe for concurrent use.
type Keys struct {
	Most  int
	Every time.Duration

	mu sync.Mutex
	at map[string]time.Time
}

// Admit reports whether the last admitted event of the key is Every or longer ago.
func (k *Keys) Admit(key string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at, ok := k.at[key]; ok && now.Sub(at) < k.Every {
		return false
	}
	if k.at == nil || len(k.at) >= k.Most {
		k.at = map[string]time.Time{}
	}
	k.at[key] = now
	return true
}

// CatchUp bounds how far a Pace makes up for unused time. Without it, late wake-ups
// would slow down a high rate.
const CatchUp = 50 * time.Millisecond

// Pace spaces events evenly. It is safe for concurrent use.
type Pace struct {
	Rate func() int // events per second; 0 or less means no limit

	mu   sync.Mutex
	next time.Time
}

// Interval returns the time between two events, 0 without a limit or for a nil Pace.
func (p *Pace) Interval() time.Duration {
	if p == nil {
		return 0
	}
	if r := p.Rate(); r > 0 {
		return time.Second / time.Duration(r)
	}
	return 0
}

// Wait waits for the time of the next event.
func (p *Pace) Wait() {
	each := p.Interval()
	if each == 0 {
		return
	}
	p.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-CatchUp); p.next.Before(earliest) {
		p.next = earliest
	}
	turn := p.next
	p.next = turn.Add(each)
	p.mu.Unlock()
	time.Sleep(turn.Sub(now))
}

// Bucket is a token bucket: it admits Rate events per second on average, and up to Burst
// at once after a pause. It starts full. It is not safe for concurrent use.
type Bucket struct {
	Rate, Burst float64

	used float64
	last time.Time
}

// Admit reports whether n more events are within the limit at that time, and if so,
// counts them.
func (b *Bucket) Admit(n float64, now time.Time) bool {
	if since := now.Sub(b.last); since > 0 {
		b.used = max(0, b.used-b.Rate*since.Seconds())
	}
	b.last = now
	if b.used+n > b.Burst {
		return false
	}
	b.used += n
	return true
}
