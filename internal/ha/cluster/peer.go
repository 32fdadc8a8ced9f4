package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/feed"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/queue"
	"brine/internal/ha/cluster/saltwire"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// kind is the implementation of a peer.
type kind uint8

const (
	kindUnknown kind = iota
	kindSalt
	kindBrine
)

func (k kind) String() string { return [...]string{"unknown", "salt", "brine"}[k] }

// local is the part of this master that the connections to other masters use.
type local struct {
	*relay
	*feeds
	*queries
	*removal
	*traffic
	cfg            *Config
	log            *slog.Logger
	rateLimitedLog *limitlog.Log
	conns          *wire.ConnSet
	secrets        *keys.Secrets
	identity       *wire.Identity // nil with a shared directory
	trust          *trust
	peers          *peerSet
	self           func() memberauth.Self
	host           Host   // nil until Run
	aes            string // this master's key for events to stock masters
	began          time.Time
}

// peer is another master of the cluster.
type peer struct {
	c  *local
	id string
	// out are the messages for a Brine master, plain the frames for a stock master. While the kind is unknown, both are filled.
	out, plain *queue.Queue
	wake       wait.Wakeup // one of the fields below has changed

	// deliver is held while an item of this peer is passed to the host.
	deliver sync.Mutex

	mu      sync.Mutex
	mode    kind
	key     string // its key for events, if it is a stock master
	cipher  *crypt.Crypticle
	early   []earlyEvent // received before the key
	size    int          // of early, in bytes
	owes    bool         // this master's key must be sent
	answers bool         // the key is sent as an answer
	seen    bool         // its public key has existed
	gone    bool         // its public key was deleted
	problem string
	up      bool
	tried   bool                    // at least one connection attempt has failed
	failed  time.Time               // when the last connection attempt that failed began
	had     map[string]oplog.Vector // what the peer was known to have when the last connection ended, by stream
	disowns bool                    // it has reported that this master is not a member
	older   bool                    // its version, when it was last connected, needs all returns with their contents
	want    []string                // prefixes of tags that listeners there wait for
	behind  map[string]int64
	// tls says that it has used TLS with this process, certEnds when its last certificate expires.
	tls      bool
	certEnds time.Time
	fed      map[string]*feed.Feed // feeds over link

	link      *wire.Line    // the connection to the peer
	ended     chan struct{} // closed when link has ended
	asks      map[int64]chan *value.Dict
	nextAsk   int64
	questions chan askFor

	// State of the connection that the peer made.
	in     *wire.Line
	inInc  string
	inLast uint64
	heard  time.Time // when the last frame arrived on in
}

type earlyEvent struct {
	tag  string
	data []byte
}

func newPeer(c *local, id string) *peer {
	mode := kindUnknown
	if c.cfg.Options.Isolated {
		mode = kindBrine
	}
	return &peer{c: c, id: id, mode: mode, owes: mode != kindBrine, out: queue.New(queue.Items, queue.Bytes),
		plain: queue.New(queue.EarlyItems, queue.EarlyBytes),
		wake:  wait.NewWakeup(), asks: map[int64]chan *value.Dict{}, questions: make(chan askFor, 16)}
}

func (p *peer) kind() kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

func (p *peer) isBrine() bool { return p.kind() != kindSalt }

// wants reports whether a listener at this peer waits for an event.
func (p *peer) wants(tag string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, prefix := range p.want {
		if strings.HasPrefix(tag, prefix) {
			return true
		}
	}
	return false
}

func (p *peer) member() Member {
	p.mu.Lock()
	m := Member{ID: p.id, Kind: p.mode.String(), Up: p.up, Problem: p.problem, Behind: maps.Clone(p.behind), TLS: p.tls, CertificateEnds: p.certEnds}
	if p.gone {
		m.Problem, m.Gone = "its key was removed from the cluster", true
	}
	fed := p.fed
	p.mu.Unlock()
	// A feed calls the peer under its own lock.
	for name, f := range fed {
		if why := f.Refuses(); why != "" {
			if m.Refuses == nil {
				m.Refuses = map[string]string{}
			}
			m.Refuses[name] = why
		}
	}
	return m
}

// poke wakes the loops.
func (p *peer) poke() {
	p.wake.Wake()
}

// trouble logs once why this master does not cooperate with the peer.
func (p *peer) trouble(why string) {
	p.mu.Lock()
	news := p.problem != why
	p.problem = why
	p.mu.Unlock()
	if news && why != "" {
		p.c.log.Error("this master does not work with a peer: "+why, "peer", p.id)
		if p.c.host != nil {
			p.c.host.Relay("", salt.Tag("cluster", "refused"), value.DictOf("peer", p.id, "reason", why))
		}
	}
}

