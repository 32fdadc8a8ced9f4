package master

import (
	"brine/internal/base/metrics"
	"brine/internal/base/ratelimit"
	"brine/internal/daemons/master/filequota"
	"brine/internal/daemons/master/hotlink"
	"brine/internal/daemons/master/sinks"
	"brine/internal/daemons/usermodules"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/audit"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/wheel"
	"brine/internal/ha/cluster"
	"brine/internal/ha/record"
	"brine/internal/ha/replica"
	"brine/internal/host"
	"brine/internal/host/counters"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/discovery"
	"brine/internal/net/event"
	"brine/internal/net/remote"
	"brine/internal/net/transport"
	transports "brine/internal/net/transport/named"
	"brine/internal/net/transport/netserve"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/shared"
)

// joinCluster makes this master a member of a cluster if the options say so.
func (m *Master) joinCluster() error {
	o := m.cfg.Cluster
	if !o.On() {
		return nil
	}
	own, err := loadPair(m.cfg.PKIDir, "master", m.cfg.Options.KeyPass, m.cfg.Options.Keysize, m.log)
	if err != nil {
		return err
	}
	m.ownKey = own
	// Salt compares this file with the one that peers see.
	pub, err := os.ReadFile(filepath.Join(m.cfg.PKIDir, "master.pub"))
	if err != nil {
		return fmt.Errorf("the public key of this master: %w", err)
	}
	if m.store, err = openStoreOfRecord(&m.cfg, m.log); err != nil {
		return err
	}
	m.cluster, err = cluster.New(cluster.Config{
		Store: m.store,
		ID:    m.cfg.ID, Listen: m.cfg.Interface, CacheDir: m.cfg.CacheDir, HashType: m.cfg.Options.HashType, Options: o,
		Ports: requestPorts(m.cfg.Listen), Own: own, OwnPub: pub, Keysize: m.cfg.Options.Keysize, PublishSession: m.cfg.Options.PublishSession,
		Joins:   func() error { return PutAside(m.cfg.CacheDir, m.cfg.ID, o.PKIDir, m.log) },
		Refuses: func() error { return refusesKey(&m.cfg.Options, m.queue, m.presence) },
		Expels:  func() error { return m.tokens.Clear() },
		Busy:    func() (busy, total int64, ok bool) { return counters.Busy(&host.Machine{}) },
		Copies:  func() (n int, keep int64) { return ownCopies(&m.cfg, m.jobFiles()) },
	}, m.log)
	return err
}

// openStoreOfRecord opens the store of record; nil if none is configured. It does not connect.
func openStoreOfRecord(cfg *Config, log *slog.Logger) (*record.Store, error) {
	o := &cfg.Cluster
	if !o.On() || o.Record == "" {
		return nil, nil
	}
	return record.Open(record.Config{
		Engine: o.Record, Options: remote.Options(cfg.Opts), Cluster: o.ID, ID: cfg.ID, Secret: o.RecordSecret, Log: log,
	})
}

// jobFiles reports whether this master writes all returns to files for Salt's programs.
func (m *Master) jobFiles() bool {
	if m.settings == nil || m.settings.current() == nil {
		return m.cfg.Options.JobCacheFiles
	}
	return m.settings.options().JobCacheFiles
}

// openStores opens the stores on disk.
func (m *Master) openStores() (err error) {
	if m.keys, err = keystore.Open(keyDir(&m.cfg), m.log); err != nil {
		return err
	}
	took := func(news []job.Taken) { m.peerJobs.took(news) } // not before Run
	if m.own, m.jobs, err = openOwn(&m.cfg, func(own string) (jobStore, error) { return openJobs(&m.cfg, m.cluster, own, took, m.log) }, m.log); err != nil {
		return err
	}
	m.cohabitation = &cohabitation{cacheDir: m.cfg.CacheDir, beside: m.own.beside}
	m.cohabitation.look()
	own := m.own.dir
	driver, err := openDriver(&m.cfg)
	if err != nil {
		return err
	}
	if m.cache, err = cache.Open(m.cfg.CacheDir, own, m.cfg.Cache, driver, m.log); err != nil {
		return err
	}
	if m.audit, err = audit.Open(filepath.Join(own, "audit"), m.ownKey.PEM()); err != nil {
		return err
	}
	if m.saved, err = shared.Open(savedDir(m.cfg.CacheDir), m.cfg.ID); err != nil {
		return err
	}
	m.lastRuns = openLastStates(own, m.jobs, m.log)
	m.lastRuns.keep = time.Duration(m.cfg.Options.ConsoleDays) * 24 * time.Hour
	if m.console, err = openConsoleStore(&m.cfg, own, m.saved, m.lastRuns.Store, m.log); err != nil {
		return err
	}
	m.jobs.OnConflict(tellOfConflicts(ratelimit.NewLog(m.log, 10, 10*time.Second)))
	if m.stockJobs, err = job.NewLocalCache(m.cfg.CacheDir, m.cfg.Options.HashType); err != nil {
		return err
	}
	// The functions that returners call are created later, before the first entry is delivered.
	findReturners(m)
	if m.sinks, err = sinks.Open(m.sinkConfig(), own, m.readableJobs(), m.log); err != nil {
		return err
	}
	m.bus = event.NewBus(m.cfg.Events.MaxEventSize)
	makeSettings(m)
	if isolated(m.cluster) {
		return m.openReplicated(own)
	}
	return nil
}

