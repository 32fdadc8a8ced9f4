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
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/base/wait"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/beacons"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/daemons/minion/mine"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/schedule"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/backends"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
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
	fingerprint string
	conns       atomic.Pointer[[]*connection] // see masters; it only grows
	identity    *handshake.Minion
	begin       func(*connection) // has a connection work; nil until Run
	members     *members
	ways        int         // how many masters the configuration names: the first ones
	direct      *connection // of salt-call, which has no queues
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
	failover    *failover // nil unless one master is used at a time
	standing    *standing
	ended       chan struct{} // closed when Run ends
	stop        context.CancelCauseFunc
	refusals    sync.Mutex    // guards connection.fatal
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
	m := &Minion{cfg: cfg, log: log, renderer: render.New(render.Options{Log: log, Local: render.AnyFile, Limits: cfg.Templates}), jobs: newJobTable(cfg.Options.JIDQueueHWM), readyC: make(chan struct{}), ended: make(chan struct{})}
	m.standing = newStanding(m)
	m.members = &members{m: m}
	m.refreshes = &refreshes{m: m}
	m.returners.m = m
	m.outbox = outbox.New(outbox.Config{Options: cfg.Options.OutboxOptions, ID: cfg.ID, Dir: filepath.Join(cfg.CacheDir, "brine"),
		Remember: cfg.Options.JIDQueueHWM, Fire: m.fire, Log: log})
	m.jobs.past = m.outbox.Knows
	if n := cfg.Options.ProcessCountMax; n > 0 {
		m.slots = make(chan struct{}, n)
	}
	if !m.local() { // without a master there are no keys; a state may be about the folder
		if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make pki_dir: %w", err)
		}
	}
	if err := m.cfg.Options.bounds().Check(); err != nil {
		return nil, salt.Errorf(salt.Invalid, "master_latency: %w", err)
	}
	if err := checkMasterType(&m.cfg.Options); err != nil {
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
	if err := m.buildTimed(); err != nil {
		return nil, err
	}
	if err := m.buildFunctions(); err != nil {
		return nil, err
	}
	if m.files != nil {
		m.own = newOwnPillar(m, &m.cfg, func() *fn.Call { return m.newCall(nil, "") })
	}
	if err := m.buildConnections(ctx); err != nil {
		return nil, err
	}
	m.assign()
	return m, m.openBus()
}

func (m *Minion) buildConnections(ctx context.Context) error {
	if len(m.cfg.Options.Master) == 0 {
		return nil // and no key pair is needed
	}
	signer, err := m.signer()
	if err != nil {
		return err
	}
	m.identity = signer
	names, err := m.nameMasters(ctx)
	if err != nil {
		return err
	}
	var conns []*connection
	var faults []error
	for _, text := range names {
		addr, err := address.Parse(text, m.cfg.Options.MasterPort, m.cfg.Options.MasterURIFormat == "ip_only")
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if slices.ContainsFunc(conns, func(c *connection) bool { return c.addr.Host == addr.Host && c.addr.Port == addr.Port }) {
			m.log.Warn("a master is listed twice; the second entry is ignored", "master", text)
			continue
		}
		if text == noMaster && m.searches() {
			addr.Search = m.searchAgain
		}
		own := *signer
		own.Trust = m.trustIn(addr, len(names) > 1 && !m.cfg.Options.learns())
		c, err := m.newConnection(addr, &own)
		if err != nil {
			return err
		}
		c.index = len(conns)
		conns = append(conns, c)
	}
	m.conns.Store(&conns)
	m.ways = len(conns)
	if m.cfg.Options.learns() {
		m.recallMembers()
	}
	if err := errors.Join(faults...); err != nil {
		return salt.Errorf(salt.Invalid, "%w", err)
	}
	return nil
}

func (m *Minion) newConnection(addr address.Master, signer *handshake.Minion) (*connection, error) {
	o := m.cfg.Options
	log := m.log.With("master", addr.Text)
	dial, subscribe := m.cfg.Dial, m.cfg.SubscribeDial
	dial.Identity, subscribe.Identity = m.cfg.ID, m.cfg.ID
	dial.Heartbeat, subscribe.Heartbeat = m.heartbeat(), m.heartbeat()
	if o.FilterPublications {
		subscribe.Topics = topics(m.cfg.ID)
	}
	client, err := channel.NewClient(channel.ClientConfig{
		Signer: signer, Transport: m.cfg.Transport, Dial: dial, SubscribeDial: subscribe,
		AuthTimeout: o.AuthTimeout, RequestTimeout: o.RequestTimeout,
		AutosignGrains: m.autosignGrains, VerifyPublications: o.SignPubMessages, Log: log,
	})
	if err != nil {
		return nil, err
	}
	c := &connection{m: m, addr: addr, client: client, log: log}
	c.out = m.outbox.NewQueue(addr.Text, client.Request, func() bool { return c.is(connected) }, log)
	return c, nil
}

func (m *Minion) autosignGrains() *value.Dict {
	d := value.NewDict(0)
	for _, name := range m.cfg.Options.AutosignGrains {
		if v, ok := m.Grains().Get(name); ok {
			d.Set(name, v)
		}
	}
	return d
}

// signer loads the key pair of the minion, or makes it.
func (m *Minion) signer() (*handshake.Minion, error) {
	s, fp, err := LoadSigner(m.cfg, m.log)
	m.fingerprint = fp
	return s, err
}

