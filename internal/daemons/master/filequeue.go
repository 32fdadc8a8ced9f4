package master

import (
	"sync"

	"brine/internal/net/crypt"
)

const (
	// queueBytes bounds the parts of files that are being made or sent, over
	// all minions.
	queueBytes = 64 << 20
	// leastPart is the smallest part that a crowd is served in, in bytes; it
	// is also what the answer with a part that others get as well counts for.
	leastPart = 64 << 10
	// partsEach bounds what one minion has of the queue, in parts.
	partsEach = 4
)

// fileQueue bounds the memory that parts of files take, from before they are
// read until the system has taken them or the peer is gone, and lets minions
// have their turns one after the other, however many requests one sends.
//
// Parts get smaller when half of the room is taken, so that many slow minions
// fit. A minion that reads nothing keeps what it has until its transport gives
// it up, and cannot have more than a few parts.
type fileQueue struct {
	mu      sync.Mutex
	free    int64
	total   int64
	held    map[string]int64   // by minion
	waiting map[string][]*turn // by minion, the first one first
	order   []string           // minions that wait, the next one first
	shared  map[*crypt.Shared]*sharedTurns
}

// sharedTurns are the answers under way that have the same part.
type sharedTurns struct {
	n    int
	size int64
}

// turn is the room that one request has. The nil turn has none.
type turn struct {
	q      *fileQueue
	id     string
	size   int64 // of the part that may be made
	room   int64 // that is taken
	most   int64
	ready  chan struct{}
	shared *crypt.Shared
}

func newFileQueue(total int64) *fileQueue {
	return &fileQueue{free: total, total: total, held: map[string]int64{}, waiting: map[string][]*turn{}, shared: map[*crypt.Shared]*sharedTurns{}}
}

// wait returns when it is a minion's turn to get a part of at most so many
// bytes. The turn must be ended.
func (q *fileQueue) wait(id string, most int64) *turn {
	t := &turn{q: q, id: id, most: min(most, q.total), ready: make(chan struct{})}
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

// deal gives turns to those who wait, in order; q.mu is held.
func (q *fileQueue) deal() {
	for i := 0; i < len(q.order); {
		id := q.order[i]
		t := q.waiting[id][0]
		size := q.part(t.most)
		if size > q.free {
			return
		}
		if q.held[id] > 0 && q.held[id]+size > partsEach*t.most {
			i++ // it has its share
			continue
		}
		t.size, t.room = size, size
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

// part is how large a part may be now.
func (q *fileQueue) part(most int64) int64 {
	switch {
	case q.free > q.total/2:
		return most
	case q.free > q.total/4:
		return max(min(most, leastPart), most/4)
	}
	return min(most, leastPart)
}

// shares tells that the part is one that others may get as well: it takes its
// memory once.
func (t *turn) shares(s *crypt.Shared) {
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

func (q *fileQueue) resize(t *turn, room int64) {
	q.free += t.room - room
	if q.held[t.id] += room - t.room; q.held[t.id] <= 0 {
		delete(q.held, t.id)
	}
	t.room = room
}

// end gives the room back. Ending a turn again does nothing.
func (t *turn) end() {
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
