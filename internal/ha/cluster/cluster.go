// Package cluster makes masters that share a folder one: they have one key
// pair and one AES key, which minions know, and tell each other of jobs, of
// what concerns somebody there, and of who is connected.
//
// Between masters of Salt and of Brine everything is as Salt has it (wire.go):
// each event of one goes to all others, without an answer. A master of Brine
// says in its first message that it is one, in a field that Salt's overlook.
// Two of Brine's then speak over connections of their own on the same port
// (link.go): mutually authenticated, in order, acknowledged, resumed where
// they broke off, bounded. Over these goes each job, once, and of the events
// those that somebody at the other end waits for.
//
// What is kept in files (keys, jobs, minion data) is not sent: all see it in
// the shared folder. Where there is none (cluster_isolated_filesystem), it is
// sent over the same connections, as streams of changes (feed.go), and a master
// becomes one of the cluster by joining it (join.go).
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
	"brine/internal/ha/lease"
	"brine/internal/ha/roster"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/net/handshake"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// Job is one job on its way to the minions of another master.
type Job struct {
	JID string
	// Map is what minions get.
	Map *value.Dict
	// Minions are those that it is meant for, nil if that is not known.
	Minions []string
	// Until is when it is not kept any more for minions that are away.
	Until time.Time
	// From is the master that it was given to.
	From string
}

// Note is something small that all of Brine's masters should know of a minion.
type Note string

// The notes: a minion has signed in anew, or has asked what it missed and so
// is Brine's.
const (
	NoteSignedIn Note = "signed_in"
	NoteSpeaks   Note = "speaks"
)

// Host is what a cluster asks of the master that it is a part of. The calls
// come one after the other for each peer, and should be quick.
type Host interface {
	// Relay puts an event of a peer on this master's bus. Its data names the
	// peer (PeerID).
	Relay(from, tag string, data *value.Dict)
	// Job publishes a peer's job to the minions of this master.
	Job(j Job)
	// Note is told of a minion of another master.
	Note(n Note, minion string)
	// Present returns the minions that are connected to this master.
	Present() []string
	// Lost says that a peer does not answer (once a second, as long as that is
	// so), or that something it sent is missing: whatever it stored is to be
	// looked up.
	Lost(peer string)
	// Rotated says that the AES key of the cluster may be another one.
	Rotated()
}

// Config is what a cluster needs to know.
type Config struct {
	ID       string
	Listen   string // interface
	CacheDir string
	HashType string
	Options  Options
	Own      *crypt.PrivateKey
	OwnPub   []byte // the file master.pub
	Keysize  int
	// Joins is called before this machine becomes a member of a cluster, if not
	// nil: to put aside what is left of an earlier time.
	Joins func() error
	// Expels is called when a member was removed, if not nil: to end what it knew
	// besides keys and secrets of the cluster.
	Expels func() error
	// Refuses says why the key of the cluster must not be replaced, if not nil:
	// minions would not take the new one.
	Refuses func() error
	// Ports are those for requests of minions, by transport.
	Ports map[string]int
	// Busy returns how long the processors of this machine have worked since it
	// was started, and how long they could have, in one unit; nil if nobody
	// knows.
	Busy func() (busy, total int64, ok bool)
	// PublishSession is the age at which the AES key is replaced, 0 for never.
	PublishSession time.Duration
}