// openDriver opens the server of the option cache. It does not connect.
func openDriver(cfg *Config) (cache.Driver, error) {
	return drivers.Open(cfg.Cache.Driver, remote.Options(cfg.Opts), cfg.Cache.Timeout)
}

// findReturners finds the user's own returners.
func findReturners(m *Master) {
	m.userReturners = userModules(&m.cfg, usermodules.ReturnerKinds, func() *fn.Call { return m.templates.call() },
		serves{runners: ownRunners(m), bus: m.bus}, m.log)
}

// makeSettings creates the settings, which configure applies.
func makeSettings(m *Master) {
	usermodules.LogUnused(m.cfg.Opts, m.cfg.ExtensionModules, m.log)
	m.userAuth = userModules(&m.cfg, usermodules.AuthKinds, func() *fn.Call { return m.templates.call() }, serves{runners: ownRunners(m)}, m.log)
	m.userFiles = userFiles(&m.cfg, m.bus, m.log)
	m.settings = &settings{
		systems: m.userAuth.Systems(), userFiles: m.userFiles,
		cacheDir: m.cfg.CacheDir, log: m.log, keys: m.keys, tokens: m.tokens, roots: func(cfg Config) Config { return m.revisions.apply(cfg) },
	}
}

// configure creates the templates, and applies the options that a reload can change.
func configure(m *Master) (err error) {
	cfg := &m.cfg
	if m.templates, err = newTemplates(templates{
		id: cfg.ID, cacheDir: cfg.CacheDir, opts: cfg.Opts, ctx: m.life.context, settings: m.settings, log: m.log,
		runners: func() *fn.Registry { return m.runners.registry },
		orders:  func() *client.Client { return within{m.inside, processUser(), "template"}.client() },
	}, cfg); err != nil {
		return err
	}
	m.user = m.templates.user
	m.settings.compiler = m.templates.compiler
	m.settings.set(m.cfg)
	for _, err := range checkTops(cfg.Options.MasterTops, m.templates.isTop) {
		m.log.Error("a source of master_tops is misconfigured; it gives no SLS files", "err", err)
	}
	return nil
}

// readableJobs are the jobs that runners read: also those of masters that share
// cachedir without a cluster.
func (m *Master) readableJobs() runners.Jobs {
	if s, ok := m.jobs.(*job.Store); ok && m.cluster == nil {
		return &sharedJobs{s, m.stockJobs, m.cohabitation.shared}
	}
	return m.jobs
}

func (m *Master) sinkConfig() sinks.Config {
	return sinks.Config{
		MasterID: m.cfg.ID, Jobs: m.cfg.Jobs, Returner: m.cfg.Returners, Ext: m.cfg.Client.ExtJobCache, Opts: m.cfg.Opts,
		Python: m.userReturners.Returners(),
		Ctx:    m.life.context, Leads: func() bool { return m.cluster == nil || m.cluster.Leads() },
	}
}

// openReplicated opens the replicated state of a cluster without a shared
// directory.
func (m *Master) openReplicated(own string) (err error) {
	if m.decisions, err = keystore.OpenDecisions(m.cfg.CacheDir, m.log); err != nil {
		return err
	}
	minions := m.cache
	if d := m.cfg.Cache.Driver; d != "" && d != cache.Local {
		minions = nil // the server of the driver stores the data of minions
	}
	m.replicated, err = openReplicated(&replicated{id: m.cfg.ID, cacheDir: m.cfg.CacheDir, cluster: m.cluster, log: m.log}, own,
		&replica.Keys{Store: m.keys, Decisions: m.decisions}, minions)
	if err != nil {
		return err
	}
	if m.store != nil {
		m.replicated.keepIn(m.store, m.jobs)
	}
	if m.revisions, err = openRevisions(&revisions{
		id: m.cfg.ID, records: m.replicated.records, cluster: m.cluster, settings: m.settings, jobs: m.jobs, bus: m.bus, ctx: m.life.context, log: m.log,
		rateLimitedLog: m.pending.rateLimitedLog,
	}, own); err != nil {
		return err
	}
	m.comparison = &comparison{replicated: m.replicated, revisions: m.revisions, jobs: m.jobs}
	m.recordWatch = newRecordWatch(m.replicated, m.bus, m.log)
	m.jobWatch = newJobWatch(m.cluster, m.jobs, m.bus, m.log)
	if m.copies = newCopies(m.cfg.ID, m.cluster, m.jobs, m.log); m.copies != nil {
		m.lastRuns.contents = m.copies.Contents
	}
	return nil
}

