package master

import (
	"brine/internal/base/ratelimit"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Behind a balancer no master can tell one stock minion over zeromq from
// another: all connections come from one address, and none says whose it is. So
// what one missed while it had no connection is published again when any such
// connection is new. That is safe for a minion that is the same process as
// before, since that runs a job id once; and one that was restarted has
// signed in, which all masters of the cluster know.

// reconnects knows which connections without an id there were, and when minions
// last signed in at any master.
type reconnects struct {
	mu     sync.Mutex
	conns  map[string]bool
	due    bool // there is a new one since the last look
	signed map[string]time.Time

	// kept has the sign-ins of minions that may be stock ones, for the time after a
	// restart; nil for a master of its own.
	kept  *signInLog
	stock func(id string) bool
}

// Bounds of what is published again: stock minions remember the last hundred
// job ids.
const (
	againFor  = time.Minute
	againJobs = 80
)

// signedIn notes that a minion has signed in.
func (w *reconnects) signedIn(id string, now time.Time) {
	w.note(id, now)
	if w.kept != nil && w.stock(id) {
		w.kept.add(id, now)
	}
}

func (w *reconnects) note(id string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.signed == nil {
		w.signed = map[string]time.Time{}
	}
	w.signed[id] = now
	for other, at := range w.signed { // some, in no order: what is old goes in time
		if now.Sub(at) > 2*againFor {
			delete(w.signed, other)
		}
		break
	}
}

// keep takes over the recorded sign-ins, and records new ones in the directory of
// this master, which is beside those of the others that share a cachedir.
func (w *reconnects) keep(dir string, stock func(id string) bool, log *ratelimit.Log) error {
	recent := func() map[string]time.Time {
		w.mu.Lock()
		out := maps.Clone(w.signed)
		w.mu.Unlock()
		oldest := time.Now().Add(-2 * againFor)
		maps.DeleteFunc(out, func(id string, at time.Time) bool { return at.Before(oldest) || !stock(id) })
		return out
	}
	w.kept, w.stock = newSignInLog(dir, recent, log), stock
	signed, err := readSignIns(filepath.Dir(dir), time.Now().Add(-2*againFor))
	for id, at := range signed {
		w.note(id, at)
	}
	return err
}

// since reports whether a minion has signed in after a moment.
func (w *reconnects) since(id string, at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.signed[id]
	return ok && last.After(at)
}

// look takes the connections that there are (a master that has just started had
// none) and reports whether one was new at the last look: in between, news of a sign-in has come from other masters.
func (w *reconnects) look(now []net.Addr) (due bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due, w.due = w.due, false
	next := make(map[string]bool, len(now))
	for _, a := range now {
		s := a.String()
		next[s] = true
		if !w.conns[s] {
			w.due = true
		}
	}
	w.conns = next
	return due
}

// again publishes again what stock minions may have missed.
func (r *redelivery) again() {
	var anonymous []net.Addr
	for _, p := range subscribers(r.publishers) {
		if p.ID == "" && p.Claimed == "" {
			anonymous = append(anonymous, p.Addr)
		}
	}
	if !r.reconnects.look(anonymous) {
		return
	}
	come := r.states.queue.unheard(againFor, againJobs, stockJobs, r.reconnects.since)
	for id, jobs := range come {
		come[id] = slices.DeleteFunc(jobs, func(h handout) bool { return r.states.returnedElsewhere(h.jid, id) })
	}
	r.republish(come)
}