// LoadSigner prepares the minion's side of the sign-in from the files in
// pki_dir, making the key pair when there is none. It returns the fingerprint
// of the minion's key, too.
func LoadSigner(cfg Config, log *slog.Logger) (*handshake.Minion, string, error) {
	path := filepath.Join(cfg.PKIDir, "minion.pem")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		log.Info("making the minion's key pair", "folder", cfg.PKIDir)
		k, err := crypt.GenerateKey(max(cfg.Keysize, 2048))
		if err != nil {
			return nil, "", err
		}
		if err := os.MkdirAll(cfg.PKIDir, 0o700); err != nil {
			return nil, "", fmt.Errorf("cannot make pki_dir: %w", err)
		}
		// salt-call may have made it meanwhile: whoever comes first is right.
		if err := crypt.WriteKeyPair(cfg.PKIDir, "minion", k, ""); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, "", err
		}
	}
	key, err := crypt.LoadOwn(path, "", log)
	if err != nil {
		return nil, "", err
	}
	s := &handshake.Minion{ID: cfg.ID, Key: key, Options: cfg.Handshake, Token: rand.Text(),
		Trust: channel.NewFileTrust(filepath.Join(cfg.PKIDir, "minion_master.pub"))}
	if cfg.Handshake.VerifyMasterPubkeySign {
		s.Signers = func() ([]*crypt.PublicKey, error) { return loadSigners(cfg) }
		if _, err := s.Signers(); err != nil {
			return nil, "", fmt.Errorf("verify_master_pubkey_sign needs the masters' signing key: %w", err)
		}
	}
	return s, crypt.Fingerprint(key.Public().PEM(), cfg.Handshake.HashType), nil
}

// loadSigners reads those of the signing keys that are there; none is an error.
func loadSigners(cfg Config) ([]*crypt.PublicKey, error) {
	var keys []*crypt.PublicKey
	var faults []error
	for _, name := range cfg.Handshake.MasterSignKeyName {
		k, err := crypt.LoadPublic(filepath.Join(cfg.PKIDir, name+".pub"))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		keys = append(keys, k)
	}
	if len(keys) > 0 {
		return keys, nil
	}
	if len(faults) == 0 {
		return nil, errors.New("the option master_sign_key_name names none")
	}
	return nil, errors.Join(faults...)
}

// trustIn returns where the key of one master is kept.
func (m *Minion) trustIn(addr address.Master, several bool) *channel.FileTrust {
	shared := filepath.Join(m.cfg.PKIDir, "minion_master.pub")
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, addr.Text)
	if !several {
		return channel.NewFileTrust(shared)
	}
	h := &m.cfg.Handshake
	return channel.NewMasterTrust(shared, filepath.Join(m.cfg.PKIDir, "minion_masters", name+".pub"),
		h.VerifyMasterPubkeySign || len(h.MasterFinger) > 1)
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
	if m.cfg.Options.MasterType == typeDisable && m.cfg.Options.StartupStates != "" {
		m.log.Error("the startup states are not run: master_type is disable")
	}
	var wg sync.WaitGroup
	wg.Go(func() { m.returners.collect(ctx) })
	go func() { <-ctx.Done(); close(m.ended) }()
	wg.Go(func() { m.standing.run(ctx) })
	late := wait.Jitter(m.cfg.Options.RandomStartupDelay)
	pause := late
	if m.failover != nil {
		pause = 0
	}
	m.begin = func(c *connection) {
		wg.Go(func() {
			if wait.Sleep(ctx, pause) {
				c.run(ctx)
			}
		})
		wg.Go(func() { c.out.Run(ctx) })
	}
	for _, c := range m.masters() {
		m.begin(c)
	}
	if m.failover != nil {
		wg.Go(func() { // from here on it may add masters
			if wait.Sleep(ctx, late) {
				m.failover.run(ctx)
			}
		})
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
	for _, c := range m.masters() {
		c.client.Close()
	}
	var unwanted *Unwanted
	if errors.As(context.Cause(ctx), &unwanted) {
		return unwanted
	}
	return nil
}

// masters returns the connections to masters. The slice is not changed any more.
func (m *Minion) masters() []*connection {
	if p := m.conns.Load(); p != nil {
		return *p
	}
	return nil
}

// Ready is closed once the first master has been greeted.
func (m *Minion) Ready() <-chan struct{} { return m.readyC }

func (m *Minion) ready(c *connection) {
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
func (m *Minion) accept(ctx context.Context, from *connection, load *value.Dict) {
	if err := checkJob(load); err != nil {
		from.log.Warn("a job was ignored", "err", err)
		return
	}
	ok, err := m.matches(from, load)
	if err != nil {
		from.log.Warn("a job was ignored: its target cannot be read", "jid", load.Str("jid"), "err", err)
		return
	}
	if !ok {
		return
	}
	j, ready := m.jobs.admit(load, from, time.Now())
	if j == nil {
		if ready != nil {
			m.outbox.Also(ready, from.out)
		}
		from.log.Debug("the job is known already", "jid", load.Str("jid"))
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

func (m *Minion) matches(from *connection, load *value.Dict) (bool, error) {
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
	from *connection
}

func (s self) ID() string          { return s.m.cfg.ID }
func (s self) Grains() *value.Dict { return s.m.Grains() }
func (s self) Pillar() *value.Dict { return s.from.pillar.Load() }

var _ target.Subject = self{}
