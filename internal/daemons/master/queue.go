package master

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"brine/internal/py/value"
	"brine/internal/store/job"
)

// queue records, until a job expires, which minions may not have received it. They get it when
// they ask for missed jobs, as a Brine minion does at each connection. The minion itself
// ensures that it runs a job once, however often it receives it. The job store has the jobs and
// their expiry; jobStates.load fills the queue from it at the start.
//
// It also remembers the state of a job on each minion for queries, for a while
// after the job expired.
type queue struct {
	now func() time.Time
	// below means that syndics may ask for any job until it expires, also after all minions here have returned.
	below bool

	mu     sync.Mutex
	index  map[string]int // numbers of all minions that were ever targeted
	jobs   map[string]*queued
	order  []*queued // in order of publication
	next   int64     // number of the next job
	held   int       // bytes of job maps in memory
	speaks bitset    // minions that have asked for missed jobs, so they run Brine

	// State that is not on disk yet.
	changed  map[*queued]bool
	speakers map[string]bool
	// asked are minions that have asked since their last start event.
	asked bitset
}

// queued is a job in the queue. The sets contain numbers of queue.index.
type queued struct {
	jid     string
	number  int64
	at      time.Time
	expires time.Time   // with the monotonic clock: the other one may be wrong for a moment later
	over    bool        // expired, but remembered
	job     *value.Dict // what minions receive; nil: read it from the store
	size    int
	meant   bitset
	open    bitset // have not returned
	handed  bitset // received it when they asked
	running bitset // have reported that they run it
	absent  bitset // probable stock minions that were not connected when it was published
}

// Limits of what is remembered.
const (
	queueJobs = 20_000
	queueHeld = 32 << 20
)

func newQueue(now func() time.Time) *queue {
	return &queue{now: now, index: map[string]int{}, jobs: map[string]*queued{}, changed: map[*queued]bool{}, speakers: map[string]bool{}}
}

// add enters a job that is about to be published; absent are the minions that
// are not connected now. A job without expiry is only remembered, not queued.
func (q *queue) add(load *value.Dict, jid string, minions, absent []string, expires time.Time) {
	size := textSize(load)
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	j := &queued{jid: jid, at: now, expires: now.Add(expires.Sub(now)), over: !expires.After(now)}
	if q.held+size <= queueHeld && !j.over {
		j.job, j.size = load, size
		q.held += size
	}
	j.absent = newBitset(q.numbers(absent))
	q.enter(j, minions, nil)
	if len(absent) > 0 {
		q.changed[j] = true
	}
}

// kept counts the jobs that are queued for unreachable minions, and the bytes of those
// that are in memory.
func (q *queue) kept() (jobs int, held int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for _, j := range q.order {
		if !j.over && j.expires.After(now) && !j.open.empty() {
			jobs++
		}
	}
	return jobs, q.held
}

// mute returns the given minions that never asked for missed jobs, so they may be stock
// minions.
func (q *queue) mute(ids []string) (out []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		if !q.speaks.has(q.number(id)) {
			out = append(out, id)
		}
	}
	return out
}

// awaits reports whether a job is queued for a stock minion.
func (q *queue) awaits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	return slices.ContainsFunc(q.order, func(j *queued) bool { return !j.over && !j.absent.empty() && j.expires.After(now) })
}

// arrived returns the jobs that are queued for stock minions that are connected
// now, at most limit, by minion. It marks them as delivered, and returns them
// only once.
func (q *queue) arrived(there map[string]bool, limit int) map[string][]handout {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	out := map[string][]handout{}
	for _, j := range q.order {
		if j.over || j.absent.empty() || !j.expires.After(now) {
			continue
		}
		for id := range there {
			n, ok := q.index[id]
			if !ok || !j.absent.has(n) || !j.open.has(n) || q.speaks.has(n) {
				continue
			}
			if limit--; limit < 0 {
				return out
			}
			j.absent.clear(n)
			j.handed.set(n)
			q.changed[j] = true
			out[id] = append(out[id], handout{j.jid, j.number, j.job, now.Sub(j.at), true})
		}
	}
	return out
}

