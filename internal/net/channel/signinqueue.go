package channel

import (
	"container/list"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
)

const (
	// queueTimeout bounds how long a sign-in waits for its turn: after that the
	// minion, whose auth_timeout is 5 s, is about to give up.
	queueTimeout = 4 * time.Second
	// longQueue is the length of a queue, as a duration, above which clients that
	// support hints are asked to return later.
	longQueue = time.Second
	// maxHint bounds that delay.
	maxHint = 20 * time.Second
	// usualTime is the assumed duration of a sign-in until it is measured: rather
	// too long, so that the first of many are not admitted too fast.
	usualTime = 6 * time.Millisecond
)

// signInQueue serves a few sign-ins at a time, in order of arrival. Under
// overload each would be served just before or just after its timeout. So
// sign-ins that have waited for half of the timeout let newer ones pass, and
// are served when there are none, the latest first.
type signInQueue struct {
	limit *ratelimit.Pace // of all queues together, or nil

	mu         sync.Mutex
	free       int           // slots
	places     int           // number of slots
	young, old list.List     // of *waiter, the latest first
	each       time.Duration // mean duration of a sign-in
	booked     time.Time     // until when other clients were asked to return
}

type waiter struct {
	came time.Time
	at   *list.Element // its position in a queue
	turn chan struct{} // closed when it is its turn
}

func newSignInQueue(places int, limit *ratelimit.Pace) *signInQueue {
	return &signInQueue{limit: limit, free: places, places: places, each: usualTime}
}

// acquire waits for a slot, and for its time if there is a rate, and reports
// whether it got a slot in time. If so, the caller must call release.
func (q *signInQueue) acquire() (from time.Time, ok bool) {
	from, _, ok = q.acquireOrHint(false)
	return from, ok
}

// acquireOrHint is acquire for a client that may support hints: if it does and
// the queue is long, it returns at once, and back is the delay after which to
// return. The length is checked when the slot is taken; otherwise a thousand
// simultaneous clients would all find the queue empty.
func (q *signInQueue) acquireOrHint(takesHints bool) (from time.Time, back time.Duration, ok bool) {
	if from, back, ok = q.place(takesHints); ok {
		q.limit.Wait()
	}
	return from, back, ok
}

func (q *signInQueue) place(takesHints bool) (from time.Time, back time.Duration, ok bool) {
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		return time.Now(), 0, true
	}
	if takesHints {
		if back = q.hint(); back > 0 {
			q.mu.Unlock()
			return time.Time{}, back, false
		}
	}
	me := &waiter{came: time.Now(), turn: make(chan struct{})}
	me.at = q.young.PushFront(me)
	q.mu.Unlock()

	late := time.NewTimer(queueTimeout)
	defer late.Stop()
	select {
	case <-me.turn:
		return time.Now(), 0, true
	case <-late.C:
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-me.turn: // at the last moment
		return time.Now(), 0, true
	default:
	}
	q.young.Remove(me.at) // one of these does nothing
	q.old.Remove(me.at)
	return time.Time{}, 0, false
}

// release passes the slot to the next waiter.
func (q *signInQueue) release(entered time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.each += (time.Since(entered) - q.each) / 16
	if next := q.next(); next != nil {
		close(next.turn)
		return
	}
	q.free++
}

// next removes and returns the next waiter, or nil.
func (q *signInQueue) next() *waiter {
	for first := q.young.Back(); first != nil; first = q.young.Back() {
		w := q.young.Remove(first).(*waiter)
		if time.Since(w.came) < queueTimeout/2 {
			return w
		}
		w.at = q.old.PushFront(w)
	}
	if latest := q.old.Front(); latest != nil {
		return q.old.Remove(latest).(*waiter)
	}
	return nil
}

// hint returns when a client that can wait should return, or 0 if it need not.
// It assigns the times so that clients arrive as fast as they can be served.
// q.mu is held.
func (q *signInQueue) hint() time.Duration {
	each := max(q.each/time.Duration(q.places), q.limit.Interval())
	queue := time.Duration(q.young.Len()+q.old.Len()) * each
	if queue < longQueue {
		return 0
	}
	now := time.Now()
	if first := now.Add(queue); q.booked.Before(first) || q.booked.After(now.Add(maxHint)) {
		q.booked = first
	}
	q.booked = q.booked.Add(each)
	return q.booked.Sub(now)
}
