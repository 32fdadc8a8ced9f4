//go:build !race

package netpeer

import "testing"

// TestAllocations: a message that the connection accepts at once costs only its
// place in the queue.
func TestAllocations(t *testing.T) {
	q := &Queue{Try: sizeOf}
	m := Message{Head: []byte("head"), Body: []byte("body")}
	if n := testing.AllocsPerRun(100, func() { q.Push(m) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