// Cluster is one master's part of it.
type Cluster struct {
	cfg         Config
	log         *slog.Logger
	host        Host
	secrets     *Secrets
	tlsIdentity *tlsIdentity // nil with a shared folder
	token       string
	aes         string // own key for events to Salt's masters
	cipher      *crypt.Crypticle
	inc         string // of this process
	leader      *Lease
	leads       atomic.Bool
	// Of the lease of a cluster without a shared folder, nil without voters.
	once      *lease.Holder
	voter     *lease.Voter // if this master is one
	witnesses map[string]*witnessLink

	listener       net.Listener
	peers          atomic.Pointer[map[string]*peer] // see all; replaced, never changed
	conns          connSet
	rateLimitedLog *rateLimitedLog

	mu      sync.Mutex
	begin   func(*peer)       // has the loops of a peer run; nil until Run
	origins map[string]string // jid -> master
	order   []string
	early   unclaimed
	want    []string // what somebody here waits for: prefixes of tags

	roster list // for minions

	// The share of the minions that this master asks for, and why.
	asked int
	work  work
	load  roster.Load

	// Of a cluster without a shared folder.
	streams  map[string]oplog.Stream
	answers  map[string]func(arg *value.Dict) *value.Dict
	excludes func(id string) bool // see Exclude
	// ring is the key of the cluster; switching is held while it is replaced, and
	// onKey told then. rotating is held while a new one is made and spread: of
	// two that were made at once, one private half would be lost.
	ring      atomic.Pointer[keyring]
	switching sync.Mutex
	rotating  sync.Mutex
	following atomic.Bool
	onKey     func(*crypt.PrivateKey, []handshake.Endorsement)
	legacy    []byte // see signSessions
	founding  bool   // this process made the cluster, or has joined it
	began     time.Time

	// Sent and Received count the bytes to and from peers.
	Sent, Received atomic.Int64
}

// maxOrigins bounds the jobs whose origin is remembered.
const maxOrigins = 20_000

// leaseTime is how long a leader stays one that is not heard of.
const leaseTime = 15 * time.Second

// New takes over the keys in the shared folder or makes them, and asks the
// peers that are there whether they agree. Close or Run must follow.
func New(cfg Config, log *slog.Logger) (*Cluster, error) {
	c := &Cluster{cfg: cfg, log: log, aes: crypt.NewKey(), inc: nonce(), began: time.Now(), streams: map[string]oplog.Stream{}, answers: map[string]func(*value.Dict) *value.Dict{}, origins: map[string]string{}, rateLimitedLog: newRateLimitedLog(log)}
	var err error
	if c.cipher, err = crypt.NewCrypticle(c.aes); err != nil {
		return nil, err
	}
	if cfg.Options.Isolated {
		if c.founding, err = establish(&cfg, log); err != nil {
			return nil, err
		}
	}
	if c.secrets, err = OpenSecrets(cfg.Options.PKIDir, cfg.ID, cfg.Own, cfg.OwnPub, cfg.Options.KeyPass, cfg.Keysize, log); err != nil {
		return nil, err
	}
	if err := c.openKeyring(); err != nil {
		return nil, err
	}
	if cfg.Options.Isolated {
		c.AnswerWith(askKey, c.answerKey)
		if c.tlsIdentity, err = newTLSIdentity(cfg.ID, cfg.Options.ID, c.secrets.Key); err != nil {
			return nil, err
		}
		c.tlsIdentity.resign(c.Key(), c.ring.Load().rotation.Endorsed)
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
	c.leader = NewLease(cfg.Options.PKIDir, ".brine-leader", cfg.ID, leaseTime)
	peers := map[string]*peer{}
	c.peers.Store(&peers)
	if cfg.Options.Isolated {
		c.takeUp()
	} else {
		for _, id := range cfg.Options.Peers {
			peers[id] = newPeer(c, id)
		}
	}
	if c.founding {
		if err := c.agreeSessions(true); err != nil {
			return nil, err
		}
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

// Secrets are the keys of the cluster.
func (c *Cluster) Secrets() *Secrets { return c.secrets }

// Close gives back what New acquired, if Run was not called.
func (c *Cluster) Close() error { return c.listener.Close() }

// Run speaks with the peers until ctx ends.
func (c *Cluster) Run(ctx context.Context, host Host) error {
	c.host = host
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.withdraw()
	defer c.conns.closeAll()
	stop := context.AfterFunc(ctx, func() { c.listener.Close(); c.conns.closeAll() })
	defer stop()
	c.mu.Lock()
	c.begin = func(p *peer) { wg.Go(func() { p.run(ctx) }) }
	c.mu.Unlock()
	for _, p := range c.all() {
		c.begin(p)
	}
	if c.once != nil {
		wg.Go(func() { c.once.Run(ctx, c.first) })
	}
	tended := make(chan struct{})
	go func() { defer close(tended); c.tend(ctx) }()
	defer func() { <-tended }() // it may begin peers
	for {
		conn, err := c.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return salt.Errorf(salt.Internal, "the port for other masters was closed: %w", err)
			}
			c.rateLimitedLog.warn("accept", "cannot take a connection of another master", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		if !c.conns.add(conn, true) {
			c.rateLimitedLog.warn("strangers", "connections were refused: too many are open whose other end has not shown who it is; only masters should reach cluster_pool_port", "from", conn.RemoteAddr())
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer c.conns.remove(conn)
			c.serve(ctx, conn)
		})
	}
}

// tend does what is done by time: the leader replaces the AES key when it is
// too old, and peers whose key was deleted are dropped.
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
				c.log.Debug("cannot give back the lease of the leader", "err", err)
			}
			return
		case <-tick.C:
		}
		if c.cfg.Options.Isolated {
			c.takeUp()
			if err := c.restate(); err != nil {
				c.rateLimitedLog.warn("station", "the other masters may not know what this version can do", "err", err)
			}
			if c.following.CompareAndSwap(false, true) { // it may wait for others
				go func() {
					defer c.following.Store(false)
					c.followKey(ctx)
				}()
			}
			if err := c.agreeSessions(c.first()); err != nil {
				c.rateLimitedLog.warn("sessions", "cannot make the secret of session keys", "err", err)
			}
		}
		for _, p := range c.all() {
			p.look()
			if p.cutOff() && !c.cfg.Options.Isolated {
				// It may live and take jobs.
				c.host.Lost(p.id)
			}
		}
		if turn%3 == 0 {
			c.lead()
		}
		if turn%weighEvery == 0 {
			c.weigh(time.Now())
		}
		if err := c.refreshRoster(time.Now()); err != nil {
			c.rateLimitedLog.warn("roster", "the list of masters for minions is not kept up to date", "err", err)
		}
	}
}

