package minion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/roles"
	"brine/internal/net/channel"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
)

// connection supervises the link to one master, for as long as the process
// lives. Nothing that it meets ends the process or touches another
// connection: it waits and tries again. Its role says how much of a link there
// is to be: with several masters of which one is used at a time, all but one
// connection stand by or are off.
type connection struct {
	m      *Minion
	index  int // in Minion.conns
	addr   address.Master
	client *channel.Client
	out    *outbox.Queue
	log    *slog.Logger
	role   assignment

	pillar atomic.Pointer[value.Dict]
	view   view
	// greeted is set once the start event has been sent to this master; with
	// one master at a time it is the one who decides about that that knows.
	greeted bool
	// warm is the address at which a standby session was good until now.
	warm    string
	lookups int // that failed in a row
	// resolved is what the last look-up that succeeded has found.
	resolved []address.Endpoint
	reported map[cause]bool // why there was no connection since the last one that stood
	state    atomic.Pointer[linkState]
	fatal    int // code of the last refusal, guarded by Minion.refusals
	// keepsJobs is set once the master has shown that it keeps jobs for
	// minions that are away, as Brine's do.
	keepsJobs atomic.Bool
	latency   latency
	again     chan struct{} // of the session: something may have been missed
}

// linkState is what others may know of a connection.
type linkState struct {
	text  string // connected, standby, off, or why it is not
	since time.Time
}

// States of a connection that is good.
const (
	connected  = "connected" // receives commands
	standingBy = "standby"
	turnedOff  = "off"
)

// stable is how long a connection must last for what was before to be over.
const stable = 10 * time.Second

func (c *connection) setState(s string) {
	if old := c.state.Load(); old != nil && old.text == s {
		return
	}
	c.state.Store(&linkState{text: s, since: time.Now()})
	c.m.standing.changed()
}

func (c *connection) is(state string) bool {
	st := c.state.Load()
	return st != nil && st.text == state
}

// assignment is the role of a connection, which somebody else sets.
type assignment struct {
	mu      sync.Mutex
	role    roles.Role
	changed chan struct{} // closed at the next change
}

func (a *assignment) get() (roles.Role, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.role, a.changed
}

func (a *assignment) set(r roles.Role) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.role == r {
		return
	}
	a.role = r
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// run does what the role asks, again and again, until ctx ends.
func (c *connection) run(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		role, changed := c.role.get()
		if role == roles.Off {
			c.setState(turnedOff)
			c.warm = ""
			wait.Until(ctx, changed, 0)
			pause = 0
			continue
		}
		up := time.Now()
		err := c.session(ctx, role, changed)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errRoleChanged) {
			pause = 0
			continue
		}
		if time.Since(up) > stable {
			pause = 0
		}
		c.warm = ""
		c.m.refusedBy(c, err)
		pause = c.nextPause(pause, err)
		c.report(err, pause)
		c.m.notify(roles.Event{Kind: roles.Lost, Master: c.index, Why: reason(err)})
		if !wait.Until(ctx, changed, pause) {
			pause = 0 // another role: at once
		}
	}
}

// errRoleChanged ends a session whose master got another role.
var errRoleChanged = errors.New("the master has another role now")

// nextPause is how long to wait after err. Refusals of a living master have a
// pace of their own, set by the operator; for a master that is away, the
// pause grows from recon_default to recon_max.
func (c *connection) nextPause(last time.Duration, err error) time.Duration {
	o := &c.m.cfg.Options
	if handshake.Refused(err) || errors.Is(err, handshake.ErrFull) {
		base := max(o.AcceptanceWait, time.Second)
		if o.AcceptanceWaitMax > base && last >= base {
			return min(2*last, o.AcceptanceWaitMax)
		}
		return base
	}
	var busy *handshake.Busy
	if errors.As(err, &busy) {
		return busy.Wait // the master has said when it will have time
	}
	if d := c.lookupPause(); d > 0 {
		return d
	}
	lo := time.Duration(max(o.ReconDefault, 10)) * time.Millisecond
	hi := max(time.Duration(o.ReconMax)*time.Millisecond, lo)
	next := min(max(2*last, lo), hi)
	if o.ReconRandomize {
		next = next/2 + rand.N(next/2+1)
	}
	return next
}

// cause is what kind of failure ended a session. Reports are limited by cause:
// in the text of an error a port, a name server or a master can put something
// new each time. There are few causes, and none uses up the reports of another.
type cause struct {
	refusal                        error
	mismatch, untrusted, busy      bool
	lookup, notFound, timeout, eof bool
	errno                          syscall.Errno
	kind                           salt.Kind
}

