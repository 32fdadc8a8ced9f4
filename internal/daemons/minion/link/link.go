// Package link supervises the links of a minion to its masters. A Link resolves the name,
// signs in, subscribes, receives and reconnects, for the life of the process. Package
// failover decides the roles of links; received jobs go to Jobs.
package link

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/members"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/roles"
	"brine/internal/daemons/minion/status"
	"brine/internal/net/channel"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/value"
)

// Jobs handles publications.
type Jobs interface {
	// Accept handles one job. It returns at once.
	Accept(from *Link, load *value.Dict)
	// RunningFor returns the ids of the running jobs that a master published.
	RunningFor(*Link) []string
}

// Config is the common configuration of a minion's links. It does not change.
type Config struct {
	Options Options
	// ID is the minion's id, Fingerprint the fingerprint of its key.
	ID, Fingerprint     string
	Transport           transport.Transport
	Dial, SubscribeDial transport.DialOptions
	Resolver            *net.Resolver
	// Opts are all options by name.
	Opts *value.Dict
	// ExtraPillarData returns the additional data of pillar requests.
	ExtraPillarData func() *value.Dict
	// Grains returns the grains. NamesMaster reports whether their grain master is the name
	// of one of several masters.
	Grains      func() *value.Dict
	NamesMaster func() bool
	Outbox      *outbox.Outbox
	Links       *Set
	Jobs        Jobs
	Status      *status.Status
	// Members is the list of masters; nil unless the minion learns it. Learned is called
	// when the list, or the response time of a master, has changed.
	Members *members.Members
	Learned func()
	// Notify receives the events of links.
	Notify func(roles.Event)
	// Ready is called each time the start event has been queued for a master.
	Ready func(*Link)
	// PillarChanged is called when a master has sent its pillar.
	PillarChanged func()
	// Report fires an event on the minion's own bus.
	Report func(tag string, data *value.Dict)
	// Syndic means that the links are those of a syndic: it receives the publications for all
	// minions, has no pillar, and reports its start as a syndic.
	Syndic bool
	Log    *slog.Logger
}

// New returns a link to one master. It belongs to no Set and does nothing before
// Run.
func New(cfg *Config, addr address.Master, signer *handshake.Minion) (*Link, error) {
	o := &cfg.Options
	log := cfg.Log.With("master", addr.Text)
	dial, subscribe := cfg.Dial, cfg.SubscribeDial
	dial.Identity, subscribe.Identity = cfg.ID, cfg.ID
	dial.Heartbeat, subscribe.Heartbeat = o.heartbeat(), o.heartbeat()
	if o.FilterPublications {
		subscribe.Topics = cfg.topics()
	}
	client, err := channel.NewClient(channel.ClientConfig{
		Signer: signer, Transport: cfg.Transport, Dial: dial, SubscribeDial: subscribe,
		AuthTimeout: o.AuthTimeout, RequestTimeout: o.RequestTimeout,
		AutosignGrains: cfg.autosignGrains, VerifyPublications: o.SignPubMessages, Log: log,
	})
	if err != nil {
		return nil, err
	}
	c := &Link{cfg: cfg, Addr: addr, Client: client, log: log}
	c.missed.link, c.standby.link = c, c
	c.Out = cfg.Outbox.NewQueue(addr.Text, c.standby.deliver, func() bool { return c.Is(status.Connected) }, log)
	return c, nil
}

// topics returns the topics to which a filtering minion or syndic subscribes.
func (cfg *Config) topics() []string {
	if cfg.Syndic {
		return []string{"broadcast", "syndic"}
	}
	sum := sha1.Sum([]byte(cfg.ID))
	return []string{"broadcast", hex.EncodeToString(sum[:])}
}

func (cfg *Config) autosignGrains() *value.Dict {
	d := value.NewDict(0)
	for _, name := range cfg.Options.AutosignGrains {
		if v, ok := cfg.Grains().Get(name); ok {
			d.Set(name, v)
		}
	}
	return d
}

// Link supervises the link to one master, for the life of the process. Its failures do not
// affect other links: it waits and retries. Its role limits what it does: if one of several
// masters is used at a time, all other links are on standby or off.
type Link struct {
	// Index is the position of the link in its Set.
	Index  int
	Addr   address.Master
	Client *channel.Client
	Out    *outbox.Queue

	cfg  *Config
	log  *slog.Logger
	role assignment

	pillar atomic.Pointer[value.Dict]
	view   view
	// greeted is set once the start event was queued for this master. With one master at a
	// time Set.told is used instead.
	greeted  bool
	locator  locator
	reported map[cause]bool // failures logged since the last stable connection
	state    atomic.Pointer[linkState]
	fatal    int // code of the last refusal, guarded by Set.refusals
	missed   missedJobs
	standby  standbyJobs
	latency  latency
}