// wireStores builds the services that need no network port.
func (m *Master) wireStores() (err error) {
	cfg := &m.cfg
	m.targets = &targets{groups: m.settings.nodegroups, keys: m.keys, cache: m.cache}
	m.access = &access{ctx: m.life.context, settings: m.settings, targets: m.targets, local: m.local, user: cfg.User}
	m.approvals = &approvals{access: m.access, store: m.saved, now: time.Now}
	m.approvals.table = m.console.approvals(m.approvals, approvalProofs{cfg.Options.ConsoleSecret, m.identity.Key})
	m.recorder = &recorder{audit: m.audit, console: m.console, log: m.log, unauthenticated: newRefusalLimit()}
	m.runners = &runnerCalls{
		id: cfg.ID, ctx: m.life.context, options: cfg.Jobs, running: &running{}, jobs: m.jobs, sinks: m.sinks, bus: m.bus, log: m.log,
		traces: traces{cfg.ID, cfg.Tracer}, rateLimitedLog: m.refusals, sdb: func() fn.SDB { return m.userRunners.SDBOfRunners() },
	}
	if m.replicated != nil {
		m.clusterJobs = newClusterJobs(&clusterJobs{
			id: cfg.ID, opts: cfg.Opts, records: m.replicated.records, cluster: m.cluster, calls: m.runners, bus: m.bus, log: m.log,
		})
	}
	m.states = &jobStates{queue: m.queue, jobs: m.jobs, cluster: m.cluster, bus: m.bus, masterID: cfg.MasterID, log: m.log, rateLimitedLog: m.refusals}
	if err := m.states.load(); err != nil {
		m.log.Error("cannot read queued jobs", "err", err)
	}
	if err := m.stockJobs.Protect(); err != nil {
		m.log.Warn("job database is readable by other users", "err", err)
	}
	// A shared directory contains these files already.
	hot := m.cohabitation.shared
	m.stock = sinks.NewStockFiles(m.stockJobs,
		func() bool { return (m.settings.options().JobCacheForStock || hot()) && !sharesDir(m.cluster) },
		func() bool {
			return (m.settings.options().JobCacheFiles || hot()) && cfg.Jobs.JobCache && !sharesDir(m.cluster)
		}, m.log)
	if err := os.MkdirAll(cfg.Events.SockDir, 0o755); err != nil {
		return fmt.Errorf("cannot make sock_dir: %w", err)
	}
	if m.eventIPC, err = event.Listen(m.bus, cfg.Events.Sockets(), cfg.Events.Options, m.log); err != nil {
		return err
	}
	if cfg.HasSyndic {
		m.eventIPC.KeepReturns()
	}
	return configure(m)
}

func (m *Master) bindPublishers() error {
	current := func() *channel.PublishServer { return m.publish }
	identify := channel.Identifier(current, acceptedKeys{m.keys}, m.log)
	m.addresses = &addresses{guests: newGuests()}
	m.beacons = openBeaconEvents(m.own.dir, m.lastRuns.keep, time.Now(), m.log)
	for _, l := range m.cfg.Listen {
		o := l.Options
		o.Guests = m.addresses.guests
		o.Syndics, o.Heartbeat, o.Identify = m.cfg.Options.OrderMasters, m.cfg.Options.Heartbeat, identify
		if l.Transport.Traits().Registers && o.Syndics {
			o.Filter = false // the minions of a syndic are unknown here
		}
		p, err := l.Transport.ListenPublish(l.Publish, o)
		if err != nil {
			return fmt.Errorf("publish_port: %w", err)
		}
		m.publishers = append(m.publishers, p)
	}
	return nil
}

