package cluster

import (
	"sync"

	"brine/internal/base/wait"
)

// Bounds of the messages that wait for an unreachable or slow peer.
const (
	outboxItems = 50_000
	outboxBytes = 64 << 20
	earlyItems  = 5_000
	earlyBytes  = 8 << 20
)

// outbox is a queue of messages that wait to be sent and acknowledged, numbered from 1. When it is full the oldest messages are dropped.
type outbox struct {
	maxItems, maxBytes int

	mu    sync.Mutex
	items [][]byte
	first uint64 // number of items[0]
	bytes int
	lost  uint64
	more  wait.Wakeup // something was added
}

func newOutbox(items, bytes int) *outbox {
	return &outbox{maxItems: items, maxBytes: bytes, first: 1, more: wait.NewWakeup()}
}

// add appends a message, which must not be modified afterwards.
func (o *outbox) add(b []byte) {
	o.mu.Lock()
	o.items = append(o.items, b)
	o.bytes += len(b)
	for len(o.items) > 1 && (len(o.items) > o.maxItems || o.bytes > o.maxBytes) {
		o.drop(1)
		o.lost++
	}
	o.mu.Unlock()
	o.more.Wake()
}

// drop drops the n oldest messages; o.mu is held.
func (o *outbox) drop(n int) {
	for _, b := range o.items[:n] {
		o.bytes -= len(b)
	}
	clear(o.items[:n])
	o.items = o.items[n:]
	o.first += uint64(n)
	if len(o.items) == 0 {
		o.items = nil
	}
}

// ack removes all messages up to a number.
func (o *outbox) ack(n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n >= o.first {
		o.drop(int(min(n-o.first+1, uint64(len(o.items)))))
	}
}

// from returns the messages from a number on, at most n and about size bytes, and the number of the first.
func (o *outbox) from(next uint64, n, size int) (first uint64, items [][]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first = max(next, o.first)
	for i := first - o.first; i < uint64(len(o.items)) && n > 0 && size > 0; i++ {
		items = append(items, o.items[i])
		size -= len(o.items[i])
		n--
	}
	return first, items
}

// clear removes all messages.
func (o *outbox) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(len(o.items))
}

// takeLost returns how many messages were lost since the last call.
func (o *outbox) takeLost() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.lost
	o.lost = 0
	return n
}
