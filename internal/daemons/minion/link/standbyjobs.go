package link

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/roles"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// standbyJobs takes the jobs of a master that stands by, so that an operator
// can command the minion at any of its masters. Besides its jobs nothing of such
// a master is used: the minion sends it neither its start event nor what concerns
// all masters, and asks it for no pillar.
type standbyJobs struct {
	link *Link
	// known is set once the master has said whether minions run its jobs while it
	// stands by (offered).
	known, offered atomic.Bool
	taking         atomic.Bool // the subscription stands
}

// answered reads the master's answer to a status report.
func (s *standbyJobs) answered(offered bool) {
	if was := s.offered.Swap(offered); s.known.Swap(true) && was == offered {
		return
	}
	s.link.cfg.Notify(roles.Event{}) // more masters are to stand by, or fewer
}

// RunsStandbyJobs reports whether this minion runs jobs of the master while that
// stands by, and so whether the master takes records of jobs of other masters.
func (c *Link) RunsStandbyJobs() bool {
	return c.standby.offered.Load() && c.cfg.Options.takesStandbyJobs(c.cfg)
}

func (o *Options) takesStandbyJobs(cfg *Config) bool {
	// The masters of a cluster publish each job to all minions.
	return o.StandbyJobs && cfg.Links.OneAtATime && cfg.Members == nil
}

// resubscribe is the pause between attempts to subscribe to a master that stands
// by.
const resubscribe = 5 * time.Second

// run takes jobs until ctx ends.
func (s *standbyJobs) run(ctx context.Context, at address.Endpoint) {
	c := s.link
	if !c.cfg.Options.takesStandbyJobs(c.cfg) || !c.Client.Peer().Brine {
		return
	}
	failed := false
	for ctx.Err() == nil {
		if !s.known.Load() {
			c.tryShowStatus(ctx)
		}
		if s.offered.Load() {
			from := time.Now()
			err := s.take(ctx, at)
			switch {
			case err == nil || ctx.Err() != nil:
			case !s.offered.Load():
				c.log.Info("jobs of the master are not run any more while it stands by: it has standby_jobs: False")
			case failed && time.Since(from) < resubscribe: // once for attempts that fail in a row
				c.log.Debug("no jobs are received from the master, which stands by; it is tried again", "err", err, "retry", resubscribe)
			default:
				c.log.Warn("no jobs are received from the master, which stands by; it is tried again", "err", err, "retry", resubscribe)
				failed = true
			}
		}
		wait.Sleep(ctx, resubscribe/2+wait.Jitter(resubscribe/2))
	}
}

// take takes jobs of one subscription until it ends.
func (s *standbyJobs) take(ctx context.Context, at address.Endpoint) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := s.link
	sub, err := c.Client.Subscribe(ctx, address.Endpoint{Host: at.Host, Port: c.publishPort()}.String())
	if err != nil {
		return err
	}
	defer sub.Close()
	stop := context.AfterFunc(ctx, sub.Close)
	defer stop()
	s.taking.Store(true)
	c.log.Info("jobs of the master are run while it stands by", "address", at.Host)

	c.missed.again = wait.NewWakeup()
	var aside sync.WaitGroup
	defer func() { s.taking.Store(false); cancel(); aside.Wait() }()
	aside.Go(func() {
		c.tryShowStatus(ctx) // or it would take the minion for unreachable
		c.missed.fetch(ctx)
		c.missed.askAgain(ctx)
	})
	aside.Go(func() { s.watch(ctx, cancel) })
	for {
		load, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		c.cfg.Jobs.Accept(c, load)
		if sub.Missed() {
			c.missed.askSoon()
		}
	}
}

// watch ends a subscription when the option of the master has changed.
func (s *standbyJobs) watch(ctx context.Context, end func()) {
	for wait.Sleep(ctx, time.Second) {
		if !s.offered.Load() {
			end()
			return
		}
	}
}

// JobRecord asks the master for its signed record of a job that it has published
// to this minion, by which another master believes that it did; nil if it gives
// none.
func (c *Link) JobRecord(ctx context.Context, jid string) []byte {
	v, err := c.Client.Request(ctx, wire.Encode(wire.AboutJob{Cmd: "_brine_published", ID: c.cfg.ID, JID: jid}))
	if err != nil {
		c.log.Debug("the master gives no record of a job", "jid", jid, "err", err)
	}
	d, _ := v.(*value.Dict)
	var in wire.PublishedRecord
	wire.View(d, &in)
	return in.Record
}

// deliver sends a message of the queue. A master that does not read records of
// jobs gets returns without.
func (s *standbyJobs) deliver(ctx context.Context, load *value.Dict) (any, error) {
	c := s.link
	if load.Has(salt.JobRecord) {
		if !s.known.Load() {
			c.tryShowStatus(ctx)
		}
		if !s.offered.Load() {
			load = load.Clone()
			load.Delete(salt.JobRecord)
		}
	}
	return c.Client.Request(ctx, load)
}
