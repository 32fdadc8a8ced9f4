// Package outbox keeps what a minion has to deliver. A Queue has the returns and
// events for one master; the Outbox has the queues of all masters, and a journal
// on disk of the jobs that were begun and of the returns that no master has taken.
// It opens no connection: a queue is given the function that sends a request.
package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Options are the options of the minion that this package uses.
type Options struct {
	ReturnRetryTimer    time.Duration `salt:"return_retry_timer" default:"5" doc:"seconds that a master has to take a return" change:"restart"`
	ReturnRetryTimerMax time.Duration `salt:"return_retry_timer_max" default:"10" doc:"seconds up to which the pause between attempts to deliver a return grows" change:"restart"`
	ReturnQueue         int           `salt:"return_queue" default:"1000" doc:"returns kept for a master that is away; the oldest is given up, with an error, when there are more (Brine only; Salt gives up after return_retry_tries)" change:"restart"`
	Outbox              bool          `salt:"return_outbox" default:"true" doc:"keep the ids of jobs, and returns that no master has taken yet, on disk, so that a restart of the minion neither loses a return nor runs a job twice (Brine only)" change:"restart"`
	OutboxSize          int64         `salt:"return_outbox_size" default:"268435456" doc:"bytes of returns that wait for masters; when there are more the oldest is given up, and the event salt/minion/ID/returns_dropped tells it (Brine only)" change:"restart"`
	ReturnTo            string        `salt:"return_to" default:"any" doc:"publisher: a return goes to the masters that published its job, whenever they are there; any: another master of this minion gets it too if none of them has taken it for return_retry_timer seconds (Brine only)" change:"restart"`
	PubRet              bool          `salt:"pub_ret" default:"true" doc:"send returns to the master" change:"restart"`
}

// Config is what an Outbox needs.
type Config struct {
	Options Options
	// ID is the minion's id.
	ID string
	// Dir is where the journal is kept.
	Dir string
	// Remember is the number of jobs whose ids are remembered; there is a lower
	// bound of 10,000.
	Remember int
	// Fire sends an event to the masters.
	Fire func(tag string, data any)
	Log  *slog.Logger
}

// MaxReturn bounds what one job may return, in bytes. Masters do not take messages
// above 64 MiB, and would be asked for ever; the rest is room for what is around it.
const MaxReturn = 60 << 20

// Outbox has what waits for all masters.
type Outbox struct {
	cfg     Config
	journal *jobJournal

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

// all returns the queues; the slice does not change.
func (o *Outbox) all() []*Queue {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.queues)
}

// Knows reports whether a job was begun before, also by an earlier process.
func (o *Outbox) Knows(jid string) bool { return o.journal.knows(jid) }

// Begin notes that a job is about to run for some masters. After an error, which
// names the file, a later process of this minion would not know it.
func (o *Outbox) Begin(jid string, fun any, load *value.Dict, to []*Queue) error {
	return o.journal.begin(jid, fun, load, addrs(to))
}

// Started notes a process that a job has started.
func (o *Outbox) Started(jid string, pid int) { o.journal.started(jid, pid) }

// Also gives a return that is there already to a master that published the job
// later than others.
func (o *Outbox) Also(ret *value.Dict, to *Queue) {
	o.journal.also(jidOf(ret), to.addr)
	to.Put(ret)
}

// addrs are the names of masters in the journal. A nil queue, that of a job which
// no master published, is left out.
func addrs(queues []*Queue) []string {
	out := make([]string, 0, len(queues))
	for _, q := range queues {
		if q != nil {
			out = append(out, q.addr)
		}
	}
	return out
}

// GiveBack gives a return to masters; one that lasts is on disk before.
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

// Recall takes over what an earlier process left behind: returns that no master
// had, and jobs that it did not bring to an end. interrupted makes the return of
// such a job from what was noted of it and the reason.
func (o *Outbox) Recall(interrupted func(begun *value.Dict, reason string) *value.Dict) {
	if !o.cfg.Options.Outbox {
		return
	}
	o.journal.open(filepath.Join(o.cfg.Dir, "jobs.journal"))
	queues := o.all()
	o.journal.forgetMasters(addrs(queues), o.cfg.Options.ReturnTo != returnToAny, time.Now())
	for _, d := range o.journal.interrupted() {
		var n begunNote
		wire.View(d, &n)
		o.journal.keep(interrupted(d, interruption(&n)), texts(value.Items(n.To)))
	}
	// What was just kept counts as queued, but is not.
	o.journal.allWaiting()
	for _, q := range queues {
		q.remind()
	}
}

// interruption is what a job returns whose minion was stopped or killed while it
// ran. What it had started is left alone: it may be a package manager, which is
// better not disturbed.
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

func texts(l []any) []string {
	out := make([]string, 0, len(l))
	for _, v := range l {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// returnToAny is the value of the option return_to that lets any master take
// a return.
const returnToAny = "any"

// Times of Run.
const (
	tendEvery  = time.Second
	flushAfter = 50 * time.Millisecond
)

// Run brings notes to disk soon after they were made, finds another master for
// returns whose own ones are unreachable, and reports returns that were given up,
// until ctx ends. The queues are run by themselves.
func (o *Outbox) Run(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.journal.flushes.C():
			// The return of a short job brings the note of its beginning to
			// disk, too.
			if wait.Sleep(ctx, flushAfter) {
				o.journal.flush()
			}
		case <-tick.C:
			if o.cfg.Options.ReturnTo == returnToAny {
				o.findOthers(time.Now())
			}
			if jids := o.journal.givenUp(); len(jids) > 0 {
				o.cfg.Fire(salt.Tag("minion", o.cfg.ID, "returns_dropped"), value.DictOf("jids", jids, "count", len(jids)))
			}
		}
	}
}

// strayReturns bounds the returns that are given to another master at a time.
const strayReturns = 200

// findOthers gives returns that their own masters have not taken in time to
// one that is connected.
func (o *Outbox) findOthers(now time.Time) {
	there := slices.DeleteFunc(o.all(), func(q *Queue) bool { return !q.serving() })
	if len(there) == 0 {
		return
	}
	patience := max(o.cfg.Options.ReturnRetryTimer, time.Second)
	for _, s := range o.journal.strays(now.Add(-patience), now, strayReturns) {
		i := slices.IndexFunc(there, func(q *Queue) bool { return !slices.Contains(s.own, q.addr) })
		if i < 0 {
			continue
		}
		there[i].log.Info("a return goes to this master: its own has not taken it", "jid", jidOf(s.load), "published_by", s.own)
		there[i].Put(s.load)
	}
}

// Waiting returns the names of the masters that have not taken the return of a job.
func (o *Outbox) Waiting(jid string) []string { return o.journal.missing(jid) }

// Close flushes the journal and closes it.
func (o *Outbox) Close() { o.journal.close() }
