// Package cluster joins masters into a cluster: they share a key pair and an AES key, which minions know, and inform each other of jobs, of
// events with listeners on other masters, and of connected minions.
//
// With stock masters the protocol is Salt's (wire.go): each event of one goes to all others, without acknowledgement. A Brine master marks
// its first message with a field that stock masters ignore. Two Brine masters then use their own connections on the same port (link.go):
// mutually authenticated, ordered, acknowledged, resumed after interruptions, bounded. These carry each job once, and only those events
// that have listeners on the other end.
//
// Files (keys, jobs, minion data) are not sent: all masters see them in the shared directory. Without one (cluster_isolated_filesystem),
// they are replicated over the same connections as streams of changes (feed.go), and a master becomes a member by joining (join.go).
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
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
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/members"
	"brine/internal/ha/cluster/saltwire"
	"brine/internal/ha/cluster/wire"
	"brine/internal/ha/cluster/witness"
	"brine/internal/ha/lease"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/net/handshake"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// Job is a job for the minions of another master.
type Job struct {
	JID string
	// Map is the message to the minions.
	Map *value.Dict
	// Minions are its targets, nil if unknown.
	Minions []string
	// Until is when the job expires for unreachable minions.
	Until time.Time
	// From is the master that received it.
	From string
}

// Note is a small fact about a minion for all Brine masters.
type Note string

// The notes: a minion has signed in again, or has asked for missed jobs and therefore is a Brine minion.
const (
	NoteSignedIn Note = "signed_in"
	NoteSpeaks   Note = "speaks"
)

// Host is the master that a cluster belongs to. The calls are sequential for each peer, and should return quickly.
type Host interface {
	// Relay puts an event of a peer on this master's bus. Its data names the
	// peer (PeerID).
	Relay(from, tag string, data *value.Dict)
	// Job publishes a peer's job to the minions of this master.
	Job(j Job)
	// Note handles a note about a minion of another master.
	Note(n Note, minion string)
	// Present returns the minions that are connected to this master.
	Present() []string
	// Lost says that a peer does not answer (repeated every second), or that messages from it were lost: the host must look up what the
	// peer stored.
	Lost(peer string)
	// Rotated says that the AES key of the cluster may have changed.
	Rotated()
}

// Config is the configuration of a cluster.
type Config struct {
	ID       string
	Listen   string // interface
	CacheDir string
	HashType string
	Options  Options
	Own      *crypt.PrivateKey
	OwnPub   []byte // the file master.pub
	Keysize  int
	// Joins, if not nil, is called before this machine joins a cluster, to move away the state of an earlier membership.
	Joins func() error
	// Expels, if not nil, is called after a member was removed, to invalidate what it knew besides keys and secrets of the cluster.
	Expels func() error
	// Refuses, if not nil, returns why the key of the cluster must not be replaced: minions would not accept the new one.
	Refuses func() error
	// Ports are the request ports for minions, by transport.
	Ports map[string]int
	// Busy returns the busy time of this machine's processors since boot, and the total time, in the same unit; nil if unknown.
	Busy func() (busy, total int64, ok bool)
	// PublishSession is the maximum age of the AES key, 0 for no limit.
	PublishSession time.Duration
}

// Cluster is one master's part of a cluster.
type Cluster struct {
	cfg      Config
	log      *slog.Logger
	host     Host
	secrets  *keys.Secrets
	identity *wire.Identity // nil with a shared folder
	token    string
	aes      string // own key for events to stock masters
	cipher   *crypt.Crypticle
	inc      string // of this process
	leader   *filelease.Lease
	leads    atomic.Bool
	// Of the lease of a cluster without a shared directory, nil without voters.
	once      *lease.Holder
	voter     *lease.Voter // if this master is one
	witnesses map[string]*witness.Link

	listener       net.Listener
	peers          *peerSet
	trust          *trust
	conns          wire.ConnSet
	rateLimitedLog *limitlog.Log

	mu      sync.Mutex
	origins map[string]string // jid -> master
	order   []string
	early   unclaimed
	want    []string // prefixes of tags that listeners here wait for

	members.Paths
	files *members.Files
	list  *members.List  // for minions
	share *members.Share // of the minions

	// Of a cluster without a shared directory.
	streams  map[string]oplog.Stream
	answers  map[string]func(arg *value.Dict) *value.Dict
	excludes func(id string) bool // see Exclude
	// ring is the key of the cluster; switching is held while it is replaced, and onKey called then. rotating is held
	// while a new one is created and distributed: of two created at once, one private half would be lost.
	ring      atomic.Pointer[keys.Ring]
	switching sync.Mutex
	rotating  sync.Mutex
	following atomic.Bool
	onKey     func(*crypt.PrivateKey, []handshake.Endorsement)
	legacy    []byte // see signSessions
	founding  bool   // this process created the cluster, or has joined it
	began     time.Time

	// Sent and Received count the bytes to and from peers.
	Sent, Received atomic.Int64
}

