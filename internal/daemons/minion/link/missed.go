package link

import (
	"context"
	"sync/atomic"
	"time"

	"brine/internal/base/wait"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// missedRounds bounds how often one connection asks for more: a master could
// say for ever that there is.
const missedRounds = 1000

// laterChecks are when a new connection asks again what it missed: a job that
// was published between the first answer and the moment at which the master
// had taken in the subscription went nowhere.
var laterChecks = []time.Duration{2 * time.Second, 10 * time.Second}

// missedJobs asks one master for the jobs that it keeps for this minion.
type missedJobs struct {
	link *Link
	// kept is set once the master has shown that it keeps jobs for minions that
	// are unreachable, as Brine masters do.
	kept  atomic.Bool
	again wait.Wakeup // of the session: something may have been missed
}

// askAgain asks the master at those times, and whenever the numbers of what it
// published show a gap, until ctx ends.
func (m *missedJobs) askAgain(ctx context.Context) {
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
			// What one minion missed many may have missed.
			if !wait.Sleep(ctx, wait.Jitter(askSpread)) {
				return
			}
		}
		m.fetch(ctx)
	}
}

// askSpread is the time over which a fleet asks for what it missed.
const askSpread = time.Second

// askSoon has the master asked what was missed, unless that says nothing: where
// minions register and with filters a minion gets only a part of what is published.
func (m *missedJobs) askSoon() {
	c := m.link
	if c.cfg.Transport.Traits().Registers || c.cfg.Options.FilterPublications {
		return
	}
	m.again.Wake()
}

// fetch asks the master for the jobs that it keeps for this minion: those
// that were published while it was away. What it has run before, also in an
// earlier life of the process, is recognised by its id. Salt's masters are not
// asked: they would log an error.
func (m *missedJobs) fetch(ctx context.Context) {
	c := m.link
	if !c.Client.Peer().Brine {
		return
	}
	after := int64(0)
	for range missedRounds {
		v, err := c.Client.Request(ctx, wire.Encode(wire.Missed{Cmd: "_brine_missed", ID: c.cfg.ID, After: after}))
		if err != nil {
			c.log.Debug("cannot ask for missed jobs", "err", err)
			return
		}
		d, _ := v.(*value.Dict)
		var in wire.MissedJobs
		if err := wire.Decode(d, &in); err != nil {
			c.log.Debug("the master does not keep jobs for its minions", "err", err)
			return
		}
		m.kept.Store(true)
		for _, it := range value.Items(in.Jobs) {
			if load, ok := it.(*value.Dict); ok {
				c.log.Debug("a job was kept for this minion")
				c.cfg.Jobs.Accept(c, load)
			}
		}
		next := in.After
		if !in.More || next <= after {
			c.SayRunning(ctx, c.cfg.Jobs.RunningFor(c)...)
			return
		}
		after = next
	}
}