// wireServices builds the services that publish.
func (m *Master) wireServices() (err error) {
	cfg := &m.cfg
	if m.cluster != nil {
		m.publish, err = channel.NewSharedPublishServer(cfg.Publish, m.identity, m.publishers, m.cluster.Secrets().AES.Current)
	} else {
		m.publish, err = channel.NewPublishServer(cfg.Publish, m.identity, m.publishers)
	}
	if err != nil {
		return err
	}
	m.presence = &presence{
		id: cfg.ID, publishers: m.publishers, cluster: m.cluster, bus: m.bus, ctx: m.life.context, accepted: m.keys.Accepted, data: m.targets.minionData,
		now: time.Now,
	}
	m.loads = newLoads(&loads{id: cfg.ID, began: m.began, cluster: m.cluster, revision: m.revisions.current,
		requests: func() metrics.Counts { return m.router.all(m.requests.SignIns()) }})
	m.reports = &connectionReports{publishKey: m.publish.AES, cluster: m.cluster, moves: openPastMoves(m.own.dir, m.lastRuns.keep, m.log)}
	m.standbyJobs = &standbyJobs{
		id: cfg.ID, settings: m.settings, cluster: m.cluster, key: m.identity.Key, queue: m.queue, jobs: m.jobs, expired: cfg.Jobs.Expired,
		targets: m.targets,
		sinks:   m.sinks, stock: m.stock, background: &m.background, slots: newSlots(recordSlots, recordShare),
		rateLimitedLog: ratelimit.NewLog(m.log, 10, 10*time.Second),
	}
	m.reports.standbyJobs = m.standbyJobs.offered
	m.reconnects = &reconnects{}
	if m.cluster != nil {
		stock := func(id string) bool { return len(m.queue.mute([]string{id})) > 0 }
		if err := m.reconnects.keep(m.own.dir, stock, m.pending.rateLimitedLog); err != nil {
			m.log.Warn("cannot read which stock minions signed in; jobs of the last minute may be published to them again", "err", err)
		}
	}
	m.redelivery = &redelivery{
		states: m.states, publishers: m.publishers, addresses: m.addresses, reconnects: m.reconnects, cluster: m.cluster, server: m.publish, log: m.log,
	}
	if cfg.Options.OrderMasters {
		m.syndics = openSyndics(cfg.CacheDir, m.log)
		m.syndics.below = &below{
			settings: m.settings, limited: m.refusals,
			accepted: func(id string) bool { _, err := m.keys.AcceptedKey(id); return salt.KindOf(err) != salt.NotFound },
		}
		m.queue.below = true
	}
	m.departures = &departures{publishers: m.publishers, brine: m.queue.brine, now: time.Now, path: filepath.Join(m.own.dir, "departures")}
	if m.cluster != nil {
		m.departures.others = clusterDepartures{m.cluster}
		m.approvals.ask = askMember(m.life.context, m.cluster)
	}
	if err := m.departures.load(); err != nil {
		m.log.Warn("cannot read which minions were connected", "err", err)
	}
	m.publisher = &publisher{
		masterID: cfg.MasterID, settings: m.settings, targets: m.targets, keep: cfg.Jobs.Keep(), revision: m.revisions.current, jobs: m.jobs, sinks: m.sinks,
		stock: m.stock, bus: m.bus, queue: m.queue, redelivery: m.redelivery, cluster: m.cluster, server: m.publish, reports: m.reports, mint: salt.NewJID,
		departures: m.departures, ctx: m.life.context,
		functions: m.functions, syndics: m.syndics, runs: m.lastRuns,
		traces: traces{cfg.ID, cfg.Tracer}, log: m.log,
	}
	m.useJIDSlot()
	m.rotation = &keyRotation{
		id: cfg.ID, cacheDir: cfg.CacheDir, settings: m.settings, replace: m.publish.Rotate, publisher: m.publisher, bus: m.bus, log: m.log,
	}
	m.files = &fileUpdates{ctx: m.life.context, settings: m.settings, events: cfg.Files.Events, bus: m.bus, cluster: m.cluster, log: m.log}
	m.data = &minionData{
		ctx: m.life.context, settings: m.settings, targets: m.targets, cache: m.cache, refuses: m.revisions.refuses, bus: m.bus, keys: m.keyBook(),
		forget: func(id string) { m.requests.Forget(id) }, log: m.log, rateLimitedLog: m.refusals,
	}
	m.wheels = &wheelCalls{id: cfg.ID, ctx: m.life.context, settings: m.settings, keys: m.keyBook(), bus: m.bus, log: m.log}
	m.inside = &insideCalls{
		options: cfg.Client, opts: cfg.Opts, publisher: m.publisher, runners: m.runners, wheels: m.wheels, recorder: m.recorder, bus: m.bus,
		background: &m.background, log: m.log,
	}
	if m.cluster != nil {
		if len(cfg.Options.HotMasters) > 0 {
			return salt.Errorf(salt.Invalid, "hot_masters is for masters that are no cluster: remove it, or cluster_id and cluster_peers")
		}
		m.rotation.replace = m.cluster.Rotate
		m.peerJobs = &peerJobs{
			id: cfg.ID, masterID: cfg.MasterID, cacheDir: cfg.CacheDir, cluster: m.cluster, jobs: m.jobs, states: m.states, publisher: m.publisher,
			server: m.publish, stock: m.stock, runs: m.lastRuns, bus: m.bus, copies: m.copies, log: m.log,
		}
		m.health = &health{
			id: cfg.ID, pkiDir: cfg.PKIDir, cacheDir: cfg.CacheDir, keyDir: keyDir(cfg), options: cfg.Cluster, settings: m.settings, cluster: m.cluster,
			presence: m.presence, reports: m.reports, replicated: m.replicated,
		}
	}
	return nil
}

