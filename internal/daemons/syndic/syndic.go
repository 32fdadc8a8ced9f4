// Package syndic is the syndic daemon. It runs beside a master, the lower one, and connects it to
// masters of masters: it gives their commands to the lower master, and sends them the returns and
// events. It uses Salt's protocol on both sides, so each master may be stock Salt or Brine.
//
// router decides what goes where, and book records it on disk; neither has a socket. The links to
// the masters of masters are those of a minion (package link). Lower is the lower master.
//
//	master of masters ── link ──► router ── book ──► publish ──► lower master ──► minions
//	        ▲                                                        │
//	        └────── sender ◄── book ◄── router ◄── event bus ◄───────┘
//
// A return is in the book until each master that asked for its job has acknowledged it. Returns
// whose events were missed, because the syndic or the lower master restarted, are read from the
// lower master's job store.
package syndic

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/liveness"
	"brine/internal/base/metrics"
	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/client"
	"brine/internal/daemons/minion"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/roles"
	"brine/internal/daemons/minion/status"
	"brine/internal/net/channel"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Config is the configuration of a syndic: the id, key and connection of the minion on this
// machine, and the directories of the master.
type Config struct {
	ID string
	// MasterID is the lower master's option master_id.
	MasterID string
	// PKIDir has the minion's key pair, CacheDir is the master's.
	PKIDir, CacheDir string
	Keysize          int
	Options          Options
	// Port is the request port of a master of masters without one of its own. IPOnly means that
	// they are named by addresses only.
	Port      int
	IPOnly    bool
	Link      link.Options
	Handshake handshake.MinionOptions
	Transport transport.Transport
	// Dial and SubscribeDial are for the masters of masters.
	Dial, SubscribeDial transport.DialOptions
	// Opts are the minion's options by name.
	Opts *value.Dict
	// Grains returns the grains for autosign_grains.
	Grains func() *value.Dict
	Lower  *Lower
	// CommandTimeout is how long a command is tried at a lower master that does not answer.
	CommandTimeout time.Duration
}

// Syndic is the daemon. New builds it, Run runs it.
type Syndic struct {
	cfg     Config
	log     *slog.Logger
	limited *ratelimit.Log
	book    *book
	router  *router
	uppers  []*upper
	links   *link.Set
	outbox  *outbox.Outbox
	status  *status.Status
	lower   *Lower

	commands wait.Wakeup
	lookAt   wait.Wakeup // the lower master's events were interrupted
	hears    atomic.Bool // the lower master's events are being received

	pulse liveness.Pulse // of tend
	steps liveness.Steps // commands and events that are being recorded

	published, forwarded, refused atomic.Int64
}

// upper is one master of masters.
type upper struct {
	*outgoing
	link   *link.Link
	wakeup wait.Wakeup
}

// New checks the configuration, and loads or generates the key pair.
func New(cfg Config, log *slog.Logger) (*Syndic, error) {
	if err := salt.CheckID(cfg.ID); err != nil {
		return nil, salt.Errorf(salt.Invalid, "%w; set the option id in the minion's configuration", err)
	}
	if err := cfg.Options.Check(); err != nil {
		return nil, err
	}
	h := cfg.Handshake
	h.MasterFinger = cfg.Options.Finger
	signer, fingerprint, err := minion.LoadSigner(minion.Config{ID: cfg.ID, PKIDir: cfg.PKIDir, Handshake: h, Keysize: cfg.Keysize}, log)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cfg.CacheDir, "brine", "syndic")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the syndic's directory: %w", err)
	}
	s := &Syndic{
		cfg: cfg, log: log, limited: ratelimit.NewLog(log, 3, time.Minute), lower: cfg.Lower, commands: wait.NewWakeup(), lookAt: wait.NewWakeup(),
		links: &link.Set{ID: cfg.ID, RejectedRetry: true, Stop: func(error) {}},
	}
	s.outbox = outbox.New(outbox.Config{
		Options: outbox.Options{ReturnRetryTimer: 5 * time.Second, ReturnRetryTimerMax: 10 * time.Second, ReturnQueue: 100, PubRet: true},
		ID:      cfg.ID, Dir: dir, Fire: s.links.Fire, Log: log,
	})
	s.status = status.New(status.Config{
		ID: cfg.ID, Path: filepath.Join(dir, "masters.json"), OneAtATime: func() bool { return false }, Masters: s.standing, Log: log,
	})
	if err := s.addUppers(signer, fingerprint); err != nil {
		return nil, err
	}
	s.book = openBook(filepath.Join(dir, "jobs.journal"), time.Now, log)
	names := make([]string, len(s.uppers))
	outs := make([]*outgoing, len(s.uppers))
	for i, u := range s.uppers {
		names[i], outs[i] = u.name, u.outgoing
	}
	s.book.only(names)
	s.router = newRouter(cfg.ID, cfg.MasterID, &s.cfg.Options, s.book, outs, log)
	return s, nil
}

