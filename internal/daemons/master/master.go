// Package master implements the master daemon: it signs minions in, publishes jobs, stores
// returns and fires events, all in one process.
//
// Path of a request: transports -> channel.Server -> router (routes.go, a table) -> a handler
// in a req_*.go or publish.go -> job store, cache and event bus. Periodic work is in
// maintenance.go. Each handler and service is a struct with the fields that it uses; Master
// creates them (wiring.go), runs them and stops them.
package master

import (
	"brine/internal/base/ratelimit"
	"brine/internal/daemons/master/sinks"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"brine/internal/call/audit"
	"brine/internal/call/auth"
	"brine/internal/catalogue/reactor"
	"brine/internal/daemons/usermodules"
	"brine/internal/ha/cluster"
	"brine/internal/ha/copies"
	"brine/internal/ha/federation"
	"brine/internal/ha/record"
	"brine/internal/ha/replica"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/discovery"
	"brine/internal/net/event"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/shared"
)

// Master is the master daemon. New creates one and binds its addresses; Run serves.
type Master struct {
	cfg   Config
	log   *slog.Logger
	began time.Time
	life  lifetime
	// background tracks requests in progress.
	background sync.WaitGroup
	// refusals limits log messages about unauthorized requests.
	refusals *ratelimit.Log

	identity  *handshake.Identity
	ownKey    *crypt.PrivateKey // master.pem, also in a cluster
	local     localKeys
	tokens    *auth.Tokens
	keys      *keystore.Store
	decisions *keystore.Decisions // nil unless in a cluster without a shared directory
	cache     *cache.Cache
	own       ownPlace
	audit     *audit.Log
	jobs      jobStore
	// cohabitation tracks other masters that share this cachedir without a cluster.
	cohabitation *cohabitation
	stockJobs    *job.LocalCache
	bus          *event.Bus
	eventIPC     *event.Server

	settings *settings
	services

	publishers []transport.Publisher
	publish    *channel.PublishServer
	requests   *channel.Server
	servers    []transport.RequestServer
	counts
	answerer  *discovery.Answerer    // for the option discovery, or nil
	reactor   *reactor.Reactor       // for the option reactor, or nil
	returners []*sinks.EventReturner // for the option event_return
}

// services are the services that Master builds on its stores.
type services struct {
	templates   *templates
	user        *usermodules.Modules // the user's own modules, in Python
	userRunners *usermodules.Modules
	// userReturners are those for the job cache and event_return, userAuth those for
	// external_auth.
	userReturners, userAuth *usermodules.Modules
	userFiles               *usermodules.Files
	targets                 *targets
	access                  *access
	recorder                *recorder
	queue                   *queue
	syndics                 *syndics // nil without order_masters
	states                  *jobStates
	lastRuns                *lastStates
	saved                   *shared.Store
	console                 *consoleStore // nil without console_store
	approvals               *approvals
	addresses               *addresses
	beacons                 *beaconEvents
	loads                   *loads
	reconnects              *reconnects
	presence                *presence
	departures              *departures
	redelivery              *redelivery
	publisher               *publisher
	sinks                   *sinks.Jobs
	stock                   *sinks.StockFiles
	runners                 *runnerCalls
	wheels                  *wheelCalls
	inside                  *insideCalls
	data                    *minionData
	peers                   *peers
	reports                 *connectionReports
	standbyJobs             *standbyJobs
	pending                 *pendingCount
	files                   *fileUpdates
	rotation                *keyRotation
	site                    *federation.Site // nil unless this master is of a site
	hub                     *federation.Hub  // nil without federation_hub
	hot                     *hotMasters      // nil without the option hot_masters

	// Nil without a cluster.
	cluster  *cluster.Cluster
	peerJobs *peerJobs
	health   *health
	store    *record.Store // nil without a store of record
	// Nil unless in a cluster without a shared directory.
	replicated  *replicated
	revisions   *revisions
	clusterJobs *clusterJobs
	comparison  *comparison
	recordWatch *replica.Watch
	jobWatch    *replica.Watch // nil unless jobs are replicated
	copies      *copies.Keeper // nil unless jobs are replicated
}

// lifetime contains the context of Run. Requests arrive only while Run serves.
type lifetime struct {
	run context.Context
	end context.CancelFunc
}

// context returns the context of Run, or a background context before Run.
func (l *lifetime) context() context.Context {
	if l.run != nil {
		return l.run
	}
	return context.Background()
}

// New opens the stores, loads or generates the keys and binds all addresses.
// After an error nothing stays bound.
func New(cfg Config, log *slog.Logger) (_ *Master, err error) {
	m := &Master{cfg: cfg, log: log, began: time.Now(), refusals: ratelimit.NewLog(log, 10, 10*time.Second)}
	m.queue = newQueue(time.Now)
	m.functions = newFunctionCounts()
	m.pending = &pendingCount{rateLimitedLog: ratelimit.NewLog(log, 1, time.Minute)}
	defer func() {
		if err != nil {
			m.release()
		}
	}()
	if err := makeDirs(&cfg); err != nil {
		return nil, err
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
	if m.ownKey == nil {
		m.ownKey = m.identity.Key()
	}
	if m.local, err = loadLocalKeys(context.Background(), &cfg, log); err != nil {
		return nil, err
	}
	if m.tokens, err = auth.OpenTokens(filepath.Join(cfg.CacheDir, "tokens")); err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		m.openStores, m.wireStores, m.bindPublishers, m.wireServices, m.bindChannel, m.wireFederation, m.wireFunctions, m.bindServers,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// makeDirs creates the directories of a master.
func makeDirs(cfg *Config) error {
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{cfg.PKIDir, 0o700}, {cfg.CacheDir, 0o755 & closedCache(cfg)}} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return fmt.Errorf("cannot make a directory: %w", err)
		}
	}
	return nil
}

