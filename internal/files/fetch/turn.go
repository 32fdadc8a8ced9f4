// Package fetch decides when a master fetches the remote data that it serves. In a cluster, one master fetches
// for all, as long as the others hear from it.
package fetch

import (
	"math"
	"sync"
	"time"
)

// States maps names, which are the same on all masters, to the state of the served data: equal strings mean
// equal content.
type States map[string]string

// Turn decides when one item must be fetched. The zero Turn is due at once.
type Turn struct {
	mu           sync.Mutex
	tried, heard time.Time
	asked        bool
}

// waitLimit is how long a master relies on messages of another one that fetches. The constant part is for short
// intervals, of which a master under load may miss some.
func waitLimit(interval time.Duration) time.Duration { return 3*interval + 10*time.Second }

// Due reports whether to fetch now. leads means that this master fetches for all. Others fetch after a message
// of the leading master (Told), or after a few intervals without one.
func (t *Turn) Due(interval time.Duration, leads bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.tried.IsZero() || t.asked:
		return true
	case time.Since(t.tried) < interval:
		return false
	}
	return leads || t.heard.IsZero() || time.Since(t.heard) >= waitLimit(interval)
}

// Since returns the time since this master last tried to fetch, forever if it never did.
func (t *Turn) Since() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tried.IsZero() {
		return math.MaxInt64
	}
	return time.Since(t.tried)
}

// Take records that the item is being fetched now.
func (t *Turn) Take() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried, t.asked = time.Now(), false
}

// Told records that another master has fetched the item: the leading one (regular), or one that was asked to.
// same means that both now serve the same data; otherwise this master must fetch, too.
func (t *Turn) Told(same, regular bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if regular {
		t.heard = time.Now()
	}
	t.asked = t.asked || !same
}

// Reset forgets everything, so that the item is due at once.
func (t *Turn) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried, t.heard, t.asked = time.Time{}, time.Time{}, false
}
