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
	g := giver{last: use{20 * mb, 0}, given: use{20 * mb, 0}}
	for i, c := range []struct {
		now  use
		want bool
	}{
		{use{20 * mb, mb / 4}, false},      // nothing has happened
		{use{40 * mb, 40 * mb}, false},     // at work
		{use{40 * mb, 40*mb + 1000}, true}, // at rest after it
		{use{57 * mb, 400 * mb}, true},     // far more than there was
		{use{50 * mb, 500 * mb}, false},    // at work again
	} {
		got := g.worth(c.now)
		if got != c.want {
			t.Errorf("step %d: %v", i, got)
		}
		if got {
			g.gave(use{20 * mb, c.now.allocs})
		}
	}
	if now := memoryNow(); now.held < mb || now.allocs == 0 {
		t.Errorf("this process takes %+v", now)
	}
}

// A start leaves more than a daemon at rest needs.
func TestGivenBackAfterStart(t *testing.T) {
	const mb = 1 << 20
	g := giver{last: use{20 * mb, 0}, given: use{20 * mb, 0}, fresh: true}
	if g.worth(use{20 * mb, mb}) {
		t.Error("while it starts")
	}
	if !g.worth(use{20 * mb, mb + 1000}) {
		t.Error("not at rest after the start")
	}
	g.gave(use{10 * mb, mb + 1000})
	if g.worth(use{10 * mb, mb + 2000}) {
		t.Error("again without a reason")
	}
}

// What is in use when memory is given back, and is freed later without any
// work, is given back, too; and a daemon that needs what it has is left alone
// more and more.
func TestAskedAgainAtRest(t *testing.T) {
	const mb = 1 << 20
	g := giver{last: use{20 * mb, 0}, given: use{20 * mb, 0}}
	if !g.worth(use{100 * mb, 100 * mb}) { // under load
		t.Fatal("much more than there was")
	}
	g.gave(use{90 * mb, 100 * mb})
	asked := 0
	for range 1000 {
		if g.worth(use{90 * mb, 100*mb + 1}) {
			asked++
			g.gave(use{90 * mb, 100*mb + 1})
		}
	}
	if asked < 5 || asked > 15 {
		t.Errorf("asked %d times in 1000 looks", asked)
	}
	g.gave(use{20 * mb, 100*mb + 1})
	for range 1000 {
		if g.worth(use{20 * mb, 100*mb + 2}) {
			t.Fatal("asked although there is little")
		}
	}
}

// The collector waits for as much garbage as there is room for.
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