// greet stores the key of an authenticated peer. A message without a key proves nothing, but the peer needs this master's key.
func (p *peer) greet(g saltwire.Greeting) {
	p.mu.Lock()
	if g.Key == "" {
		p.owes, p.answers = true, true
		p.mu.Unlock()
		p.poke()
		return
	}
	news := g.Key != p.key
	mode := kindSalt
	if g.Brine {
		mode = kindBrine
	}
	if news {
		p.cipher, _ = crypt.NewCrypticle(g.Key) // its validity was checked before
		p.key = g.Key
	}
	if p.mode == kindBrine && mode == kindSalt && p.link != nil {
		mode = kindBrine // it uses Brine's protocol: the message is old
	}
	if mode != p.mode {
		p.c.log.Info("peer connected", "peer", p.id, "kind", mode)
	}
	p.mode, p.seen = mode, true
	if news || g.Brine && !g.Reply {
		p.owes, p.answers = true, true
	}
	if mode == kindSalt {
		p.problem = ""
	}
	early := p.early
	p.early, p.size = nil, 0
	p.mu.Unlock()
	if mode == kindBrine {
		p.plain.Clear()
	} else {
		p.out.Clear()
	}
	for _, e := range early {
		p.event(e.tag, e.data)
	}
	p.poke()
}

// event handles an event in Salt's format. An event that arrives before the peer's key is buffered.
func (p *peer) event(tag string, raw []byte) {
	p.mu.Lock()
	cipher := p.cipher
	if cipher == nil && !p.gone {
		p.early = append(p.early, earlyEvent{tag, raw})
		p.size += len(raw)
		for len(p.early) > queue.EarlyItems || p.size > queue.EarlyBytes {
			p.size -= len(p.early[0].data)
			p.early = p.early[1:]
		}
	}
	p.mu.Unlock()
	if cipher == nil {
		return
	}
	data, err := saltwire.OpenEvent(cipher, raw)
	if err != nil {
		p.c.rateLimitedLog.Warn("event of "+p.id, "cannot decrypt an event of a peer; it sends its key again when it or this master is restarted", "peer",
			p.id, "err", err)
		return
	}
	p.hand(tag, data)
}

// hand passes an event to the host.
func (p *peer) hand(tag string, data *value.Dict) {
	data.Set(saltwire.PeerID, p.id)
	p.deliver.Lock()
	defer p.deliver.Unlock()
	if tag == tagRotate {
		p.c.host.Rotated()
	}
	p.c.host.Relay(p.id, tag, data)
}

// look drops a peer whose public key was deleted, and adds back one whose key exists again.
func (p *peer) look() {
	_, err := os.Stat(p.c.secrets.PeerPath(p.id))
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		if p.gone {
			p.c.log.Info("a peer that was removed from the cluster is back", "peer", p.id)
			p.gone, p.owes, p.answers = false, true, false
			if p.c.cfg.Options.Isolated {
				p.mode, p.owes = kindBrine, false
			}
			p.poke()
		}
		p.seen = true
	case errors.Is(err, fs.ErrNotExist) && p.seen && !p.gone:
		p.c.log.Warn("a peer was removed from the cluster: its key was deleted", "peer", p.id, "path", p.c.secrets.PeerPath(p.id))
		p.gone, p.up, p.mode = true, false, kindUnknown
		p.key, p.cipher, p.early, p.size = "", nil, nil, 0
		for _, conn := range []*wire.Line{p.link, p.in} {
			if conn != nil {
				conn.Close()
			}
		}
		p.tls, p.certEnds = false, time.Time{}
		p.out.Clear()
		p.plain.Clear()
		p.poke()
	}
}

// run keeps the required connections until ctx ends.
func (p *peer) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.runLink(ctx) })
	pause := firstPause
	var asked time.Time
	for ctx.Err() == nil {
		if !p.needsPlain() {
			wait.Until(ctx, p.wake.C(), time.Second)
			continue
		}
		began := time.Now()
		sent, err := p.runPlain(ctx)
		if err != nil && ctx.Err() == nil {
			p.c.rateLimitedLog.Debug("no connection to a peer", "peer", p.id, "err", err)
		}
		if sent && (err == nil || time.Since(began) > lastPause) {
			pause = firstPause
			continue
		}
		if sent && time.Since(asked) > inquireTime {
			asked = time.Now()
			p.inquire(ctx)
		}
		wait.Until(ctx, p.wake.C(), pause)
		pause = min(2*pause, lastPause)
	}
}

