package channel

import (
	"testing"
	"time"
)

// TestNonceRing: no new nonce is considered a replay, however many arrive at
// once, and a repeated one within the time is; later there is room again.
func TestNonceRing(t *testing.T) {
	var r nonceRing
	now := time.Unix(1_800_000_000, 0)
	const burst = 5000
	for h := range uint64(burst) {
		if _, before := r.add(h, 0, now); before {
			t.Fatalf("nonce %d is new", h)
		}
		now = now.Add(10 * time.Millisecond)
	}
	for h := range uint64(burst) {
		if _, before := r.add(h, 0, now); !before {
			t.Fatalf("nonce %d was there", h)
		}
	}
	now = now.Add(replayTime + time.Minute)
	for h := range uint64(nonceWindow) {
		if _, before := r.add(burst+h, 0, now); before {
			t.Fatalf("nonce %d is new", burst+h)
		}
	}
	if n := cap(r.hashes); n > 2*nonceWindow {
		t.Errorf("after the burst there is room for %d", n)
	}
	for h := range uint64(nonceWindow) {
		since, before := r.add(burst+h, 0, now.Add(time.Hour))
		if !before || !since.Equal(now) {
			t.Errorf("nonce %d was there since %v: %v %v", burst+h, now, since, before)
		}
	}
	for h := range uint64(nonceMost + 1000) {
		r.add(1_000_000+h, 0, now)
	}
	if n := len(r.hashes) - r.next; n != nonceMost {
		t.Errorf("%d nonces of one second are remembered", n)
	}
}
