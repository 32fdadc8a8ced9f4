// Package cluster joins masters into a cluster: they share a key pair and an AES key, which minions know, and inform each other of jobs, of
// events with listeners on other masters, and of connected minions.
//
// With stock masters the protocol is Salt's (package saltwire): each event of one goes to all others, without acknowledgement. A Brine master marks
// its first message with a field that stock masters ignore. Two Brine masters then use their own connections on the same port (link.go):
// mutually authenticated, ordered, acknowledged, resumed after interruptions, bounded. These carry each job once, and only those events
// that have listeners on the other end.
//
// Files (keys, jobs, minion data) are not sent: all masters see them in the shared directory. Without one (cluster_isolated_filesystem),
// they are replicated over the same connections as streams of changes (package feed), and a master becomes a member by joining (package memberauth).
package cluster

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/filelease"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/members"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// Cluster is one master's part of a cluster. It creates the parts, some of which the master uses directly, and runs them.
type Cluster struct {
	Relay   *relay
	Queries *queries
	Feeds   *feeds
	Voting  *voting
	Keyring *keyring
	Removal *removal
	Store   *storeKeys
	inbound *inbound
	Paths   members.Paths

	cfg            Config
	log            *slog.Logger
	rateLimitedLog *limitlog.Log
	local          *local
	secrets        *keys.Secrets
	identity       *wire.Identity // nil with a shared directory
	trust          *trust
	peers          *peerSet
	files          *members.Files
	list           *members.List  // for minions
	share          *members.Share // of the minions
	leader         *filelease.Lease
	leads          atomic.Bool

	listener net.Listener
	conns    wire.ConnSet

	// rotating is held while a new key of the cluster is created and distributed: of two created at once, one private half would be lost.
	rotating  sync.Mutex
	following atomic.Bool
	legacy    []byte // see signSessions
	founding  bool   // this process created the cluster, or has joined it

	foreign foreign
	looking atomic.Bool
}

// leaseTime is how long an unreachable leader keeps its role.
const leaseTime = 15 * time.Second

// New loads or creates the keys in the shared directory, and checks with the reachable peers that their settings agree. Close or Run must
// follow.
func New(cfg Config, log *slog.Logger) (*Cluster, error) {
	founding := false
	var err error
	if cfg.Options.Isolated {
		if founding, err = establish(&cfg, log); err != nil {
			return nil, err
		}
	}
	if err := renamed(&cfg); err != nil {
		return nil, err
	}
	secrets, err := keys.OpenSecrets(cfg.Options.PKIDir, cfg.ID, cfg.Own, cfg.OwnPub, cfg.Options.KeyPass, cfg.Keysize, log)
	if err != nil {
		return nil, err
	}
	var identity *wire.Identity
	if cfg.Options.Isolated {
		if identity, err = wire.NewIdentity(cfg.ID, cfg.Options.ID, secrets.Key); err != nil {
			return nil, err
		}
	}
	c := assemble(cfg, secrets, identity, log)
	c.founding = founding
	if c.Relay.cipher, err = crypt.NewCrypticle(c.local.aes); err != nil {
		return nil, err
	}
	if err := c.Keyring.openKeyring(); err != nil {
		return nil, err
	}
	if cfg.Options.Isolated {
		c.Queries.AnswerWith(askKey, c.Keyring.answerKey)
		identity.Resign(c.Keyring.Key(), c.Keyring.ring.Load().Rotation.Endorsed)
		if c.legacy, err = c.signSessions(); err != nil {
			return nil, err
		}
	}
	dir, err := OwnDir(cfg.CacheDir, cfg.ID)
	if err != nil {
		return nil, err
	}
	if c.inbound.token, err = newToken(dir); err != nil {
		return nil, err
	}
	if err := c.Voting.vote(dir); err != nil {
		return nil, err
	}
	complete := false
	defer func() {
		if !complete {
			c.Voting.close()
		}
	}()
	if err := c.stand(); err != nil {
		return nil, err
	}
	if cfg.Options.Isolated {
		if err := os.MkdirAll(c.Paths.RemovedDir(), 0o755); err != nil {
			return nil, salt.Errorf(salt.Unavailable, "cannot make a directory of the cluster: %w", err)
		}
	}
	c.leader = filelease.New(cfg.Options.PKIDir, ".brine-leader", cfg.ID, leaseTime)
	if cfg.Options.Isolated {
		c.peers.takeUp()
	} else {
		for _, id := range cfg.Options.Peers {
			c.peers.adopt(id)
		}
	}
	if c.founding {
		if err := c.agreeSessions(true); err != nil {
			return nil, err
		}
	}
	if cfg.Store != nil {
		ctx, cancel := context.WithTimeout(context.Background(), keysTime)
		err := c.Store.share(ctx)
		cancel()
		switch {
		case salt.KindOf(err) == salt.Invalid:
			return nil, err
		case err != nil:
			log.Warn("continuing without the store of record, which is unreachable", "err", err)
		}
	}
	if err := unshared(c.local); err != nil {
		return nil, err
	}
	if err := c.agree(); err != nil {
		return nil, err
	}
	if !cfg.Options.Isolated {
		if err := announce(cfg.Options.PKIDir, cfg.ID); err != nil {
			return nil, err
		}
	}
	c.listener, err = net.Listen("tcp", net.JoinHostPort(cfg.Listen, strconv.Itoa(cfg.Options.Port)))
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cluster_pool_port: %w", err)
	}
	complete = true
	return c, nil
}