// maxOrigins bounds the jobs with a recorded origin.
const maxOrigins = 20_000

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
	secrets, err := keys.OpenSecrets(cfg.Options.PKIDir, cfg.ID, cfg.Own, cfg.OwnPub, cfg.Options.KeyPass, cfg.Keysize, log)
	if err != nil {
		return nil, err
	}
	c := assemble(cfg, secrets, log)
	c.founding = founding
	if c.cipher, err = crypt.NewCrypticle(c.aes); err != nil {
		return nil, err
	}
	if err := c.openKeyring(); err != nil {
		return nil, err
	}
	if cfg.Options.Isolated {
		c.AnswerWith(askKey, c.answerKey)
		if c.identity, err = wire.NewIdentity(cfg.ID, cfg.Options.ID, c.secrets.Key); err != nil {
			return nil, err
		}
		c.identity.Resign(c.Key(), c.ring.Load().Rotation.Endorsed)
		if c.legacy, err = c.signSessions(); err != nil {
			return nil, err
		}
	}
	dir, err := OwnDir(cfg.CacheDir, cfg.ID)
	if err != nil {
		return nil, err
	}
	if c.token, err = newToken(dir); err != nil {
		return nil, err
	}
	if err := c.vote(dir); err != nil {
		return nil, err
	}
	if err := c.stand(); err != nil {
		return nil, err
	}
	if cfg.Options.Isolated {
		if err := os.MkdirAll(c.RemovedDir(), 0o755); err != nil {
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
	if err := c.unshared(); err != nil {
		return nil, err
	}
	if err := c.agree(); err != nil {
		return nil, err
	}
	if err := c.announce(); err != nil {
		return nil, err
	}
	c.listener, err = net.Listen("tcp", net.JoinHostPort(cfg.Listen, strconv.Itoa(cfg.Options.Port)))
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cluster_pool_port: %w", err)
	}
	return c, nil
}

// assemble connects the parts of a cluster. It reads and writes nothing.
func assemble(cfg Config, secrets *keys.Secrets, log *slog.Logger) *Cluster {
	c := &Cluster{
		cfg: cfg, log: log, secrets: secrets, rateLimitedLog: limitlog.New(log), Paths: members.Paths(cfg.Options.PKIDir), aes: crypt.NewKey(), inc: wire.Nonce(),
		began: time.Now(), streams: map[string]oplog.Stream{}, answers: map[string]func(*value.Dict) *value.Dict{}, origins: map[string]string{},
	}
	c.peers = newPeerSet(cfg.ID, c.PeersDir(), c.rateLimitedLog, func(id string) *peer { return newPeer(c, id) })
	c.files = &members.Files{Paths: c.Paths, Log: c.rateLimitedLog}
	c.list = &members.List{Files: c.files, Cluster: cfg.Options.ID, Key: c.Key, InCharge: c.inCharge}
	c.share = &members.Share{Files: c.files, ID: cfg.ID, Weight: cfg.Options.weight(), Shed: cfg.Options.ShedLoad, Busy: cfg.Busy, Log: log}
	c.trust = &trust{
		cluster: cfg.Options.ID, pkiDir: cfg.Options.PKIDir, cacheDir: cfg.CacheDir, isolated: cfg.Options.Isolated,
		secrets: secrets, ring: &c.ring, files: c.files, peers: c.peers,
	}
	return c
}

// Secrets returns the keys of the cluster.
func (c *Cluster) Secrets() *keys.Secrets { return c.secrets }

// Close releases what New acquired, if Run was not called.
func (c *Cluster) Close() error { return c.listener.Close() }

