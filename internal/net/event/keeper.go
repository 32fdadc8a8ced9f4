package event

import (
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/py/value"
)

const (
	// earlyTime is how long returns are kept after the start, and after a program of Salt has
	// connected that may not be the syndic. Salt's programs try to connect each second; the rest is
	// for a busy machine.
	earlyTime = 15 * time.Second
	// nameTime is how long a Brine program may take to identify itself.
	nameTime = 200 * time.Millisecond
)

// KeepReturns makes the server keep the returns of jobs that are fired while no program of Salt is
// connected, and shortly after its start, for programs of Salt that connect later. It is for masters
// with a syndic, which may be one of Salt's: minions deliver at once what they have kept for a master
// that restarts, but Salt's syndic takes a second to reconnect, and has no other source of returns.
// Brine's programs read what they missed from the job cache.
func (s *Server) KeepReturns() {
	s.keeper.syndic.Store(true)
	s.backlog.keepEarly(true)
}

// Repeat sends a return to other programs that may have missed its event, because the previous
// process was killed after it stored the return. It has no effect while no returns are kept, or if s
// is nil.
func (s *Server) Repeat(tag string, data *value.Dict) {
	if s == nil || !s.backlog.keepsEarly() {
		return
	}
	d := data.Clone()
	d.Set("_stamp", Stamp(time.Now()))
	s.publish(&Event{Tag: tag, Data: d, maxSize: s.bus.maxSize})
}

// keeper decides when returns are kept for readers that connect later.
type keeper struct {
	backlog *backlog
	syndic  atomic.Bool // one of Salt's may connect

	mu    sync.Mutex
	timer *time.Timer // when it fires, returns need not be kept any more
	known int         // readers that are programs of Salt
	ended bool
}

// start begins the time after the start of the server.
func (k *keeper) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(earlyTime, k.expire)
}

func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	k.timer.Stop()
}

// noSyndic records that no syndic of Salt is to be expected. What is kept now stays for a while, for
// other programs.
func (k *keeper) noSyndic() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.syndic.Store(false)
	if k.timer != nil && !k.ended {
		k.timer.Reset(earlyTime)
	}
}

// expire ends keeping, unless a syndic may have to connect yet.
func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.syndic.Load() || k.known > 0 {
		k.backlog.keepEarly(false)
	}
}

// stock records a reader that has not identified itself: it is a program of Salt.
func (k *keeper) stock(w *waker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.unneeded.Load() || w.gone || k.ended {
		return
	}
	w.known = true
	k.known++
	if k.known == 1 && k.syndic.Load() && k.timer != nil {
		k.timer.Reset(earlyTime)
	}
}

// brine records that a reader is a program of Brine after all.
func (k *keeper) brine(w *waker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(w)
}

// gone records the end of a reader.
func (k *keeper) gone(w *waker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w.gone = true
	k.forget(w)
}

// forget removes a reader from those that are programs of Salt; k.mu is held. After the last one
// returns are kept again.
func (k *keeper) forget(w *waker) {
	if !w.known {
		return
	}
	w.known = false
	k.known--
	if k.known > 0 || !k.syndic.Load() || k.ended {
		return
	}
	if k.timer != nil {
		k.timer.Stop()
	}
	if !k.backlog.keepsEarly() {
		k.backlog.keepEarly(true)
	}
}
