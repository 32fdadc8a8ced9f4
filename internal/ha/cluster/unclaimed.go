package cluster

import (
	"strings"
	"time"
)

// Bounds of the events that wait until it is known whose job they are of.
const (
	heldItems = 5_000
	heldBytes = 8 << 20
	heldTime  = 10 * time.Second
)

// unclaimed keeps events of jobs that no master has told of yet: behind a balancer
// a minion's return can be quicker than the word of the job between two
// masters. Those of jobs that no master will tell of, such as scheduled ones,
// make room for others, and are forgotten after heldTime.
type unclaimed struct {
	byJob map[string][]heldEvent
	order []heldFor // what came first, with some that are gone
	bytes int
}

type heldEvent struct {
	msg  []byte
	sent []*peer // who has it, since somebody there waits for all events
}

type heldFor struct {
	jid string
	at  time.Time
}

// isReply tells events that follow a job from those by which the master that it
// was given to makes it known.
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
		// The oldest of a job goes with all others of it: they came close together.
		u.forget(u.order[0].jid)
		u.order = u.order[1:]
	}
}

// forget takes the events of a job out.
func (u *unclaimed) forget(jid string) []heldEvent {
	events := u.byJob[jid]
	delete(u.byJob, jid)
	for _, e := range events {
		u.bytes -= len(e.msg)
	}
	return events
}