// Run communicates with the peers until ctx ends.
func (c *Cluster) Run(ctx context.Context, host Host) error {
	c.host = host
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.withdraw()
	defer c.conns.CloseAll()
	stop := context.AfterFunc(ctx, func() { c.listener.Close(); c.conns.CloseAll() })
	defer stop()
	c.peers.begin(func(p *peer) { wg.Go(func() { p.run(ctx) }) })
	if c.once != nil {
		wg.Go(func() { c.once.Run(ctx, c.peers.first) })
	}
	tended := make(chan struct{})
	go func() { defer close(tended); c.tend(ctx) }()
	defer func() { <-tended }() // it may start peers
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
			c.rateLimitedLog.Warn("too many unauthenticated", "connections refused: too many unauthenticated connections are open; only masters should reach cluster_pool_port", "addr", conn.RemoteAddr())
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer c.conns.Remove(conn)
			c.serve(ctx, conn)
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
			if c.following.CompareAndSwap(false, true) { // it may wait for others
				go func() {
					defer c.following.Store(false)
					c.followKey(ctx)
				}()
			}
			if err := c.agreeSessions(c.peers.first()); err != nil {
				c.rateLimitedLog.Warn("sessions", "cannot create the secret of session keys", "err", err)
			}
		}
		for _, p := range c.peers.all() {
			p.look()
			if p.cutOff() && !c.cfg.Options.Isolated {
				// It may be alive and accept jobs.
				c.host.Lost(p.id)
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

// weighEvery is the interval of checks of the machine's load, in rounds of tend.
const weighEvery = 10

// lead tries to become the leader, and does the leader's work.
func (c *Cluster) lead() {
	token, leads := c.Once()
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
		if now, still := c.Once(); c.once != nil && (!still || now != token) {
			return // the process may have been suspended
		}
		if err := c.Rotate(); err != nil {
			c.log.Error("cannot replace the AES key of the cluster", "err", err)
		}
	}
}

// Leads reports whether this master does the work of which one master is in charge.
func (c *Cluster) Leads() bool {
	if c.once != nil {
		_, holds := c.once.Token()
		return holds
	}
	return c.leads.Load()
}

// inCharge reports whether this master creates the list for minions. Without a shared directory that is the first one that can be reached,
// which need not be the holder of the lease.
func (c *Cluster) inCharge() bool {
	if c.cfg.Options.Isolated {
		return c.peers.first()
	}
	return c.Leads()
}

// tagRotate is the event that makes masters read the AES key again.
const tagRotate = "rotate_cluster_aes_key"

// Rotate replaces the AES key of the cluster and notifies all masters.
func (c *Cluster) Rotate() error {
	if err := c.secrets.AES.Replace(); err != nil {
		return err
	}
	c.log.Info("the AES key of the cluster was replaced")
	data := value.DictOf(tagRotate, true, "_stamp", event.Stamp(time.Now()))
	c.sendEvent(tagRotate, data, func(*peer) bool { return true })
	c.host.Rotated()
	return nil
}

// Origin returns the master that received a job, "" if unknown.
func (c *Cluster) Origin(jid string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origins[jid]
}

// SetOrigin records the master that received a job, and sends it the buffered events of the job.
func (c *Cluster) SetOrigin(jid, master string) {
	for _, e := range c.setOrigin(jid, master) {
		if p := c.peers.all()[master]; p != nil && p.isBrine() && !slices.Contains(e.sent, p) {
			p.out.Add(e.msg)
		}
	}
}

func (c *Cluster) setOrigin(jid, master string) []heldEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.origins[jid]; !ok {
		if len(c.order) >= maxOrigins {
			delete(c.origins, c.order[0])
			c.order = c.order[1:]
		}
		c.order = append(c.order, jid)
	}
	c.origins[jid] = master
	return c.early.forget(jid)
}

// hold buffers an event until the origin of its job is known, or returns the origin if it is known by now.
func (c *Cluster) hold(jid string, e heldEvent) (origin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if origin = c.origins[jid]; origin == "" {
		c.early.add(jid, e, time.Now())
	}
	return origin
}

// Want sets which events listeners at this master wait for, by prefixes of tags; "" means all. Events of jobs that this master received
// always arrive.
func (c *Cluster) Want(prefixes []string) {
	slices.Sort(prefixes)
	prefixes = slices.Compact(prefixes)
	c.mu.Lock()
	same := slices.Equal(c.want, prefixes)
	c.want = prefixes
	c.mu.Unlock()
	if !same {
		c.conns.Notify()
	}
}

