package jinja

import (
	goruntime "runtime"
	"sync/atomic"
	"time"
)

// A loop that appends to a string leaves a copy of it behind at each turn. Memory
// that the garbage collector has freed may be allocated again, so that the limit
// applies to what a rendering has in memory, not to all that it ever allocated.
// Garbage that is not freed yet still counts, because the limit protects the
// process.

// reclaimer counts the bytes of values that can be returned to the budget.
type reclaimer struct {
	lent  int           // not returned yet
	freed *atomic.Int64 // by the collector, and not credited yet
	tired bool          // our last forced collection freed little
}

// lentFrom is the minimum size in bytes of a tracked value. Smaller ones are
// cheaper to allocate than to track.
const lentFrom = 1 << 10

type loan struct {
	to *atomic.Int64
	n  int64
}

// lend returns the n bytes of the value at p to the budget once it is freed.
func lend[T any](rt *runtime, p *T, n int) {
	if n < lentFrom || p == nil {
		return
	}
	d := &rt.dead
	if d.freed == nil {
		d.freed = new(atomic.Int64)
	}
	d.lent += n
	goruntime.AddCleanup(p, func(l loan) { l.to.Add(l.n) }, loan{d.freed, int64(n)})
}

// reclaim credits freed bytes. If less than need bytes are left then, it forces a
// garbage collection, unless that can free only a small part of the limit: so
// collections stay rare compared with the allocations.
func (rt *runtime) reclaim(need int) {
	d := &rt.dead
	if d.freed == nil {
		return
	}
	rt.credit()
	if rt.left >= need || d.tired || d.lent < rt.env.o.MaxOutput/4 {
		return
	}
	before := rt.left
	goruntime.GC()
	// Cleanups run on separate goroutines.
	for range 50 {
		if rt.credit() == 0 && rt.left > before {
			break
		}
		time.Sleep(time.Millisecond)
	}
	d.tired = rt.left-before < rt.env.o.MaxOutput/4
}

func (rt *runtime) credit() (n int) {
	n = int(rt.dead.freed.Swap(0))
	rt.dead.lent -= n
	rt.left += n
	return n
}