// weighEvery is how often tend looks how busy the machine is, in turns.
const weighEvery = 10

// lead tries to be the leader, and does the leader's work.
func (c *Cluster) lead() {
	token, leads := c.Once()
	var err error
	if !c.cfg.Options.Isolated {
		leads, err = c.leader.Hold()
	}
	if err != nil {
		c.rateLimitedLog.warn("lease", "cannot tell who leads the cluster", "err", err)
	}
	c.leads.Store(leads && err == nil)
	if !leads || err != nil || c.cfg.PublishSession <= 0 {
		return
	}
	age, err := c.secrets.AES.Age(time.Now())
	if err == nil && age >= c.cfg.PublishSession {
		if now, still := c.Once(); c.once != nil && (!still || now != token) {
			return // the process may have stood still
		}
		if err := c.Rotate(); err != nil {
			c.log.Error("cannot replace the AES key of the cluster", "err", err)
		}
	}
}

// Leads reports whether this master does what one of the cluster should do.
func (c *Cluster) Leads() bool {
	if c.once != nil {
		_, holds := c.once.Token()
		return holds
	}
	return c.leads.Load()
}

// tagRotate is the event that has masters read the AES key again.
const tagRotate = "rotate_cluster_aes_key"

// Rotate replaces the AES key of the cluster and tells all masters.
func (c *Cluster) Rotate() error {
	if err := c.secrets.AES.Replace(); err != nil {
		return err
	}
	c.log.Info("the AES key of the cluster was replaced")
	data := value.DictOf(tagRotate, true, "_stamp", event.Stamp(time.Now()))
	c.send(tagRotate, data, func(*peer) bool { return true })
	c.host.Rotated()
	return nil
}

// Origin returns the master that a job was given to, "" if that is not known.
func (c *Cluster) Origin(jid string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origins[jid]
}

