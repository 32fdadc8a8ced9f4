package client

import (
	"maps"
	"slices"
	"strings"
	"time"

	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// wait decides when a job is over, from events and the time. It has no connections and no clock.
type wait struct {
	jid           string
	timeout       time.Duration // how long to wait for a minion
	gatherTimeout time.Duration
	grace         time.Duration // 0: a round of answers always takes gatherTimeout
	syndics       bool
	syndicAt      time.Time // from this time on, complete returns end the wait

	found   map[string]bool
	waiting map[string]time.Time // expected ids without a return, with the end of their timeout
	ends    []end                // of waiting, ascending; may have outdated entries
	missing map[string]bool
	// unawaited are expected minions that are not waited for, because another master commands them
	// or because they are not connected.
	unawaited map[string]bool

	probe   string          // jid of the last question
	silent  map[string]bool // minions that have not answered it
	roundAt time.Time       // the end of the current round
	running bool            // a minion runs the job, or no question was sent yet
}

type end struct {
	id string
	at time.Time
}

func (c *Client) newWait(p Published, j *Job, now time.Time) *wait {
	w := &wait{
		jid: p.JID, timeout: c.timeout(j), gatherTimeout: j.GatherTimeout, grace: c.o.GatherJobGrace, syndics: c.o.OrderMasters,
		found: map[string]bool{}, unawaited: map[string]bool{}, waiting: make(map[string]time.Time, len(p.Minions)), missing: map[string]bool{},
		running: true, syndicAt: now.Add(c.o.SyndicWait),
	}
	if w.gatherTimeout <= 0 {
		w.gatherTimeout = c.o.GatherJobTimeout
	}
	if w.syndics {
		w.gatherTimeout += c.o.SyndicWait
	}
	w.roundAt = now.Add(w.timeout)
	for _, id := range p.Minions {
		_, other := p.Elsewhere[id]
		if _, away := p.Away[id]; other || away && j.LeaveAway {
			w.unawaited[id] = true
		}
	}
	w.expect(p.Minions, now)
	w.miss(p.Missing)
	return w
}

// expect adds minions that should return.
func (w *wait) expect(ids []string, now time.Time) {
	for _, id := range ids {
		if _, ok := w.waiting[id]; !ok && !w.found[id] && !w.unawaited[id] {
			w.extend(id, now)
		}
	}
}

func (w *wait) miss(ids []string) {
	for _, id := range ids {
		w.missing[id] = true
	}
}

// extend restarts the timeout of a minion at now.
func (w *wait) extend(id string, now time.Time) {
	at := now.Add(w.timeout)
	w.waiting[id] = at
	w.ends = append(w.ends, end{id, at})
}

// lastEnd returns when the timeouts of all waiting minions have expired.
func (w *wait) lastEnd() time.Time {
	for n := len(w.ends); n > 0; n-- {
		if e := w.ends[n-1]; w.waiting[e.id].Equal(e.at) {
			return e.at
		}
		w.ends = w.ends[:n-1]
	}
	return time.Time{}
}

// kind classifies an event for a job.
type kind uint8

const (
	foreign   kind = iota // belongs to another job
	announced             // lists the minions of the job
	info                  // reports on the job
	ret                   // a return of the job
	answer                // to the question whether the job is running
)

// classify looks at the tag only, so that other events need not be decoded. Only the master's
// announcement lists the minions to wait for: a stock master lets any minion fire other events of
// the job.
func (w *wait) classify(tag string) kind {
	if rest, ok := strings.CutPrefix(tag, "salt/job/"); ok {
		jid, rest, _ := strings.Cut(rest, "/")
		switch {
		case jid == w.jid && strings.HasPrefix(rest, "ret/"):
			return ret
		case jid == w.jid && rest == "new":
			return announced
		case jid == w.jid && !strings.HasPrefix(rest, "prog/"):
			return info
		case jid == w.probe && w.probe != "":
			return answer
		}
		return foreign
	}
	if w.syndics && strings.HasPrefix(tag, "syndic/") && strings.Contains(tag, "/"+w.jid) {
		return announced
	}
	return foreign
}

// info handles an event that lists the targeted minions.
func (w *wait) info(e *wire.JobEvent, now time.Time) {
	minions, ok := listOf(e.Minions)
	if !ok {
		return
	}
	missing, _ := listOf(e.Missing)
	w.expect(value.OnlyTexts(minions), now)
	w.miss(value.OnlyTexts(missing))
}

// delivered starts the timeout of a minion that has just received the job.
func (w *wait) delivered(id string, now time.Time) {
	if _, ok := w.waiting[id]; ok {
		w.extend(id, now)
	}
}

// returned reports whether this is the first return of the minion.
func (w *wait) returned(id string) bool {
	if w.found[id] {
		return false
	}
	w.found[id] = true
	delete(w.waiting, id)
	delete(w.unawaited, id)
	return true
}

// answered handles a reply to the last question and reports whether the minion runs the job.
func (w *wait) answered(r *wire.Return, now time.Time) bool {
	runs := w.runs(r, now)
	if delete(w.silent, r.ID); len(w.silent) == 0 && w.grace > 0 && !w.running {
		// All have answered: only returns in transit can still arrive.
		if at := now.Add(w.grace); at.Before(w.roundAt) {
			w.roundAt = at
		}
	}
	return runs
}

func (w *wait) runs(r *wire.Return, now time.Time) bool {
	reply, ok := r.Return.(*value.Dict)
	if r.ID == "" || !ok || reply.Len() == 0 || retcode(r.Retcode) > 0 || w.found[r.ID] {
		return false
	}
	if inner, ok := reply.At("return").(*value.Dict); ok && inner.Len() == 0 {
		return false
	}
	w.extend(r.ID, now)
	w.running = true
	return true
}

// over reports whether there is nothing more to wait for.
func (w *wait) over(now time.Time) bool {
	if len(w.waiting) == 0 {
		if !w.syndics {
			return true
		}
		if len(w.found) > 0 && !now.Before(w.syndicAt) {
			return true
		}
	}
	return !w.running && !now.Before(w.roundAt) && !now.Before(w.lastEnd())
}

// wake returns when over or due may change without an event.
func (w *wait) wake() time.Time {
	at := w.roundAt
	if !w.running {
		at = later(at, w.lastEnd())
	}
	if w.syndics && len(w.waiting) == 0 && len(w.found) > 0 && w.syndicAt.Before(at) {
		at = w.syndicAt
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// due returns the minions to ask now whether they run the job.
func (w *wait) due(now time.Time) (ids []string, ok bool) {
	if !w.running || now.Before(w.roundAt) {
		return nil, false
	}
	w.running, w.probe = false, ""
	return w.left(), true
}

// asked starts a round of answers. jid is the question's, or "" if the master had no minion to ask.
func (w *wait) asked(jid string, now time.Time) {
	w.probe, w.roundAt = jid, now.Add(w.gatherTimeout)
	w.silent = make(map[string]bool, len(w.waiting))
	for id := range w.waiting {
		w.silent[id] = true
	}
}

// left returns the minions that have not returned, sorted.
func (w *wait) left() []string {
	ids := make([]string, 0, len(w.waiting))
	for id := range w.waiting {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// unreturned returns the minions that have not returned, waited for or not, sorted.
func (w *wait) unreturned() []string {
	ids := append(w.left(), slices.Collect(maps.Keys(w.unawaited))...)
	slices.Sort(ids)
	return ids
}

// absent returns the named ids that are unknown and did not return, sorted.
func (w *wait) absent() []string {
	var ids []string
	for id := range w.missing {
		if _, expected := w.waiting[id]; !expected && !w.found[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