// linkState is the published state of a connection.
type linkState struct {
	text  string // connected, standby, off, or the reason why there is no connection
	since time.Time
}

// stable is how long a connection must last until earlier failures are
// forgotten.
const stable = 10 * time.Second

func (c *Link) setState(s string) {
	if old := c.state.Load(); old != nil && old.text == s {
		return
	}
	c.state.Store(&linkState{text: s, since: time.Now()})
	c.cfg.Status.Changed()
}

// Is reports whether the link is in one of the states of package status.
func (c *Link) Is(state string) bool {
	st := c.state.Load()
	return st != nil && st.text == state
}

// State returns the status of the link.
func (c *Link) State() status.Master {
	m := status.Master{Name: c.Addr.Text, Jobs: c.standby.taking.Load()}
	if st := c.state.Load(); st != nil {
		m.State, m.Since = st.text, st.since
	}
	return m
}

// SetRole sets the role of the link.
func (c *Link) SetRole(r roles.Role) { c.role.set(r) }

// Role returns the role of the link.
func (c *Link) Role() roles.Role {
	r, _ := c.role.get()
	return r
}

// Pillar returns the pillar of this master, nil if it has sent none yet. For a
// standby link it is the active master's pillar: only that master is asked.
func (c *Link) Pillar() *value.Dict {
	if active := c.cfg.Links.active(); active != nil && active != c {
		if p := active.pillar.Load(); p != nil {
			return p
		}
	}
	return c.pillar.Load()
}

// assignment is the role of a connection, set by another goroutine.
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

// Run connects as the role requires, and reconnects, until ctx ends.
func (c *Link) Run(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		role, changed := c.role.get()
		if role == roles.Off {
			c.setState(status.Off)
			c.locator.warm = ""
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
		c.locator.warm = ""
		c.cfg.Links.refusedBy(c, err)
		pause = c.nextPause(pause, err)
		c.report(err, pause)
		c.cfg.Notify(roles.Event{Kind: roles.Lost, Master: c.Index, Why: reason(err)})
		if !wait.Until(ctx, changed, pause) {
			pause = 0 // the role changed: retry at once
		}
	}
}

// errRoleChanged ends a session when the role of the link changes.
var errRoleChanged = errors.New("the master has another role now")