// restore enters a job from the store.
func (q *queue) restore(s job.Queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	j := &queued{jid: s.JID, at: s.At, expires: now.Add(s.Until.Sub(now)), over: !s.Until.After(now)}
	j.handed = newBitset(q.numbers(s.Handed))
	j.running = newBitset(q.numbers(s.Running))
	j.absent = newBitset(q.numbers(s.Absent))
	q.enter(j, s.Minions, s.Returned)
}

// spoke records that a minion runs Brine; q.mu is held.
func (q *queue) spoke(n int, id string) {
	q.asked.set(n)
	if !q.speaks.has(n) {
		q.speaks.set(n)
		q.speakers[id] = true
	}
}

// restoreSpeakers enters the minions that run Brine according to the store.
func (q *queue) restoreSpeakers(ids []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		q.speaks.set(q.number(id))
	}
}

// started records the start event of a minion. A Brine minion asks for missed
// jobs first; one that did not is a stock minion now.
func (q *queue) started(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.number(id)
	if !q.asked.clear(n) && q.speaks.clear(n) {
		q.speakers[id] = false
	}
}

// unstored returns the states that are not on disk yet, and marks them as
// stored.
func (q *queue) unstored() (n job.Notes, any bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.changed) == 0 && len(q.speakers) == 0 {
		return n, false
	}
	n = job.Notes{States: map[string]job.State{}, Speakers: q.speakers}
	var names []string
	if len(q.changed) > 0 {
		names = make([]string, len(q.index))
		for id, i := range q.index {
			names[i] = id
		}
	}
	for j := range q.changed {
		if q.jobs[j.jid] == j {
			n.States[j.jid] = job.State{Handed: j.of(&j.handed, names), Running: j.of(&j.running, names), Absent: j.of(&j.absent, names)}
		}
	}
	q.changed, q.speakers = map[*queued]bool{}, map[string]bool{}
	return n, true
}

// notStored undoes unstored after a failed write: the states are due again, in
// their latest version.
func (q *queue) notStored(n job.Notes) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for jid := range n.States {
		if j := q.jobs[jid]; j != nil {
			q.changed[j] = true
		}
	}
	for id, speaks := range n.Speakers {
		if _, newer := q.speakers[id]; !newer {
			q.speakers[id] = speaks
		}
	}
}

// of returns the ids of the minions in a set. It omits those that have returned, except from
// handed.
func (j *queued) of(set *bitset, names []string) (ids []string) {
	for w, word := range set.words {
		for ; word != 0; word &= word - 1 {
			if n := (set.base+w)*64 + bits.TrailingZeros64(word); j.open.has(n) || set == &j.handed {
				ids = append(ids, names[n])
			}
		}
	}
	return ids
}

func (q *queue) enter(j *queued, minions, returned []string) {
	if old := q.jobs[j.jid]; old != nil {
		q.forget(old)
	}
	for len(q.order) > 0 && len(q.jobs) >= queueJobs {
		q.forget(q.order[0])
	}
	q.next++
	j.number = q.next
	j.meant = newBitset(q.numbers(minions))
	j.open = j.meant.clone()
	for _, id := range returned {
		j.open.clear(q.number(id))
	}
	q.jobs[j.jid] = j
	q.order = append(q.order, j)
	if j.open.empty() && !q.below {
		q.close(j)
	}
}

func (q *queue) number(id string) int {
	n, ok := q.index[id]
	if !ok {
		n = len(q.index)
		q.index[id] = n
	}
	return n
}

func (q *queue) numbers(ids []string) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = q.number(id)
	}
	return out
}

// close stops delivery of a job; q.mu is held.
func (q *queue) close(j *queued) {
	j.over = true
	q.held -= j.size
	j.job, j.size = nil, 0
}

// forget removes a job; q.mu is held.
func (q *queue) forget(j *queued) {
	q.close(j)
	delete(q.changed, j)
	if q.jobs[j.jid] == j {
		delete(q.jobs, j.jid)
	}
	if i, ok := slices.BinarySearchFunc(q.order, j.number, func(o *queued, n int64) int { return int(o.number - n) }); ok {
		if i == 0 {
			q.order[0] = nil
			q.order = q.order[1:]
			return
		}
		q.order = slices.Delete(q.order, i, i+1)
	}
}

