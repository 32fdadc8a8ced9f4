// Package master is the master daemon: it signs minions in, publishes jobs to
// them, keeps what they return and tells the event bus, all in one process.
//
// Data flows: transports -> channel.Server -> router (routes.go, a table) ->
// a handler in a req_*.go or publish.go -> job store, cache and event bus.
// What was asked for by time is in maintenance.go.
package master

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

	"brine/internal/base/ratelimit"
	"brine/internal/base/target"
	"brine/internal/call/audit"
	"brine/internal/call/auth"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue/reactor"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/backends"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/discovery"
	"brine/internal/net/event"
	"brine/internal/net/handshake"
	"brine/internal/net/remote"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netserve"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/sls/render"
	"brine/internal/sls/top"
	"brine/internal/store/cache"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/returner"
)

// Listen is one transport that the master serves, with its addresses.
type Listen struct {
	Transport        transport.Transport
	Publish, Request string // host:port
	Options          transport.ListenOptions
}

// Config is what a master needs to know.
type Config struct {
	// ID is the master's id, by default the host's name with "_master".
	ID string
	// MasterID is stamped on jobs if the option master_id is set.
	MasterID         string
	PKIDir, CacheDir string
	// Interface is the address to listen on, for other masters.
	Interface string
	User      string
	Listen    []Listen
	Options   Options
	Auth      auth.Options
	Channel   channel.Options
	Publish   channel.PublishOptions
	Keys      keystore.Options
	Cache     cache.Options
	Client    client.Options
	Jobs      job.Options
	Returners returner.MasterOptions
	Cluster   cluster.Options
	Events    event.MasterOptions
	Files     fileserver.Options
	Backends  backends.Options
	Top       top.Options
	Pillar    pillar.Options
	// Templates bounds the rendering of templates.
	Templates   render.Limits
	GitPillar   gitpillar.Options
	Reactor     reactor.Options
	EventReturn EventReturnOptions
	// Opts are all options under their names, for config.get.
	Opts *value.Dict
}

// Master is the daemon. New makes one and binds its addresses, Run serves.
type Master struct {
	cfg  Config
	log  *slog.Logger
	live atomic.Pointer[live]
	// setting is held while live is replaced; own is the configuration that it
	// was made of, without what revisions put in its place.
	setting sync.Mutex
	own     Config

	identity  *handshake.Identity
	local     localKeys
	keys      *keystore.Store
	decisions *keystore.Decisions // in a cluster without a shared folder, else nil
	cache     *cache.Cache
	jobs      jobStore
	outlets   []*outlet
	stockJobs *job.LocalCache
	jobFiles  *jobFiles
	// offlineFar is the returner that RunOffline reads jobs from, or nil.
	offlineFar returner.Returner
	cluster    *cluster.Cluster // nil for a master of its own
	common     *common          // of a cluster without a shared folder, else nil
	revisions  *revisions       // as common
	works      *works           // as common
	bus        *event.Bus
	eventIPC   *event.Server
	requests   *channel.Server
	publish    *channel.PublishServer
	router     *router
	runners    *fn.Registry
	wheels     *fn.Registry
	tokens     *auth.Tokens
	audit      *audit.Log
	strangers  *ratelimit.Window // refusals of unknown users on record
	gripes     *ratelimit.Log    // about requests without the right to them
	noting     sync.Mutex        // held while the state of jobs is written to disk
	renderer   *render.Renderer
	// templateFuncs are what templates of the pillar can call.
	templateFuncs *fn.Registry
	running       running
	presence      *presence
	began         time.Time
	standings     standings
	pending       pendingCount
	queue         *queue
	whereabouts   whereabouts
	audience      audience
	newcomers     newcomers

	run context.Context // of Run; ends when the master is told to
	end context.CancelFunc

	publishers []transport.Publisher
	servers    []transport.RequestServer
	answerer   *discovery.Answerer // of the option discovery, or nil
	reactor    *reactor.Reactor    // of the option reactor, or nil
	keepers    []*eventKeeper      // of the option event_return
}

// live is what a reload replaces.
type live struct {
	options  Options
	channel  channel.Options
	autosign *keystore.Autosign
	groups   target.Nodegroups
	files    *fileserver.Server
	top      top.Options
	pillar   *pillar.Compiler
	git      *gitpillar.Source
	opts     *value.Dict
	auth     *auth.Service
	cfg      Config // that all of it was made of
}