func causeOf(err error) cause {
	var (
		mismatch  *handshake.KeyMismatch
		untrusted *handshake.Untrusted
		busy      *handshake.Busy
		lookup    *net.DNSError
	)
	c := cause{
		mismatch: errors.As(err, &mismatch), untrusted: errors.As(err, &untrusted), busy: errors.As(err, &busy),
		lookup:  errors.As(err, &lookup),
		timeout: errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded),
		eof:     errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF),
		kind:    salt.KindOf(err),
	}
	for _, known := range []error{handshake.ErrPending, handshake.ErrRejected, handshake.ErrFinger, handshake.ErrFull} {
		if errors.Is(err, known) {
			c.refusal = known
		}
	}
	if c.lookup {
		c.notFound, c.timeout = lookup.IsNotFound, lookup.IsTimeout
	}
	errors.As(err, &c.errno)
	return c
}

// report logs the end of a session, once per cause until a connection stood.
func (c *connection) report(err error, pause time.Duration) {
	text := reason(err)
	c.setState(text)
	why := causeOf(err)
	if c.reported[why] {
		c.log.Debug("still without this master", "err", err, "retry", pause)
		return
	}
	if c.reported == nil {
		c.reported = map[cause]bool{}
	}
	c.reported[why] = true
	switch {
	case errors.Is(err, handshake.ErrPending):
		c.log.Error(text, "id", c.m.cfg.ID, "fingerprint", c.m.fingerprint, "retry", pause)
		c.m.tellRefused(c, err)
	case handshake.Refused(err):
		c.m.tellRefused(c, err)
		c.log.Log(context.Background(), slog.LevelError+4, text, "retry", pause) // critical
	default:
		c.log.Warn("no connection to the master; it is tried again", "err", err)
	}
}

// restored reports that the connection is back, once it has lasted for a while:
// the last line of the log about a master says how it is.
func (c *connection) restored(ctx context.Context) {
	if !wait.Sleep(ctx, stable) {
		return
	}
	if len(c.reported) > 0 {
		c.log.Warn("the connection to the master is restored")
	}
	clear(c.reported)
}

