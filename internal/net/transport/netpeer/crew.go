package netpeer

import (
	"sync"
)

// turn is the number of queues that one of a crew takes at a time.
const turn = 32

// Crew is a few goroutines that flush queues, so that a message for thousands is written on all
// cores. A queue whose connection is full continues on its own goroutine. The zero Crew is ready to
// use.
type Crew struct {
	mu      sync.Mutex
	wake    sync.Cond // its L is set on first use
	ready   []*Queue
	stopped bool
}

func (c *Crew) init() {
	if c.wake.L == nil {
		c.wake.L = &c.mu
	}
}

// Add adds queues whose Put has asked for Flush.
func (c *Crew) Add(qs []*Queue) {
	if len(qs) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.init()
	c.ready = append(c.ready, qs...)
	if len(qs) > turn {
		c.wake.Broadcast()
	} else {
		c.wake.Signal()
	}
}

// Work flushes queues until Stop is called, and then the remaining ones.
func (c *Crew) Work() {
	var mine [turn]*Queue
	for {
		n := c.take(mine[:])
		if n == 0 {
			return
		}
		for _, q := range mine[:n] {
			q.Flush()
		}
		clear(mine[:])
	}
}

func (c *Crew) take(dst []*Queue) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.init()
	for len(c.ready) == 0 && !c.stopped {
		c.wake.Wait()
	}
	n := copy(dst, c.ready)
	clear(c.ready[:n])
	if c.ready = c.ready[n:]; len(c.ready) == 0 {
		c.ready = nil
	}
	return n
}

// Stop ends Work.
func (c *Crew) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.init()
	c.stopped = true
	c.wake.Broadcast()
}
