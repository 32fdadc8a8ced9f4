package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	memoryLook  = 2 * time.Second
	memorySlack = 16 << 20
	// restAllocs is how much a daemon at rest allocates between two looks at
	// most, and worthAllocs how much it must have since memory was given back
	// for that to be worth another collection.
	restAllocs  = 512 << 10
	worthAllocs = 8 << 20
	// maxPause is the longest time between two looks whether a daemon at rest
	// still needs what it has, counted in looks.
	maxPause = 300
)

// giveBackMemory returns to the system what a burst has left, until ctx ends.
// By itself the runtime keeps it for minutes: with few allocations there is no
// collection that would find it free.
func giveBackMemory(ctx context.Context) {
	tick := time.NewTicker(memoryLook)
	defer tick.Stop()
	g := giver{last: memoryNow()}
	g.given = g.last
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if g.worth(memoryNow()) {
			debug.FreeOSMemory()
			g.gave(memoryNow())
		}
	}
}

// use is what the runtime has from the system, and what the program has
// allocated since its start, both in bytes.
type use struct{ held, allocs uint64 }

// giver decides when memory is to be given back.
type giver struct {
	last, given use // at the last look, when memory was given back
	looks       int // since then
	pause       int // looks until a daemon at rest is asked again
}

// worth tells whether there is something to give back now: at rest after any
// work, and under load when it has become far more than it was. What is in use
// counts twice there, as so much the collector lets it grow. A daemon at rest
// that still has much is asked again, more and more seldom: connections that
// end leave what they held without any work.
func (g *giver) worth(now use) bool {
	since := now.allocs - g.last.allocs
	g.last = now
	g.looks++
	switch {
	case now.held > 2*g.given.held+memorySlack:
		return true
	case since >= restAllocs:
		return false
	case now.allocs-g.given.allocs > worthAllocs:
		g.pause = 0
		return true
	}
	return now.held > 3*memorySlack && g.looks > g.pause
}

// gave notes what is left after memory was given back.
func (g *giver) gave(now use) {
	g.given, g.looks, g.pause = now, 0, min(2*g.pause+1, maxPause)
}

func memoryNow() use {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return use{held: s[0].Value.Uint64() - s[1].Value.Uint64(), allocs: s[2].Value.Uint64()}
}
