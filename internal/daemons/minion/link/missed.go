package link

import (
	"context"
	"sync/atomic"
	"time"

	"brine/internal/base/wait"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// missedRounds bounds the requests per connection, because a master could report forever
// that there are more jobs.
const missedRounds = 1000

// laterChecks are the times after which a new connection asks for missed jobs again. A job
// published between the first answer and the start of the subscription is in neither.
var laterChecks = []time.Duration{2 * time.Second, 10 * time.Second}

// missedJobs fetches the jobs that one master has queued for this minion.
type missedJobs struct {
	link *Link
	// kept is set once the master has shown that it queues jobs for unreachable
	// minions, as Brine masters do.
	kept  atomic.Bool
	again wait.Wakeup // wakes askAgain: the session may have missed publications
}

// retryPause is the pause before an unanswered request is repeated. It doubles up to retryPauseMax.
const (
	retryPause    = time.Second
	retryPauseMax = time.Minute
)

// untilDone pauses and calls do until it is done or ctx ends.
func untilDone(ctx context.Context, do func() bool) {
	pause := retryPause
	for wait.Sleep(ctx, pause/2+wait.Jitter(pause/2)) && !do() {
		pause = min(2*pause, retryPauseMax)
	}
}

// retry repeats the request until the master answers or ctx ends. It may be busy or hang while its
// heartbeats arrive, so that the connection stays.
func (m *missedJobs) retry(ctx context.Context) { untilDone(ctx, func() bool { return m.fetch(ctx) }) }

// askAgain asks the master for missed jobs at laterChecks, and whenever the numbers of its
// publications show a gap, until ctx ends. It repeats requests without an answer; answered reports
// whether the first request of this connection had one.
func (m *missedJobs) askAgain(ctx context.Context, answered bool) {
	if !answered {
		m.retry(ctx)
	}
	if !m.kept.Load() {
		return
	}
	from, checks := time.Now(), laterChecks
	for {
		var due <-chan time.Time
		if len(checks) > 0 {
			t := time.NewTimer(time.Until(from.Add(checks[0])))
			defer t.Stop()
			due = t.C
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
			checks = checks[1:]
		case <-m.again.C():
			// If one minion missed a job, many may have: spread their requests.
			if !wait.Sleep(ctx, wait.Jitter(askSpread)) {
				return
			}
		}
		if !m.fetch(ctx) {
			m.retry(ctx)
		}
	}
}

// askSpread is the time over which a fleet asks for missed jobs.
const askSpread = time.Second

// askSoon requests a check for missed jobs. It does nothing if a minion gets only some of
// the publications (registration or filters), because gaps are normal then.
func (m *missedJobs) askSoon() {
	c := m.link
	if c.cfg.Transport.Traits().Registers || c.cfg.Options.FilterPublications {
		return
	}
	m.again.Wake()
}

// fetch requests the jobs that the master queued for this minion while it was
// unreachable. Jobs that it already ran, even in an earlier process, are
// recognized by id. Stock masters are not asked, because they would log an
// error. If it returns false, the master must be asked again.
func (m *missedJobs) fetch(ctx context.Context) (answered bool) {
	c := m.link
	if !c.Client.Peer().Brine {
		return true
	}
	after := int64(0)
	for range missedRounds {
		v, err := c.Client.Request(ctx, wire.Encode(wire.Missed{Cmd: "_brine_missed", ID: c.cfg.ID, After: after, Syndic: c.cfg.Syndic}))
		if err != nil {
			c.log.Debug("cannot request missed jobs", "err", err)
			return false
		}
		d, _ := v.(*value.Dict)
		var in wire.MissedJobs
		if err := wire.Decode(d, &in); err != nil {
			c.log.Debug("the master does not queue jobs for its minions", "err", err)
			return true
		}
		m.kept.Store(true)
		for _, it := range value.Items(in.Jobs) {
			if load, ok := it.(*value.Dict); ok {
				c.log.Debug("received a job that the master had queued")
				c.cfg.Jobs.Accept(c, load)
			}
		}
		next := in.After
		if !in.More || next <= after {
			c.SayRunning(ctx, c.cfg.Jobs.RunningFor(c)...)
			return true
		}
		after = next
	}
	return true
}
