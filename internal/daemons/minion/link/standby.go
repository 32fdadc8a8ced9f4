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

// standBy signs in at one address and keeps the session good until the role
// changes or the master is lost. Of what this master publishes only jobs are
// taken, if at all (standbyJobs).
func (c *Link) standBy(ctx context.Context, at address.Endpoint) (was bool, err error) {
	c.Client.SetAddress(at.String())
	signed := c.locator.warm == at.String() // it was the active one a moment ago
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
	c.log.Info("signed in to the master, which stands by", "address", at.Host)
	c.Out.Kick() // returns of jobs from its time as the active one
	// What it published just before we left it is still ours to run: its
	// sender was told that it would be.
	c.missed.fetch(ctx)
	stood, leave := context.WithCancel(ctx)
	var aside sync.WaitGroup
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

// keepGood asks the master for a sign of life from time to time, and signs in
// again when its key is another one.
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

// resign is how old a standby session with a master may become that does not
// tell whether its key is still the same.
const resign = 10 * time.Minute

// probe asks for a sign of life on the way that requests take. outdated says
// that the master has another key for publications now.
func (c *Link) probe(ctx context.Context) (outdated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Options.probeTimeout())
	defer cancel()
	if !c.Client.Peer().Brine {
		return false, c.Client.Ping(ctx)
	}
	return c.showStatus(ctx)
}

// showStatus tells a master of Brine's how this minion stands with its
// masters; see master.standings.
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

// watch looks after the active connection where the transport cannot: it ends
// with an error when a master that answers no heartbeats does not answer a
// request either. It also tells the master of changes among the others.
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
	wait := every // the first look is early: does it beat?
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

// nextAsk is how long the active master is not asked whether there is
// another list. The first times come sooner, to know how quickly it answers.
func (c *Link) nextAsk() time.Duration {
	pause := membersPause
	if c.latency.getting(c.cfg) {
		pause = usualProbe
	}
	return pause - pause/8 + rand.N(pause/4)
}

// probePause is the time between requests that stand for heartbeats, from lo to
// hi by how long the last one took: a master that answers at once is asked
// often, and one that is busy, or has so many minions, seldom: each minion waits
// probeShare times as long as it has been waited for.
func probePause(took, lo, hi time.Duration) time.Duration {
	return max(min(took*probeShare, hi), min(lo, hi))
}

const probeShare = 200

// tryShowStatus tells what it can; what could not be told now is told with
// the next change.
func (c *Link) tryShowStatus(ctx context.Context) {
	if !c.Client.Peer().Brine {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Options.probeTimeout())
	defer cancel()
	if _, err := c.showStatus(ctx); err != nil {
		c.log.Debug("cannot tell the master how its minion stands", "err", err)
	}
}

// heartbeat is the interval of heartbeats: heartbeat_interval, but no longer
// than master_alive_interval allows for noticing a lost master.
func (o *Options) heartbeat() time.Duration {
	if o.AliveInterval > 0 && (o.Heartbeat <= 0 || o.AliveInterval < 2*o.Heartbeat) {
		return o.AliveInterval / 2
	}
	return max(o.Heartbeat, 0)
}

// probeInterval is how often a master is asked for a sign of life by a request.
func (o *Options) probeInterval() time.Duration {
	if a := o.AliveInterval; a > 0 && a < usualProbe {
		return a
	}
	return usualProbe
}

// membersPause is how often the active master is asked whether there is another
// list. One that stands by tells it with each sign of life.
const membersPause = 30 * time.Second

// usualProbe is a compromise: each such request is work for the master.
const usualProbe = 5 * time.Second

func (o *Options) probeTimeout() time.Duration {
	return min(max(o.probeInterval(), time.Second), max(o.AuthTimeout, time.Second))
}
