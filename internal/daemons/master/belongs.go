package master

import (
	"sync"
	"time"
)

// returnRules decides which returns a master takes.
type returnRules struct {
	settings *settings
	queue    *queue
	jobs     jobStore
}

// belongs reports whether a return belongs to a job that a master published,
// and whether the minion may return it. A target by grains or pillar is judged
// by the minion, so that this master refuses only ids that it surely excludes.
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

// quota bounds the bytes that each minion may have stored in an hour for
// returns of no published job. A minion chooses their number itself.
type quota struct {
	now func() time.Time

	mu    sync.Mutex
	since time.Time
	used  map[string]int64
}

// take reports whether a minion may have n more bytes stored, at most limit in
// an hour; 0 is no limit.
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

// giveBack takes back what take has counted and was not stored: the minion sends
// it again.
func (q *quota) giveBack(id string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[id] > 0 {
		q.used[id] = max(q.used[id]-int64(n), 0)
	}
}