// Reload applies the options that can change while the master runs.
func (m *Master) Reload(cfg Config) { m.settings.set(cfg) }

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

// Run serves until ctx ends. Then it stops accepting requests, stores the jobs
// in progress, and stops the rest.
func (m *Master) Run(ctx context.Context) error {
	ctx, m.life.end = context.WithCancel(ctx)
	defer m.life.end()
	m.life.run = ctx
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	front, stopFront := context.WithCancel(ctx)
	defer stopFront()
	// One failure stops everything.
	failed := make(chan error, 16+2*len(m.servers))
	back := group{failed: failed}
	for _, part := range m.parts() {
		back.Go(func() error { return part(inner) })
	}
	m.revisions.catchUp(ctx)
	m.serving.Store(true)
	defer m.serving.Store(false)
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
	m.serving.Store(false)
	servers.Wait()
	m.background.Wait()
	if m.replicated != nil && err == nil {
		m.replicated.handOver()
	}
	stop()
	back.Wait()
	m.states.store()
	m.closeModules()
	err = errors.Join(err, m.jobs.Close(), m.audit.Close(), m.cache.Close(), m.replicated.Close(), m.store.Close())
	m.sinks.Close()
	m.console.close()
	m.cfg.Tracer.Close()
	return err
}

// ownModules returns the user's own modules. Each has its own helper processes.
func (m *Master) ownModules() []*usermodules.Modules {
	return []*usermodules.Modules{m.user, m.userRunners, m.userReturners, m.userAuth}
}

// rescanModules makes further calls use the modules that are on disk now.
func (m *Master) rescanModules() {
	for _, own := range m.ownModules() {
		own.Rescan()
	}
	m.userFiles.Rescan()
}

// closeModules stops the helper processes of the user's own modules.
func (m *Master) closeModules() {
	for _, own := range m.ownModules() {
		if own != nil {
			own.Close()
		}
	}
	if m.userFiles != nil {
		m.userFiles.Close()
	}
}

// parts returns the services that run until the last request is answered.
func (m *Master) parts() (out []func(context.Context) error) {
	for _, p := range m.publishers {
		out = append(out, p.Serve)
	}
	out = append(out, m.eventIPC.Serve, m.maintenance().run, m.sinks.Run, m.stock.Run, m.files.fetch, m.adoptJobs)
	out = append(out, m.lastRuns.run, m.reports.moves.run, m.beacons.run, m.loads.run, m.hot.run, m.console.run)
	for _, r := range m.returners {
		out = append(out, r.Run)
	}
	out = append(out, func(ctx context.Context) error { runEngines(ctx, m); return nil })
	if s, ok := m.jobs.(*job.Store); ok && m.cluster == nil {
		out = append(out, func(ctx context.Context) error { return m.cohabitation.run(ctx, s, m.stockJobs, m.log) })
	}
	if m.reactor != nil {
		out = append(out, m.reactor.Run)
	}
	if m.answerer != nil {
		out = append(out, m.answerer.Serve)
	}
	if m.cluster != nil {
		out = append(out, m.runCluster, m.reconnects.kept.run)
	}
	if m.site != nil {
		out = append(out, m.runSite)
	}
	if m.hub != nil {
		out = append(out, m.hub.Run)
	}
	return out
}

// release frees what New acquired.
func (m *Master) release() {
	for _, s := range m.servers {
		s.Close()
	}
	for _, p := range m.publishers {
		p.Close()
	}
	m.store.Close()
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
	m.replicated.Close()
	m.sinks.Close()
	m.console.close()
	m.closeModules()
	if m.audit != nil {
		m.audit.Close()
	}
}

// Publish starts a job for an authorized sender, and returns the reply: {enc:
// clear, load: {jid, minions, missing}} or a map with error.
func (m *Master) Publish(load *value.Dict) *value.Dict { return m.publisher.publish(load) }

// RotateAES replaces the AES key of publications. Minions with an accepted key
// notice at the next publication and sign in again.
func (m *Master) RotateAES() { m.rotation.rotateOrLog() }

// Subscribers returns the subscribers to publications of all transports.
func (m *Master) Subscribers() []transport.Peer { return subscribers(m.publishers) }

// Job returns the stored load of a job, nil if it is unknown.
func (m *Master) Job(jid string) (*value.Dict, error) { return m.sinks.History().Load(jid) }

// JobReturns returns the stored returns of a job by minion.
func (m *Master) JobReturns(jid string) (map[string]*value.Dict, error) {
	return m.sinks.History().Returns(jid)
}
