package zeromq

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
	"brine/internal/net/transport/netserve"
)

// link is one accepted connection after its handshake.
type link struct {
	conn    net.Conn
	dec     *decoder
	peer    peer
	out     outbox
	pulse   pulse
	answers atomic.Bool // whether the peer has ever answered a PING
	asks    atomic.Bool // whether the peer has ever sent a PING

	// Used by the goroutine that sends heartbeats.
	sign  int64 // the pulse at the last round
	quiet uint8 // rounds since it changed
}

// Read reads from the connection and records the sign of life.
func (l *link) Read(b []byte) (int, error) {
	n, err := l.conn.Read(b)
	if n > 0 {
		l.pulse.beat()
	}
	return n, err
}

// command handles the commands that are the same for every socket type.
func (l *link) command(name string, data []byte) error {
	switch name {
	case cmdPing:
		l.asks.Store(true)
		pong, err := appendPong(nil, data)
		if err != nil {
			return err
		}
		l.out.send(&packet{head: pong})
	case cmdPong:
		l.answers.Store(true)
	case cmdError:
		return parseError(data)
	}
	return nil
}

// host is the common part of both servers.
type host struct {
	socket  string   // its own Socket-Type
	accept  []string // accepted Socket-Types of peers
	opts    transport.ListenOptions
	buffer  int // bytes to read into, per peer
	lim     limits
	backlog int // packets queued per peer
	stall   time.Duration
	lis     net.Listener
	log     *slog.Logger
	limited *ratelimit.Log // logs errors of peers
	budget  *netserve.Budget
	drains  sync.WaitGroup

	mu    sync.Mutex
	links map[*link]struct{}
}

func listen(addr, option string, o transport.ListenOptions, log *slog.Logger) (*host, error) {
	lis, err := netserve.Listen(addr, option, o.KeepAlive)
	if err != nil {
		return nil, err
	}
	return &host{
		opts:    o,
		stall:   stallTime,
		lis:     lis,
		log:     log,
		limited: ratelimit.NewLog(log, 10, 10*time.Second),
		budget:  o.Unfinished(),
		links:   make(map[*link]struct{}),
	}, nil
}

func (h *host) Addr() net.Addr { return h.lis.Addr() }

// Close unbinds a listener that was never served.
func (h *host) Close() error { return h.lis.Close() }

// serve runs talk for every peer whose handshake succeeds, until ctx ends.
func (h *host) serve(ctx context.Context, talk func(*link) error, drain func()) error {
	s := netserve.Server{Listener: h.lis, Log: h.log, Guests: h.opts.Guests, Drain: drain,
		Handle: func(ctx context.Context, c net.Conn) {
			if err := h.meet(c, talk); ctx.Err() == nil {
				h.complain(c, err)
			}
		}}
	beats := make(chan struct{})
	hctx, stop := context.WithCancel(ctx)
	go func() {
		defer close(beats)
		h.heartbeats(hctx)
	}()
	err := s.Serve(ctx)
	stop()
	<-beats
	h.drains.Wait()
	return err
}

// meet completes the handshake with a new peer and talks to it until the end. The stack meanwhile
// is most of the cost of a connection, so the beginning is in greet, and waiting is done in await.
func (h *host) meet(c net.Conn, talk func(*link) error) error {
	l, err := h.greet(c)
	if err != nil {
		return err
	}
	defer l.dec.close()
	err = talk(l)
	h.mu.Lock()
	delete(h.links, l)
	h.mu.Unlock()
	l.out.shut(err)
	return l.out.cause // which may be older
}

