package channel

import (
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"brine/internal/net/transport"
)

// TestLargeRequestsWait: large requests of one minion wait for each other, but
// not for those of another minion, and an answer admits the next one.
func TestLargeRequestsWait(t *testing.T) {
	table := &minionTable{large: semaphore.NewWeighted(maxLarge)}
	evil, good := &minionState{}, &minionState{}
	first := releasing(&transport.Request{Reply: func([]byte) {}}, table.reserve(evil, maxLargeEach/2))
	second := table.reserve(evil, maxLargeEach/2)
	third := make(chan func(), 1)
	go func() { third <- table.reserve(evil, 100*maxLargeEach) }() // larger than any limit: waits for all others
	other := make(chan func(), 1)
	go func() { other <- table.reserve(good, maxLargeEach) }()
	select {
	case release := <-other:
		release()
	case <-time.After(time.Minute):
		t.Fatal("a minion waits for another one's large requests")
	}
	first.Reply(nil)
	select {
	case <-third:
		t.Fatal("a request that takes the whole bound was let in beside another one")
	case <-time.After(10 * time.Millisecond):
	}
	second()
	second() // a second answer frees nothing
	select {
	case release := <-third:
		release()
	case <-time.After(time.Minute):
		t.Fatal("the answers have not let the waiting request in")
	}
	if !table.large.TryAcquire(maxLarge) || !evil.large.TryAcquire(maxLargeEach) {
		t.Error("bytes are still held after the last answer")
	}
}