// assemble connects the parts of a cluster. It reads and writes nothing.
func assemble(cfg Config, secrets *keys.Secrets, identity *wire.Identity, log *slog.Logger) *Cluster {
	limited, dir := limitlog.New(log), members.Paths(cfg.Options.PKIDir)
	c := &Cluster{cfg: cfg, log: log, rateLimitedLog: limited, secrets: secrets, identity: identity, Paths: dir}
	o := &c.cfg.Options
	c.peers = newPeerSet(cfg.ID, dir.PeersDir(), limited, func(id string) *peer { return newPeer(c.local, id) })
	c.files = &members.Files{Paths: dir, Log: limited}
	c.list = &members.List{Files: c.files, Cluster: o.ID, Key: func() *crypt.PrivateKey { return c.Keyring.Key() }, InCharge: c.inCharge}
	c.share = &members.Share{Files: c.files, ID: cfg.ID, Weight: o.weight(), Shed: o.ShedLoad, Busy: cfg.Busy, Log: log}
	c.Queries = &queries{log: log, peers: c.peers, answers: map[string]func(string, *value.Dict) *value.Dict{}}
	c.Keyring = &keyring{
		cfg: &c.cfg, log: log, rateLimitedLog: limited, secrets: secrets, identity: identity, peers: c.peers, queries: c.Queries, list: c.list,
		restate: c.restate,
	}
	c.trust = &trust{
		cluster: o.ID, pkiDir: o.PKIDir, cacheDir: cfg.CacheDir, isolated: o.Isolated, secrets: secrets, ring: &c.Keyring.ring, files: c.files,
		peers: c.peers,
	}
	c.Relay = &relay{cfg: &c.cfg, log: log, secrets: secrets, conns: &c.conns, peers: c.peers, origins: map[string]string{}}
	c.Feeds = &feeds{rateLimitedLog: limited, peers: c.peers, store: cfg.Store, streams: map[string]oplog.Stream{}}
	c.Voting = &voting{
		cfg: &c.cfg, log: log, rateLimitedLog: limited, secrets: secrets, identity: identity, peers: c.peers, trust: c.trust, queries: c.Queries, paths: dir,
	}
	c.Store = &storeKeys{cfg: &c.cfg, rateLimitedLog: limited, secrets: secrets, keyring: c.Keyring, files: c.files}
	c.Removal = &removal{cfg: &c.cfg, secrets: secrets, files: c.files, peers: c.peers}
	c.inbound = &inbound{
		traffic: &traffic{}, cfg: &c.cfg, log: log, rateLimitedLog: limited, conns: &c.conns, secrets: secrets, identity: identity,
		peers: c.peers, trust: c.trust, clusterKey: &c.Keyring.ring, inc: wire.Nonce(),
	}
	c.local = &local{
		relay: c.Relay, feeds: c.Feeds, queries: c.Queries, removal: c.Removal, traffic: c.inbound.traffic, cfg: &c.cfg, log: log, rateLimitedLog: limited,
		conns:   &c.conns,
		secrets: secrets, identity: identity, trust: c.trust, peers: c.peers, self: c.inbound.self, aes: crypt.NewKey(), began: time.Now(),
	}
	return c
}