// Addresses returns the addresses of the masters of masters.
func (cfg *Config) Addresses() (addrs []address.Master, err error) {
	for _, name := range cfg.Options.Masters {
		addr, err := address.Parse(name, cfg.Port, cfg.IPOnly)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "syndic_master: %w", err)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// addUppers makes the links to the masters of masters.
func (s *Syndic) addUppers(signer *handshake.Minion, fingerprint string) error {
	cfg := &s.cfg
	common := &link.Config{
		Options: cfg.Link, ID: cfg.ID, Fingerprint: fingerprint, Transport: cfg.Transport, Dial: cfg.Dial, SubscribeDial: cfg.SubscribeDial,
		Resolver: net.DefaultResolver, Opts: cfg.Opts, ExtraPillarData: func() *value.Dict { return value.NewDict(0) }, Grains: cfg.Grains,
		NamesMaster: func() bool { return false }, Outbox: s.outbox, Links: s.links, Jobs: s, Status: s.status, Learned: func() {},
		Notify: func(roles.Event) {}, Ready: func(*link.Link) {}, PillarChanged: func() {},
		Report: func(string, *value.Dict) { s.wakeUppers() }, Syndic: true, Log: s.log,
	}
	addrs, err := cfg.Addresses()
	if err != nil {
		return err
	}
	trust, err := trustOf(cfg.PKIDir, addrs)
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		own := *signer
		own.Trust, own.FingerOption = trust(addr), "syndic_finger"
		l, err := link.New(common, addr, &own)
		if err != nil {
			return err
		}
		l.SetRole(roles.Active)
		s.links.Add(l)
		u := &upper{link: l, wakeup: wait.NewWakeup()}
		u.outgoing = &outgoing{name: addr.Text, connected: func() bool { return l.Is(status.Connected) }, wake: u.wakeup.Wake,
			log: s.log.With("master", addr.Text)}
		s.uppers = append(s.uppers, u)
	}
	return nil
}

// trustOf returns the files with the trusted keys of masters of masters: syndic_master.pub for one,
// as in Salt, and a file below syndic_masters for each of several. Salt has one file for all of
// them: if there is only that one, its key is required of each.
func trustOf(pkiDir string, addrs []address.Master) (func(address.Master) *channel.FileTrust, error) {
	shared, dir := filepath.Join(pkiDir, "syndic_master.pub"), filepath.Join(pkiDir, "syndic_masters")
	if len(addrs) == 1 {
		return func(address.Master) *channel.FileTrust { return channel.NewFileTrust(shared) }, nil
	}
	known, err := os.ReadFile(shared)
	if _, none := os.Stat(dir); err == nil && errors.Is(none, fs.ErrNotExist) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot keep the keys of masters of masters: %w", err)
		}
		for _, addr := range addrs {
			if err := atomicfile.Write(filepath.Join(dir, minion.KeyFile(addr)), known, 0o644, true); err != nil {
				return nil, fmt.Errorf("cannot keep the key of a master of masters: %w", err)
			}
		}
	}
	return func(addr address.Master) *channel.FileTrust {
		return channel.NewMasterTrust(shared, filepath.Join(dir, minion.KeyFile(addr)), true)
	}, nil
}

func (s *Syndic) standing() (out []status.Master) {
	for _, l := range s.links.All() {
		out = append(out, l.State())
	}
	return out
}

func (s *Syndic) wakeUppers() {
	for _, u := range s.uppers {
		u.wakeup.Wake()
	}
}

// Accept implements link.Jobs.
func (s *Syndic) Accept(from *link.Link, load *value.Dict) {
	end := s.steps.Begin()
	news, late := s.router.command(from.Addr.Text, load)
	end()
	if news {
		s.commands.Wake()
	}
	if late {
		s.lookAt.Wake()
	}
}

// RunningFor implements link.Jobs. The minions report running jobs themselves.
func (s *Syndic) RunningFor(*link.Link) []string { return nil }

// Run serves until ctx ends.
func (s *Syndic) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.status.Run(ctx) })
	for _, u := range s.uppers {
		wg.Go(func() { u.link.Run(ctx) })
		wg.Go(func() { u.link.Out.Run(ctx) })
		wg.Go(func() { s.deliver(ctx, u) })
	}
	wg.Go(func() { s.publish(ctx) })
	wg.Go(func() { s.listen(ctx) })
	wg.Go(func() { s.lookUp(ctx) })
	wg.Go(func() { s.tend(ctx) })
	wg.Wait()
	for _, u := range s.uppers {
		u.link.Client.Close()
	}
	s.lower.close()
	s.book.close()
	return nil
}