func (m *Master) auth() *auth.Service             { return m.live.Load().auth }
func (m *Master) options() *Options               { return &m.live.Load().options }
func (m *Master) autosign() *keystore.Autosign    { return m.live.Load().autosign }
func (m *Master) nodegroups() target.Nodegroups   { return m.live.Load().groups }
func (m *Master) fileServer() *fileserver.Server  { return m.live.Load().files }
func (m *Master) channelOptions() channel.Options { return m.live.Load().channel }

// New opens the stores, loads or makes the keys and binds all addresses. An
// error leaves nothing bound.
func New(cfg Config, log *slog.Logger) (_ *Master, err error) {
	m := &Master{cfg: cfg, log: log, began: time.Now(), queue: newQueue(time.Now)}
	m.standings.m = m
	m.strangers = newStrangers()
	m.gripes = ratelimit.NewLog(log, 10, 10*time.Second)
	m.pending.gripes = ratelimit.NewLog(log, 1, time.Minute)
	defer func() {
		if err != nil {
			m.release()
		}
	}()
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{cfg.PKIDir, 0o700}, {cfg.CacheDir, 0o755 & closedCache(&cfg)}} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return nil, fmt.Errorf("cannot make a folder: %w", err)
		}
	}
	if err := closeToOthers(&cfg, log); err != nil {
		return nil, err
	}
	if err := m.joinCluster(); err != nil {
		return nil, err
	}
	if m.identity, err = loadIdentity(&cfg, m.cluster, log); err != nil {
		return nil, err
	}
	if m.local, err = loadLocalKeys(context.Background(), &cfg, log); err != nil {
		return nil, err
	}
	if m.tokens, err = auth.OpenTokens(filepath.Join(cfg.CacheDir, "tokens")); err != nil {
		return nil, err
	}
	if err := m.openStores(); err != nil {
		return nil, err
	}
	m.renderer = render.New(render.Options{Log: log, Local: m.localTemplate, Limits: cfg.Templates})
	if m.templateFuncs, err = m.templateFunctions(); err != nil {
		return nil, err
	}
	m.setLive(cfg)
	if err := m.bindPublishers(); err != nil {
		return nil, err
	}
	if err := m.buildChannel(); err != nil {
		return nil, err
	}
	if m.runners, err = m.newRunners(); err != nil {
		return nil, err
	}
	if m.wheels, err = m.newWheels(); err != nil {
		return nil, err
	}
	if m.reactor, err = m.newReactor(); err != nil {
		return nil, err
	}
	m.keepers = m.newKeepers()
	return m, m.bindServers()
}

func (m *Master) openStores() (err error) {
	if m.keys, err = keystore.Open(m.keyDir(), m.log); err != nil {
		return err
	}
	own, err := m.ownDir()
	if err != nil {
		return err
	}
	driver, err := drivers.Open(m.cfg.Cache.Driver, remote.Options(m.cfg.Opts), m.cfg.Cache.Timeout)
	if err != nil {
		return err
	}
	if m.cache, err = cache.Open(m.cfg.CacheDir, own, m.cfg.Cache, driver, m.log); err != nil {
		return err
	}
	if m.audit, err = audit.Open(filepath.Join(own, "audit")); err != nil {
		return err
	}
	if m.jobs, err = m.openJobs(own); err != nil {
		return err
	}
	if err := m.openOutlets(own); err != nil {
		return err
	}
	if m.isolated() {
		if m.decisions, err = keystore.OpenDecisions(m.cfg.CacheDir, m.log); err != nil {
			return err
		}
		if m.common, err = m.openCommon(own); err != nil {
			return err
		}
		if m.revisions, err = m.openRevisions(own); err != nil {
			return err
		}
		m.works = newWorks(m)
	}
	if err := m.loadQueue(); err != nil {
		m.log.Error("jobs that waited for minions cannot be read", "err", err)
	}
	if m.stockJobs, err = job.NewLocalCache(m.cfg.CacheDir, m.cfg.Options.HashType); err != nil {
		return err
	}
	if err := m.stockJobs.Protect(); err != nil {
		m.log.Warn("other users may read the jobs", "err", err)
	}
	m.jobFiles = newJobFiles(m.stockJobs, func() bool { return m.options().JobCacheFiles && m.cfg.Jobs.JobCache && !m.sharesFolder() }, m.log)
	m.bus = event.NewBus(m.cfg.Events.MaxEventSize)
	if err := os.MkdirAll(m.cfg.Events.SockDir, 0o755); err != nil {
		return fmt.Errorf("cannot make sock_dir: %w", err)
	}
	m.eventIPC, err = event.Listen(m.bus, m.cfg.Events.Sockets(), m.cfg.Events.Options, m.log)
	return err
}

