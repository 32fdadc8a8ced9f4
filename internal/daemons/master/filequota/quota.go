// Package filequota bounds the memory for parts of files that a master sends, and
// divides it between minions. It does not read or send files itself.
package filequota

import (
	"sync"

	"brine/internal/net/crypt"
)

const (
	// Bytes bounds the parts of files that are being read or sent, in total for all
	// minions.
	Bytes = 64 << 20
	// leastPart is the smallest part under load, in bytes. A reply with a shared part
	// counts as this many bytes.
	leastPart = 64 << 10
	// partsEach bounds the memory of one minion, in parts of the size it asked for.
	partsEach = 4
)

// Queue bounds the memory for parts of files, from before they are read until
// they are written to the connection or the connection is closed. Minions take
// turns, however many requests each sends.
//
// Parts get smaller when half of the memory is used, so that many slow minions
// can be served. A minion that does not read uses memory until the transport
// closes its connection, but only for a few parts.
type Queue struct {
	mu      sync.Mutex
	free    int64
	total   int64
	held    map[string]int64   // used bytes, by minion
	waiting map[string][]*Turn // by minion, in order of arrival
	order   []string           // waiting minions, in order of their turns
	shared  map[*crypt.Shared]*sharedTurns
}

// sharedTurns counts the replies in progress with the same part.
type sharedTurns struct {
	n    int
	size int64
}

// Turn is the memory that one request uses. A nil *Turn uses none.
type Turn struct {
	q      *Queue
	id     string
	Size   int64 // of the part that may be read
	room   int64 // bytes used
	most   int64
	ready  chan struct{}
	shared *crypt.Shared
}

// New returns a queue that grants at most total bytes at a time.
func New(total int64) *Queue {
	return &Queue{free: total, total: total, held: map[string]int64{}, waiting: map[string][]*Turn{}, shared: map[*crypt.Shared]*sharedTurns{}}
}

// Wait blocks until it is a minion's turn to get a part of at most this many
// bytes. Turn.Size is the granted size. The caller must call End.
func (q *Queue) Wait(id string, most int64) *Turn {
	t := &Turn{q: q, id: id, most: min(most, q.total), ready: make(chan struct{})}
	q.mu.Lock()
	if len(q.waiting[id]) == 0 {
		q.order = append(q.order, id)
	}
	q.waiting[id] = append(q.waiting[id], t)
	q.deal()
	q.mu.Unlock()
	<-t.ready
	return t
}

// deal grants turns in order; q.mu is held.
func (q *Queue) deal() {
	for i := 0; i < len(q.order); {
		id := q.order[i]
		t := q.waiting[id][0]
		size := q.part(t.most)
		if size > q.free {
			return
		}
		if q.held[id] > 0 && q.held[id]+size > partsEach*t.most {
			i++ // this minion has used up its share
			continue
		}
		t.Size, t.room = size, size
		q.free -= size
		q.held[id] += size
		q.order = append(q.order[:i], q.order[i+1:]...)
		if q.waiting[id] = q.waiting[id][1:]; len(q.waiting[id]) > 0 {
			q.order = append(q.order, id)
		} else {
			delete(q.waiting, id)
		}
		close(t.ready)
	}
}

// part returns the current maximum size of a part.
func (q *Queue) part(most int64) int64 {
	switch {
	case q.free > q.total/2:
		return most
	case q.free > q.total/4:
		return max(min(most, leastPart), most/4)
	}
	return min(most, leastPart)
}

// Shares tells the queue that other replies may have the same part, so that its
// memory counts once.
func (t *Turn) Shares(s *crypt.Shared) {
	if t == nil {
		return
	}
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	st := q.shared[s]
	if st == nil {
		st = &sharedTurns{size: int64(len(s.Sealed()))}
		q.shared[s] = st
		q.free -= st.size
	}
	st.n++
	t.shared = s
	q.resize(t, min(t.room, leastPart))
	q.deal()
}

func (q *Queue) resize(t *Turn, room int64) {
	q.free += t.room - room
	if q.held[t.id] += room - t.room; q.held[t.id] <= 0 {
		delete(q.held, t.id)
	}
	t.room = room
}

// End frees the memory. Further calls do nothing.
func (t *Turn) End() {
	if t == nil {
		return
	}
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	q.resize(t, 0)
	if s := t.shared; s != nil {
		t.shared = nil
		if st := q.shared[s]; st != nil {
			if st.n--; st.n == 0 {
				delete(q.shared, s)
				q.free += st.size
			}
		}
	}
	q.deal()
}
