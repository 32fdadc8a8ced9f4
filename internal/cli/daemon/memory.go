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
	// restAllocs is the most that an idle daemon allocates between two checks. worthAllocs is how
	// much it must have allocated since the last release of memory to make another collection
	// worthwhile.
	restAllocs  = 512 << 10
	worthAllocs = 8 << 20
	// maxPause is the longest interval, in checks, between two attempts to release memory of an
	// idle daemon.
	maxPause = 300
	// shrinks is the number of further collections in that case. Each at most halves a stack, and a
	// sign-in needs eight times the stack of a waiting connection.
	shrinks = 2
	// unmapBelow is the memory in use, in bytes, below which an idle daemon also releases the pages
	// of its program: 30 MB, of which it needs a tenth until there is work. With more memory in use,
	// it has thousands of connections, and their next message would wait for these pages: the last of
	// 9,900 minions got a publication 20% later.
	unmapBelow = 64 << 20
)

// masterRoom is how much garbage, in addition to the memory in use, a master may create before a
// collection. With some hundred minions it uses 5 MB, and under full load creates more garbage than
// that in 20 ms. Each collection scans the stacks of all connections, and shrinks those that the
// next request needs.
const masterRoom = memorySlack

// keepMemory makes the garbage collector wait for at least room bytes of garbage, and returns
// memory to the system after a burst, until ctx is done. The runtime alone would keep it for
// minutes: with few allocations, no collection finds that it is free.
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
			now := memoryNow()
			if now.held < unmapBelow {
				unmapProgram()
			}
			g.gave(now)
		}
	}
}

// newReserve returns n bytes that the garbage collector counts as memory in use, so that it lets
// the heap grow by as much. They are never written, so they use no memory of the system.
func newReserve(n int) []byte {
	b := make([]byte, n)
	page := os.Getpagesize()
	whole := b
	if over := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % uintptr(page)); over > 0 {
		whole = b[min(page-over, n):]
	}
	if whole = whole[:len(whole)/page*page]; len(whole) > 0 {
		// If the runtime has used this memory before, it has written zeroes to it.
		_ = unix.Madvise(whole, unix.MADV_DONTNEED)
	}
	return b
}

// use is the memory that the runtime has from the system, the total that the program has allocated
// since its start, and the part of the first that stacks use, all in bytes.
type use struct{ held, allocs, stacks uint64 }

// giver decides when to return memory to the system.
type giver struct {
	last, given use  // at the last check, after the last release
	fresh       bool // it was never idle
	atWork      bool // at the last check
	looks       int  // checks since the last release
	pause       int  // checks until an idle daemon tries again
}

// worth reports whether to release memory now: when the daemon is idle after its start or after
// work, and under load when memory has grown far above that after the last release. The limit there
// is twice that, because the collector lets the heap double. An idle daemon that still has much
// memory tries again at growing intervals, because connections that close free memory without any
// work.
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

// stacksGrew reports whether there are stacks to shrink. Otherwise a collection would scan those of
// all connections without effect.
func (g *giver) stacksGrew(now use) bool { return now.stacks > g.given.stacks+g.given.stacks/8 }

// gave records the memory in use after a release.
func (g *giver) gave(now use) {
	if g.atWork {
		now.stacks = 0 // stacks in use cannot be shrunk, so their size is unknown
	}
	g.given, g.looks, g.pause = now, 0, min(2*g.pause+1, maxPause)
}

func memoryNow() use {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return use{held: s[0].Value.Uint64() - s[1].Value.Uint64(), allocs: s[2].Value.Uint64(), stacks: s[3].Value.Uint64()}
}
