package master

import (
	"sync"
	"time"
)

// returnRules decides which returns a master accepts.
type returnRules struct {
	settings *settings
	queue    *queue
	jobs     jobStore
}

// belongs reports whether the job of a return was published, and whether it may
// have targeted the minion. Minions themselves evaluate targets by grains or
// pillar, so only ids that the target certainly excludes are not allowed.
func (r *returnRules) belongs(jid, id string) (published, allowed bool) {
	meant, known := r.queue.meant(jid, id)
	if meant {
		return true, true
	}
	load, err := r.jobs.Load(jid)
	if err != nil || load == nil || !load.Has("tgt") || r.settings.options().OrderMasters {
		return known, true
	}
	return true, mayMatch(r.settings.nodegroups(), load, id)
}

// quota bounds the bytes per hour that a minion may store in returns of
// unpublished jobs. A minion can send any number of such returns.
type quota struct {
	now func() time.Time

	mu    sync.Mutex
	since time.Time
	used  map[string]int64
}

// take reports whether a minion may store n more bytes, and if so counts them.
// limit is in bytes per hour; 0 means no limit.
func (q *quota) take(id string, n int, limit int64) bool {
	if limit <= 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := q.now(); q.used == nil || now.Sub(q.since) >= time.Hour {
		q.since, q.used = now, map[string]int64{}
	}
	if q.used[id]+int64(n) > limit {
		return false
	}
	q.used[id] += int64(n)
	return true
}

// giveBack reverts a take for a return that could not be stored: the minion will
// send it again.
func (q *quota) giveBack(id string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[id] > 0 {
		q.used[id] = max(q.used[id]-int64(n), 0)
	}
}
