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

// standbyJobs handles the jobs of a standby master, so that an operator can command the
// minion from any of its masters. Nothing else of such a master is used: the minion sends
// it neither its start event nor messages for all masters, and requests no pillar from it.
type standbyJobs struct {
	link *Link
	// known is set once the master has reported whether minions run its jobs while it is on
	// standby; offered is what it reported.
	known, offered atomic.Bool
	taking         atomic.Bool // subscribed
}

// answered records what the master reported in its answer to a status report.
func (s *standbyJobs) answered(offered bool) {
	if was := s.offered.Swap(offered); s.known.Swap(true) && was == offered {
		return
	}
	s.link.cfg.Notify(roles.Event{}) // the number of standby masters changes
}

// RunsStandbyJobs reports whether this minion runs the jobs of the master while that is on
// standby. Then the master also accepts records of other masters' jobs.
func (c *Link) RunsStandbyJobs() bool {
	return c.standby.offered.Load() && c.cfg.Options.takesStandbyJobs(c.cfg)
}

func (o *Options) takesStandbyJobs(cfg *Config) bool {
	// The masters of a cluster publish each job to all minions: none needs standby jobs.
	return o.StandbyJobs && cfg.Links.OneAtATime && cfg.Members == nil
}

// resubscribe is the pause between attempts to subscribe to a standby master.
const resubscribe = 5 * time.Second

// run subscribes and handles jobs until ctx ends.
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
				c.log.Info("no longer running jobs of the standby master: it has standby_jobs: False")
			case failed && time.Since(from) < resubscribe: // once for attempts that fail in a row
				c.log.Debug("not receiving jobs from the standby master; retrying", "err", err, "retry", resubscribe)
			default:
				c.log.Warn("not receiving jobs from the standby master; retrying", "err", err, "retry", resubscribe)
				failed = true
			}
		}
		wait.Sleep(ctx, resubscribe/2+wait.Jitter(resubscribe/2))
	}
}

// take handles the jobs of one subscription until it ends.
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
	c.log.Info("running jobs of the standby master", "address", at.Host)

	c.missed.again = wait.NewWakeup()
	var aside sync.WaitGroup
	defer func() { s.taking.Store(false); cancel(); aside.Wait() }()
	aside.Go(func() {
		c.tryShowStatus(ctx) // the master considers the minion unreachable before this report
		c.missed.askAgain(ctx, c.missed.fetch(ctx))
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

// watch ends a subscription when the master no longer offers standby jobs.
func (s *standbyJobs) watch(ctx context.Context, end func()) {
	for wait.Sleep(ctx, time.Second) {
		if !s.offered.Load() {
			end()
			return
		}
	}
}

// JobRecord requests the master's signed record of a job that it published to this minion.
// The record is proof for another master; nil if there is none.
func (c *Link) JobRecord(ctx context.Context, jid string) []byte {
	v, err := c.Client.Request(ctx, wire.Encode(wire.AboutJob{Cmd: "_brine_published", ID: c.cfg.ID, JID: jid}))
	if err != nil {
		c.log.Debug("the master returned no record of a job", "jid", jid, "err", err)
	}
	d, _ := v.(*value.Dict)
	var in wire.PublishedRecord
	wire.View(d, &in)
	return in.Record
}

// deliver sends a queued message. From returns for a master that does not accept records of
// jobs it removes the record.
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
