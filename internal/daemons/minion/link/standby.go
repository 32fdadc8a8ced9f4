package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"brine/internal/base/wait"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/roles"
	"brine/internal/daemons/minion/status"
	"brine/internal/net/channel"
	"brine/internal/net/handshake"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// standBy signs in at one address, and keeps the session valid until the role changes or
// the master is lost. Of this master's publications it handles at most the jobs
// (standbyJobs).
func (c *Link) standBy(ctx context.Context, at address.Endpoint) (was bool, err error) {
	c.Client.SetAddress(at.String())
	signed := c.locator.warm == at.String() // it was the active master a moment ago
	if signed {
		outdated, err := c.probe(ctx)
		signed = err == nil && !outdated
	}
	if !signed {
		if err := c.Client.SignIn(ctx); err != nil {
			return handshake.Refused(err), err
		}
	}
	c.locator.warm = at.String()
	c.setState(status.Standby)
	c.cfg.Notify(roles.Event{Kind: roles.Up, Master: c.Index})
	c.log.Info("signed in to a standby master", "address", at.Host)
	c.Out.Kick() // sends returns of jobs from its time as the active master
	// Jobs that it published just before the switch still run here: it has told the
	// operator that they were published.
	answered := c.missed.fetch(ctx)
	stood, leave := context.WithCancel(ctx)
	var aside sync.WaitGroup
	if !answered {
		aside.Go(func() { c.missed.retry(stood) })
	}
	aside.Go(func() { c.restored(stood) })
	aside.Go(func() { c.standby.run(stood, at) })
	err = c.keepGood(ctx)
	leave()
	aside.Wait()
	if err != nil {
		c.locator.warm = ""
	}
	return true, err
}

// keepGood probes the master periodically, and signs in again when the key of the master
// has changed.
func (c *Link) keepGood(ctx context.Context) error {
	every := c.cfg.Options.probeInterval()
	signed := time.Now()
	for first := true; ; first = false {
		pause := every - every/8 + rand.N(every/4)
		if first || c.latency.getting(c.cfg) {
			pause = every / 8
		}
		if !wait.Sleep(ctx, pause) {
			return ctx.Err()
		}
		outdated, err := c.probe(ctx)
		if err != nil {
			return fmt.Errorf("the master that stands by does not answer: %w", err)
		}
		if outdated || time.Since(signed) > resign {
			if err := c.Client.SignIn(ctx); err != nil {
				return err
			}
			signed = time.Now()
		}
	}
}

// resign is the maximum age of a standby session with a master that does not report changes
// of its key.
const resign = 10 * time.Minute

// probe sends a liveness request. outdated reports that the master has a new publication
// key.
func (c *Link) probe(ctx context.Context) (outdated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Options.probeTimeout())
	defer cancel()
	if !c.Client.Peer().Brine {
		return false, c.Client.Ping(ctx)
	}
	return c.showStatus(ctx)
}

// showStatus reports the connection status to a Brine master; see
// master.connectionReports.
func (c *Link) showStatus(ctx context.Context) (outdated bool, err error) {
	load, asked := c.cfg.Status.Load(c.Addr.Text), time.Now()
	v, err := c.Client.Request(ctx, load)
	if err != nil {
		return false, err
	}
	if c.latency.answered(c.cfg, time.Since(asked), c.log) {
		c.cfg.Learned()
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return false, errors.New("the answer is not a map")
	}
	var in wire.StandingAnswer
	wire.View(d, &in)
	c.standby.answered(in.StandbyJobs)
	c.learn(ctx, in.Members)
	return in.Key != c.Client.KeyTag(), nil
}

// watch monitors the active connection where the transport cannot. It fails if a master
// that sends no heartbeats does not answer a request either. It also reports the connection
// status to the master when it changes.
func (c *Link) watch(ctx context.Context, sub *channel.Subscription) error {
	every := c.cfg.Options.heartbeat()
	if every <= 0 {
		every = time.Minute
	}
	last := time.Now()
	kick := c.cfg.Status.Subscribe()
	defer c.cfg.Status.Unsubscribe(kick)
	tick := time.NewTicker(every)
	defer tick.Stop()
	ask, again := make(<-chan time.Time), func() {}
	if c.cfg.Members != nil {
		t := time.NewTimer(c.nextAsk())
		defer t.Stop()
		ask = t.C
		again = func() { t.Reset(c.nextAsk()) }
	}
	wait := every // the first check is early, to learn whether it sends heartbeats
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-kick.C():
			c.tryShowStatus(ctx)
			continue
		case <-ask:
			c.tryShowStatus(ctx)
			again()
			continue
		case <-tick.C:
		}
		if c.cfg.Options.heartbeat() <= 0 || sub.Beats() || time.Since(last) < wait {
			continue
		}
		asked := time.Now()
		if _, err := c.probe(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("the master answers neither heartbeats nor a request: %w", err)
		}
		last = time.Now()
		wait = probePause(last.Sub(asked), every, c.cfg.Options.probeInterval())
	}
}

// nextAsk returns the pause before the next request for the list of masters. The first
// pauses are shorter, to measure the response time.
func (c *Link) nextAsk() time.Duration {
	pause := membersPause
	if c.latency.getting(c.cfg) {
		pause = usualProbe
	}
	return pause - pause/8 + rand.N(pause/4)
}

// probePause returns the time between the requests that replace heartbeats: probeShare
// times the duration of the last one, but from lo to hi. So a fast master is probed often,
// and one that is busy or has many minions is probed seldom.
func probePause(took, lo, hi time.Duration) time.Duration {
	return max(min(took*probeShare, hi), min(lo, hi))
}

const probeShare = 200

// tryShowStatus reports the connection status if possible. After a failure the next change
// reports it.
func (c *Link) tryShowStatus(ctx context.Context) {
	if !c.Client.Peer().Brine {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Options.probeTimeout())
	defer cancel()
	if _, err := c.showStatus(ctx); err != nil {
		c.log.Debug("cannot report the connection status to the master", "err", err)
	}
}

// membersPause is how often the active master is asked whether the list of masters has
// changed. Standby masters report that in the answer to each liveness request.
const membersPause = 30 * time.Second
