package jinja

import (
	goruntime "runtime"
	"sync/atomic"
	"time"
)

// A text that a loop appends to leaves a copy of itself behind at each turn. What
// the garbage collector has freed may be made again, so that the bound holds for
// what a rendering has in memory and not for all that it ever made. What is
// garbage and not freed yet still counts: the bound is one of the process, too.

// reclaimer counts the bytes of values that can be given back.
type reclaimer struct {
	lent  int           // not given back yet
	freed *atomic.Int64 // by the collector, and not credited yet
	tired bool          // a collection of our own was of little use
}

// lentFrom is the least size in bytes of a value that is given back. Smaller ones
// are cheaper to make than to watch.
const lentFrom = 1 << 10

type loan struct {
	to *atomic.Int64
	n  int64
}

// lend has the n bytes of the value at p given back once it is freed.
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

// reclaim credits what was freed. If less than need bytes are left then, it has the
// collector look for more, unless a part of the bound at most can come of it: so
// collections stay rare beside the work of making what they free.
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
	// Cleanups run on goroutines of their own.
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
