package outbox

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Request sends one command to a master.
type Request func(ctx context.Context, load *value.Dict) (any, error)

// Queue delivers returns and events to one master, in order, and stores them while the
// master is unreachable. If the master received a return but could not store it, because
// its disk is full, the return moves to a separate list and is sent again until it is
// stored, so that it does not delay others. The queue is bounded by the option
// return_queue: above that the oldest message is dropped. A dropped return is still in the
// job journal, and is read from there later; for any other message an error is logged.
type Queue struct {
	request Request
	addr    string      // the master's name in the journal
	journal *jobJournal // or nil
	opts    *Options
	log     *slog.Logger
	wake    wait.Wakeup
	serving func() bool // reports whether the master is connected

	mu    sync.Mutex
	queue []*message
	kept  []*message    // received, but not stored by the master; oldest first
	turn  int           // index in kept of the one to send next
	again time.Time     // when kept is sent again
	pause time.Duration // current pause before again
	spilt bool          // the journal may have returns that are not queued here
}

func newQueue(request Request, opts *Options, log *slog.Logger) *Queue {
	return &Queue{request: request, opts: opts, log: log, wake: wait.NewWakeup()}
}

// Put queues one load.
func (q *Queue) Put(load *value.Dict) { q.put(newMessage(load)) }

func (q *Queue) put(m *message) {
	q.mu.Lock()
	if limit := max(q.opts.ReturnQueue, 1); len(q.queue)+len(q.kept) >= limit {
		from := &q.queue
		if len(q.kept) > 0 {
			from, q.turn = &q.kept, max(q.turn-1, 0)
		}
		lost := (*from)[0]
		(*from)[0] = nil
		*from = (*from)[1:]
		if q.journal != nil && lost.isReturn() && q.journal.release(lost.head.JID, q.addr) {
			q.spilt = true
		} else {
			q.log.Error("dropped the oldest message: too many are queued for the master",
				"cmd", lost.head.Cmd, "jid", lost.head.JID, "limit", limit)
		}
	}
	q.queue = append(q.queue, m)
	q.mu.Unlock()
	q.wake.Wake()
}

// Kick makes the sender retry now instead of after its pause. Call it when the master is
// connected again.
func (q *Queue) Kick() {
	q.mu.Lock()
	q.again, q.pause = time.Time{}, 0
	q.mu.Unlock()
	q.wake.Wake()
}

// remind makes the sender check the journal for returns.
func (q *Queue) remind() {
	q.mu.Lock()
	q.spilt = true
	q.mu.Unlock()
	q.wake.Wake()
}

// refill queues returns from the journal when the queue is empty.
func (q *Queue) refill() {
	q.mu.Lock()
	wanted := q.spilt && len(q.queue) == 0
	q.mu.Unlock()
	if !wanted {
		return
	}
	loads, more := q.journal.waiting(q.addr, max(q.opts.ReturnQueue/2, 1))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spilt = more
	for _, load := range loads {
		q.queue = append(q.queue, newMessage(load))
	}
}

// next returns the next message. If there is none to send now, it returns nil and how long
// to wait; 0 means until a message is added.
func (q *Queue) next(now time.Time) (m *message, left time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.queue) > 0:
		return q.queue[0], 0
	case len(q.kept) == 0:
		return nil, 0
	case now.Before(q.again):
		return nil, q.again.Sub(now)
	}
	return q.kept[q.turn], 0
}

// keep records that the master could not store m, and sets when such messages are sent
// again.
func (q *Queue) keep(m *message, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turn < len(q.kept) && q.kept[q.turn] == m {
		q.turn = (q.turn + 1) % len(q.kept)
	} else {
		q.drop(m)
		q.kept = append(q.kept, m)
	}
	if now.Before(q.again) {
		return
	}
	q.pause = min(max(2*q.pause, time.Second), max(q.opts.ReturnRetryTimerMax, time.Second))
	q.again = now.Add(q.pause/2 + rand.N(q.pause/2+1))
}

// done records that the master accepted m.
func (q *Queue) done(m *message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(m)
	if len(q.kept) == 0 {
		q.pause = 0
	}
}

// drop removes m if it is still the next one; q.mu is held.
func (q *Queue) drop(m *message) {
	if len(q.queue) > 0 && q.queue[0] == m {
		q.queue[0] = nil
		q.queue = q.queue[1:]
		return
	}
	if q.turn < len(q.kept) && q.kept[q.turn] == m {
		q.kept = slices.Delete(q.kept, q.turn, q.turn+1)
		if q.turn == len(q.kept) {
			q.turn = 0
		}
	}
}

// tolerated is the number of failed attempts after which a message goes to the end of the
// queue, in case the master cannot accept this one.
const tolerated = 3

// HandOver moves the messages that any master may get to another queue: all except returns,
// which the job journal redirects.
func (q *Queue) HandOver(to *Queue) {
	var moved []*message
	q.mu.Lock()
	q.queue = slices.DeleteFunc(q.queue, func(m *message) bool {
		if m.isReturn() {
			return false
		}
		moved = append(moved, m)
		return true
	})
	q.mu.Unlock()
	for _, m := range moved {
		to.put(m)
	}
}

// rotate moves the first message to the end.
func (q *Queue) rotate(m *message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) > 1 && q.queue[0] == m {
		q.queue = append(q.queue[1:], m)
	}
}

// Run delivers until ctx ends.
func (q *Queue) Run(ctx context.Context) {
	pause, failed := time.Duration(0), 0
	for ctx.Err() == nil {
		q.refill()
		m, left := q.next(time.Now())
		if m == nil {
			wait.Until(ctx, q.wake.C(), left)
			continue
		}
		err := q.deliver(ctx, m)
		if errors.Is(err, errNotStored) {
			q.keep(m, time.Now())
			pause, failed = 0, 0
			continue
		}
		if err == nil {
			q.done(m)
			if q.journal != nil && m.isReturn() {
				q.journal.delivered(m.head.JID, q.addr)
			}
			pause, failed = 0, 0
			continue
		}
		if failed++; failed >= tolerated {
			q.rotate(m)
			failed = 0
		}
		pause = min(max(2*pause, 100*time.Millisecond), max(q.opts.ReturnRetryTimerMax, time.Second))
		q.log.Debug("queued a message for the master", "cmd", m.head.Cmd, "jid", m.head.JID, "err", err)
		wait.Until(ctx, q.wake.C(), pause/2+rand.N(pause/2+1))
	}
}

// errNotStored means that the master received a return, but could not store it.
var errNotStored = errors.New("the master could not store a return; it is kept and sent again")

// deliver sends m. It returns an error only if a retry can help.
func (q *Queue) deliver(ctx context.Context, m *message) error {
	ctx, cancel := context.WithTimeout(ctx, max(q.opts.ReturnRetryTimer, time.Second))
	defer cancel()
	v, err := q.request(ctx, m.load)
	if err != nil && salt.KindOf(err) == salt.Invalid {
		q.log.Error("the master rejected a message", "cmd", m.head.Cmd, "jid", m.head.JID, "err", err)
		return nil
	}
	if d, ok := v.(*value.Dict); err == nil && ok {
		var in wire.NotStored
		if wire.Decode(d, &in) == nil {
			q.log.Debug(errNotStored.Error(), "jid", m.head.JID, "reason", in.Reason)
			return errNotStored
		}
	}
	return err
}
