package daemon

import (
	"context"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestWorthGivingBack(t *testing.T) {
	const mb = 1 << 20
	g := giver{last: use{held: 20 * mb, allocs: 0}, given: use{held: 20 * mb, allocs: 0}}
	for i, c := range []struct {
		now  use
		want bool
	}{
		{use{held: 20 * mb, allocs: mb / 4}, false},      // idle since the start
		{use{held: 40 * mb, allocs: 40 * mb}, false},     // under load
		{use{held: 40 * mb, allocs: 40*mb + 1000}, true}, // idle after that
		{use{held: 57 * mb, allocs: 400 * mb}, true},     // far more than before
		{use{held: 50 * mb, allocs: 500 * mb}, false},    // under load again
	} {
		got := g.worth(c.now)
		if got != c.want {
			t.Errorf("step %d: %v", i, got)
		}
		if got {
			g.gave(use{held: 20 * mb, allocs: c.now.allocs})
		}
	}
	if now := memoryNow(); now.held < mb || now.allocs == 0 {
		t.Errorf("this process takes %+v", now)
	}
}

// A start leaves more memory than an idle daemon needs.
func TestGivenBackAfterStart(t *testing.T) {
	const mb = 1 << 20
	g := giver{last: use{held: 20 * mb, allocs: 0}, given: use{held: 20 * mb, allocs: 0}, fresh: true}
	if g.worth(use{held: 20 * mb, allocs: mb}) {
		t.Error("while it starts")
	}
	if !g.worth(use{held: 20 * mb, allocs: mb + 1000}) {
		t.Error("not at rest after the start")
	}
	g.gave(use{held: 10 * mb, allocs: mb + 1000})
	if g.worth(use{held: 10 * mb, allocs: mb + 2000}) {
		t.Error("again without a reason")
	}
}

// A burst that has not grown the stacks, like a publication, does not cause scans of them.
func TestStacksMadeSmall(t *testing.T) {
	const mb = 1 << 20
	g := giver{last: use{held: 20 * mb}, given: use{held: 20 * mb, stacks: 4 * mb}}
	if g.stacksGrew(use{stacks: 4*mb + 1000}) {
		t.Error("though they have not grown")
	}
	if !g.stacksGrew(use{stacks: 5 * mb}) {
		t.Error("not though they have grown")
	}
	load := use{held: 100 * mb, allocs: 100 * mb, stacks: 40 * mb}
	if !g.worth(load) {
		t.Fatal("much more than there was")
	}
	g.gave(load)
	if !g.stacksGrew(load) {
		t.Error("not though they were in use the last time")
	}
	rest := use{held: 100 * mb, allocs: 100*mb + 1, stacks: 20 * mb}
	g.worth(rest)
	g.gave(rest)
	if g.stacksGrew(rest) {
		t.Error("though that was done")
	}
}

// Memory that is in use at a release, and is freed later without any work, is released too. A
// daemon that needs its memory tries less and less often.
func TestAskedAgainAtRest(t *testing.T) {
	const mb = 1 << 20
	g := giver{last: use{held: 20 * mb, allocs: 0}, given: use{held: 20 * mb, allocs: 0}}
	if !g.worth(use{held: 100 * mb, allocs: 100 * mb}) { // under load
		t.Fatal("much more than there was")
	}
	g.gave(use{held: 90 * mb, allocs: 100 * mb})
	asked := 0
	for range 1000 {
		if g.worth(use{held: 90 * mb, allocs: 100*mb + 1}) {
			asked++
			g.gave(use{held: 90 * mb, allocs: 100*mb + 1})
		}
	}
	if asked < 5 || asked > 15 {
		t.Errorf("asked %d times in 1000 looks", asked)
	}
	g.gave(use{held: 20 * mb, allocs: 100*mb + 1})
	for range 1000 {
		if g.worth(use{held: 20 * mb, allocs: 100*mb + 2}) {
			t.Fatal("asked although there is little")
		}
	}
}

// The collector waits until there are room bytes of garbage.
func TestRoomForGarbage(t *testing.T) {
	const room = 256 << 20 // far more than the other tests of this process use
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keepMemory(ctx, room)
	}()
	goal := func() uint64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	for deadline := time.Now().Add(time.Minute); goal() < 2*room; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("garbage is collected when %d bytes are in use, want %d", goal(), 2*room)
		}
	}
	cancel()
	<-done
}