// SetOrigin notes the master that a job was given to, and sends it what came
// of the job already.
func (c *Cluster) SetOrigin(jid, master string) {
	for _, e := range c.setOrigin(jid, master) {
		if p := c.all()[master]; p != nil && p.isBrine() && !slices.Contains(e.sent, p) {
			p.out.add(e.msg)
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

// hold keeps an event until the master is known that its job was given to, and
// returns that master if it is known by now.
func (c *Cluster) hold(jid string, e heldEvent) (origin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if origin = c.origins[jid]; origin == "" {
		c.early.add(jid, e, time.Now())
	}
	return origin
}

// Want says which events somebody at this master waits for, by the beginnings
// of their tags; "" means all. Those of jobs that were given to this master
// come anyway.
func (c *Cluster) Want(prefixes []string) {
	slices.Sort(prefixes)
	prefixes = slices.Compact(prefixes)
	c.mu.Lock()
	same := slices.Equal(c.want, prefixes)
	c.want = prefixes
	c.mu.Unlock()
	if !same {
		c.conns.tell()
	}
}

func (c *Cluster) wanted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.want
}

// Publish hands a job that was given to this master to all others of Brine's.
// Salt's have it by its event.
func (c *Cluster) Publish(j Job) error {
	c.SetOrigin(j.JID, c.cfg.ID)
	d := value.DictOf("k", "job", "jid", j.JID, "job", j.Map, "minions", value.Strings(j.Minions), "until", j.Until.UnixMilli(), "from", c.cfg.ID)
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		return err
	}
	for _, p := range c.all() {
		if p.isBrine() {
			p.out.add(b)
		}
	}
	return nil
}

// Tell sends a note to all other masters of Brine's.
func (c *Cluster) Tell(n Note, minion string) {
	b, err := msgpack.Marshal(value.DictOf("k", "note", "note", string(n), "id", minion), msgpack.NewSpec)
	if err != nil {
		return
	}
	for _, p := range c.all() {
		if p.isBrine() {
			p.out.add(b)
		}
	}
}

// Event sends an event of this master's bus to whom it concerns: all of
// Salt's masters, and those of Brine's where somebody waits for it.
func (c *Cluster) Event(e *event.Event) {
	if e.Data.Has(PeerID) || strings.HasPrefix(e.Tag, "cluster/") {
		return
	}
	jid, origin := "", ""
	if rest, ok := strings.CutPrefix(e.Tag, "salt/job/"); ok {
		jid, _, _ = strings.Cut(rest, "/")
		origin = c.Origin(jid)
	}
	var sent []*peer
	msg := c.send(e.Tag, e.Data, func(p *peer) bool {
		ok := p.id == origin || p.wants(e.Tag)
		if ok {
			sent = append(sent, p)
		}
		return ok
	})
	if origin != "" || !isReply(e.Tag) || len(sent) == len(c.all()) || c.cfg.Options.Isolated { // there the log of jobs brings it, too
		return
	}
	if msg == nil {
		var err error
		if msg, err = encodeEvent(e.Tag, e.Data); err != nil {
			return // said by send, or nobody's
		}
	}
	late := heldEvent{msg, sent}
	if p := c.all()[c.hold(jid, late)]; p != nil && p.isBrine() && !slices.Contains(sent, p) {
		p.out.add(msg)
	}
}

// send sends an event to Salt's masters and to some of Brine's, each of which
// it asks for once. It is encoded once for each kind, and the form for Brine's
// returned if it was needed.
func (c *Cluster) send(tag string, data *value.Dict, brine func(*peer) bool) (forBrine []byte) {
	var forSalt []byte
	var err error
	for _, p := range c.all() {
		switch p.kind() {
		case kindBrine:
			if !brine(p) {
				continue
			}
			if forBrine == nil {
				forBrine, err = encodeEvent(tag, data)
			}
			if err == nil {
				p.out.add(forBrine)
			}
		default:
			if p.kind() == kindUnknown && brine(p) {
				if forBrine == nil {
					forBrine, err = encodeEvent(tag, data)
				}
				if err == nil {
					p.out.add(forBrine)
				}
			}
			if forSalt == nil {
				var body []byte
				if body, err = c.secrets.eventMessage(c.cipher, tag, data); err == nil {
					forSalt = event.Frame(body)
				}
			}
			if err == nil {
				p.plain.add(forSalt)
			}
		}
		if err != nil {
			c.log.Error("an event cannot be sent to other masters", "tag", tag, "err", err)
			return nil
		}
	}
	return forBrine
}

// encodeEvent makes the message of an event for masters of Brine's. Most are
// returns, whose tag says nothing that is not in the data.
func encodeEvent(tag string, data *value.Dict) ([]byte, error) {
	if tag == returnTag(data) {
		return msgpack.Marshal(value.DictOf("k", "ret", "data", data), msgpack.NewSpec)
	}
	return msgpack.Marshal(value.DictOf("k", "event", "tag", tag, "data", data), msgpack.NewSpec)
}

// returnTag is the tag of a return with this data, "" if it is none.
func returnTag(data *value.Dict) string {
	jid, id := data.Str("jid"), data.Str("id")
	if jid == "" || id == "" {
		return ""
	}
	return salt.Tag("job", jid, "ret", id)
}

// presentTime bounds the wait for peers that are asked who is there.
const presentTime = 2 * time.Second

// Present returns the minions that are connected to other masters of Brine's,
// by these. Of Salt's nobody can tell.
func (c *Cluster) Present(ctx context.Context) map[string][]string {
	ctx, cancel := context.WithTimeout(ctx, presentTime)
	defer cancel()
	out := map[string][]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range c.all() {
		if !p.isBrine() {
			continue
		}
		wg.Go(func() {
			d, err := p.ask(ctx, askPresent, nil)
			if err != nil {
				c.log.Debug("a peer does not say who is connected to it", "peer", p.id, "err", err)
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

// Member is what is known of a peer.
type Member struct {
	ID string
	// Kind is brine, salt or unknown.
	Kind string
	// Up says that it was heard of lately; of Salt's, that a connection to it
	// stands.
	Up bool
	// Problem is why this master does not work with it, else "".
	Problem string
	// Gone says that it was removed from the cluster.
	Gone bool
	// TLS says that it has spoken TLS to this master's process, and
	// CertificateEnds until when the certificate is good that it showed last.
	TLS             bool
	CertificateEnds time.Time
	// Behind is how many changes it lacks, by stream, as far as is known, of a
	// cluster without a shared folder.
	Behind map[string]int64
}

// IsBrine reports whether a peer is a master of Brine's, as far as is known.
func (c *Cluster) IsBrine(id string) bool {
	p := c.all()[id]
	return p != nil && p.kind() == kindBrine
}

// Members returns the peers, sorted.
func (c *Cluster) Members() (out []Member) {
	for _, p := range c.all() {
		out = append(out, p.member())
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// serve reads what another master sends on a connection that it made.
func (c *Cluster) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(greetingTime))
	l := &line{Conn: conn, raw: conn}
	if c.cfg.Options.Isolated {
		var err error
		if l, err = c.tlsIdentity.answer(ctx, conn); err != nil {
			c.noTLS(ctx, conn, err)
			return
		}
	}
	frames := event.NewFrameReader(counted{l, &c.Received}, maxGreeting)
	known := false
	for {
		body, err := frames.Next()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && (!known || !isTimeout(err)) {
				c.rateLimitedLog.debug("a connection of another master has ended", "from", conn.RemoteAddr(), "err", err)
			}
			return
		}
		tag, data, ok := event.SplitBody(body)
		if ok && tag == tagHello {
			c.answerLink(ctx, l, frames, data)
			return
		}
		if ok && tag == tagDiscover && c.cfg.Options.Isolated {
			c.answerJoin(l, frames, body)
			return
		}
		if !ok || !c.receive(tag, data) {
			return
		}
		// One that has shown a key may be silent, and send what events may be.
		if known = known || strings.HasPrefix(tag, tagPeer); known {
			c.conns.known(conn)
			conn.SetDeadline(time.Time{})
			frames.SetLimit(maxFrame)
		}
	}
}

// greetingTime bounds how long a connection may take to say who it is.
const greetingTime = 10 * time.Second

// receive handles a message in Salt's form; false ends the connection.
func (c *Cluster) receive(tag string, data []byte) bool {
	if c.cfg.Options.Isolated {
		c.rateLimitedLog.error("salt", "a master of Salt's wants to be a peer: in a cluster without a shared folder there can only be Brine's; to move over from Salt's, use a shared folder until all are", "tag", fmt.Sprintf("%.100s", tag))
		return false
	}
	if strings.HasPrefix(tag, tagPeer) {
		return c.receiveKey(data)
	}
	from, rest, ok := splitEvent(tag)
	p := c.all()[from]
	if !ok || p == nil {
		c.rateLimitedLog.warn("stranger", "an event of a master that cluster_peers does not name was dropped; name it there by its id, or remove this master from its cluster_peers",
			"tag", fmt.Sprintf("%.100s", tag))
		return false
	}
	p.event(rest, data)
	return true
}

func (c *Cluster) receiveKey(data []byte) bool {
	g, err := c.secrets.readGreeting(data)
	p := c.all()[g.from]
	switch {
	case p == nil && g.from != "":
		c.rateLimitedLog.error("stranger "+g.from, "a master that cluster_peers does not name wants to be a peer; name it there by its id, or remove this master from its cluster_peers",
			"peer", g.from, "cluster_peers", strings.Join(c.cfg.Options.Peers, ", "))
		return false
	case errors.Is(err, fs.ErrNotExist):
		c.rateLimitedLog.error("no key of "+g.from, "a peer has left no key in the shared folder; is cluster_pki_dir one folder for all masters? Was it removed from the cluster?", "peer", g.from, "err", err)
		return false
	case err != nil:
		c.rateLimitedLog.error("bad key of "+g.from, "the key of another master was refused", "peer", g.from, "err", err)
		return false
	case !slices.Contains(g.names, c.cfg.ID):
		p.trouble(unnamed(g.from, g.names, c.cfg.ID))
		return false
	case g.key == "":
		p.trouble(fmt.Sprintf("%s does not find the key of %s: is cluster_pki_dir one folder for both?", g.from, c.cfg.ID))
		p.greet(g)
		return true
	}
	p.greet(g)
	return true
}

// counted counts the bytes that are read.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// connSet is the open connections, and whom to tell that this master waits for
// other events now.
type connSet struct {
	mu              sync.Mutex
	open            map[net.Conn]bool   // whether others made it
	unauthenticated map[net.Conn]string // from where, of those who have not shown who they are
	news            map[chan struct{}]bool
	ended           bool
}

// maxInbound bounds the connections that others make, maxStrangers those whose
// other end has not shown who it is, and maxStrangersFrom these of one address,
// so that nobody keeps members out from there.
const (
	maxInbound             = 256
	maxUnauthenticated     = 128
	maxUnauthenticatedFrom = 16
)

func (s *connSet) add(c net.Conn, inbound bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[net.Conn]bool{}
	}
	if s.ended || inbound && (len(s.open) >= maxInbound || !s.admit(c)) {
		return false
	}
	s.open[c] = inbound
	return true
}

// admit counts a stranger, if there may be one more.
func (s *connSet) admit(c net.Conn) bool {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	same := 0
	for _, h := range s.unauthenticated {
		if h == host {
			same++
		}
	}
	if same >= maxUnauthenticatedFrom || len(s.unauthenticated) >= maxUnauthenticated {
		return false
	}
	if s.unauthenticated == nil {
		s.unauthenticated = map[net.Conn]string{}
	}
	s.unauthenticated[c] = host
	return true
}

// known says that the other end has shown who it is.
func (s *connSet) known(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unauthenticated, c)
}

func (s *connSet) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	delete(s.unauthenticated, c)
}

func (s *connSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for c := range s.open {
		c.Close()
	}
}

// listen returns a channel that says that there is news.
func (s *connSet) listen() (news chan struct{}, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.news == nil {
		s.news = map[chan struct{}]bool{}
	}
	news = make(chan struct{}, 1)
	s.news[news] = true
	return news, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.news, news)
	}
}

func (s *connSet) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.news {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// gripes writes complaints once: again only when something else has been the
// matter, or after a while.
type rateLimitedLog struct {
	log *slog.Logger
	mu  sync.Mutex
	at  map[string]time.Time
}

const (
	gripeAgain = time.Minute
	maxGripes  = 1000
)

func newRateLimitedLog(log *slog.Logger) *rateLimitedLog {
	return &rateLimitedLog{log: log, at: map[string]time.Time{}}
}

func (g *rateLimitedLog) due(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if at, ok := g.at[key]; ok && now.Sub(at) < gripeAgain {
		return false
	}
	if len(g.at) >= maxGripes {
		clear(g.at)
	}
	g.at[key] = now
	return true
}

func (g *rateLimitedLog) warn(key, msg string, args ...any) {
	if g.due(key) {
		g.log.Warn(msg, args...)
	}
}

func (g *rateLimitedLog) error(key, msg string, args ...any) {
	if g.due(key) {
		g.log.Error(msg, args...)
	}
}

func (g *rateLimitedLog) debug(msg string, args ...any) { g.log.Debug(msg, args...) }
