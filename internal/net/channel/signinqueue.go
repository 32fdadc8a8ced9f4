package channel

import (
	"container/list"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
)

const (
	// queueTimeout bounds how long a sign-in waits for its turn: by then the
	// minion, whose auth_timeout is 5 s, is about to give up.
	queueTimeout = 4 * time.Second
	// longQueue is the length of a queue, by the time that it takes, from which
	// clients that understand hints are asked to come back.
	longQueue = time.Second
	// maxHint bounds when they are asked to.
	maxHint = 20 * time.Second
	// usualTime is what a sign-in takes until that is measured: rather too much,
	// so that the first of many are not let in too fast.
	usualTime = 6 * time.Millisecond
)

// signInQueue serves a few sign-ins at a time, in the order in which they came.
// When more come than can be served, all would be served just before they give
// up, or just after. So sign-ins that have waited for half of the timeout let
// newer ones pass, and are served when there are none, the latest first.
type signInQueue struct {
	limit *ratelimit.Pace // of all queues together, or nil

	mu         sync.Mutex
	free       int           // places
	places     int           // in all
	young, old list.List     // of *waiter, the latest first
	each       time.Duration // mean time that a sign-in takes
	booked     time.Time     // up to when others were asked to come back
}

type waiter struct {
	came time.Time
	at   *list.Element // where it waits
	turn chan struct{} // closed when it is its turn
}

func newSignInQueue(places int, limit *ratelimit.Pace) *signInQueue {
	return &signInQueue{limit: limit, free: places, places: places, each: usualTime}
}

// acquire waits for a place, and for its time if there is a rate, and reports
// whether it got a place in time. If so, release must be called.
func (q *signInQueue) acquire() (from time.Time, ok bool) {
	from, _, ok = q.acquireOrHint(false)
	return from, ok
}

// acquireOrHint is acquire for a client that may take hints: if it does and the
// queue is long, back says after which time to come back, and nothing was waited
// for. The length is looked at as the place in the queue is taken, or all of a
// thousand that come at once would find the queue empty.
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

// release gives the place to the next one.
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

// hint returns when a client that can wait should come back, or 0 if it need
// not. It deals the times out so that clients arrive as fast as they can be
// served. q.mu is held.
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
