// Package fetch decides when a master fetches what it serves from elsewhere, of
// which the masters of a cluster have one do so for all as long as they hear of
// it.
package fetch

import (
	"math"
	"sync"
	"time"
)

// States are what is served of things that were fetched, by names that are the
// same on all masters: equal texts mean equal content.
type States map[string]string

// Turn says when one thing is to be fetched. The zero Turn wants that at once.
type Turn struct {
	mu           sync.Mutex
	tried, heard time.Time
	asked        bool
}

// patience is how long a master relies on another one that fetches, after it
// has heard of it last. The constant part is for short intervals, which a master
// under load may miss some of.
func patience(interval time.Duration) time.Duration { return 3*interval + 10*time.Second }

// Due reports whether it is time. leads says that this master fetches for all;
// others do so after a word of the one that leads (Told), or without one for a
// few intervals.
func (t *Turn) Due(interval time.Duration, leads bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.tried.IsZero() || t.asked:
		return true
	case time.Since(t.tried) < interval:
		return false
	}
	return leads || t.heard.IsZero() || time.Since(t.heard) >= patience(interval)
}

// Since is how long ago this master has tried to fetch, forever if it never has.
func (t *Turn) Since() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tried.IsZero() {
		return math.MaxInt64
	}
	return time.Since(t.tried)
}

// Take says that it is fetched now.
func (t *Turn) Take() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried, t.asked = time.Now(), false
}

// Told says that another master has fetched it: the one that does so for all
// (regular), or one that was told to. Unless both serve the same now, this
// master is to fetch, too.
func (t *Turn) Told(same, regular bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if regular {
		t.heard = time.Now()
	}
	t.asked = t.asked || !same
}

// Reset forgets all, so that it is fetched at once.
func (t *Turn) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried, t.heard, t.asked = time.Time{}, time.Time{}, false
}
