package cluster

import (
	"strings"
	"time"
)

// Bounds of the events buffered until the origin of their job is known.
const (
	heldItems = 5_000
	heldBytes = 8 << 20
	heldTime  = 10 * time.Second
)

// unclaimed buffers events of jobs that no master has announced yet: behind a load balancer a minion's return can arrive before the
// announcement of the job by another master. Events of jobs that are never announced, such as scheduled ones, are dropped when the
// buffer is full, or after heldTime.
type unclaimed struct {
	byJob map[string][]heldEvent
	order []heldFor // in order of arrival, may contain removed ones
	bytes int
}

type heldEvent struct {
	msg  []byte
	sent []*peer // the peers that have received it because listeners there want all events
}

type heldFor struct {
	jid string
	at  time.Time
}

// isReply distinguishes events that follow a job from those that announce it.
func isReply(tag string) bool {
	return strings.HasPrefix(tag, "salt/job/") && !strings.HasSuffix(tag, "/new") && !strings.HasSuffix(tag, "/publish")
}

func (u *unclaimed) add(jid string, e heldEvent, now time.Time) {
	if u.byJob == nil {
		u.byJob = map[string][]heldEvent{}
	}
	u.byJob[jid] = append(u.byJob[jid], e)
	u.order = append(u.order, heldFor{jid, now})
	u.bytes += len(e.msg)
	for len(u.order) > 0 && (len(u.order) > heldItems || u.bytes > heldBytes || now.Sub(u.order[0].at) > heldTime) {
		// Drop the oldest event with all others of its job: they arrived together.
		u.forget(u.order[0].jid)
		u.order = u.order[1:]
	}
}

// forget removes and returns the events of a job.
func (u *unclaimed) forget(jid string) []heldEvent {
	events := u.byJob[jid]
	delete(u.byJob, jid)
	for _, e := range events {
		u.bytes -= len(e.msg)
	}
	return events
}