// ownPort is our own end of a connection in the text of an error.
var ownPort = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(\[[0-9A-Fa-f:.%\w]+\]|[0-9.]+):[0-9]+->`)
})

// reason is the text of an error without our own ends of connections, whose
// ports are others each time; errors of look-ups have them in their texts.
func reason(err error) string { return ownPort().ReplaceAllString(err.Error(), "") }

// session is one period with a link. It returns why it ended.
func (c *connection) session(ctx context.Context, role roles.Role, changed <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-changed:
			cancel(errRoleChanged)
		case <-ctx.Done():
		}
	}()
	err := c.anyAddress(ctx, role)
	if context.Cause(ctx) == errRoleChanged {
		return errRoleChanged
	}
	return err
}

// anyAddress tries the addresses of the master one after the other.
func (c *connection) anyAddress(ctx context.Context, role roles.Role) error {
	addrs, unresolved := c.addresses(ctx)
	if len(addrs) == 0 {
		c.lookups++
		return unresolved
	}
	c.lookups = 0
	var last error
	for _, a := range addrs {
		attach := c.attach
		if role == roles.Standby {
			attach = c.standBy
		}
		ended, err := attach(ctx, a)
		if ended {
			return err
		}
		last = err
	}
	if unresolved != nil {
		return fmt.Errorf("%w; that was its last known address: %w", last, unresolved)
	}
	return last
}

// addresses returns where to look for the master: where it was a moment ago,
// or what its name means now. While that cannot be found out, and err says so,
// it is where the name led before: a name server that is away parts no minion
// from its master, and who answers there has to prove itself anyway.
func (c *connection) addresses(ctx context.Context) (found []address.Endpoint, err error) {
	if host, port, err := net.SplitHostPort(c.warm); err == nil {
		p, _ := strconv.Atoi(port)
		return []address.Endpoint{{Host: host, Port: p}}, nil
	}
	if len(c.resolved) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lookupAgain)
		defer cancel()
	}
	if found, err = c.addr.Resolve(ctx, c.m.resolver()); err != nil {
		return c.resolved, err
	}
	c.resolved = found
	return found, nil
}

// lookupAgain is how long a look-up may take when there is another address to
// try.
const lookupAgain = 2 * time.Second

// lookupPause is how long to wait after a look-up that failed, 0 for as long
// as after any other failure. The options retry_dns and retry_dns_count make
// a name server's life easier; a name is never given up.
func (c *connection) lookupPause() time.Duration {
	o := &c.m.cfg.Options
	switch {
	case c.lookups == 0:
		return 0
	case o.RetryDNSCount > 0 && c.lookups >= o.RetryDNSCount:
		return max(o.RetryDNS, slowLookup)
	}
	return o.RetryDNS
}

// slowLookup is the pause once retry_dns_count look-ups have failed.
const slowLookup = 30 * time.Second

// attach connects to one address. was tells that there was a connection, so
// that other addresses of the name need not be tried.
func (c *connection) attach(ctx context.Context, at address.Endpoint) (was bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.client.SetAddress(at.String())
	// A master that we know is listened to at once and greeted afterwards,
	// so that nothing it publishes meanwhile is missed.
	gen := c.client.Generation()
	known, warm := gen > 0, c.warm == at.String()
	if !known {
		if err := c.client.SignIn(ctx); err != nil {
			return handshake.Refused(err), err
		}
	}
	sub, err := c.client.Subscribe(ctx, address.Endpoint{Host: at.Host, Port: c.publishPort()}.String())
	if err != nil && known {
		// It may be up again on another publish port, which it tells when
		// we sign in.
		if known = false; c.client.SignIn(ctx) == nil {
			sub, err = c.client.Subscribe(ctx, address.Endpoint{Host: at.Host, Port: c.publishPort()}.String())
		}
	}
	if err != nil {
		return false, err
	}
	defer sub.Close()
	stop := context.AfterFunc(ctx, sub.Close)
	defer stop()
	c.setState(connected)
	c.m.notify(roles.Event{Kind: roles.Serving, Master: c.index})
	c.log.Info("connected to the master", "address", at.Host)
	c.tell(tagConnected)
	defer c.tell(tagDisconnected)
	failed := make(chan error, 2) // of settling and watching
	var aside sync.WaitGroup
	c.again = make(chan struct{}, 1)
	aside.Go(func() {
		failed <- c.settle(ctx, sub, known, warm, gen)
		c.askAgain(ctx)
	})
	aside.Go(func() { failed <- c.watch(ctx, sub) })
	aside.Go(func() { c.restored(ctx) })
	err = c.receive(ctx, sub, failed)
	cancel()
	aside.Wait() // the next session finds this one's state complete
	// Leaving is in order; the session is as good as before.
	c.warm = at.String()
	return true, err
}

// publishPort follows the master's announcement unless the option was
// changed. Salt compares with the wrong default and so never follows.
func (c *connection) publishPort() int {
	if p := c.m.cfg.Options.PublishPort; p != defaultPublishPort && p > 0 {
		return p
	}
	if p := c.client.PublishPort(); p > 0 {
		return p
	}
	return defaultPublishPort
}

const defaultPublishPort = 4505

// settle does what a new connection needs besides listening. known says that
// the keys are of an earlier sign-in, that of gen, and warm that they were good
// a moment ago. Nothing is asked of a master, let alone done for it, before it
// has shown in this session that it is the one who signed in: what answers
// could be another process, with the old one's folder, that no sign-in would
// take for the master any more.
func (c *connection) settle(ctx context.Context, sub *channel.Subscription, known, warm bool, gen int) error {
	if known {
		if err := c.verify(ctx, sub, warm, gen); err != nil || ctx.Err() != nil {
			return err
		}
	}
	greet := c.m.toGreet(c)
	if !greet {
		c.fetchMissed(ctx)
	}
	c.out.Kick()
	if !greet {
		return nil
	}
	if err := c.fetchPillar(ctx, false); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		c.log.Error("cannot fetch the pillar", "err", err)
	}
	c.fetchMissed(ctx) // with the pillar, by which a job may be meant for us
	c.sendStart()
	c.m.greeted(c)
	c.m.ready(c)
	return nil
}

// verify signs in again unless the master is the very process of the last
// sign-in: it proves that by its key for publications, which is in no file. One
// of Salt's cannot be asked, and has no jobs kept for us either.
func (c *connection) verify(ctx context.Context, sub *channel.Subscription, warm bool, gen int) error {
	if c.client.Peer().Brine {
		outdated, err := c.probe(ctx)
		if c.client.Generation() != gen {
			// A restarted master refused the probe, so that the client signed in
			// again. The subscription has registered with the key of before.
			return sub.Renew(ctx, gen)
		}
		if err == nil && !outdated {
			return nil
		}
	} else if warm {
		return nil
	}
	if !wait.Sleep(ctx, c.reauthDelay()) {
		return nil
	}
	if err := sub.Renew(ctx, gen); err != nil {
		return fmt.Errorf("signing in again: %w", err)
	}
	return nil
}

// receive hands publications on until the connection fails, or what goes on
// aside does; those may also end without an error.
func (c *connection) receive(ctx context.Context, sub *channel.Subscription, failed <-chan error) error {
	why := make(chan error, 1)
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case err := <-failed:
				if err != nil {
					why <- err
					sub.Close()
					return
				}
			case <-over:
				return
			}
		}
	}()
	for {
		load, err := sub.Receive(ctx)
		if err != nil {
			select {
			case err := <-why:
				return err
			default:
			}
			return fmt.Errorf("the connection to the master ended: %w", err)
		}
		c.m.accept(ctx, c, load)
		if sub.Missed() {
			c.askSoon()
		}
	}
}

// reauthDelay spreads the sign-ins of a fleet. Over tcp there is no time for
// that: a master sends targeted jobs only to minions that have registered,
// which takes its new key.
func (c *connection) reauthDelay() time.Duration {
	if c.m.cfg.Transport.Name() == "tcp" {
		return 0
	}
	return wait.Jitter(c.m.cfg.Options.RandomReauthDelay)
}

// fetchPillar asks this master for the pillar and remembers it. Asking also
// shows the master the grains, by which it finds the minion as a target.
func (c *connection) fetchPillar(ctx context.Context, clean bool) error {
	p, err := c.askPillar(ctx, fn.PillarQuery{Saltenv: text(c.m.cfg.Opts.At("saltenv")), CleanCache: clean})
	if err != nil {
		return err
	}
	c.pillar.Store(p)
	c.m.schedule.Changed()
	c.m.beacons.Changed()
	return nil
}

// askPillar asks this master for a pillar and returns it.
func (c *connection) askPillar(ctx context.Context, q fn.PillarQuery) (*value.Dict, error) {
	override := q.Override
	if override == nil {
		override = value.NewDict(0)
	}
	if q.Pillarenv == "" {
		q.Pillarenv = text(c.m.cfg.Opts.At("pillarenv"))
	}
	grains := c.m.Grains()
	if c.m.failover != nil {
		grains = c.grains() // one master at a time keeps the minion's record
	}
	load := value.DictOf("id", c.m.cfg.ID, "grains", grains, "saltenv", orNil(q.Saltenv), "pillarenv", orNil(q.Pillarenv),
		"pillar_override", override, "extra_minion_data", c.m.cfg.extraData(), "ver", "2", "cmd", "_pillar")
	if value.Truth(q.External) {
		load.Set("ext", q.External)
	}
	if q.CleanCache {
		load.Set("clean_cache", true)
	}
	asked := time.Now()
	v, err := c.client.RequestPrivate(ctx, load)
	if err != nil {
		if causeOf(err).timeout && ctx.Err() == nil {
			return nil, salt.Errorf(salt.Timeout, "Pillar timed out after %d seconds (request_channel_timeout): %w", int(time.Since(asked).Seconds()), err)
		}
		return nil, err
	}
	p, ok := v.(*value.Dict)
	if !ok {
		return nil, fmt.Errorf("the master sent a %s as pillar", value.TypeName(v))
	}
	return p, nil
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// sendStart queues the events that announce the minion.
func (c *connection) sendStart() {
	m := c.m
	text := "Minion " + m.cfg.ID + " started at " + time.Now().Format(time.ANSIC)
	tags := []string{"salt/minion/" + m.cfg.ID + "/start"}
	if m.cfg.Options.LegacyStartupEvents {
		tags = append([]string{"minion_start"}, tags...)
	}
	for _, tag := range tags {
		load := value.DictOf("id", m.cfg.ID, "cmd", "_minion_event", "pretag", nil, "data", text, "tag", tag)
		if names := m.cfg.Options.StartEventGrains; len(names) > 0 {
			picked := value.NewDict(len(names))
			for _, n := range names {
				if v, ok := c.grains().Get(n); ok {
					picked.Set(n, v)
				}
			}
			load.Set("grains", picked)
		}
		c.out.Put(load)
	}
}
