package transporttest

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"brine/internal/net/transport"
)

// smallStack is a stack of 4 KiB plus a margin.
const smallStack = 5 << 10

// SmallStacks fails the test if the goroutines that wait for new peers keep
// large stacks, which is most of what an idle connection costs. connect makes
// the peers, without goroutines of its own.
//
// The runtime halves a stack of which less than a quarter is in use, and 800
// bytes count in any case: with more than 1.2 KiB in use it stays at 8 KiB.
// Under the race detector more is in use, and the test means nothing.
func SmallStacks(t *testing.T, peers int, connect func()) {
	t.Helper()
	before := stacks()
	connect()
	var each int64
	for deadline := time.Now().Add(Timeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if each = (stacks() - before) / int64(peers); each <= smallStack {
			return
		}
	}
	t.Errorf("a peer that waits takes %d bytes of stack", each)
}

// stacks returns the size of the goroutines' stacks after the runtime could shrink them.
func stacks() int64 {
	for range 3 {
		runtime.GC()
	}
	s := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// Deep is a handler that echoes, and uses some stack, as all do.
func Deep(r *transport.Request) {
	var space [6 << 10]byte
	n := copy(space[:], r.Body)
	r.Reply(append([]byte(nil), space[:n]...))
}