// unheard returns, by minion, the newest jobs that a stock minion may have missed: it has
// neither returned nor signed in since their publication. It considers the given number of
// jobs, not older than within, and returns at most limit handouts.
func (q *queue) unheard(within time.Duration, jobs, limit int, signedIn func(id string, since time.Time) bool) map[string][]handout {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	out := map[string][]handout{}
	for i := len(q.order) - 1; i >= 0 && i >= len(q.order)-jobs; i-- {
		j := q.order[i]
		if now.Sub(j.at) > within {
			break
		}
		if j.over || !j.expires.After(now) {
			continue
		}
		for id, n := range q.index {
			if !j.open.has(n) || q.speaks.has(n) || j.running.has(n) || signedIn(id, j.at) {
				continue
			}
			if limit--; limit < 0 {
				return out
			}
			out[id] = append(out[id], handout{j.jid, j.number, j.job, now.Sub(j.at), true})
		}
	}
	return out
}

// meant reports whether a job is remembered and targeted a minion.
func (q *queue) meant(jid, id string) (meant, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.jobs[jid]
	if j == nil {
		return false, false
	}
	n, ok := q.index[id]
	return ok && j.meant.has(n), true
}

// brine reports whether a minion ran Brine when it started last.
func (q *queue) brine(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, ok := q.index[id]
	return ok && q.speaks.has(n)
}

// knows reports whether a job is in the queue or remembered.
func (q *queue) knows(jid string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.jobs[jid] != nil
}

// spokeElsewhere records that a minion asked another master for missed jobs.
func (q *queue) spokeElsewhere(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.speaks.set(q.number(id))
}

// told records another master's report of a job on a minion.
func (q *queue) told(jid, id, state string) {
	switch state {
	case stateRunning:
		q.runs(jid, id)
	case stateDelivered:
		q.mu.Lock()
		defer q.mu.Unlock()
		if j := q.jobs[jid]; j != nil {
			j.handed.set(q.number(id))
		}
	}
}

// returned records a minion's return, and reports whether the job is known and
// the return new.
func (q *queue) returned(jid, id string) (news bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.jobs[jid]
	if j == nil {
		return false
	}
	n, ok := q.index[id]
	news = ok && j.open.clear(n)
	if news && j.open.empty() && !j.over && !q.below {
		q.close(j)
	}
	return news
}

// handout is a job to deliver to a minion.
type handout struct {
	jid    string
	number int64
	job    *value.Dict // nil: read it from the store
	waited time.Duration
	first  bool // it was not handed out to this minion before
}

// missed returns the jobs after a number that a minion may not have, oldest
// first, and marks them as delivered.
func (q *queue) missed(id string, after int64, limit int) (out []handout, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.number(id)
	q.spoke(n, id)
	now := q.now()
	for _, j := range q.order {
		if j.number <= after || j.over || !j.expires.After(now) || !j.open.has(n) || j.running.has(n) {
			continue
		}
		if len(out) == limit {
			return out, true
		}
		first := !j.handed.has(n)
		out = append(out, handout{j.jid, j.number, j.job, now.Sub(j.at), first})
		if first {
			j.handed.set(n)
			q.changed[j] = true
		}
	}
	return out, false
}

// missedBelow returns the jobs after a number that have not expired, oldest first, for a syndic:
// which of its minions they target is unknown here.
func (q *queue) missedBelow(after int64, limit int) (out []handout, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for _, j := range q.order {
		if !q.below || j.number <= after || j.over || !j.expires.After(now) {
			continue
		}
		if len(out) == limit {
			return out, true
		}
		out = append(out, handout{j.jid, j.number, j.job, now.Sub(j.at), false})
	}
	return out, false
}

// runs records that a minion runs a job, and reports whether that is new.
func (q *queue) runs(jid, id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.number(id)
	q.spoke(n, id)
	j := q.jobs[jid]
	if j == nil || !j.open.has(n) || j.running.has(n) {
		return false
	}
	j.running.set(n)
	q.changed[j] = true
	return true
}