// linkHotMasters links this master with those of the option hot_masters.
func (m *Master) linkHotMasters() error {
	o := &m.cfg.Options
	if len(o.HotMasters) == 0 {
		return nil
	}
	first := m.cfg.Listen[0]
	port := cmp.Or(requestPorts(m.cfg.Listen)[first.Transport.Name()], 4506)
	conf, err := transports.ClientTLS(first.Transport.Name(), m.cfg.SSL)
	if err != nil {
		return err
	}
	m.hot = &hotMasters{
		id: m.cfg.ID, boot: hotlink.NewBoot(), began: m.began, presence: m.presence, reports: m.reports, keys: m.keys, hashType: o.HashType,
		runs: m.lastRuns, saved: m.saved, loads: m.loads,
		settings: m.settings, wheels: m.wheels, recorder: m.recorder, audits: audits{Log: m.audit, store: m.console}, approval: m.approvals,
		log: ratelimit.NewLog(m.log, 10, time.Minute),
	}
	m.approvals.ask, m.approvals.want = m.hot.askApproval, m.hot.want
	return m.hot.link(o.HotMasters, func(entry string) transport.Requester {
		return first.Transport.NewRequester(hotAddress(entry, port), transport.DialOptions{TLS: conf, MaxMessage: hotlink.MaxMessage + 1024, DialTimeout: hotTime})
	}, m.identity.Key())
}

// useJIDSlot makes this master create job ids that differ from those of the
// masters it works with. Hot masters without a cluster do not know each other: the
// hashes of their ids collide with a probability of one in salt.JIDSlots.
func (m *Master) useJIDSlot() {
	var all []string
	if m.cluster != nil {
		for _, member := range m.cluster.Members() {
			all = append(all, member.ID)
		}
	}
	salt.UseJIDSlot(salt.JIDSlot(m.cfg.ID, all))
}

func (m *Master) keyBook() keyBook { return keyBook{m.keys, m.decisions.Note} }

// bindChannel builds the server that signs minions in and answers requests.
func (m *Master) bindChannel() error {
	sessions, err := channel.NewSessions(m.own.sessions(m.cfg.CacheDir), m.cfg.Options.PublishSession)
	if err != nil {
		return err
	}
	switch {
	case isolated(m.cluster):
		if err := deriveSessions(sessions, m.cluster, m.keys); err != nil {
			return err
		}
	case !sharesDir(m.cluster):
		sessions.DistrustOld()
	}
	port := 0 // port of the first transport, announced to minions
	if a, ok := m.publishers[0].Addr().(*net.TCPAddr); ok {
		port = a.Port
	}
	auth := channel.NewAuthenticator(m.identity, m.keyBook(),
		admission{m.settings, m.keys, func() map[string]bool { return m.reports.commanded(m.presence.current()) }, m.pending}, sessions,
		func() channel.Publications {
			return channel.Publications{Key: m.publish.AES(), Port: port, Signed: m.cfg.Publish.SignPubMessages}
		}, m.signedIn, m.log)
	if err := m.linkHotMasters(); err != nil {
		return err
	}
	identify := func(load *value.Dict) *caller { return m.access.identify(m.life.context(), load) }
	h := m.handlers()
	m.returned, m.router = h.returns, newRouter(h, m.addresses.asked, identify, &m.background)
	m.requests = channel.NewServer(m.settings.channelOptions, acceptedKeys{m.keys}, sessions, auth, m.router, m.log)
	if m.cluster != nil {
		m.requests.TellSeen()
	}
	return nil
}

