package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
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
	// shrinks is how many further collections there are then, since each halves
	// a stack at most, and a sign-in takes eight times what a connection waits with.
	shrinks = 2
)

// masterRoom is how much garbage a master may make, besides as much as it uses,
// before it is collected. It uses 5 MB for some hundred minions, and makes more
// garbage than that in 20 ms of full load; and each collection looks at the stacks
// of all connections, and makes those small again that the next request needs.
const masterRoom = memorySlack

// keepMemory has the garbage collector wait for room bytes of garbage at least,
// and returns to the system what a burst has left, until ctx ends. By itself
// the runtime keeps that for minutes: with few allocations there is no collection
// that would find it free.
func keepMemory(ctx context.Context, room int) {
	reserve := newReserve(room)
	defer runtime.KeepAlive(reserve)
	memoryNow := func() use {
		now := memoryNow()
		now.held -= min(now.held, uint64(len(reserve)))
		return now
	}
	tick := time.NewTicker(memoryLook)
	defer tick.Stop()
	g := giver{last: memoryNow(), fresh: true}
	g.given = g.last
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := memoryNow(); g.worth(now) {
			for i := 0; i < shrinks && g.stacksGrew(now); i++ {
				runtime.GC()
			}
			debug.FreeOSMemory()
			// A master that is at rest between two publications needs what it has:
			// without, the last of 9,900 minions had the next one a fifth later.
			if room == 0 {
				unmapProgram()
			}
			g.gave(memoryNow())
		}
	}
}

// newReserve returns n bytes that the garbage collector takes for memory in use,
// as much as which it lets the rest grow by. They are never written, so they take
// no memory of the system.
func newReserve(n int) []byte {
	b := make([]byte, n)
	page := os.Getpagesize()
	whole := b
	if over := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % uintptr(page)); over > 0 {
		whole = b[min(page-over, n):]
	}
	if whole = whole[:len(whole)/page*page]; len(whole) > 0 {
		// Where the runtime has used this place before, it has written zeroes.
		_ = unix.Madvise(whole, unix.MADV_DONTNEED)
	}
	return b
}

// use is what the runtime has from the system, what the program has allocated
// since its start, and what stacks take of the first, all in bytes.
type use struct{ held, allocs, stacks uint64 }

// giver decides when memory is to be given back.
type giver struct {
	last, given use  // at the last look, when memory was given back
	fresh       bool // it was never at rest
	atWork      bool // at the last look
	looks       int  // since then
	pause       int  // looks until a daemon at rest is asked again
}

// worth reports whether there is something to give back now: at rest after the
// start and after any work, and under load when it has become far more than it was. What is in use
// counts twice there, as so much the collector lets it grow. A daemon at rest
// that still has much is asked again, more and more seldom: connections that
// end leave what they held without any work.
func (g *giver) worth(now use) bool {
	since := now.allocs - g.last.allocs
	g.last = now
	g.looks++
	g.atWork = since >= restAllocs
	switch {
	case now.held > 2*g.given.held+memorySlack:
		return true
	case g.atWork:
		return false
	case g.fresh:
		g.fresh = false
		return true
	case now.allocs-g.given.allocs > worthAllocs:
		g.pause = 0
		return true
	}
	return now.held > 3*memorySlack && g.looks > g.pause
}

// stacksGrew reports whether there are stacks to make small: where there are none,
// a collection looks at those of all connections without effect.
func (g *giver) stacksGrew(now use) bool { return now.stacks > g.given.stacks+g.given.stacks/8 }

// gave notes what is left after memory was given back.
func (g *giver) gave(now use) {
	if g.atWork {
		now.stacks = 0 // of those in use nothing is known
	}
	g.given, g.looks, g.pause = now, 0, min(2*g.pause+1, maxPause)
}

func memoryNow() use {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return use{held: s[0].Value.Uint64() - s[1].Value.Uint64(), allocs: s[2].Value.Uint64(), stacks: s[3].Value.Uint64()}
}
