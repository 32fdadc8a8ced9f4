package master

import (
	"testing"
	"time"
)

// TestOnePeerLeavesSlots: a peer that fills its share waits, others continue, and no state is
// stored for a peer without requests.
func TestOnePeerLeavesSlots(t *testing.T) {
	s := newSlots(8, 2)
	first, second := s.enter("evil"), s.enter("evil")
	entered := make(chan func(), 1)
	go func() { entered <- s.enter("evil") }()
	for range 6 {
		done := make(chan struct{})
		go func() { defer close(done); defer s.enter("good")() }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("a peer waits although slots are free")
		}
	}
	select {
	case <-entered:
		t.Fatal("a third request of a peer got a slot: its share is two")
	default:
	}
	first()
	third := <-entered
	second()
	third()
	if len(s.of) != 0 || len(s.all) != 0 {
		t.Errorf("after the last request: %d peers, %d slots are still held", len(s.of), len(s.all))
	}
}