// handlers builds the request handlers.
func (m *Master) handlers() handlers {
	cfg := &m.cfg
	limited := func() *ratelimit.Log { return ratelimit.NewLog(m.log, 10, 10*time.Second) }
	m.peers = &peers{
		ctx: m.life.context, cacheDir: cfg.CacheDir, user: cfg.User, opts: cfg.Opts, settings: m.settings, targets: m.targets, publisher: m.publisher,
		runners: m.runners, jobs: m.jobs, bus: m.bus, background: &m.background, log: m.log, rateLimitedLog: limited(), slots: newSlots(peerSlots, peerShare),
	}
	theRuns := &runs{
		access: m.access, recorder: m.recorder, calls: m.runners, works: m.clusterJobs, bus: m.bus, background: &m.background, opts: cfg.Opts,
		rateLimitedLog: m.refusals,
	}
	return handlers{
		returns: &returns{
			settings: m.settings, rules: &returnRules{m.settings, m.queue, m.jobs}, jobs: m.jobs, bus: m.bus, queue: m.queue, sinks: m.sinks, stock: m.stock,
			standby: m.standbyJobs, log: m.log, rateLimitedLog: limited(), own: quota{now: time.Now}, functions: m.functions, syndics: m.syndics,
			runs: m.lastRuns, traces: traces{m.cfg.ID, m.cfg.Tracer}, repeat: m.eventIPC.Repeat,
		},
		events: &events{
			settings: m.settings, bus: m.bus, cluster: m.cluster, queue: m.queue, addresses: m.addresses, beacons: m.beacons, syndics: m.syndics, jobs: m.jobs,
			log: m.log, refused: limited(),
		},
		data: m.data,
		files: &fileRoutes{
			cacheDir: cfg.CacheDir, ctx: m.life.context, settings: m.settings, templates: m.templates, refuses: m.revisions.refuses, background: &m.background,
			queue: filequota.New(filequota.Bytes), log: m.log, rateLimitedLog: m.refusals,
		},
		queue: &queueRequests{id: cfg.ID, states: m.states, access: m.access},
		publish: &commands{access: m.access, recorder: m.recorder, jobs: m.jobs, publisher: m.publisher, log: m.log,
			approvals: m.approvals, rateLimitedLog: m.refusals},
		runs: theRuns,
		looks: &looks{
			id: cfg.ID, ctx: m.life.context, access: m.access, registry: func() *fn.Registry { return m.runners.registry }, opts: cfg.Opts,
			approval: m.approvals, runs: theRuns,
		},
		wheels:  &wheels{access: m.access, recorder: m.recorder, calls: m.wheels, rateLimitedLog: m.refusals},
		logins:  &logins{ctx: m.life.context, settings: m.settings, tokens: m.tokens, recorder: m.recorder, log: m.log},
		peers:   m.peers,
		reports: m.reports,
		standby: m.standbyJobs,
		hot:     m.hot,
	}
}