// Pauses between attempts to connect.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
	// inquireTime is the minimum interval of queries to a peer that hangs up.
	inquireTime = 5 * time.Second
)

func (p *peer) needsPlain() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.gone && (p.owes || p.mode != kindBrine)
}

func (p *peer) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: wire.DialTime}
	if ip := net.ParseIP(p.c.cfg.ID); ip != nil {
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	conn, err := d.DialContext(ctx, "tcp", p.c.cfg.Options.address(p.id))
	if err != nil {
		return nil, unreachableError{err}
	}
	if !p.c.conns.Add(conn, false) {
		conn.Close()
		return nil, net.ErrClosed
	}
	return conn, nil
}

// runPlain sends this master's key and, to a stock master, events, until the connection ends or nothing is left to send. sent reports
// whether the key was sent.
func (p *peer) runPlain(ctx context.Context) (sent bool, err error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return false, err
	}
	defer p.c.conns.Remove(conn)
	defer conn.Close()
	ended := make(chan struct{})
	go func() { // the peer sends nothing: this detects the end of the connection
		io.Copy(io.Discard, conn)
		close(ended)
	}()
	defer p.setUp(false, kindSalt)
	p.mu.Lock()
	p.owes = true // a new connection may be to a new process
	p.mu.Unlock()
	for {
		if err := p.payKey(conn); err != nil {
			return sent, err
		}
		sent = true
		if !p.needsPlain() {
			return sent, nil
		}
		p.setUp(true, kindSalt)
		if p.kind() == kindSalt {
			if err := p.flushPlain(conn); err != nil {
				return sent, err
			}
		}
		more := p.plain.More.C()
		if p.kind() != kindSalt {
			more = nil // until the kind of the peer is known
		}
		select {
		case <-ctx.Done():
			return sent, nil
		case <-ended:
			return sent, io.EOF
		case <-more:
		case <-p.wake.C():
		case <-time.After(time.Second):
		}
	}
}

func (p *peer) setUp(up bool, k kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == k {
		p.up = up
	}
}

// payKey sends this master's key if it must be sent.
func (p *peer) payKey(conn net.Conn) error {
	p.mu.Lock()
	owes, answers := p.owes, p.answers
	p.mu.Unlock()
	if !owes {
		return nil
	}
	body, err := saltwire.KeyMessage(p.c.secrets, p.c.cfg.Options.Peers, p.c.aes, answers)
	if err != nil {
		return err
	}
	// Clear the flag before writing: a reply may set it again.
	p.mu.Lock()
	p.owes, p.answers = false, false
	p.mu.Unlock()
	if err := p.write(conn, event.Frame(body)); err != nil {
		p.mu.Lock()
		p.owes, p.answers = true, answers
		p.mu.Unlock()
		return err
	}
	return nil
}

// flushPlain sends the buffered events.
func (p *peer) flushPlain(conn net.Conn) error {
	for {
		first, frames := p.plain.From(0, 64, 256<<10)
		if len(frames) == 0 {
			if n := p.plain.TakeLost(); n > 0 {
				p.c.log.Warn("dropped events for a stock master: it was unreachable, or too slow", "peer", p.id, "events", n)
			}
			return nil
		}
		last := first + uint64(len(frames)) - 1
		conn.SetWriteDeadline(time.Now().Add(wire.WriteTime))
		bufs := net.Buffers(frames)
		n, err := bufs.WriteTo(conn)
		p.c.Sent.Add(n)
		if err != nil {
			return err
		}
		p.plain.Ack(last)
	}
}

func (p *peer) write(conn net.Conn, b []byte) error {
	conn.SetWriteDeadline(time.Now().Add(wire.WriteTime))
	p.c.Sent.Add(int64(len(b)))
	_, err := conn.Write(b)
	return err
}

// cutOff reports whether the peer is a Brine master that is not connected.
func (p *peer) cutOff() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode == kindBrine && !p.gone && !p.up
}

// traffic counts the bytes to and from peers.
type traffic struct{ Sent, Received atomic.Int64 }

// unreachableError means that no connection could be made.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

// wayBack returns the instructions for a master that the members no longer know and that is to be a member again.
func (c *local) wayBack() string {
	return fmt.Sprintf("if it was removed and is to join again, run brine cluster readmit %s on a member, stop this master, remove %s and start it",
		c.cfg.ID, filepath.Join(c.cfg.Options.PKIDir, "cluster.pem"))
}