// greet completes the handshake.
func (h *host) greet(c net.Conn) (*link, error) {
	l := &link{conn: c}
	l.pulse.start = time.Now()
	l.dec = newDecoder(l, h.buffer, h.lim)
	l.dec.budget = h.budget
	c.SetDeadline(time.Now().Add(h.opts.HandshakeTimeout))
	var err error
	if l.peer, err = handshake(c, l.dec, ready{socket: h.socket}, h.accept...); err != nil {
		l.dec.close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errors.New("no ZeroMQ handshake in time")
		}
		return nil, err
	}
	c.SetDeadline(time.Time{})
	l.dec.deadline = c.SetReadDeadline
	l.out.init(c, &l.pulse, h.backlog, h.stall, &h.drains)
	h.mu.Lock()
	h.links[l] = struct{}{}
	h.mu.Unlock()
	return l, nil
}

// complain logs why a peer was lost, unless it just disconnected.
func (h *host) complain(c net.Conn, err error) {
	if err == nil || err == io.EOF {
		return
	}
	level := slog.LevelInfo
	if errors.Is(err, io.ErrUnexpectedEOF) || isNetError(err) {
		level = slog.LevelDebug // the peer disconnected
	}
	h.limited.Log(level, "closing a connection", "socket", h.socket, "peer", c.RemoteAddr().String(), "err", err)
}

func isNetError(err error) bool {
	var ne net.Error
	return errors.As(err, &ne)
}

// misses is the number of rounds of heartbeats that a peer may leave unanswered.
const misses = 3

// heartbeats pings the peers that must support PING (ZMTP 3.1) and drops those that have answered
// before and are silent now. The TTL in the PING lets a libzmq peer detect that this master is
// gone; such a peer must then receive the next message in time. So a peer that was heard, and to
// which something was sent, since the last round is not pinged. A peer that sends PINGs itself, as
// Brine's do, is pinged only when it is silent.
func (h *host) heartbeats(ctx context.Context) {
	every := h.opts.Heartbeat
	if every <= 0 {
		return
	}
	r := rounds{host: h, every: every, ping: &packet{head: appendPing(nil, misses*every)}, last: time.Now()}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if r.round(time.Now()) {
			r.last = time.Now() // for thousands of peers on a busy machine that is much later
		}
	}
}

// rounds are the heartbeats of a host. A peer's silence is counted in rounds, not in seconds: while
// this process or the whole machine was paused, the peer missed nothing.
type rounds struct {
	*host
	every time.Duration
	ping  *packet
	last  time.Time // the end of the last round
}

// round starts a round, unless it comes so soon after the last one that its answers cannot have
// arrived yet: a ticker catches up after a late tick.
func (r *rounds) round(now time.Time) bool {
	since := now.Sub(r.last)
	if since < r.every/2 {
		return false
	}
	counts := since <= r.every+r.every/2 // otherwise this process was paused, not the peers
	for _, l := range r.current() {
		gone := l.judge(counts)
		switch silence := l.pulse.silence(); {
		case l.peer.minor < 1:
		case gone && !l.unread():
			l.out.shut(errors.New("the peer does not answer heartbeats"))
		case silence < r.every && (l.asks.Load() || l.answers.Load() && l.out.spoke()):
		default:
			l.out.send(r.ping)
			l.out.spoke() // the PING itself does not count
		}
	}
	return true
}

// judge records whether the peer has given a sign of life since the last round, and reports whether
// it is lost.
func (l *link) judge(counts bool) (gone bool) {
	sign := l.pulse.last.Load()
	switch {
	case sign != l.sign:
		l.sign, l.quiet = sign, 0
	case counts:
		l.quiet = min(l.quiet+1, misses)
	default:
		l.quiet = 0 // its answer may have been due while we were paused
	}
	return l.answers.Load() && l.quiet >= misses
}

// unread reports whether data of the peer waits to be read.
func (l *link) unread() bool {
	if l.out.raw == nil {
		return false
	}
	unread, _ := netpeer.Peek(l.out.raw)
	return unread
}

func (h *host) current() []*link {
	h.mu.Lock()
	defer h.mu.Unlock()
	links := make([]*link, 0, len(h.links))
	for l := range h.links {
		links = append(links, l)
	}
	return links
}
