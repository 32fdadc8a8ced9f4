// Package minion is the minion daemon: it stands by one connection per
// master, runs the jobs that they publish, and delivers what they return.
//
// Each master of the list has a supervisor of its own (connection), which no
// other waits for; the table of jobs, the schedule and the grains are shared.
// All masters are served at once, or one at a time, as the driver of the state
// machine in package roles decides (failover). Nothing that a master does, or
// fails to do, ends the process.
//
// Data flows: connection -> accept -> jobTable -> execute (package fn) ->
// outgoing -> connection.
package minion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/base/wait"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/beacons"
	"brine/internal/daemons/minion/failover"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/daemons/minion/masters"
	"brine/internal/daemons/minion/members"
	"brine/internal/daemons/minion/mine"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/schedule"
	"brine/internal/daemons/minion/status"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/backends"
	"brine/internal/net/event"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/sls/render"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
	"brine/internal/sls/top"
	"brine/internal/store/returner"
)

// Config is what a minion needs to know.
type Config struct {
	ID                        string
	PKIDir, CacheDir, ConfDir string
	Options                   Options
	Handshake                 handshake.MinionOptions
	Transport                 transport.Transport
	Dial, SubscribeDial       transport.DialOptions
	Events                    event.MinionOptions
	Files                     fileserver.Options
	Backends                  backends.Options
	Pillar                    pillar.Options
	GitPillar                 gitpillar.Options
	Top                       top.Options
	// Templates bounds the rendering of templates.
	Templates render.Limits
	Returners returner.MinionOptions
	// Resolver looks names up; nil is the system's.
	Resolver *net.Resolver
	// Keysize is the size in bits of a key that has to be made.
	Keysize int
	// Opts are all options under their names, for config.get.
	Opts *value.Dict
	// CollectGrains gathers the grains.
	CollectGrains func(ctx context.Context) *value.Dict
	// LateGrains puts that off until somebody asks for a grain: most of what
	// salt-call is for does not.
	LateGrains bool
	// Overlaid returns the configuration that comes of laying another file of
	// options over this one. It may be nil.
	Overlaid func(path string) (Config, error)
	// LocalMaster opens the way to the master on this machine, if there is one,
	// and returns what closes it. It may be nil.
	LocalMaster func() (c *client.Client, close func(), err error)
	// StateWatch is told how state runs go on. It may be nil.
	StateWatch engine.Observer
	// Print shows a line to whoever asked for a function. It is nil in a
	// daemon.
	Print func(line string) error
	// daemonBus is where the events of the daemon are, if this is not it.
	daemonBus *event.Sockets
}

// Minion is the daemon. New makes one, Run runs it.
type Minion struct {
	cfg         Config
	log         *slog.Logger
	links       *link.Set
	linkCfg     *link.Config
	identity    *handshake.Minion
	begin       func(*link.Link) // has a link work; nil until Run
	members     *members.Members // nil unless masters are learned
	direct      *link.Link       // of salt-call, which has no queues
	jobs        *jobTable
	outbox      *outbox.Outbox
	returners   returners
	funcs       *fn.Registry
	states      *state.Registry
	renderer    *render.Renderer
	grains      atomic.Pointer[value.Dict]
	gather      sync.Once   // of late grains
	namesMaster atomic.Bool // the grain master is the name of one of several
	schedule    *schedule.Schedule
	beacons     *beacons.Scheduler
	mine        *mine.Mine
	refreshes   *refreshes
	failover    *failover.Failover // nil unless one master is used at a time
	status      *status.Status     // nil in salt-call
	stop        context.CancelCauseFunc
	slots       chan struct{} // process_count_max, nil without limit
	bus         *localbus.Bus
	busIPC      *event.Server
	files       *fileserver.Server // of file_client: local, else nil
	trees       fileclient.Trees   // that jobs have fetched
	own         *ownPillar         // of file_client: local, else nil

	background sync.WaitGroup
	run        context.Context // of New, then of Run; jobs run in it

	readyOnce sync.Once
	readyC    chan struct{}
}

// New checks the configuration, loads or makes the minion's key pair, gathers
// grains and binds the sockets of the local event bus.
func New(ctx context.Context, cfg Config, log *slog.Logger) (*Minion, error) {
	if err := salt.CheckID(cfg.ID); err != nil {
		return nil, salt.Errorf(salt.Invalid, "%w; set the option id", err)
	}
	m := &Minion{cfg: cfg, log: log, renderer: render.New(render.Options{Log: log, Local: render.AnyFile, Limits: cfg.Templates}), jobs: newJobTable(cfg.Options.JIDQueueHWM), readyC: make(chan struct{})}
	m.links = &link.Set{ID: cfg.ID, OneAtATime: cfg.Options.OneAtATime(), RejectedRetry: cfg.Options.RejectedRetry, Stop: func(err error) { m.stop(err) }}
	m.refreshes = &refreshes{m: m}
	m.returners.m = m
	m.outbox = outbox.New(outbox.Config{Options: cfg.Options.OutboxOptions, ID: cfg.ID, Dir: filepath.Join(cfg.CacheDir, "brine"),
		Remember: cfg.Options.JIDQueueHWM, Fire: m.links.Fire, Log: log})
	m.jobs.past = m.outbox.Knows
	if n := cfg.Options.ProcessCountMax; n > 0 {
		m.slots = make(chan struct{}, n)
	}
	if !m.local() { // without a master there are no keys; a state may be about the folder
		if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make pki_dir: %w", err)
		}
	}
	if err := m.cfg.Options.Bounds().Check(); err != nil {
		return nil, salt.Errorf(salt.Invalid, "master_latency: %w", err)
	}
	if err := m.cfg.Options.MasterOptions.CheckType(); err != nil {
		return nil, err
	}
	m.run = ctx // until Run has one for jobs
	if m.local() {
		m.files = cfg.fileServer(log)
	}
	if !cfg.LateGrains {
		m.RefreshGrains(ctx)
	}
	m.bus = localbus.New(localbus.Config{ID: cfg.ID, HashType: cfg.Handshake.HashType, Events: cfg.Events, Daemon: cfg.daemonBus, Print: cfg.Print})
	m.status = m.newStatus()
	if err := m.buildTimed(); err != nil {
		return nil, err
	}
	if err := m.buildFunctions(); err != nil {
		return nil, err
	}
	if m.files != nil {
		m.own = newOwnPillar(m, &m.cfg, func() *fn.Call { return m.newCall(nil, "") })
	}
	if err := m.buildLinks(ctx); err != nil {
		return nil, err
	}
	return m, m.openBus()
}