func (m *Master) setLive(cfg Config) {
	m.setting.Lock()
	defer m.setting.Unlock()
	m.own = cfg
	cfg = m.revisions.apply(cfg)
	groups := target.Nodegroups{}
	for k, v := range cfg.Options.Nodegroups.All() {
		groups[value.Str(k)] = v
	}
	who, errs := auth.New(cfg.Auth, m.tokens, m.log)
	for _, err := range errs {
		m.log.Error("nobody can sign in by a system of external_auth", "err", err)
	}
	git := m.newGitPillar(cfg)
	m.live.Store(&live{
		git: git, cfg: cfg,
		auth:    who,
		options: cfg.Options, channel: cfg.Channel, groups: groups,
		autosign: keystore.NewAutosign(m.keys, cfg.Keys, cfg.User, m.log),
		files: fileserver.New(cfg.Files, fileserver.Config{
			CacheDir: m.cfg.CacheDir, HashType: cfg.Options.HashType, BufferSize: cfg.Options.FileBufferSize,
			More: backends.More(cfg.Backends, backends.Config{
				CacheDir: m.cfg.CacheDir, HashType: cfg.Options.HashType, Files: cfg.Files, Receives: cfg.Options.FileRecv, Log: m.log,
			}),
		}, m.log),
		top: cfg.Top, pillar: m.newPillar(cfg, git, groups), opts: cfg.Opts,
	})
}

// Reload takes over the options that can change while the master runs.
func (m *Master) Reload(cfg Config) { m.setLive(cfg) }

func (m *Master) bindPublishers() error {
	current := func() *channel.PublishServer { return m.publish }
	identify := channel.Identifier(current, acceptedKeys{m.keys}, m.log)
	m.whereabouts.guests = newGuests()
	for _, l := range m.cfg.Listen {
		o := l.Options
		o.Guests = m.whereabouts.guests
		o.Syndics, o.Heartbeat, o.Identify = m.cfg.Options.OrderMasters, m.cfg.Options.Heartbeat, identify
		if l.Transport.Name() == "tcp" && o.Syndics {
			o.Filter = false // the minions of a syndic cannot be known here
		}
		p, err := l.Transport.ListenPublish(l.Publish, o)
		if err != nil {
			return fmt.Errorf("publish_port: %w", err)
		}
		m.publishers = append(m.publishers, p)
	}
	return nil
}

func (m *Master) buildChannel() (err error) {
	if m.publish, err = m.newPublishServer(); err != nil {
		return err
	}
	sessions, err := channel.NewSessions(filepath.Join(m.cfg.CacheDir, "sessions"), m.cfg.Options.PublishSession)
	if err != nil {
		return err
	}
	switch {
	case m.isolated():
		if err := m.deriveSessions(sessions); err != nil {
			return err
		}
	case !m.sharesFolder():
		sessions.DistrustOld()
	}
	m.presence = &presence{publishers: m.publishers, accepted: m.keys.Accepted, data: m.minionData, now: time.Now}
	port := m.publishPort()
	auth := channel.NewAuthenticator(m.identity, keyBook{m.keys, m.decisions.Note}, admission{m}, sessions,
		func() channel.Publications {
			return channel.Publications{Key: m.publish.AES(), Port: port, Signed: m.cfg.Publish.SignPubMessages}
		}, m.signedIn, m.log)
	m.router = m.newRouter()
	m.requests = channel.NewServer(m.channelOptions, acceptedKeys{m.keys}, sessions, auth, m.router, m.log)
	if m.cluster != nil {
		m.requests.TellSeen()
	}
	return nil
}