// publish gives the commands from above to the lower master.
func (s *Syndic) publish(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		waiting := s.book.commands()
		if len(waiting) == 0 {
			wait.Until(ctx, s.commands.C(), 0)
			continue
		}
		for i := range waiting {
			err := s.publishOne(ctx, &waiting[i])
			if err == nil {
				pause = 0
				continue
			}
			if ctx.Err() != nil {
				return
			}
			pause = min(max(2*pause, 100*time.Millisecond), 2*time.Second)
			s.limited.Log(slog.LevelWarn, "cannot publish a command on the master of this machine; retrying", "jid", waiting[i].jid, "err", err)
			wait.Sleep(ctx, pause/2+rand.N(pause/2+1))
			break
		}
	}
}

// publishOne publishes one command. An error means that it has to be tried again.
func (s *Syndic) publishOne(ctx context.Context, c *command) error {
	if expired(c, time.Now(), s.cfg.CommandTimeout) {
		s.log.Error("dropped a command: the master of this machine did not take it in time", "jid", c.jid, "fun", c.load.At("fun"), "seconds",
			s.cfg.CommandTimeout.Seconds())
		s.router.published(c, nil, nil)
		return nil
	}
	if c.perhaps {
		known, err := s.lower.look(ctx, c.jid)
		if err != nil {
			return err
		}
		if known != nil {
			s.router.published(c, known.minions, nil)
			s.lookAt.Wake()
			return nil
		}
	}
	p, err := s.lower.publish(ctx, c.load)
	switch {
	case errors.Is(err, client.ErrNoMatch):
		s.log.Debug("no minion of this master matches a command from above", "jid", c.jid)
	case err != nil && mayRetry(err):
		s.book.attempted(c)
		return err
	case err != nil:
		s.log.Warn("the master of this machine refused a command from above", "jid", c.jid, "fun", c.load.At("fun"), "user", c.load.At("user"), "err", err)
	default:
		s.published.Add(1)
		s.log.Debug("published a command from above", "jid", c.jid, "minions", len(p.Minions))
	}
	s.router.published(c, p.Minions, p.Missing)
	return nil
}

// listen reads the events of the lower master.
func (s *Syndic) listen(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		began := time.Now()
		for e, err := range s.lower.events(ctx, func() { s.hears.Store(true); s.lookAt.Wake() }) {
			if err != nil {
				if ctx.Err() == nil {
					s.limited.Log(slog.LevelWarn, "cannot read the events of the master of this machine; retrying", "err", err)
				}
				break
			}
			s.heard(e.Tag, e.Data)
		}
		s.hears.Store(false)
		if time.Since(began) > time.Second {
			pause = 0
		}
		pause = min(max(2*pause, 50*time.Millisecond), time.Second)
		wait.Sleep(ctx, pause)
	}
}

// heard takes an event of the lower master.
func (s *Syndic) heard(tag string, data *value.Dict) {
	defer s.steps.Begin()()
	s.router.event(tag, data)
}

// lookPauses are the times between the look-ups after the events of the lower master began: a
// stock master fires the event of a return before it stores it.
var lookPauses = []time.Duration{0, 2 * time.Second, 8 * time.Second}

// lookJobs bounds the jobs of one look-up.
const lookJobs = 1000

// lookUp reads returns whose events were missed from the lower master.
func (s *Syndic) lookUp(ctx context.Context) {
	for ctx.Err() == nil {
		wait.Until(ctx, s.lookAt.C(), 0)
		for _, d := range lookPauses {
			if d > 0 {
				wait.Until(ctx, s.lookAt.C(), d)
			}
			for _, jid := range s.book.open(lookJobs) {
				if ctx.Err() != nil || !s.hears.Load() {
					break
				}
				known, err := s.lower.look(ctx, jid)
				if err != nil {
					s.log.Debug("cannot look up a job of the master of this machine", "jid", jid, "err", err)
					break
				}
				if known != nil {
					s.router.found(jid, known.fun, known.returns)
				}
			}
		}
	}
}

