// Package minion is the minion daemon: it builds the services of a minion and connects
// them. Each service is a package below this one, with the options and the functions
// that it uses, and none imports this one.
//
// Each master of the list has its own supervisor (link), independent of the others; the
// table of jobs, the schedule and the grains are shared. All masters are served at
// once, or one at a time (failover). A master's failures do not end the process; it ends if
// all masters refuse the minion (link.Unwanted).
//
// Data flows: link -> runner (Accept, jobs.Table, package fn) -> outbox -> link.
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
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/trace"
	"brine/internal/base/wait"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/background"
	"brine/internal/daemons/minion/beacons"
	"brine/internal/daemons/minion/calls"
	"brine/internal/daemons/minion/failover"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/daemons/minion/members"
	"brine/internal/daemons/minion/mine"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/ownpillar"
	"brine/internal/daemons/minion/refresh"
	"brine/internal/daemons/minion/returners"
	"brine/internal/daemons/minion/runner"
	"brine/internal/daemons/minion/schedule"
	"brine/internal/daemons/minion/status"
	"brine/internal/daemons/usermodules"
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

// Config is the configuration of a minion.
type Config struct {
	ID                        string
	PKIDir, CacheDir, ConfDir string
	// ExtensionModules is the directory of the user's own modules.
	ExtensionModules    string
	Options             Options
	Handshake           handshake.MinionOptions
	Transport           transport.Transport
	Dial, SubscribeDial transport.DialOptions
	Events              event.MinionOptions
	Files               fileserver.Options
	Backends            backends.Options
	Pillar              pillar.Options
	GitPillar           gitpillar.Options
	Top                 top.Options
	// Templates bounds the rendering of templates.
	Templates render.Limits
	Returners returner.MinionOptions
	// Resolver looks names up; nil means the system's resolver.
	Resolver *net.Resolver
	// Keysize is the size of a generated key, in bits.
	Keysize int
	// Opts are all options by name, for config.get.
	Opts *value.Dict
	// CollectGrains collects the grains.
	CollectGrains func(ctx context.Context) *value.Dict
	// LateGrains delays CollectGrains until a function reads a grain: most runs of
	// salt-call read none.
	LateGrains bool
	// Overlaid returns this configuration with the options of another file applied on top.
	// It may be nil.
	Overlaid func(path string) (Config, error)
	// LocalMaster opens the connection to the master on this machine, if there is
	// one, and returns a function that closes it. It may be nil.
	LocalMaster func() (c *client.Client, close func(), err error)
	// StateWatch receives the progress of state runs. It may be nil.
	StateWatch engine.Observer
	// Print prints a line to the caller of a function. It is nil in a daemon.
	Print func(line string) error
	// Tracer sends spans of jobs; nil for none. Run closes it.
	Tracer *trace.Tracer
	// daemonBus is the event bus of the daemon; nil if this process is the daemon.
	daemonBus *event.Sockets
}

// Minion is the daemon. New builds it, Run runs it. Its services do the work;
// this type builds and connects them.
type Minion struct {
	cfg        Config
	log        *slog.Logger
	background *background.Group
	bus        *localbus.Bus
	busIPC     *event.Server
	grains     *grains.Store
	user       *usermodules.Modules // the user's own modules, in Python
	// stock has the modules of an installed stock Salt; nil without python_fallback.
	stock *usermodules.Stock
	// userBeacons are the user's own beacon modules, which run in a separate process.
	userBeacons *usermodules.Modules
	// userFiles are the user's file server backends, for file_client: local.
	userFiles *usermodules.Files
	funcs     *fn.Registry
	states    *state.Registry
	renderer  *render.Renderer
	calls     *calls.Factory
	own       *ownpillar.Pillar // nil unless file_client is local
	refresh   *refresh.Server
	schedule  *schedule.Schedule
	beacons   *beacons.Scheduler
	mine      *mine.Mine

	jobs      *jobs.Table
	notes     *jobs.Notes
	runner    *runner.Runner
	outbox    *outbox.Outbox
	returners *returners.Returners

	links    *link.Set
	linkCfg  *link.Config
	identity *handshake.Minion
	begin    func(*link.Link)   // runs a link in the background; nil until Run
	members  *members.Members   // nil unless the minion learns its masters
	failover *failover.Failover // nil unless one master is used at a time
	status   *status.Status     // nil in salt-call
	stop     context.CancelCauseFunc

	readyOnce sync.Once
	readyC    chan struct{}
}

