package auth

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxAsked bounds concurrent password checks: some systems run a program for each.
	maxAsked = 64
	// maxAskedOfOne bounds concurrent checks per user name, so that attempts at one account do not
	// delay the logins of other users.
	maxAskedOfOne = 8
)

// limiter bounds the concurrent checks, in total and per name. Further checks wait in order.
type limiter struct {
	total, each int

	mu      sync.Mutex
	running int
	byName  map[string]int
	waiting []*waiter
}

type waiter struct {
	name  string
	begin chan struct{} // closed when the check may run
}

func newLimiter(total, each int) *limiter {
	return &limiter{total: total, each: each, byName: map[string]int{}}
}

// take waits until a check for name may run. The caller must call done after it.
func (t *limiter) take(ctx context.Context, name string) (done func(), err error) {
	t.mu.Lock()
	w := &waiter{name: name, begin: make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.start()
	t.mu.Unlock()
	select {
	case <-w.begin:
		return func() { t.end(name) }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.mu.Unlock()
		return nil, ctx.Err()
	}
	t.mu.Unlock()
	t.end(name) // admitted at the same time
	return nil, ctx.Err()
}

func (t *limiter) end(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	if t.byName[name]--; t.byName[name] == 0 {
		delete(t.byName, name)
	}
	t.start()
}

// start admits all checks that may run now. mu must be held.
func (t *limiter) start() {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *waiter) bool {
		if t.running >= t.total || t.byName[w.name] >= t.each {
			return false
		}
		t.running++
		t.byName[w.name]++
		close(w.begin)
		return true
	})
}