// deliver sends returns and events to one master of masters.
func (s *Syndic) deliver(ctx context.Context, u *upper) {
	again := time.Duration(0)
	for ctx.Err() == nil {
		wait.Until(ctx, u.wakeup.C(), again)
		again = 0
		if !wait.Sleep(ctx, max(s.cfg.Options.EventForwardTimeout, 0)) {
			return
		}
		for u.connected() && ctx.Err() == nil {
			more, err := s.deliverOnce(ctx, u)
			if err != nil {
				s.log.Debug("cannot deliver returns or events to a master of masters", "master", u.name, "err", err)
				again = time.Second
				break
			}
			if !more {
				break
			}
		}
		if at := s.book.nextAttempt(u.name); !at.IsZero() && again == 0 {
			again = max(time.Until(at), 100*time.Millisecond)
		}
	}
}

// deliverOnce sends one message with returns and one with events. more means that others wait.
// Events go first: they name the minions that the master of masters has to wait for.
func (s *Syndic) deliverOnce(ctx context.Context, u *upper) (more bool, err error) {
	events, moreEvents := u.take()
	if len(events) > 0 {
		if _, err := u.link.Client.Request(ctx, s.router.eventsMessage(events)); err != nil {
			u.putBack(events)
			return false, err
		}
	}
	parcels, moreReturns := s.book.parcels(u.name)
	if len(parcels) == 0 {
		return moreEvents, nil
	}
	reply, err := u.link.Client.Request(ctx, s.router.returnsMessage(parcels))
	if err != nil {
		return false, err
	}
	n := 0
	for _, p := range parcels {
		n += len(p.ids)
	}
	if reply != nil {
		s.refused.Add(int64(n))
		s.book.refused(parcels)
		s.limited.Log(slog.LevelError, "the master of masters could not store returns; they are kept and sent again", "master", u.name, "returns", n,
			"reason", refusal(reply))
		return moreEvents || moreReturns, nil
	}
	s.forwarded.Add(int64(n))
	s.book.delivered(u.name, parcels)
	return moreEvents || moreReturns, nil
}

// refusal returns the reason in the answer of a master that could not store returns.
func refusal(reply any) string {
	if d, ok := reply.(*value.Dict); ok {
		var in wire.NotStored
		if wire.Decode(d, &in) == nil {
			return value.Str(in.Reason)
		}
	}
	return "the master gave none; its log may have one"
}

// tend flushes the journal, and finds other masters for what waits for unreachable ones.
func (s *Syndic) tend(ctx context.Context) {
	for wait.Sleep(ctx, time.Second) {
		s.pulse.Beat()
		s.book.flush()
		if len(s.uppers) > 1 {
			s.router.failOver()
		}
	}
}

var (
	commandsFamily = metrics.Family{Name: "brine_syndic_commands_total", Kind: metrics.Counter, Help: "Commands from above that the lower master published."}
	returnsFamily  = metrics.Family{Name: "brine_syndic_returns_total", Kind: metrics.Counter,
		Help: "Returns sent to masters of masters, by what became of them. One that could not be stored is sent again.", Labels: []string{"result"}}
	waitingFamily = metrics.Family{Name: "brine_syndic_returns_waiting", Kind: metrics.Gauge, Help: "Returns that a master of masters has not accepted yet."}
)

// Families returns the metrics of a syndic.
func Families() []*metrics.Family {
	return slices.Concat(metrics.ProcessFamilies(), []*metrics.Family{&commandsFamily, &returnsFamily, &waitingFamily})
}

// Metrics implements metrics.Daemon.
func (s *Syndic) Metrics(p *metrics.Page) {
	p.Count(&commandsFamily, s.published.Load())
	p.Count(&returnsFamily, s.forwarded.Load(), "stored")
	p.Count(&returnsFamily, s.refused.Load(), "not_stored")
	_, waiting := s.book.count()
	p.Set(&waitingFamily, float64(waiting))
}

// CheckLive implements metrics.Daemon. What waits for a master, above or below, is no reason to
// restart.
func (s *Syndic) CheckLive(context.Context) error {
	s.book.count() // these block if the lock of the book or of a link is never released
	s.standing()
	if err := s.pulse.Check("the periodic work of the syndic", liveness.StepTime); err != nil {
		return err
	}
	return s.steps.Check("the recording of a command or an event", liveness.StepTime)
}

// CheckReady implements metrics.Daemon. A syndic is ready while it is connected to the lower
// master and to a master of masters.
func (s *Syndic) CheckReady(context.Context) error {
	if !s.hears.Load() {
		return errors.New("the syndic receives no events of the master of this machine")
	}
	var why []string
	for _, u := range s.uppers {
		if u.connected() {
			return nil
		}
		why = append(why, fmt.Sprintf("%s: %s", u.name, u.link.State().State))
	}
	return errors.New("the syndic is connected to no master of masters: " + strings.Join(why, "; "))
}