// New checks the configuration, loads or generates the minion's key pair,
// collects grains and binds the sockets of the local event bus.
func New(ctx context.Context, cfg Config, log *slog.Logger) (*Minion, error) {
	if err := checkOptions(&cfg); err != nil {
		return nil, err
	}
	m := &Minion{cfg: cfg, log: log, readyC: make(chan struct{}), background: background.New(ctx)}
	if !cfg.local() { // without a master there are no keys, and a state may manage the directory
		if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make pki_dir: %w; run as root (sudo), or set root_dir to a directory of this user", err)
		}
	}
	m.buildServices()
	if !cfg.LateGrains {
		m.grains.Collect(ctx)
	}
	if err := m.buildTimed(); err != nil {
		return nil, err
	}
	if err := m.buildFunctions(); err != nil {
		return nil, err
	}
	if m.cfg.local() {
		m.own = m.cfg.ownPillar(m.renderer, m.funcs, m.user, func() *fn.Call { return m.calls.New(nil, "") }, m.grains, m.background, log)
		m.calls.SetOwnPillar(m.own)
	}
	if err := m.buildLinks(ctx); err != nil {
		return nil, err
	}
	return m, m.openBus()
}

// checkOptions returns an error for options with which no minion starts.
func checkOptions(cfg *Config) error {
	if err := salt.CheckID(cfg.ID); err != nil {
		return salt.Errorf(salt.Invalid, "%w; set the option id", err)
	}
	if err := cfg.Options.Bounds().Check(); err != nil {
		return salt.Errorf(salt.Invalid, "master_latency: %w", err)
	}
	return cfg.Options.MasterOptions.CheckType()
}

// reportBroken logs the parts of the configuration that cannot work, without which the minion runs.
func (m *Minion) reportBroken() {
	usermodules.LogUnused(m.cfg.Opts, m.cfg.ExtensionModules, m.log)
	if err := m.cfg.Options.CheckStartup(); err != nil {
		m.log.Error("not running the startup states", "err", err)
	}
	m.schedule.Check()
	m.beacons.Check()
	m.returners.Check()
	if m.own != nil {
		m.own.Check()
	}
}

// buildServices builds the services that need only the configuration and each other.
func (m *Minion) buildServices() {
	cfg, log := &m.cfg, m.log
	o, dir := &cfg.Options, filepath.Join(cfg.CacheDir, "brine")
	m.user = m.userModules(usermodules.MinionKinds)
	m.userBeacons = m.userModules(usermodules.BeaconKinds)
	m.userFiles = m.ownFiles()
	m.renderer = render.New(render.Options{Log: log, Local: render.AnyFile, Python: m.user, Limits: cfg.Templates})
	m.bus = localbus.New(localbus.Config{ID: cfg.ID, HashType: cfg.Handshake.HashType, Events: cfg.Events, Daemon: cfg.daemonBus, Print: cfg.Print})
	m.links = &link.Set{ID: cfg.ID, OneAtATime: o.OneAtATime(), RejectedRetry: o.RejectedRetry, Stop: func(err error) { m.stop(err) }}
	m.status = m.newStatus()
	m.outbox = outbox.New(outbox.Config{Options: o.OutboxOptions, ID: cfg.ID, Dir: dir, Remember: o.JIDQueueHWM, Fire: m.links.Fire, Log: log})
	m.jobs = jobs.New(o.JIDQueueHWM, m.outbox.Knows)
	m.notes = &jobs.Notes{Dir: filepath.Join(cfg.CacheDir, "proc"), Log: log}
	m.grains = grains.New(grains.Config{
		ID: cfg.ID, Collect: m.collectGrains, Late: cfg.LateGrains, Background: m.background, Master: cfg.Opts.At("master"),
		First: func(name string) (string, error) { a, err := o.Parse(name); return a.Host, err },
	})
	funcs := func() *fn.Registry { return m.funcs }
	m.calls = calls.NewFactory(calls.Config{
		ID: cfg.ID, Opts: cfg.Opts, Grains: m.grains, Renderer: m.renderer, Source: m.fileSource(cfg), Server: m.localServer(), Funcs: funcs,
		SDB: m.user.SDB(),
		Log: log,
	})
	m.returners = returners.New(m.returnersConfig(dir))
	m.runner = runner.New(runner.Config{
		Options: o.RunnerOptions, ID: cfg.ID, ConfDir: cfg.ConfDir, Once: cfg.daemonBus != nil, Executors: m.user.Executors(),
		ScheduledReturners: cfg.Returners.Scheduled, Jobs: m.jobs, Notes: m.notes, Outbox: m.outbox, Links: m.links,
		Returners: m.returners, Calls: m.calls, Funcs: funcs, Grains: m.grains.Grains, Background: m.background, Tracer: cfg.Tracer, Log: log,
	})
	m.refresh = refresh.New(refresh.Config{
		Bus: m.bus, Grains: m.grains, Links: m.links, Own: func() *ownpillar.Pillar { return m.own }, BeaconsChanged: func() { m.beacons.Changed() },
		Background: m.background, Log: log,
	})
}

