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

// belongs reports whether a return belongs to a published job that targeted the
// minion. The minion itself evaluates targets by grains or pillar, so this
// master refuses only ids that the target surely excludes.
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
// unpublished jobs. The number of such returns is up to the minion.
type quota struct {
	now func() time.Time

	mu    sync.Mutex
	since time.Time
	used  map[string]int64
}

// take reports whether a minion may store n more bytes, at most limit per hour;
// 0 means no limit.
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

// giveBack undoes a take for a return that could not be stored: the minion sends
// it again.
func (q *quota) giveBack(id string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[id] > 0 {
		q.used[id] = max(q.used[id]-int64(n), 0)
	}
}