func (c *Cluster) wanted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.want
}

// Publish sends a job that this master received to all other Brine masters. Stock masters receive its event.
func (c *Cluster) Publish(j Job) error {
	c.SetOrigin(j.JID, c.cfg.ID)
	d := value.DictOf("k", "job", "jid", j.JID, "job", j.Map, "minions", value.Strings(j.Minions), "until", j.Until.UnixMilli(), "from", c.cfg.ID)
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		return err
	}
	for _, p := range c.peers.all() {
		if p.isBrine() {
			p.out.Add(b)
		}
	}
	return nil
}

// Tell sends a note to all other Brine masters.
func (c *Cluster) Tell(n Note, minion string) {
	b, err := msgpack.Marshal(value.DictOf("k", "note", "note", string(n), "id", minion), msgpack.NewSpec)
	if err != nil {
		return
	}
	for _, p := range c.peers.all() {
		if p.isBrine() {
			p.out.Add(b)
		}
	}
}

// Event sends an event of this master's bus to all stock masters, and to the Brine masters with listeners for it.
func (c *Cluster) Event(e *event.Event) {
	if e.Data.Has(saltwire.PeerID) || strings.HasPrefix(e.Tag, "cluster/") {
		return
	}
	jid, origin := "", ""
	if rest, ok := strings.CutPrefix(e.Tag, "salt/job/"); ok {
		jid, _, _ = strings.Cut(rest, "/")
		origin = c.Origin(jid)
	}
	var sent []*peer
	msg := c.sendEvent(e.Tag, e.Data, func(p *peer) bool {
		ok := p.id == origin || p.wants(e.Tag)
		if ok {
			sent = append(sent, p)
		}
		return ok
	})
	if origin != "" || !isReply(e.Tag) || len(sent) == len(c.peers.all()) || c.cfg.Options.Isolated { // there the log of jobs brings it, too
		return
	}
	if msg == nil {
		var err error
		if msg, err = encodeEvent(e.Tag, e.Data); err != nil {
			return // logged by sendEvent, or without receivers
		}
	}
	late := heldEvent{msg, sent}
	if p := c.peers.all()[c.hold(jid, late)]; p != nil && p.isBrine() && !slices.Contains(sent, p) {
		p.out.Add(msg)
	}
}

// sendEvent sends an event to stock masters and to selected Brine masters; brine is called once for each. The event is encoded once per kind,
// and the form for Brine is returned if it was needed.
func (c *Cluster) sendEvent(tag string, data *value.Dict, brine func(*peer) bool) (forBrine []byte) {
	var forSalt []byte
	var err error
	for _, p := range c.peers.all() {
		switch p.kind() {
		case kindBrine:
			if !brine(p) {
				continue
			}
			if forBrine == nil {
				forBrine, err = encodeEvent(tag, data)
			}
			if err == nil {
				p.out.Add(forBrine)
			}
		default:
			if p.kind() == kindUnknown && brine(p) {
				if forBrine == nil {
					forBrine, err = encodeEvent(tag, data)
				}
				if err == nil {
					p.out.Add(forBrine)
				}
			}
			if forSalt == nil {
				var body []byte
				if body, err = saltwire.EventMessage(c.secrets, c.cipher, tag, data); err == nil {
					forSalt = event.Frame(body)
				}
			}
			if err == nil {
				p.plain.Add(forSalt)
			}
		}
		if err != nil {
			c.log.Error("cannot send an event to other masters", "tag", tag, "err", err)
			return nil
		}
	}
	return forBrine
}

// encodeEvent encodes an event for Brine masters. Most are returns, whose tag follows from the data.
func encodeEvent(tag string, data *value.Dict) ([]byte, error) {
	if tag == returnTag(data) {
		return msgpack.Marshal(value.DictOf("k", "ret", "data", data), msgpack.NewSpec)
	}
	return msgpack.Marshal(value.DictOf("k", "event", "tag", tag, "data", data), msgpack.NewSpec)
}