// Secrets returns the keys of the cluster.
func (c *Cluster) Secrets() *keys.Secrets { return c.secrets }

// Close releases what New acquired, if Run was not called.
func (c *Cluster) Close() error { return errors.Join(c.Voting.close(), c.listener.Close()) }

// Run communicates with the peers until ctx ends.
func (c *Cluster) Run(ctx context.Context, host Host) error {
	c.local.host = host
	var wg sync.WaitGroup
	defer wg.Wait()
	defer os.Remove(markPath(c.cfg.Options.PKIDir, c.cfg.ID))
	defer c.conns.CloseAll()
	stop := context.AfterFunc(ctx, func() { c.listener.Close(); c.conns.CloseAll() })
	defer stop()
	c.peers.begin(func(p *peer) { wg.Go(func() { p.run(ctx) }) })
	wg.Go(func() { c.Voting.run(ctx) })
	if c.cfg.Store != nil {
		wg.Go(func() { c.Store.run(ctx) })
		wg.Go(func() { c.cfg.Store.Run(ctx) })
	}
	tended := make(chan struct{})
	go func() { defer close(tended); c.tend(ctx) }()
	defer func() { <-tended }() // tend may start peers: wait for it
	for {
		conn, err := c.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return salt.Errorf(salt.Internal, "the port for other masters was closed: %w", err)
			}
			c.rateLimitedLog.Warn("accept", "cannot accept a connection of another master", "err", err)
			wait.Sleep(ctx, 100*time.Millisecond)
			continue
		}
		if !c.conns.Add(conn, true) {
			c.rateLimitedLog.Warn("too many unauthenticated",
				"connections refused: too many unauthenticated connections are open; only masters should reach cluster_pool_port", "addr", conn.RemoteAddr())
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer c.conns.Remove(conn)
			c.inbound.serve(ctx, conn)
		})
	}
}

// tend does the periodic work: the leader replaces the AES key when it is too old, and peers whose key was deleted are dropped.
func (c *Cluster) tend(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			if c.cfg.Options.Isolated {
				return
			}
			if err := c.leader.Release(); err != nil {
				c.log.Debug("cannot release the leader lease", "err", err)
			}
			return
		case <-tick.C:
		}
		if c.cfg.Options.Isolated {
			c.peers.takeUp()
			if err := c.restate(); err != nil {
				c.rateLimitedLog.Warn("own file", "the other masters may not know what this version can do", "err", err)
			}
			if c.following.CompareAndSwap(false, true) { // it may wait for other masters
				go func() {
					defer c.following.Store(false)
					c.Keyring.followKey(ctx)
				}()
			}
			if err := c.agreeSessions(c.peers.first()); err != nil {
				c.rateLimitedLog.Warn("sessions", "cannot create the secret of session keys", "err", err)
			}
		}
		if c.cfg.Options.Isolated && turn%lookEvery == 0 && c.looking.CompareAndSwap(false, true) {
			go func() {
				defer c.looking.Store(false)
				for entry, why := range c.foreign.look(&c.cfg, c.peers, c.Keyring.ring.Load()) {
					c.log.Error("this master does not work with a master that cluster_peers names: "+why+"; "+ForeignFix, "peer", entry)
					c.local.host.Relay("", salt.Tag("cluster", "refused"), value.DictOf("peer", entry, "reason", why))
				}
			}()
		}
		for _, p := range c.peers.all() {
			p.look()
			if p.cutOff() && !c.cfg.Options.Isolated {
				// The peer may be alive and accept jobs.
				c.local.host.Lost(p.id)
			}
		}
		if turn%3 == 0 {
			c.lead()
		}
		if turn%weighEvery == 0 {
			c.share.Weigh(time.Now())
		}
		if err := c.list.Refresh(time.Now()); err != nil {
			c.rateLimitedLog.Warn("roster", "cannot update the list of masters for minions", "err", err)
		}
	}
}