// nextPause returns the pause after err. Refusals of a live master have their
// own interval, set by the operator; for an unreachable master the pause grows
// from recon_default to recon_max.
func (c *Link) nextPause(last time.Duration, err error) time.Duration {
	o := &c.cfg.Options
	if handshake.Refused(err) || errors.Is(err, handshake.ErrFull) {
		base := max(o.AcceptanceWait, time.Second)
		if o.AcceptanceWaitMax > base && last >= base {
			return min(2*last, o.AcceptanceWaitMax)
		}
		return base
	}
	var busy *handshake.Busy
	if errors.As(err, &busy) {
		return busy.Wait // the master said when to retry
	}
	if d := c.locator.pause(o); d > 0 {
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

// cause is the kind of failure that ended a session. Logging is limited by
// cause, because a port, a name server or a master can change the text of an
// error each time. There are few causes, and each has its own limit.
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

// report logs the end of a session, once per cause until a connection has been stable.
func (c *Link) report(err error, pause time.Duration) {
	text := reason(err)
	c.setState(text)
	why := causeOf(err)
	if c.reported[why] {
		c.log.Debug("still not connected to this master", "err", err, "retry", pause)
		return
	}
	if c.reported == nil {
		c.reported = map[cause]bool{}
	}
	c.reported[why] = true
	switch {
	case errors.Is(err, handshake.ErrPending):
		c.log.Error(text, "id", c.cfg.ID, "fingerprint", c.cfg.Fingerprint, "retry", pause)
		c.cfg.Links.tellRefused(c, err)
	case handshake.Refused(err):
		c.cfg.Links.tellRefused(c, err)
		c.log.Log(context.Background(), slog.LevelError+4, text, "retry", pause) // critical
	default:
		c.log.Warn("cannot connect to the master; retrying", "err", err)
	}
}

// restored logs the reconnection once the connection is stable, so that the last log line
// about a master shows its state.
func (c *Link) restored(ctx context.Context) {
	if !wait.Sleep(ctx, stable) {
		return
	}
	if len(c.reported) > 0 {
		c.log.Warn("reconnected to the master")
	}
	clear(c.reported)
}

// ownPort matches the local end of a connection in the text of an error.
var ownPort = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(\[[0-9A-Fa-f:.%\w]+\]|[0-9.]+):[0-9]+->`)
})

// reason returns the text of an error without the local ends of connections,
// whose ports always differ; look-up errors contain them.
func reason(err error) string { return ownPort().ReplaceAllString(err.Error(), "") }

// session is one connection attempt and its connection. It returns the reason
// for its end.
func (c *Link) session(ctx context.Context, role roles.Role, changed <-chan struct{}) error {
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
	if errors.Is(context.Cause(ctx), errRoleChanged) {
		return errRoleChanged
	}
	return err
}

// anyAddress tries the addresses of the master in turn until one of them connects or
// refuses.
func (c *Link) anyAddress(ctx context.Context, role roles.Role) error {
	addrs, unresolved := c.locator.addresses(ctx, c.Addr, c.cfg.Resolver)
	if len(addrs) == 0 {
		c.locator.failed++
		return unresolved
	}
	c.locator.failed = 0
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

// attach connects to one address. was reports that there was a connection, or a refusal:
// then the other addresses of the name need not be tried.
func (c *Link) attach(ctx context.Context, at address.Endpoint) (was bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.Client.SetAddress(at.String())
	// If the keys of the master are known, subscribe at once and send the start event
	// afterwards, so that nothing it publishes meanwhile is missed.
	gen := c.Client.Generation()
	known, warm := gen > 0, c.locator.warm == at.String()
	if !known {
		if err := c.Client.SignIn(ctx); err != nil {
			return handshake.Refused(err), err
		}
	}
	sub, err := c.Client.Subscribe(ctx, address.Endpoint{Host: at.Host, Port: c.publishPort()}.String())
	if err != nil && known {
		// The master may have restarted with another publish port, which the sign-in
		// returns.
		if known = false; c.Client.SignIn(ctx) == nil {
			sub, err = c.Client.Subscribe(ctx, address.Endpoint{Host: at.Host, Port: c.publishPort()}.String())
		}
	}
	if err != nil {
		return false, err
	}
	defer sub.Close()
	stop := context.AfterFunc(ctx, sub.Close)
	defer stop()
	c.setState(status.Connected)
	c.cfg.Notify(roles.Event{Kind: roles.Serving, Master: c.Index})
	c.log.Info("connected to the master", "address", at.Host)
	c.fire(tagConnected)
	defer c.fire(tagDisconnected)
	failed := make(chan error, 2) // for settling and watching
	var aside sync.WaitGroup
	c.missed.again = wait.NewWakeup()
	aside.Go(func() {
		answered, err := c.settle(ctx, sub, known, warm, gen, &aside)
		failed <- err
		c.missed.askAgain(ctx, answered)
	})
	aside.Go(func() { failed <- c.watch(ctx, sub) })
	aside.Go(func() { c.restored(ctx) })
	err = c.receive(ctx, sub, failed)
	cancel()
	aside.Wait() // the next session must find the state of this one complete
	// Run clears it, unless the session ended because the role changed.
	c.locator.warm = at.String()
	return true, err
}

// publishPort returns the port that the master announces, unless the option was changed.
// Salt compares the option with a wrong default, so it never uses the announced port.
func (c *Link) publishPort() int {
	if p := c.cfg.Options.PublishPort; p != defaultPublishPort && p > 0 {
		return p
	}
	if p := c.Client.PublishPort(); p > 0 {
		return p
	}
	return defaultPublishPort
}

const defaultPublishPort = 4505

// settle does what a new connection needs besides receiving. known means that the keys are
// from an earlier sign-in, number gen; warm means that they were valid a moment ago. Before
// the master has authenticated in this session, the minion sends it no requests: another
// process with a copy of the master's directory could answer. answered reports whether the
// master has answered the request for missed jobs.
func (c *Link) settle(ctx context.Context, sub *channel.Subscription, known, warm bool, gen int, aside *sync.WaitGroup) (answered bool, err error) {
	if known {
		if err := c.verify(ctx, sub, warm, gen); err != nil || ctx.Err() != nil {
			return true, err // the session ends
		}
	}
	greet := c.cfg.Links.toGreet(c)
	if !greet {
		answered = c.missed.fetch(ctx)
	}
	c.Out.Kick()
	if !greet {
		return answered, nil
	}
	if !c.cfg.Syndic {
		if err := c.FetchPillar(ctx, false); err != nil {
			if ctx.Err() != nil {
				return true, nil
			}
			c.log.Error("cannot fetch the pillar; retrying", "err", err)
			aside.Go(func() { c.retryPillar(ctx) })
		}
	}
	answered = c.missed.fetch(ctx) // after the pillar, since targets may refer to it
	c.SendStart()
	c.cfg.Links.markGreeted(c)
	c.cfg.Ready(c)
	return answered, nil
}

// retryPillar repeats the request for the pillar until the master answers or ctx ends.
func (c *Link) retryPillar(ctx context.Context) {
	untilDone(ctx, func() bool {
		err := c.FetchPillar(ctx, false)
		if err != nil {
			c.log.Debug("still cannot fetch the pillar", "err", err)
		}
		return err == nil
	})
}

// verify signs in again unless the master is still the process of the last sign-in. The
// master proves that with its publication key, which is stored in no file. A stock master
// cannot prove it, and queues no jobs anyway.
func (c *Link) verify(ctx context.Context, sub *channel.Subscription, warm bool, gen int) error {
	if c.Client.Peer().Brine {
		outdated, err := c.probe(ctx)
		if c.Client.Generation() != gen {
			// A restarted master refused the probe, so the client signed in again. The
			// subscription registered with the old key.
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

// receive passes publications on until the connection or a background task
// fails; tasks may also end without an error.
func (c *Link) receive(ctx context.Context, sub *channel.Subscription, failed <-chan error) error {
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
		c.cfg.Jobs.Accept(c, load)
		if sub.Missed() {
			c.missed.askSoon()
		}
	}
}

// reauthDelay returns a random delay that spreads the sign-ins of a fleet. On transports
// with registration it is 0: a master sends targeted jobs only to registered minions, and
// registering requires its new key.
func (c *Link) reauthDelay() time.Duration {
	if c.cfg.Transport.Traits().Registers {
		return 0
	}
	return wait.Jitter(c.cfg.Options.RandomReauthDelay)
}

// FetchPillar requests the pillar from this master and stores it. The request
// also gives the master the grains, for targeting.
func (c *Link) FetchPillar(ctx context.Context, clean bool) error {
	p, err := c.AskPillar(ctx, fn.PillarQuery{Saltenv: name(c.cfg.Opts.At("saltenv")), CleanCache: clean})
	if err != nil {
		return err
	}
	c.pillar.Store(p)
	c.cfg.PillarChanged()
	return nil
}

// AskPillar requests a pillar from this master and returns it.
func (c *Link) AskPillar(ctx context.Context, q fn.PillarQuery) (*value.Dict, error) {
	override := q.Override
	if override == nil {
		override = value.NewDict(0)
	}
	if q.Pillarenv == "" {
		q.Pillarenv = name(c.cfg.Opts.At("pillarenv"))
	}
	grains := c.cfg.Grains()
	if c.cfg.Links.OneAtATime {
		grains = c.Grains() // these masters share one record of the minion
	}
	load := value.DictOf("id", c.cfg.ID, "grains", grains, "saltenv", orNil(q.Saltenv), "pillarenv", orNil(q.Pillarenv),
		"pillar_override", override, "extra_minion_data", c.cfg.ExtraPillarData(), "ver", "2", "cmd", "_pillar")
	if value.Truth(q.External) {
		load.Set("ext", q.External)
	}
	if q.CleanCache {
		load.Set("clean_cache", true)
	}
	asked := time.Now()
	v, err := c.Client.RequestPrivate(ctx, load)
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

// name returns the value of an option that names an environment, or "".
func name(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// SendStart queues the start events of the minion or syndic.
func (c *Link) SendStart() {
	kind, tag, legacy := "Minion ", "salt/minion/"+c.cfg.ID+"/start", "minion_start"
	if c.cfg.Syndic {
		kind, tag, legacy = "Syndic ", "syndic/"+c.cfg.ID+"/start", "syndic_start"
	}
	text := kind + c.cfg.ID + " started at " + time.Now().Format(time.ANSIC)
	tags := []string{tag}
	if c.cfg.Options.LegacyStartupEvents {
		tags = append([]string{legacy}, tags...)
	}
	for _, tag := range tags {
		load := value.DictOf("id", c.cfg.ID, "cmd", "_minion_event", "pretag", nil, "data", text, "tag", tag)
		if names := c.cfg.Options.StartEventGrains; len(names) > 0 {
			picked := value.NewDict(len(names))
			for _, n := range names {
				if v, ok := c.Grains().Get(n); ok {
					picked.Set(n, v)
				}
			}
			load.Set("grains", picked)
		}
		c.Out.Put(load)
	}
}

// Opts returns the options, with the name of this master as the option master.
func (c *Link) Opts() *value.Dict {
	all := c.cfg.Opts
	if _, several := all.At("master").(*value.List); !several {
		return all
	}
	if d := c.view.opts.Load(); d != nil {
		return d
	}
	d := all.Clone()
	d.Set("master", c.Addr.Host)
	c.view.opts.Store(d)
	return d
}

// Grains returns the current grains, with the name of this master as the grain master.
func (c *Link) Grains() *value.Dict {
	base := c.cfg.Grains()
	if !c.cfg.NamesMaster() || c.Addr.Host == base.At("master") {
		return base
	}
	if v := c.view.grains.Load(); v != nil && v.base == base {
		return v.shown
	}
	d := base.Clone()
	d.Set("master", c.Addr.Host)
	c.view.grains.Store(&grainView{base, d})
	return d
}