// returnTag returns the tag of a return with this data, "" if it is not a return.
func returnTag(data *value.Dict) string {
	jid, id := data.Str("jid"), data.Str("id")
	if jid == "" || id == "" {
		return ""
	}
	return salt.Tag("job", jid, "ret", id)
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
			var ids []string
			for _, it := range d.List("present") {
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

// Member is the known state of a peer.
type Member struct {
	ID string
	// Kind is brine, salt or unknown.
	Kind string
	// Up says that it answered recently; for stock masters, that a connection to it exists.
	Up bool
	// Problem is why this master does not work with it, or "".
	Problem string
	// Gone says that it was removed from the cluster.
	Gone bool
	// TLS says that it has used TLS with this process, and CertificateEnds when its last certificate expires.
	TLS             bool
	CertificateEnds time.Time
	// Behind is the number of changes it lacks, by stream, as far as known, without a shared directory.
	Behind map[string]int64
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

// serve reads what another master sends on a connection that it made.
func (c *Cluster) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(wire.GreetingTime))
	l := &wire.Line{Conn: conn, Raw: conn}
	if c.cfg.Options.Isolated {
		var err error
		if l, err = c.identity.Server(ctx, conn); err != nil {
			c.noTLS(ctx, conn, err)
			return
		}
	}
	frames := event.NewFrameReader(wire.Count(l, &c.Received), wire.MaxGreeting)
	known := false
	for {
		body, err := frames.Next()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && (!known || !wire.IsTimeout(err)) {
				c.rateLimitedLog.Debug("connection of another master ended", "addr", conn.RemoteAddr(), "err", err)
			}
			return
		}
		tag, data, ok := event.SplitBody(body)
		if ok && tag == memberauth.TagHello {
			c.answerLink(ctx, l, frames, data)
			return
		}
		if ok && tag == memberauth.TagDiscover && c.cfg.Options.Isolated {
			c.answerJoin(l, frames, body)
			return
		}
		if !ok || !c.receive(tag, data) {
			return
		}
		// An authenticated one may be silent, and send messages of the size of events.
		if known = known || strings.HasPrefix(tag, saltwire.TagPeer); known {
			c.conns.Authenticated(conn)
			conn.SetDeadline(time.Time{})
			frames.SetLimit(wire.MaxFrame)
		}
	}
}

// receive handles a message in Salt's form; false closes the connection.
func (c *Cluster) receive(tag string, data []byte) bool {
	if c.cfg.Options.Isolated {
		c.rateLimitedLog.Error("salt", "refusing a stock master: a cluster without a shared directory supports only Brine masters; to migrate, use a shared directory until all are", "tag", fmt.Sprintf("%.100s", tag))
		return false
	}
	if strings.HasPrefix(tag, saltwire.TagPeer) {
		return c.receiveKey(data)
	}
	from, rest, ok := saltwire.SplitEvent(tag)
	p := c.peers.all()[from]
	if !ok || p == nil {
		c.rateLimitedLog.Warn("unnamed event", "dropped an event of a master that cluster_peers does not name; name it there by its id, or remove this master from its cluster_peers",
			"tag", fmt.Sprintf("%.100s", tag))
		return false
	}
	p.event(rest, data)
	return true
}

func (c *Cluster) receiveKey(data []byte) bool {
	g, err := saltwire.ReadGreeting(c.secrets, data)
	p := c.peers.all()[g.From]
	switch {
	case p == nil && g.From != "":
		c.rateLimitedLog.Error("unnamed "+g.From, "refusing a master that cluster_peers does not name; name it there by its id, or remove this master from its cluster_peers",
			"peer", g.From, "cluster_peers", strings.Join(c.cfg.Options.Peers, ", "))
		return false
	case errors.Is(err, fs.ErrNotExist):
		c.rateLimitedLog.Error("no key of "+g.From, "the shared directory has no key of a peer; is cluster_pki_dir one directory for all masters? Was it removed from the cluster?", "peer", g.From, "err", err)
		return false
	case err != nil:
		c.rateLimitedLog.Error("bad key of "+g.From, "the key of another master was refused", "peer", g.From, "err", err)
		return false
	case !slices.Contains(g.Names, c.cfg.ID):
		p.trouble(memberauth.Unnamed(g.From, g.Names, c.cfg.ID))
		return false
	case g.Key == "":
		p.trouble(fmt.Sprintf("%s does not find the key of %s: is cluster_pki_dir one directory for both?", g.From, c.cfg.ID))
		p.greet(g)
		return true
	}
	p.greet(g)
	return true
}