// signedIn fires the event of a sign-in.
func (m *Master) signedIn(e channel.AuthEvent) {
	m.signIns.count(e.Act)
	if e.Act == "pend" {
		m.pending.added()
	}
	if e.Act == "accept" {
		tellPeers(m.cluster, cluster.NoteSignedIn, e.ID)
		m.reconnects.signedIn(e.ID, time.Now())
	}
	if !m.settings.options().AuthEvents {
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

// wireFunctions builds the functions of the master: runners, wheel functions,
// reactions and event returners.
func (m *Master) wireFunctions() (err error) {
	m.userRunners = userModules(&m.cfg, usermodules.RunnerKinds, m.templates.call, runnersServe(m), m.log)
	if m.runners.registry, err = m.newRunners(); err != nil {
		return err
	}
	if m.wheels.registry, err = newWheels(wheel.Deps{
		Keys: m.keys, HashType: m.cfg.Options.HashType, KeySize: m.cfg.Options.Keysize, Connected: m.presence.connected,
		Hot: m.hot.wheelKeys(),
	}, m.bus, m.cache, m.settings, m.rotation.rotateOrLog); err != nil {
		return err
	}
	m.wheels.registry.Attach(m.userRunners.Wheels())
	if m.reactor, err = newReactor(m.cfg.Reactor, m.templates, m.inside, m.cluster); err != nil {
		return err
	}
	m.returners = sinks.NewEventReturners(m.cfg.EventReturn, m.sinkConfig(), m.bus, m.log)
	return nil
}

// ownRunners returns a function that returns the runners once they are built.
func ownRunners(m *Master) func() *fn.Registry {
	return func() *fn.Registry { return m.runners.registry }
}

// inProcess returns a client that commands minions without sockets.
func inProcess(m *Master) *client.Client {
	here := &client.InProcess{Publish: m.publisher.publish, Events: m.bus, User: "root"}
	return client.New(m.cfg.Client, value.Str(m.cfg.Opts.At("conf_file")), here, here, m.log)
}

// runEngines runs the engines of the option engines until ctx ends. The option reactor needs no
// engine here.
func runEngines(ctx context.Context, m *Master) {
	c := modulesConfig(&m.cfg, usermodules.EngineKinds, m.templates.call, runnersServe(m), m.log)
	c.One, c.Options.Timeout = true, 0
	e := usermodules.Engines{
		List: slices.DeleteFunc(usermodules.ParseEngines(m.cfg.Options.Engines), func(e usermodules.EngineConfig) bool { return e.Module == "reactor" }),
		Open: func() *usermodules.Modules { return usermodules.New(c) }, Fetch: "salt-run", Log: m.log,
	}
	e.Run(ctx)
}

// runnersServe is what runners and engines in Python have of a master.
func runnersServe(m *Master) serves {
	return serves{
		wheel:     ownWheels{m.wheels, func() within { return within{m.inside, processUser(), "runner"} }},
		runners:   ownRunners(m),
		bus:       m.bus,
		commander: inProcess(m),
	}
}

// newRunners builds the runners. They command minions like any command line,
// but without sockets.
func (m *Master) newRunners() (*fn.Registry, error) {
	d := runners.Deps{
		Jobs: runners.JobStores{Jobs: m.sinks.History(), Returners: m.sinks, Database: ownJobs(m.own.dir, m.jobs, m.stockJobs),
			Running: m.runners.running.list},
		Keys:    m.keys,
		Cache:   m.cache,
		Minions: runnerMinions{m.presence, m.reports},
		Console: runners.Console{States: m.lastRuns, Hot: m.hot.shown(), Saved: m.hot.saving(m.saved), History: pastRuns{m.lastRuns.past, m.console},
			Stores: (&storeUsage{
				id: m.cfg.ID, cacheDir: m.cfg.CacheDir, own: m.own.dir, jobs: m.jobs, keep: m.cfg.Jobs.Keep(), sinks: m.sinks, console: m.console, runs: m.lastRuns,
			}).now,
			KeyOf: func(id string) string {
				pub, err := m.keys.Read(keystore.Accepted, id)
				if err != nil {
					return ""
				}
				return crypt.Fingerprint([]byte(pub), m.cfg.Options.HashType)
			},
			Beacons:   m.beacons.of,
			Moves:     m.reports.moves.of,
			Loads:     m.loads.all,
			Functions: (&declared{grains: &ownGrains{id: m.cfg.ID, ctx: m.life.context, log: m.log}}).functions},
		Targets: m.targets,
		Client:  inProcess(m),
		Bus:     m.bus,
		Serves:  runnerServes{m.settings, m.files, m.templates, m.rescanModules},
		Wheels:  func() *value.Dict { return m.wheels.registry.Docs() },
		Audits:  audits{m.audit, m.cfg.ID, m.cluster, m.hot.asker(), m.console},
		Here: (&orchestra{
			id: m.cfg.ID, cacheDir: m.cfg.CacheDir, ctx: m.life.context, settings: m.settings, templates: m.templates, bus: m.bus, log: m.log,
			runners: func() *fn.Registry { return m.runners.registry }, orders: within{m.inside, processUser(), "orchestration"}.client,
		}).Call,
		Mine: m.data.mineFor,
		Reactor: func() runners.Reactor {
			if m.reactor == nil {
				return nil // not an interface with a nil pointer
			}
			return m.reactor
		},
		Tokens: runnerTokens{m.settings, m.tokens, m.access},
		PKIDir: m.cfg.PKIDir,
	}
	if m.hub != nil {
		d.Jobs.Sites = m.hub
	}
	if m.cluster != nil {
		d.Cluster = &runners.Clustering{Cluster: m.cluster, ID: m.cfg.ID, Voting: m.cluster.Voting, Roots: m.revisions,
			Records: clusterRecords{id: m.cfg.ID, work: m.clusterJobs, replicated: m.replicated, comparison: m.comparison, health: m.health,
				end: func() { m.life.end() }}} // Run sets end later
	}
	all, err := fn.NewRegistry(nil, runners.New(d)...)
	if err != nil {
		return nil, err
	}
	all.Attach(m.userRunners.Runners())
	return all, nil
}

const (
	// maxRequest bounds one request; Brine minions send less.
	maxRequest = 64 << 20
	// maxUnfinished bounds the bytes of incomplete requests over all peers and
	// transports: unauthenticated peers can send partial requests. A quarter is for
	// small requests; the rest has room for one of the largest, which takes up to
	// twice its size while its buffer grows.
	maxUnfinished = 3 * maxRequest
)

// bindServers binds the request ports. It runs last, so that everything is ready when a peer
// connects.
func (m *Master) bindServers() error {
	budget := netserve.NewBudget(maxUnfinished)
	for _, l := range m.cfg.Listen {
		o := l.Options
		o.MaxMessage, o.Budget, o.Guests = maxRequest, budget, m.addresses.guests
		o.Heartbeat = m.cfg.Options.Heartbeat
		s, err := l.Transport.ListenRequests(l.Request, o)
		if err != nil {
			return fmt.Errorf("ret_port: %w", err)
		}
		m.servers = append(m.servers, s)
		q, err := askItself(&l, s, m.cfg.SSL)
		if err != nil {
			return err
		}
		m.asks = append(m.asks, q)
	}
	// Minions without a configured master find this one by discovery. A failure of
	// discovery does not stop the master.
	a, ok := m.servers[0].Addr().(*net.TCPAddr)
	if o := m.cfg.Options.Discovery; o.On && ok {
		var err error
		if m.answerer, err = discovery.Listen(o, a.AddrPort(), m.log); err != nil {
			m.log.Error("discovery cannot find this master", "err", err)
		}
	}
	return nil
}

// maintenance builds the periodic work.
func (m *Master) maintenance() *maintenance {
	return &maintenance{
		keep: m.cfg.Jobs.Keep(), keepDeleted: time.Duration(m.cfg.Cluster.KeepDeleted) * time.Second, interval: m.cfg.Files.Interval,
		settings: m.settings, rotation: m.rotation, states: m.states, redelivery: m.redelivery, files: m.files, presence: m.presence,
		departures: m.departures, sinks: m.sinks,
		jobs: m.jobs, stockJobs: m.stockJobs, tokens: m.tokens, saved: m.saved, approvals: m.approvals, peers: m.peers,
		minions: &minionMemory{m.keys, m.reports, m.queue, m.requests, m.lastRuns, m.hot, m.beacons, m.log},
		cluster: m.cluster, replicated: m.replicated, useJIDSlot: m.useJIDSlot,
		beat: &m.beat, log: m.log,
	}
}

// adoptJobs imports the jobs that a stock master left in cachedir.
func (m *Master) adoptJobs(ctx context.Context) error {
	s, ok := m.jobs.(*job.Store)
	if !ok {
		return nil // a master with a shared directory reads the files
	}
	n, err := job.AdoptNew(ctx, s, m.stockJobs)
	if n > 0 {
		m.log.Info("adopted jobs that a stock master left in cachedir", "jobs", n)
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("cannot adopt some jobs that a stock master left in cachedir; retrying at the next start", "err", err)
	}
	return nil
}

// runCluster communicates with the other masters until ctx ends.
func (m *Master) runCluster(ctx context.Context) error {
	c := m.cluster
	c.Queries.AnswerWith(askApproval, m.approvals.decideHere)
	if m.replicated != nil {
		c.Keyring.OnKey(m.identity.Replace)
		c.Queries.Answer(askDigest, m.comparison.digest)
		c.Queries.AnswerWith(askSums, answerSums(m.recordWatch))
		c.Queries.AnswerWith(askStage, m.revisions.answerStage)
		c.Queries.AnswerWith(askContents, m.revisions.answerContents)
		stop := m.replicated.share(ctx)
		defer stop()
		if s, ok := m.jobs.(*job.Store); ok {
			c.Feeds.Share(streamJobs, s.Stream())
		}
		var wait sync.WaitGroup
		wait.Go(func() { m.revisions.run(ctx) })
		wait.Go(func() { m.clusterJobs.run(m.life.context()) })
		wait.Go(func() { m.recordWatch.Run(ctx) })
		if m.jobWatch != nil {
			c.Queries.AnswerWith(askJobSums, answerSums(m.jobWatch))
			wait.Go(func() { m.jobWatch.Run(ctx) })
		}
		if m.copies != nil {
			c.Queries.AnswerWith(askReturns, answerContents(m.copies, m.log))
			c.Queries.AnswerPeer(askRelease, answerRelease(m.copies))
			wait.Go(func() { m.copies.Run(ctx) })
		}
		defer wait.Wait()
	}
	c.Describe(func() *value.Dict {
		d := value.DictOf("version", salt.Version, "brine", salt.BrineVersion, "since", m.began.UTC().Format(time.RFC3339),
			"minions", int64(len(m.presence.current())), "files", orNil(shortID(m.revisions.current())))
		if m.store != nil {
			d.Set("store", storeStatus(m.store, time.Now()))
		}
		if m.recordWatch != nil {
			d.Set("differs", int64(differing(m.recordWatch, m.jobWatch)))
		}
		if m.copies != nil {
			d.Set("returns", copiesStatus(m.copies))
		}
		if why := c.Feeds.Unstored(); len(why) > 0 {
			d.Set("unstored", unstored(why))
		}
		return d
	})
	c.Queries.AnswerWith(askHealth, m.health.own)
	c.Queries.AnswerWith(askLoad, m.loads.answer)
	c.Queries.AnswerWith(askAudit, audits{Log: m.audit, store: m.console}.answer)
	c.Queries.AnswerWith(askStandings, m.reports.answer)
	c.Queries.AnswerWith(askFetched, m.files.toldFetched)
	c.Queries.AnswerWith(askDeparted, m.departures.answer)
	seen := newSeenTeller(c, m.requests, m.cfg.ID)
	c.Queries.AnswerWith(askSeen, seen.take)
	within, cancel := context.WithCancel(ctx)
	var aside sync.WaitGroup
	aside.Go(func() { seen.run(within) })
	defer aside.Wait()
	defer cancel()
	defer m.bus.Handle(c.Relay.Event)()
	always := []string{tagPresent} // the next leader continues from these
	c.Relay.Want(always)
	m.eventIPC.OnReaders(func(n int) {
		if n > 0 {
			c.Relay.Want([]string{""})
		} else {
			c.Relay.Want(always)
		}
	})
	return c.Run(within, &clusterHost{
		cluster: c, bus: m.bus, queue: m.queue, presence: m.presence, reconnects: m.reconnects, jobs: m.peerJobs, rotated: func() { m.publish.AES() },
		log: m.log,
	})
}