// Run serves until ctx ends, or every master refuses (Unwanted). It then lets running jobs end for a moment.
func (m *Minion) Run(ctx context.Context) error {
	ctx, m.stop = context.WithCancelCause(ctx)
	defer m.stop(nil)
	jobs, endJobs := context.WithCancel(context.WithoutCancel(ctx))
	defer endJobs()
	m.run = jobs
	m.forgetNotes()
	m.outbox.Recall(m.interrupted)
	m.returners.recall()
	if m.cfg.Options.MasterType == masters.TypeDisable && m.cfg.Options.StartupStates != "" {
		m.log.Error("the startup states are not run: master_type is disable")
	}
	var wg sync.WaitGroup
	wg.Go(func() { m.returners.collect(ctx) })
	wg.Go(func() { m.status.Run(ctx) })
	late := wait.Jitter(m.cfg.Options.RandomStartupDelay)
	pause := late
	if m.failover != nil {
		pause = 0
	}
	m.begin = func(c *link.Link) {
		wg.Go(func() {
			if wait.Sleep(ctx, pause) {
				c.Run(ctx)
			}
		})
		wg.Go(func() { c.Out.Run(ctx) })
	}
	for _, c := range m.links.All() {
		m.begin(c)
	}
	if m.failover != nil {
		wg.Go(func() { m.failover.Run(ctx, late) }) // from here on it may add masters
	}
	wg.Go(func() { m.schedule.Run(ctx) })
	wg.Go(func() { m.beacons.Run(ctx) })
	wg.Go(func() { m.serveBus(ctx) })
	wg.Go(func() { m.outbox.Run(ctx) })
	wg.Wait()
	endJobs()
	idle := make(chan struct{})
	go func() { m.background.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(3 * time.Second):
		m.log.Warn("jobs are still running; they are left behind", "jobs", len(m.jobs.list("")))
	}
	m.outbox.Close()
	for _, c := range m.links.All() {
		c.Client.Close()
	}
	var unwanted *link.Unwanted
	if errors.As(context.Cause(ctx), &unwanted) {
		return unwanted
	}
	return nil
}

// Ready is closed once the first master has been greeted.
func (m *Minion) Ready() <-chan struct{} { return m.readyC }

func (m *Minion) ready(c *link.Link) {
	m.readyOnce.Do(func() {
		close(m.readyC)
		m.startStates(c)
	})
}

// Grains returns the current grains, which the caller must not change.
func (m *Minion) Grains() *value.Dict {
	if g := m.grains.Load(); g != nil {
		return g
	}
	m.gather.Do(func() {
		if m.grains.Load() == nil {
			m.RefreshGrains(m.run)
		}
	})
	return m.grains.Load()
}

// RefreshGrains gathers the grains anew.
func (m *Minion) RefreshGrains(ctx context.Context) {
	g := m.cfg.CollectGrains(ctx)
	g.Set("id", m.cfg.ID)
	m.oneMaster(g)
	m.grains.Store(g)
}

// accept takes one publication of a master. It returns at once.
func (m *Minion) accept(from *link.Link, load *value.Dict) {
	log := m.log.With("master", from.Addr.Text)
	if err := checkJob(load); err != nil {
		log.Warn("a job was ignored", "err", err)
		return
	}
	ok, err := m.matches(from, load)
	if err != nil {
		log.Warn("a job was ignored: its target cannot be read", "jid", load.Str("jid"), "err", err)
		return
	}
	if !ok {
		return
	}
	j, ready := m.jobs.admit(load, from, time.Now())
	if j == nil {
		if ready != nil {
			m.outbox.Also(ready, from.Out)
		}
		log.Debug("the job is known already", "jid", load.Str("jid"))
		return
	}
	m.background.Go(func() { m.execute(m.run, j) })
}

func checkJob(load *value.Dict) error {
	for _, k := range []string{"tgt", "jid", "fun", "arg"} {
		if !load.Has(k) {
			return fmt.Errorf("it has no %s", k)
		}
	}
	if !salt.ValidJID(load.Str("jid")) {
		return fmt.Errorf("%.40q is not a job id", load.Str("jid"))
	}
	return nil
}

func (m *Minion) matches(from *link.Link, load *value.Dict) (bool, error) {
	typ := load.Str("tgt_type")
	if typ == "" {
		typ = "glob"
	}
	t, err := target.Parse(typ, load.At("tgt"), load.Str("delimiter"))
	if err != nil {
		return false, err
	}
	return t.Match(self{m, from}), nil
}

// self is this minion as a target of one master, whose pillar counts.
type self struct {
	m    *Minion
	from *link.Link
}

func (s self) ID() string          { return s.m.cfg.ID }
func (s self) Grains() *value.Dict { return s.m.Grains() }
func (s self) Pillar() *value.Dict { return s.from.Pillar() }

var _ target.Subject = self{}
