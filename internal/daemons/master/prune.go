package master

import (
	"brine/internal/net/channel"
	"brine/internal/store/keystore"
	"log/slog"
	"math/bits"
)

// minionMemory is per-minion state in memory.
type minionMemory struct {
	keys     *keystore.Store
	reports  *connectionReports
	queue    *queue
	requests *channel.Server
	runs     *lastStates
	hot      *hotMasters
	beacons  *beaconEvents
	log      *slog.Logger
}

// prune drops the state of minions without an accepted key. Machines come and go
// for as long as a master runs.
func (m *minionMemory) prune() {
	ids, err := m.keys.Accepted()
	if err != nil {
		m.log.Warn("cannot list the accepted keys", "err", err)
		return
	}
	accepted := make(map[string]bool, len(ids))
	for _, id := range ids {
		accepted[id] = true
	}
	m.reports.prune(accepted)
	m.queue.prune(accepted)
	m.requests.Prune()
	m.hot.addAccepted(accepted) // their runs are shown here
	m.runs.Forget(accepted)
	m.beacons.forget(accepted)
}

func (s *connectionReports) prune(accepted map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves.forget(accepted)
	for id := range s.byID {
		if !accepted[id] {
			delete(s.byID, id)
		}
	}
}

// worthwhile reports whether pruning drops at least a quarter of all numbers, so
// that at most a third more are kept than needed.
func worthwhile(dropped, all int) bool { return dropped > 0 && dropped >= all/4 }

// prune drops the numbers of minions without an accepted key or a remembered
// job. It rebuilds all sets, so it waits until that is worthwhile.
func (q *queue) prune(accepted map[string]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	candidates := 0
	for id := range q.index {
		if !accepted[id] {
			candidates++
		}
	}
	if !worthwhile(candidates, len(q.index)) {
		return // there are many sets, and publications wait for the lock
	}
	var used bitset
	for _, j := range q.order {
		for _, set := range j.sets() {
			set.each(used.set)
		}
	}
	unused := 0
	for id, n := range q.index {
		if !accepted[id] && !used.has(n) {
			unused++
		}
	}
	if !worthwhile(unused, len(q.index)) {
		return
	}

	numbers := make(map[int]int, len(q.index)-unused) // from old to new
	for id, n := range q.index {
		if !accepted[id] && !used.has(n) {
			delete(q.index, id)
			continue
		}
		numbers[n] = len(numbers)
		q.index[id] = numbers[n]
	}
	for _, j := range q.order {
		for _, set := range j.sets() {
			set.renumber(numbers)
		}
	}
	q.speaks.renumber(numbers)
	q.asked.renumber(numbers)
}

// sets returns all minion sets of a job.
func (j *queued) sets() []*bitset {
	return []*bitset{&j.meant, &j.open, &j.handed, &j.running, &j.absent}
}

// each calls do with each number.
func (b *bitset) each(do func(n int)) {
	for w, word := range b.words {
		for ; word != 0; word &= word - 1 {
			do((b.base+w)*64 + bits.TrailingZeros64(word))
		}
	}
}

// renumber replaces each number, and drops those without a new one.
func (b *bitset) renumber(numbers map[int]int) {
	var out bitset
	b.each(func(n int) {
		if to, ok := numbers[n]; ok {
			out.set(to)
		}
	})
	*b = out
}
