package master

import (
	"brine/internal/base/ratelimit"
	"brine/internal/base/steady"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Behind a load balancer a master cannot tell stock minions over zeromq apart:
// all connections have one address and no id. So jobs that may have been missed
// are published again when any such connection is new. A minion process runs a
// job id once, so this is safe; one that restarted has signed in, which all
// masters of the cluster know.

// reconnects tracks connections without an id, and when minions last signed in
// at any master.
type reconnects struct {
	mu     sync.Mutex
	conns  map[string]bool
	due    bool // there is a new connection since the last check
	signed map[string]time.Time

	// kept stores sign-ins of possible stock minions for a restart; nil without a
	// cluster.
	kept  *signInLog
	stock func(id string) bool
}

// Limits of republication: stock minions remember the last hundred job ids.
const (
	againFor  = time.Minute
	againJobs = 80
)

// signedIn records that a minion signed in.
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
	for other, at := range w.signed { // in arbitrary order: old entries go eventually
		if steady.Removal().Sub(at) > 2*againFor {
			delete(w.signed, other)
		}
		break
	}
}

// keep restores the recorded sign-ins, and records new ones in this master's
// directory, beside those of the other masters that share cachedir.
func (w *reconnects) keep(dir string, stock func(id string) bool, log *ratelimit.Log) error {
	recent := func() map[string]time.Time {
		w.mu.Lock()
		out := maps.Clone(w.signed)
		w.mu.Unlock()
		oldest := steady.Removal().Add(-2 * againFor)
		maps.DeleteFunc(out, func(id string, at time.Time) bool { return at.Before(oldest) || !stock(id) })
		return out
	}
	w.kept, w.stock = newSignInLog(dir, recent, log), stock
	signed, err := readSignIns(filepath.Dir(dir), steady.Removal().Add(-2*againFor))
	for id, at := range signed {
		w.note(id, at)
	}
	return err
}

// since reports whether a minion signed in after a time.
func (w *reconnects) since(id string, at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.signed[id]
	return ok && last.After(at)
}

// look takes the current connections and reports whether one was new at the last check: the
// delay lets reports of sign-ins arrive from other masters. For a master that just started, all
// connections are new.
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

// again republishes jobs that stock minions may have missed.
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