// expired is an expired job with the minions that never received it.
type expired struct {
	jid   string
	never []string
}

// expire stops delivery of expired jobs, and forgets old ones.
func (q *queue) expire() (out []expired) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for _, j := range q.order {
		if j.over || j.expires.After(now) {
			continue
		}
		if ids := q.silent(j); len(ids) > 0 {
			out = append(out, expired{j.jid, ids})
		}
		q.close(j)
	}
	for len(q.order) > 0 && q.order[0].over && now.Sub(q.order[0].at) > job.RememberFor {
		q.forget(q.order[0])
	}
	return out
}

// silent returns the minions that certainly never received a job; q.mu is held.
func (q *queue) silent(j *queued) (ids []string) {
	for id, n := range q.index {
		if j.open.has(n) && (q.speaks.has(n) || j.absent.has(n)) && !j.handed.has(n) && !j.running.has(n) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// The states of a job on a minion.
const (
	stateSent      = "sent"      // published; stock minions report nothing else
	stateQueued    = "queued"    // the minion has not reacted; it gets the job when it connects
	stateDelivered = "delivered" // delivered when the minion reconnected
	stateRunning   = "running"
	stateReturned  = "returned"
	stateExpired   = "expired" // expired while still queued
)

// states returns the state of a job on each minion, the minions that got it
// when they reconnected, its expiry, and whether the job is known.
func (q *queue) states(jid string) (states map[string]string, delivered []string, expires time.Time, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.jobs[jid]
	if j == nil {
		return nil, nil, time.Time{}, false
	}
	states = map[string]string{}
	late := j.over || !j.expires.After(q.now())
	for id, n := range q.index {
		if !j.meant.has(n) {
			continue
		}
		if j.handed.has(n) {
			delivered = append(delivered, id)
		}
		switch {
		case !j.open.has(n):
			states[id] = stateReturned
		case j.running.has(n):
			states[id] = stateRunning
		case j.handed.has(n):
			states[id] = stateDelivered
		case !q.speaks.has(n) && !j.absent.has(n):
			states[id] = stateSent
		case late:
			states[id] = stateExpired
		default:
			states[id] = stateQueued
		}
	}
	return states, delivered, j.expires, true
}

// bitset is a set of small numbers that uses memory only for their range.
type bitset struct {
	base  int // index of the first word
	words []uint64
}

func newBitset(ns []int) (b bitset) {
	if len(ns) == 0 {
		return b
	}
	b.base = slices.Min(ns) / 64
	b.words = make([]uint64, slices.Max(ns)/64-b.base+1)
	for _, n := range ns {
		b.set(n)
	}
	return b
}

func (b *bitset) clone() bitset { return bitset{b.base, slices.Clone(b.words)} }

func (b *bitset) has(n int) bool {
	w := n/64 - b.base
	return w >= 0 && w < len(b.words) && b.words[w]&(1<<(n%64)) != 0
}

func (b *bitset) set(n int) {
	w := n / 64
	switch {
	case len(b.words) == 0:
		b.base = w
		b.words = make([]uint64, 1)
	case w < b.base:
		b.words = append(make([]uint64, b.base-w), b.words...)
		b.base = w
	}
	for w-b.base >= len(b.words) {
		b.words = append(b.words, 0)
	}
	b.words[w-b.base] |= 1 << (n % 64)
}

// clear removes a number and reports whether it was present.
func (b *bitset) clear(n int) bool {
	if !b.has(n) {
		return false
	}
	b.words[n/64-b.base] &^= 1 << (n % 64)
	return true
}

func (b *bitset) empty() bool {
	for _, w := range b.words {
		if w != 0 {
			return false
		}
	}
	return true
}

// textSize estimates the memory of a value: a job can contain a file.
func textSize(v any) int {
	const each = 16
	switch x := v.(type) {
	case string:
		return each + len(x)
	case []byte:
		return each + len(x)
	case *value.List:
		n := each
		for _, it := range x.Items {
			n += textSize(it)
		}
		return n
	case *value.Dict:
		n := each
		for k, w := range x.All() {
			n += textSize(k) + textSize(w)
		}
		return n
	}
	return each
}
