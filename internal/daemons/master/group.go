package master

import (
	"brine/internal/base/ratelimit"
	"sync"
	"time"
)

// group runs the parts of the daemon and sends their errors to failed. It drops
// errors while the buffer of failed is full.
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

// pendingCount caches the number of pending keys for some seconds, so that the
// master does not read the directory for each of many unknown minions. Between
// reads it counts the keys that this master adds, but not the removed ones.
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

// reached reports whether limit keys are pending. count reads their number.
func (p *pendingCount) reached(limit int, count func() int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := time.Since(p.at)
	if age > 10*time.Second || p.n >= limit && age > 2*time.Second {
		p.n, p.at = count(), time.Now()
	}
	return p.n >= limit
}
