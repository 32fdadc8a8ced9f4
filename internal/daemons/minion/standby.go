package minion

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
	"brine/internal/net/channel"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
)

// standBy signs in at one address and keeps the session good until the role
// changes or the master is lost. Nothing that this master publishes is taken:
// there is no subscription.
func (c *connection) standBy(ctx context.Context, at address.Endpoint) (was bool, err error) {
	c.client.SetAddress(at.String())
	signed := c.warm == at.String() // it was the active one a moment ago
	if signed {
		outdated, err := c.probe(ctx)
		signed = err == nil && !outdated
	}
	if !signed {
		if err := c.client.SignIn(ctx); err != nil {
			return handshake.Refused(err), err
		}
	}
	c.warm = at.String()
	c.setState(standingBy)
	c.m.notify(roles.Event{Kind: roles.Up, Master: c.index})
	c.log.Info("signed in to the master, which stands by", "address", at.Host)
	c.out.Kick() // returns of jobs from its time as the active one
	// What it published just before we left it is still ours to run: its
	// sender was told that it would be.
	c.fetchMissed(ctx)
	stood, leave := context.WithCancel(ctx)
	var aside sync.WaitGroup
	aside.Go(func() { c.restored(stood) })
	err = c.keepGood(ctx)
	leave()
	aside.Wait()
	if err != nil {
		c.warm = ""
	}
	return true, err
}

// keepGood asks the master for a sign of life from time to time, and signs in
// again when its key is another one.
func (c *connection) keepGood(ctx context.Context) error {
	every := c.m.probeInterval()
	signed := time.Now()
	for first := true; ; first = false {
		pause := every - every/8 + rand.N(every/4)
		if first || c.getting() {
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
			if err := c.client.SignIn(ctx); err != nil {
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
func (c *connection) probe(ctx context.Context) (outdated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.m.probeTimeout())
	defer cancel()
	if !c.client.Peer().Brine {
		return false, c.client.Ping(ctx)
	}
	return c.showStanding(ctx)
}

// showStanding tells a master of Brine's how this minion stands with its
// masters; see master.standings.
func (c *connection) showStanding(ctx context.Context) (outdated bool, err error) {
	load, asked := c.m.standing.load(c), time.Now()
	v, err := c.client.Request(ctx, load)
	if err != nil {
		return false, err
	}
	c.answered(time.Since(asked))
	d, ok := v.(*value.Dict)
	if !ok {
		return false, errors.New("the answer is not a map")
	}
	c.learn(ctx, d.Int("members"))
	return d.Str("key") != c.client.KeyTag(), nil
}

// watch looks after the active connection where the transport cannot: it ends
// with an error when a master that answers no heartbeats does not answer a
// request either. It also tells the master of changes among the others.
func (c *connection) watch(ctx context.Context, sub *channel.Subscription) error {
	every := c.m.heartbeat()
	if every <= 0 {
		every = time.Minute
	}
	last := time.Now()
	kick := c.m.standing.subscribe()
	defer c.m.standing.unsubscribe(kick)
	tick := time.NewTicker(every)
	defer tick.Stop()
	ask, again := make(<-chan time.Time), func() {}
	if c.m.cfg.Options.learns() {
		t := time.NewTimer(c.membersPause())
		defer t.Stop()
		ask = t.C
		again = func() { t.Reset(c.membersPause()) }
	}
	wait := every // the first look is early: does it beat?
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-kick:
			c.tryShowStanding(ctx)
			continue
		case <-ask:
			c.tryShowStanding(ctx)
			again()
			continue
		case <-tick.C:
		}
		if c.m.heartbeat() <= 0 || sub.Beats() || time.Since(last) < wait {
			continue
		}
		asked := time.Now()
		if _, err := c.probe(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("the master answers neither heartbeats nor a request: %w", err)
		}
		last = time.Now()
		wait = probePause(last.Sub(asked), every, c.m.probeInterval())
	}
}

// membersPause is how long the active master is not asked whether there is
// another list. The first times come sooner, to know how quickly it answers.
func (c *connection) membersPause() time.Duration {
	pause := membersPause
	if c.getting() {
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

// tryShowStanding tells what it can; what could not be told now is told with
// the next change.
func (c *connection) tryShowStanding(ctx context.Context) {
	if !c.client.Peer().Brine {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.m.probeTimeout())
	defer cancel()
	if _, err := c.showStanding(ctx); err != nil {
		c.log.Debug("cannot tell the master how its minion stands", "err", err)
	}
}

// heartbeat is the interval of heartbeats: heartbeat_interval, but no longer
// than master_alive_interval allows for noticing a lost master.
func (m *Minion) heartbeat() time.Duration {
	o := &m.cfg.Options
	if o.AliveInterval > 0 && (o.Heartbeat <= 0 || o.AliveInterval < 2*o.Heartbeat) {
		return o.AliveInterval / 2
	}
	return max(o.Heartbeat, 0)
}

// probeInterval is how often a master is asked for a sign of life by a request.
func (m *Minion) probeInterval() time.Duration {
	if a := m.cfg.Options.AliveInterval; a > 0 && a < usualProbe {
		return a
	}
	return usualProbe
}

// usualProbe is a compromise: each such request is work for the master.
const usualProbe = 5 * time.Second

func (m *Minion) probeTimeout() time.Duration {
	return min(max(m.probeInterval(), time.Second), max(m.cfg.Options.AuthTimeout, time.Second))
}
