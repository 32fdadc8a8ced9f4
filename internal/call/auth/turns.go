package auth

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxAsked bounds how many passwords are checked at once: some systems run
	// a program for each.
	maxAsked = 64
	// maxAskedOfOne bounds that for one user name, so that attempts at one
	// account do not delay the logins of others.
	maxAskedOfOne = 8
)

// turns lets a bounded number of checks run at once, and fewer for each name.
// The others wait in order.
type turns struct {
	total, each int

	mu      sync.Mutex
	running int
	byName  map[string]int
	waiting []*turn
}

type turn struct {
	name  string
	begin chan struct{} // closed when the check may run
}

func newTurns(total, each int) *turns {
	return &turns{total: total, each: each, byName: map[string]int{}}
}

// take waits until a check for name may run. done ends it.
func (t *turns) take(ctx context.Context, name string) (done func(), err error) {
	t.mu.Lock()
	w := &turn{name: name, begin: make(chan struct{})}
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
	t.end(name) // its turn came at the same time
	return nil, ctx.Err()
}

func (t *turns) end(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	if t.byName[name]--; t.byName[name] == 0 {
		delete(t.byName, name)
	}
	t.start()
}

// start begins all checks that may run now. mu must be held.
func (t *turns) start() {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *turn) bool {
		if t.running >= t.total || t.byName[w.name] >= t.each {
			return false
		}
		t.running++
		t.byName[w.name]++
		close(w.begin)
		return true
	})
}
