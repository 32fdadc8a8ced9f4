// Package outbox stores the messages that a minion has to deliver. A Queue has the returns
// and events for one master. The Outbox has the queues of all masters, and a journal on
// disk of started jobs and of returns that no master has accepted. It opens no connections:
// each queue gets a function that sends a request.
package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brine/internal/base/liveness"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/base/wait"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Config is the configuration of an Outbox.
type Config struct {
	Options Options
	// ID is the minion's id.
	ID string
	// Dir is the directory of the journal.
	Dir string
	// Remember is the number of job ids to remember, at least 10,000.
	Remember int
	// Fire sends an event to the masters.
	Fire func(tag string, data any)
	Log  *slog.Logger
}

// Outbox has the messages for all masters.
type Outbox struct {
	cfg     Config
	journal *jobJournal
	pulse   liveness.Pulse // of Run

	mu     sync.Mutex
	queues []*Queue
}

// New returns an Outbox that opens no file before Recall.
func New(c Config) *Outbox {
	return &Outbox{cfg: c, journal: newJournal(c.Options.OutboxSize, c.Remember, c.Log)}
}

// NewQueue adds the queue of one master, named addr. serving reports whether that
// master is connected.
func (o *Outbox) NewQueue(addr string, request Request, serving func() bool, log *slog.Logger) *Queue {
	q := newQueue(request, &o.cfg.Options, log)
	q.addr, q.journal, q.serving = addr, o.journal, serving
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queues = append(o.queues, q)
	return q
}

// all returns a copy of the list of queues.
func (o *Outbox) all() []*Queue {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.queues)
}

// Knows reports whether this or an earlier process has started a job.
func (o *Outbox) Knows(jid string) bool { return o.journal.knows(jid) }

// Begin records that a job is about to run for some masters. After an error,
// which names the file, a later process of this minion would not know the job.
func (o *Outbox) Begin(jid string, fun any, load *value.Dict, to []*Queue) error {
	return o.journal.begin(jid, fun, load, addrs(to))
}

// Started records a process that a job started.
func (o *Outbox) Started(jid string, pid int) { o.journal.started(jid, pid) }

// Also sends an existing return to a master that published the job later than the others.
func (o *Outbox) Also(ret *value.Dict, to *Queue) {
	o.journal.also(jidOf(ret), to.addr)
	to.Put(ret)
}

// addrs returns the names of masters in the journal. It skips nil queues, which belong to
// jobs that no master published.
func addrs(queues []*Queue) []string {
	out := make([]string, 0, len(queues))
	for _, q := range queues {
		if q != nil {
			out = append(out, q.addr)
		}
	}
	return out
}

// GiveBack sends a return to masters. If it is lasting, it is written to disk first.
func (o *Outbox) GiveBack(ret *value.Dict, to []*Queue, lasting bool) {
	switch {
	case !lasting:
	case !o.cfg.Options.PubRet || len(to) == 0:
		o.journal.end(jidOf(ret))
	default:
		o.journal.keep(ret, addrs(to))
	}
	if !o.cfg.Options.PubRet {
		return
	}
	for _, q := range to {
		q.Put(ret)
	}
}

// Recall restores what an earlier process left: returns that no master accepted, and
// unfinished jobs. interrupted builds the return of such a job from its record and the
// reason.
func (o *Outbox) Recall(interrupted func(begun *value.Dict, reason string) *value.Dict) {
	if !o.cfg.Options.Outbox {
		return
	}
	o.journal.open(filepath.Join(o.cfg.Dir, "jobs.journal"))
	queues := o.all()
	o.journal.forgetMasters(addrs(queues), o.cfg.Options.ReturnTo != returnToAny, steady.Removal())
	for _, d := range o.journal.interrupted() {
		var n begunNote
		wire.View(d, &n)
		o.journal.keep(interrupted(d, interruption(&n)), value.OnlyTexts(n.To))
	}
	// Returns that were just written are marked as queued, but no queue has them.
	o.journal.allWaiting()
	for _, q := range queues {
		q.remind()
	}
}

// interruption returns the error message for a job that was interrupted because its minion
// was stopped or killed. It does not end the processes that the job started: one may be a
// package manager, which must not be interrupted.
func interruption(begun *begunNote) string {
	text := "ERROR: the minion was stopped or killed while it ran this job, which is not run again; what it had done by then stays"
	for _, it := range value.Items(begun.Processes) {
		d, _ := it.(*value.Dict)
		var p processNote
		wire.View(d, &p)
		pid := int(p.PID)
		if start := startTime(pid); start != 0 && start == p.Start {
			text += fmt.Sprintf("\nIts process %d still runs: %s", pid, commandLine(pid))
		}
	}
	return text
}

// returnToAny is the value of the option return_to with which any master may accept a
// return.
const returnToAny = "any"

// Times of Run.
const (
	tendEvery  = time.Second
	flushAfter = 50 * time.Millisecond
)

// Run works until ctx ends: it flushes records soon after they were written, sends returns
// whose own masters are unreachable to another master, and reports dropped returns. Queues
// run separately.
func (o *Outbox) Run(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.journal.flushes.C():
			// The flush of a short job's return includes the record of its start.
			if wait.Sleep(ctx, flushAfter) {
				o.pulse.Beat()
				o.journal.flush()
			}
		case <-tick.C:
			o.pulse.Beat()
			if o.cfg.Options.ReturnTo == returnToAny {
				o.findOthers(time.Now())
			}
			if jids := o.journal.givenUp(); len(jids) > 0 {
				o.cfg.Fire(salt.Tag("minion", o.cfg.ID, "returns_dropped"), value.DictOf("jids", jids, "count", len(jids)))
			}
		}
	}
}

// CheckLive returns an error if the loop that records returns hangs. It does not wait for masters.
func (o *Outbox) CheckLive() error {
	return o.pulse.Check("the recording of returns", liveness.StepTime)
}

// strayReturns bounds the returns that are sent to another master at a time.
const strayReturns = 200

// findOthers sends returns that their own masters did not accept in time to another,
// connected master.
func (o *Outbox) findOthers(now time.Time) {
	there := slices.DeleteFunc(o.all(), func(q *Queue) bool { return !q.serving() })
	if len(there) == 0 {
		return
	}
	waitLimit := max(o.cfg.Options.ReturnRetryTimer, time.Second)
	for _, s := range o.journal.strays(now.Add(-waitLimit), now, strayReturns) {
		i := slices.IndexFunc(there, func(q *Queue) bool { return !slices.Contains(s.own, q.addr) })
		if i < 0 {
			continue
		}
		there[i].log.Info("sending return to another master: its own did not accept it", "jid", jidOf(s.load), "published_by", s.own)
		there[i].Put(s.load)
	}
}

// Waiting returns the names of the masters that have not accepted the return of a
// job.
func (o *Outbox) Waiting(jid string) []string { return o.journal.missing(jid) }

// Close flushes the journal and closes it.
func (o *Outbox) Close() { o.journal.close() }