// lookEvery is the interval of looks at masters that are in another cluster, in rounds of tend.
const lookEvery = 10

// ForeignFix is the way out of two clusters that were to be one.
const ForeignFix = "stop the masters of one of the two clusters, remove cluster_pki_dir and cachedir there, and start them: they join the other one; or " +
	"correct cluster_peers"

// Foreign returns why masters that cluster_peers names do not belong to this cluster, by the entry there.
func (c *Cluster) Foreign() map[string]string {
	c.foreign.mu.Lock()
	defer c.foreign.mu.Unlock()
	return maps.Clone(c.foreign.reasons)
}

// weighEvery is the interval of checks of the machine's load, in rounds of tend.
const weighEvery = 10

// lead tries to become the leader. The leader replaces the AES key when it is too old.
func (c *Cluster) lead() {
	token, leads := c.Voting.Once()
	var err error
	if !c.cfg.Options.Isolated {
		leads, err = c.leader.Hold()
	}
	if err != nil {
		c.rateLimitedLog.Warn("lease", "cannot determine the leader of the cluster", "err", err)
	}
	c.leads.Store(leads && err == nil)
	if !leads || err != nil || c.cfg.PublishSession <= 0 {
		return
	}
	age, err := c.secrets.AES.Age(time.Now())
	if err == nil && age >= c.cfg.PublishSession {
		if now, still := c.Voting.Once(); c.Voting.once != nil && (!still || now != token) {
			return // the process may have been suspended
		}
		if err := c.Rotate(); err != nil {
			c.log.Error("cannot replace the AES key of the cluster", "err", err)
		}
	}
}

// Leads reports whether this master is the leader, which does the work that only one master may do.
func (c *Cluster) Leads() bool {
	if c.Voting.once != nil {
		_, holds := c.Voting.once.Token()
		return holds
	}
	return c.leads.Load() && (c.cfg.Options.Isolated || c.leader.Holds())
}

// inCharge reports whether this master creates the list for minions. Without a shared directory that is the reachable master with the
// lowest id, which need not be the holder of the lease.
func (c *Cluster) inCharge() bool {
	if c.cfg.Options.Isolated {
		return c.peers.first()
	}
	return c.Leads()
}

// Rotate replaces the AES key of the cluster and notifies all masters.
func (c *Cluster) Rotate() error {
	if err := c.secrets.AES.Replace(); err != nil {
		return err
	}
	c.log.Info("the AES key of the cluster was replaced")
	data := value.DictOf(tagRotate, true, "_stamp", event.Stamp(time.Now()))
	c.Relay.sendEvent(tagRotate, data, func(*peer) bool { return true })
	c.local.host.Rotated()
	return nil
}

// presentTime is the timeout for queries of connected minions.
const presentTime = 2 * time.Second

// Present returns the minions connected to other Brine masters, by master. For stock masters this is unknown.
func (c *Cluster) Present(ctx context.Context) map[string][]string {
	ctx, cancel := context.WithTimeout(ctx, presentTime)
	defer cancel()
	out := map[string][]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range c.peers.all() {
		if !p.isBrine() {
			continue
		}
		wg.Go(func() {
			d, err := p.ask(ctx, askPresent, nil)
			if err != nil {
				c.log.Debug("a peer does not report its connected minions", "peer", p.id, "err", err)
				return
			}
			var present wire.Present
			wire.View(d, &present)
			var ids []string
			for _, it := range value.Items(present.Present) {
				if id, ok := it.(string); ok && salt.CheckID(id) == nil {
					ids = append(ids, id)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			out[p.id] = ids
		})
	}
	wg.Wait()
	return out
}

// IsBrine reports whether a peer is a Brine master, as far as known.
func (c *Cluster) IsBrine(id string) bool {
	p := c.peers.all()[id]
	return p != nil && p.kind() == kindBrine
}

// Members returns the peers, sorted.
func (c *Cluster) Members() (out []Member) {
	for _, p := range c.peers.all() {
		out = append(out, p.member())
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Fresh reports whether this process created the keys of the cluster, or got them from another master or from the store of record:
// its disk had none.
func (c *Cluster) Fresh() bool { return c.founding }