// returnersConfig returns the configuration of the returners, whose queues are in dir.
func (m *Minion) returnersConfig(dir string) returners.Config {
	return returners.Config{
		Options: m.cfg.Returners, Own: m.user.Returners(), Disabled: m.cfg.Options.DisableReturners, ID: m.cfg.ID, Dir: dir, Opts: m.cfg.Opts,
		Background: m.background, Log: m.log,
	}
}

// jobsEnd is how long a minion that stops lets jobs run, and then how long it waits for those
// that it has cancelled.
const jobsEnd = 3 * time.Second

// Run serves until ctx ends, or until every master refuses the minion (Unwanted). Then it
// lets running jobs end for some seconds before it cancels them.
func (m *Minion) Run(ctx context.Context) error {
	ctx, m.stop = context.WithCancelCause(ctx)
	defer m.stop(nil)
	jobs, endJobs := context.WithCancel(context.WithoutCancel(ctx))
	defer endJobs()
	m.background.Use(jobs)
	m.reportBroken()
	m.notes.Forget()
	m.outbox.Recall(m.runner.Interrupted)
	m.returners.Recall()
	if m.cfg.Options.Masterless() && m.cfg.Options.StartupStates != "" {
		m.log.Error("not running the startup states: master_type is disable")
	}
	var wg sync.WaitGroup
	wg.Go(func() { m.returners.Collect(ctx, m.links.Pillar) })
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
	wg.Go(func() { m.runEngines(ctx) })
	wg.Wait()
	m.letJobsEnd()
	endJobs()
	idle := make(chan struct{})
	go func() { m.background.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(jobsEnd):
		m.log.Warn("stopping while jobs are still running", "jobs", len(m.jobs.List("")))
	}
	m.cfg.Tracer.Close()
	m.outbox.Close()
	m.user.Close()
	m.userBeacons.Close()
	m.userFiles.Close()
	m.stock.Close()
	for _, c := range m.links.All() {
		c.Client.Close()
	}
	var unwanted *link.Unwanted
	if errors.As(context.Cause(ctx), &unwanted) {
		return unwanted
	}
	return nil
}

// letJobsEnd waits for short jobs, which an upgrade of the minion should not cut off: such a job is
// not run again.
func (m *Minion) letJobsEnd() {
	for until := time.Now().Add(jobsEnd); len(m.jobs.List("")) > 0 && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
}

// Ready returns a channel that is closed when the start event has been queued for the first
// master.
func (m *Minion) Ready() <-chan struct{} { return m.readyC }

func (m *Minion) ready(c *link.Link) {
	m.readyOnce.Do(func() {
		close(m.readyC)
		m.runner.Startup(c)
	})
}