// publishPort is the port announced to minions: that of the first transport.
func (m *Master) publishPort() int {
	if a, ok := m.publishers[0].Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// signedIn tells the bus of a sign-in.
func (m *Master) signedIn(e channel.AuthEvent) {
	if e.Act == "pend" {
		m.pending.added()
	}
	if e.Act == "accept" {
		m.tellPeers(cluster.NoteSignedIn, e.ID)
		m.newcomers.signedIn(e.ID, time.Now())
	}
	if !m.options().AuthEvents {
		return
	}
	d := value.DictOf("result", e.Result)
	if e.Act != "" {
		d.Set("act", e.Act)
	}
	d.Set("id", e.ID)
	d.Set("pub", e.Pub)
	m.bus.Fire("salt/auth", d)
}

const (
	// maxRequest bounds one request; minions of Brine send less.
	maxRequest = 64 << 20
	// maxUnfinished bounds the bytes of requests that are not complete yet,
	// over all peers and transports: anybody can send beginnings. A quarter is
	// for small ones; the rest has room for one of the largest, which takes up
	// to twice its size while its buffer grows.
	maxUnfinished = 3 * maxRequest
)

// bindServers comes last: a peer that reaches the request port finds all else
// ready.
func (m *Master) bindServers() error {
	budget := netserve.NewBudget(maxUnfinished)
	for _, l := range m.cfg.Listen {
		o := l.Options
		o.MaxMessage, o.Budget, o.Guests = maxRequest, budget, m.whereabouts.guests
		o.Heartbeat = m.cfg.Options.Heartbeat
		s, err := l.Transport.ListenRequests(l.Request, o)
		if err != nil {
			return fmt.Errorf("ret_port: %w", err)
		}
		m.servers = append(m.servers, s)
	}
	m.bindDiscovery()
	return nil
}

// bindDiscovery has minions that know no master find this one. A master that
// cannot do that is of use all the same.
func (m *Master) bindDiscovery() {
	o := m.cfg.Options.Discovery
	a, ok := m.servers[0].Addr().(*net.TCPAddr)
	if !o.On || !ok {
		return
	}
	var err error
	if m.answerer, err = discovery.Listen(o, a.AddrPort(), m.log); err != nil {
		m.log.Error("this master cannot be found by discovery", "err", err)
	}
}

// Addrs returns the bound publish and request addresses, a pair per transport.
func (m *Master) Addrs() (publish, request []net.Addr) {
	for _, p := range m.publishers {
		publish = append(publish, p.Addr())
	}
	for _, s := range m.servers {
		request = append(request, s.Addr())
	}
	return publish, request
}

// Run serves until ctx ends: first no more requests are taken, then the jobs
// under way are stored, then the rest stops.
func (m *Master) Run(ctx context.Context) error {
	ctx, m.end = context.WithCancel(ctx)
	defer m.end()
	m.run = ctx
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	front, stopFront := context.WithCancel(ctx)
	defer stopFront()
	// One failure stops all.
	failed := make(chan error, 15+2*len(m.servers))
	back := group{failed: failed}
	for _, p := range m.publishers {
		back.Go(func() error { return p.Serve(inner) })
	}
	back.Go(func() error { return m.eventIPC.Serve(inner) })
	back.Go(func() error { return m.maintain(inner) })
	back.Go(func() error { return m.runOutlets(inner) })
	back.Go(func() error { m.jobFiles.run(inner); return nil })
	back.Go(func() error { return m.fetchFiles(inner) })
	back.Go(func() error { m.adoptJobs(inner); return nil })
	for _, k := range m.keepers {
		back.Go(func() error { return k.run(inner) })
	}
	if m.reactor != nil {
		back.Go(func() error { return m.reactor.Run(inner) })
	}
	if m.answerer != nil {
		back.Go(func() error { return m.answerer.Serve(inner) })
	}
	if m.cluster != nil {
		back.Go(func() error { return m.runCluster(inner) })
	}
	m.revisions.catchUp(ctx)
	servers := group{failed: failed}
	for _, s := range m.servers {
		servers.Go(func() error { return s.Serve(front, m.requests.Handle) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		stopFront()
	}
	servers.Wait()
	m.router.wg.Wait()
	if m.isolated() && err == nil {
		m.handOver()
	}
	stop()
	back.Wait()
	m.noteStates()
	err = errors.Join(err, m.jobs.Close(), m.audit.Close(), m.cache.Close(), m.common.Close())
	m.closeOutlets()
	return err
}

// release gives back what New acquired.
func (m *Master) release() {
	for _, s := range m.servers {
		s.Close()
	}
	for _, p := range m.publishers {
		p.Close()
	}
	if m.answerer != nil {
		m.answerer.Close()
	}
	if m.eventIPC != nil {
		m.eventIPC.Close()
	}
	if m.cluster != nil {
		m.cluster.Close()
	}
	if m.jobs != nil {
		m.jobs.Close()
	}
	if m.cache != nil {
		m.cache.Close()
	}
	m.common.Close()
	m.closeOutlets()
	if m.audit != nil {
		m.audit.Close()
	}
}

// context is that of Run; requests come only while it works.
func (m *Master) context() context.Context {
	if m.run != nil {
		return m.run
	}
	return context.Background()
}

// minionData returns the cached grains and pillar of a minion, nil for what
// is not known.
func (m *Master) minionData(id string) (grains, pillar *value.Dict) {
	d := m.cache.MinionData(id)
	return d.Grains, d.Pillar
}
