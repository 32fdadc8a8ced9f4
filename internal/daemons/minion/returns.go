package minion

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// requestFunc sends one command to a master.
type requestFunc func(ctx context.Context, load *value.Dict) (any, error)

// outgoing delivers returns and events to one master, in order, and keeps
// them while the master is away. A return that the master has heard but could
// not store, because its disk is full, is kept apart, so that those behind it
// are heard without delay, and sent again until it is stored. It is bounded:
// when more than the option return_queue wait, the oldest makes room. A return
// is safe in the minion's memory of jobs then, from which it comes back; a
// message that is not there is given up with an error in the log.
type outgoing struct {
	request requestFunc
	addr    string  // of the master, as it is in the memory
	memory  *memory // or nil
	opts    *Options
	log     *slog.Logger
	wake    chan struct{}

	mu    sync.Mutex
	queue []*value.Dict
	kept  []*value.Dict // heard, but not stored; oldest first
	turn  int           // which of these is sent next
	again time.Time     // when those are sent again
	pause time.Duration // that led to again
	spilt bool          // the memory may have returns that are not here
}

func newOutgoing(request requestFunc, o *Options, log *slog.Logger) *outgoing {
	return &outgoing{request: request, opts: o, log: log, wake: make(chan struct{}, 1)}
}

// put queues one load.
func (o *outgoing) put(load *value.Dict) {
	o.mu.Lock()
	if limit := max(o.opts.ReturnQueue, 1); len(o.queue)+len(o.kept) >= limit {
		from := &o.queue
		if len(o.kept) > 0 {
			from, o.turn = &o.kept, max(o.turn-1, 0)
		}
		lost := (*from)[0]
		(*from)[0] = nil
		*from = (*from)[1:]
		if o.memory != nil && lost.Str("cmd") == "_return" && o.memory.release(lost.Str("jid"), o.addr) {
			o.spilt = true
		} else {
			o.log.Error("too much waits for the master; the oldest message is given up",
				"cmd", lost.Str("cmd"), "jid", lost.Str("jid"), "limit", limit)
		}
	}
	o.queue = append(o.queue, load)
	o.mu.Unlock()
	o.stir()
}

// kick makes the sender try all that waits now rather than after a pause: the
// connection is new.
func (o *outgoing) kick() {
	o.mu.Lock()
	o.again, o.pause = time.Time{}, 0
	o.mu.Unlock()
	o.stir()
}

func (o *outgoing) stir() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// remind makes the sender look into the memory for returns.
func (o *outgoing) remind() {
	o.mu.Lock()
	o.spilt = true
	o.mu.Unlock()
	o.stir()
}

// refill takes returns from the memory when nothing else is to be sent.
func (o *outgoing) refill() {
	o.mu.Lock()
	wanted := o.spilt && len(o.queue) == 0
	o.mu.Unlock()
	if !wanted {
		return
	}
	loads, more := o.memory.waiting(o.addr, max(o.opts.ReturnQueue/2, 1))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spilt = more
	o.queue = append(o.queue, loads...)
}

// next returns what to send now, or nil and how long that may last; 0 means
// until something is put in.
func (o *outgoing) next(now time.Time) (load *value.Dict, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.queue) > 0:
		return o.queue[0], 0
	case len(o.kept) == 0:
		return nil, 0
	case now.Before(o.again):
		return nil, o.again.Sub(now)
	}
	return o.kept[o.turn], 0
}

// keep notes that the master could not store load, and when all such are sent
// again.
func (o *outgoing) keep(load *value.Dict, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.turn < len(o.kept) && o.kept[o.turn] == load {
		o.turn = (o.turn + 1) % len(o.kept)
	} else {
		o.drop(load)
		o.kept = append(o.kept, load)
	}
	if now.Before(o.again) {
		return
	}
	o.pause = min(max(2*o.pause, time.Second), max(o.opts.ReturnRetryTimerMax, time.Second))
	o.again = now.Add(o.pause/2 + rand.N(o.pause/2+1))
}

// done notes that the master has taken load.
func (o *outgoing) done(load *value.Dict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(load)
	if len(o.kept) == 0 {
		o.pause = 0
	}
}

// drop removes load if it is still what next gave; o.mu is held.
func (o *outgoing) drop(load *value.Dict) {
	if len(o.queue) > 0 && o.queue[0] == load {
		o.queue[0] = nil
		o.queue = o.queue[1:]
		return
	}
	if o.turn < len(o.kept) && o.kept[o.turn] == load {
		o.kept = slices.Delete(o.kept, o.turn, o.turn+1)
		if o.turn == len(o.kept) {
			o.turn = 0
		}
	}
}

// patience is the number of failed attempts after which a message lets the
// next one pass, in case it is the message that the master cannot take.
const patience = 3

// rotate moves the head to the end.
func (o *outgoing) rotate(load *value.Dict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) > 1 && o.queue[0] == load {
		o.queue = append(o.queue[1:], load)
	}
}

// run delivers until ctx ends.
func (o *outgoing) run(ctx context.Context) {
	pause, failed := time.Duration(0), 0
	for ctx.Err() == nil {
		o.refill()
		load, wait := o.next(time.Now())
		if load == nil {
			o.await(ctx, wait)
			continue
		}
		err := o.deliver(ctx, load)
		if errors.Is(err, errNotStored) {
			o.keep(load, time.Now())
			pause, failed = 0, 0
			continue
		}
		if err == nil {
			o.done(load)
			if o.memory != nil && load.Str("cmd") == "_return" {
				o.memory.delivered(load.Str("jid"), o.addr)
			}
			pause, failed = 0, 0
			continue
		}
		if failed++; failed >= patience {
			o.rotate(load)
			failed = 0
		}
		pause = min(max(2*pause, 100*time.Millisecond), max(o.opts.ReturnRetryTimerMax, time.Second))
		o.log.Debug("a message waits for the master", "cmd", load.Str("cmd"), "jid", load.Str("jid"), "err", err)
		o.await(ctx, pause/2+rand.N(pause/2+1))
	}
}

// await waits for d, or without end if it is 0, but not longer than until
// there is something to do.
func (o *outgoing) await(ctx context.Context, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-ctx.Done():
	case <-o.wake:
	case <-over:
	}
}

// errNotStored says that the master has taken a return, but has no room for it.
var errNotStored = errors.New("the master could not store a return; it is kept and sent again")

// deliver returns an error only if another attempt can help.
func (o *outgoing) deliver(ctx context.Context, load *value.Dict) error {
	ctx, cancel := context.WithTimeout(ctx, max(o.opts.ReturnRetryTimer, time.Second))
	defer cancel()
	v, err := o.request(ctx, load)
	if err != nil && salt.KindOf(err) == salt.Invalid {
		o.log.Error("the master does not take a message", "cmd", load.Str("cmd"), "jid", load.Str("jid"), "err", err)
		return nil
	}
	if d, ok := v.(*value.Dict); err == nil && ok && d.Has(salt.KeepReturn) {
		o.log.Debug(errNotStored.Error(), "jid", load.Str("jid"), "reason", d.Str(salt.KeepReturn))
		return errNotStored
	}
	return err
}
