package filequota

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/net/crypt"
)

// TestQueueOfFilesIsFair: minions with one request each do not wait for the
// hundreds of requests that another minion sent before.
func TestQueueOfFilesIsFair(t *testing.T) {
	const part = 1 << 20
	q := New(8 * part)
	var held []*Turn
	for len(held) < partsEach {
		held = append(held, q.Wait("greedy", part))
	}
	greedy := make(chan *Turn, 300)
	for range 300 {
		go func() { greedy <- q.Wait("greedy", part) }()
	}
	for i := range 20 {
		done := make(chan *Turn)
		go func() { done <- q.Wait(fmt.Sprint("modest", i), part) }()
		select {
		case turn := <-done:
			if turn.Size < leastPart || turn.Size > part {
				t.Fatalf("a part of %d bytes", turn.Size)
			}
			turn.End()
			turn.End()
		case <-time.After(time.Minute):
			t.Fatal("a minion that asks once waits behind one that asks always")
		}
	}
	for _, turn := range held {
		turn.End()
	}
	for range 300 {
		select {
		case turn := <-greedy:
			turn.End()
		case <-time.After(time.Minute):
			t.Fatal("a request is forgotten")
		}
	}
	q.checkEmpty(t)
}

func (q *Queue) checkEmpty(t *testing.T) {
	t.Helper()
	if q.free != q.total || len(q.held)+len(q.waiting)+len(q.order)+len(q.shared) > 0 {
		t.Errorf("of %d bytes %d are free; %v %v %v %v are left", q.total, q.free, q.held, q.waiting, q.order, q.shared)
	}
}

// TestQueueOfFilesIsBounded: with slow requests of a thousand minions at once, the
// bytes in progress never exceed the limit, and all minions get their parts.
func TestQueueOfFilesIsBounded(t *testing.T) {
	const part, total = 1 << 20, 8 << 20
	for name, one := range map[string]*crypt.Shared{"parts of their own": nil, "one part for all": crypt.NewShared(make([]byte, part))} {
		q := New(total)
		var now, most, served atomic.Int64
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				turn := q.Wait(fmt.Sprint("minion", i), part)
				size := turn.Size
				if one != nil {
					turn.Shares(one)
					size = leastPart
				}
				for n := now.Add(size); ; {
					if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				time.Sleep(time.Millisecond)
				now.Add(-size)
				served.Add(1)
				turn.End()
			})
		}
		wg.Wait()
		if served.Load() != 1000 || most.Load() > total {
			t.Errorf("%s: %d served, at most %d bytes at a time", name, served.Load(), most.Load())
		}
		q.checkEmpty(t)
	}
}
