package master

import (
	"brine/internal/base/ratelimit"
	"sync"
	"time"
)

// group runs the parts of the daemon and reports the first failure.
type group struct {
	sync.WaitGroup
	failed chan<- error
}

func (g *group) Go(f func() error) {
	g.WaitGroup.Go(func() {
		if err := f(); err != nil {
			select {
			case g.failed <- err:
			default:
			}
		}
	})
}

// pendingCount caches the number of pending keys for a moment, so that many
// unknown minions do not make the master read the directory each time. Between
// reads it may be too high, never too low.
type pendingCount struct {
	rateLimitedLog *ratelimit.Log

	mu sync.Mutex
	n  int
	at time.Time
}

// added records that a key may have been added.
func (p *pendingCount) added() {
	p.mu.Lock()
	p.n++
	p.mu.Unlock()
}

// reached reports whether limit keys are pending.
func (p *pendingCount) reached(limit int, count func() int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := time.Since(p.at)
	if age > 10*time.Second || p.n >= limit && age > 2*time.Second {
		p.n, p.at = count(), time.Now()
	}
	return p.n >= limit
}
