package netpeer

import (
	"net"
	"sync"
)

// Message is one message to write, in two parts so that neither need be
// copied. Both may be shared between queues and must not change.
type Message struct {
	Head, Body []byte
	// Sent is as in transport.Answer.
	Sent func(free bool)
}

func (m Message) done(free bool) {
	if m.Sent != nil {
		m.Sent(free)
	}
}

func (m Message) size() int { return len(m.Head) + len(m.Body) }

// Limits of one call of Queue.Write.
const (
	batchMessages = 64
	batchBytes    = 64 << 10
)

// Queue holds the messages for one peer and writes them in order. The caller that adds the first
// one writes what the connection accepts at once (Try); a goroutine writes the rest, or everything
// without Try, and ends after that. So an idle peer costs no goroutine, and a healthy one no more
// than its system calls. It is safe for concurrent use.
type Queue struct {
	// Limit bounds the messages that wait or are being written; 0 means no limit.
	Limit int
	// Try, if set, writes what the connection accepts without waiting, and returns the number of
	// bytes. Write finds any error.
	Try func([]Message) int
	// Write writes messages; calls do not overlap. After an error the queue is closed; Write must
	// notify the owner of the connection.
	Write func([]Message) error
	// Written, if set, is called with the bytes of each written batch.
	Written func(messages, bytes int)

	mu      sync.Mutex
	idle    sync.Cond // signalled when the writer ends; L is set on first use
	waiting []Message
	writing int // messages of the current batch
	busy    bool
	closed  bool
	dropped uint64
}

// Push appends m without waiting for the peer. It returns false, and counts a drop, if the queue is
// full; a closed queue accepts and drops everything.
func (q *Queue) Push(m Message) bool {
	ok, rest := q.Put(m)
	if rest {
		q.Flush()
	}
	return ok
}

// Put is Push without writing. If rest is true, the queue was idle, and the caller must call Flush.
func (q *Queue) Put(m Message) (ok, rest bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		m.done(true)
		return true, false
	}
	if q.Limit > 0 && len(q.waiting)+q.writing >= q.Limit {
		q.dropped++
		m.done(true)
		return false, false
	}
	q.waiting = append(q.waiting, m)
	rest = !q.busy
	q.busy = true
	return true, rest
}

// Flush writes what the connection accepts at once and leaves the rest to a goroutine. Call it once
// after each Put that asks for it.
func (q *Queue) Flush() {
	if q.Try == nil {
		go q.drain(nil, 0, 0, nil)
		return
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	for {
		batch := q.take(s.batch[:0])
		if len(batch) == 0 {
			return
		}
		size := sizeOf(batch)
		if n := q.Try(batch); n < size {
			go q.drain(after(batch, n), len(batch), size, told(batch))
			return
		}
		q.written(len(batch), size)
		for _, m := range batch {
			m.done(true)
		}
	}
}

// scratch is the space for one batch.
type scratch struct{ batch [batchMessages]Message }

var scratches = sync.Pool{New: func() any { return &scratch{} }}

func (s *scratch) free() {
	clear(s.batch[:])
	scratches.Put(s)
}

func sizeOf(ms []Message) (n int) {
	for _, m := range ms {
		n += m.size()
	}
	return n
}

// after returns the rest of messages of which n bytes are written.
func after(ms []Message, n int) []Message {
	var rest []Message
	for _, m := range ms {
		skip := min(n, len(m.Head))
		m.Head, n = m.Head[skip:], n-skip
		skip = min(n, len(m.Body))
		m.Body, n = m.Body[skip:], n-skip
		if m.size() > 0 {
			rest = append(rest, m)
		}
	}
	return rest
}

// told returns the messages with a Sent function.
func told(ms []Message) []Message {
	var out []Message
	for _, m := range ms {
		if m.Sent != nil {
			out = append(out, m)
		}
	}
	return out
}

// Remove removes a message that is not being written yet, found by the identity of its head, and
// reports whether it did.
func (q *Queue) Remove(head []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range q.waiting {
		if len(m.Head) > 0 && len(head) > 0 && &m.Head[0] == &head[0] {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// Close drops the waiting messages and accepts no more.
func (q *Queue) Close() {
	q.mu.Lock()
	gone := q.waiting
	q.closed, q.waiting = true, nil
	q.mu.Unlock()
	for _, m := range gone {
		m.done(true)
	}
}

// Wait returns when no message waits or is being written. The owner must make that happen, by a
// deadline or by closing the connection.
func (q *Queue) Wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle.L == nil {
		q.idle.L = &q.mu
	}
	for q.busy {
		q.idle.Wait()
	}
}

// Len returns the number of messages that wait or are being written.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) + q.writing
}

// Dropped returns the number of messages that found the queue full.
func (q *Queue) Dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// drain writes until no message waits: first the rest of a batch, which counts as so many messages
// and bytes. tell are those of them with a Sent function.
func (q *Queue) drain(batch []Message, messages, bytes int, tell []Message) {
	for {
		if len(batch) > 0 {
			if err := q.Write(batch); err != nil {
				q.Close()
			}
			q.written(messages, bytes)
			for _, m := range tell {
				m.done(true)
			}
			clear(batch)
		}
		if batch = q.take(batch[:0]); len(batch) == 0 {
			return
		}
		messages, bytes, tell = len(batch), sizeOf(batch), told(batch)
	}
}

func (q *Queue) written(messages, bytes int) {
	if q.Written != nil {
		q.Written(messages, bytes)
	}
}

// take moves the next messages to batch, or ends the writer if there are none.
func (q *Queue) take(batch []Message) []Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < len(q.waiting) && n < batchMessages && (n == 0 || size+q.waiting[n].size() <= batchBytes) {
		size += q.waiting[n].size()
		n++
	}
	batch = append(batch, q.waiting[:n]...)
	clear(q.waiting[:n])
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	q.writing = n
	if n == 0 {
		q.busy = false
		if q.idle.L != nil {
			q.idle.Broadcast()
		}
	}
	return batch
}

// WriteAll writes the messages to conn with as few system calls as possible.
func WriteAll(conn net.Conn, ms []Message) error {
	size := sizeOf(ms)
	live, plain := conn.(*Conn)
	if plain && size <= writeStep {
		return writeVector(live.Conn, ms)
	}
	if size <= writeStep {
		// One TLS record, not one per part.
		all := make([]byte, 0, size)
		for _, m := range ms {
			all = append(append(all, m.Head...), m.Body...)
		}
		_, err := conn.Write(all)
		return err
	}
	for _, m := range ms {
		if len(m.Head) > 0 {
			if _, err := conn.Write(m.Head); err != nil {
				return err
			}
		}
		if len(m.Body) > 0 {
			if _, err := conn.Write(m.Body); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeVector(conn net.Conn, ms []Message) error {
	parts := make(net.Buffers, 0, 2*len(ms))
	for _, m := range ms {
		if len(m.Head) > 0 {
			parts = append(parts, m.Head)
		}
		if len(m.Body) > 0 {
			parts = append(parts, m.Body)
		}
	}
	_, err := parts.WriteTo(conn)
	return err
}
