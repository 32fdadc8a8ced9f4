// Package queue holds the messages that wait for another master.
package queue

import (
	"sync"

	"brine/internal/base/wait"
)

// Bounds of the messages that wait for an unreachable or slow peer.
const (
	Items      = 50_000
	Bytes      = 64 << 20
	EarlyItems = 5_000
	EarlyBytes = 8 << 20
)

// Queue is a queue of messages that wait to be sent and acknowledged, numbered from 1. When it is full the oldest messages are dropped.
type Queue struct {
	maxItems, maxBytes int

	Mu    sync.Mutex
	Items [][]byte
	First uint64 // number of items[0]
	bytes int
	lost  uint64
	More  wait.Wakeup // something was added
}

// New returns a queue that holds at most that many messages and bytes.
func New(items, bytes int) *Queue {
	return &Queue{maxItems: items, maxBytes: bytes, First: 1, More: wait.NewWakeup()}
}

// Add appends a message, which must not be modified afterwards.
func (o *Queue) Add(b []byte) {
	o.Mu.Lock()
	o.Items = append(o.Items, b)
	o.bytes += len(b)
	for len(o.Items) > 1 && (len(o.Items) > o.maxItems || o.bytes > o.maxBytes) {
		o.drop(1)
		o.lost++
	}
	o.Mu.Unlock()
	o.More.Wake()
}

// drop drops the n oldest messages; o.mu is held.
func (o *Queue) drop(n int) {
	for _, b := range o.Items[:n] {
		o.bytes -= len(b)
	}
	clear(o.Items[:n])
	o.Items = o.Items[n:]
	o.First += uint64(n)
	if len(o.Items) == 0 {
		o.Items = nil
	}
}

// Ack removes all messages up to a number.
func (o *Queue) Ack(n uint64) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if n >= o.First {
		o.drop(int(min(n-o.First+1, uint64(len(o.Items)))))
	}
}

// From returns the messages from a number on, at most n and about size bytes, and the number of the first.
func (o *Queue) From(next uint64, n, size int) (first uint64, items [][]byte) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	first = max(next, o.First)
	for i := first - o.First; i < uint64(len(o.Items)) && n > 0 && size > 0; i++ {
		items = append(items, o.Items[i])
		size -= len(o.Items[i])
		n--
	}
	return first, items
}

// Clear removes all messages.
func (o *Queue) Clear() {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	o.drop(len(o.Items))
}

// TakeLost returns how many messages were lost since the last call.
func (o *Queue) TakeLost() uint64 {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	n := o.lost
	o.lost = 0
	return n
}
