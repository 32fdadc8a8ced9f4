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

	"brine/internal/transport"
	"brine/internal/transport/netpeer"
	"brine/internal/transport/netserve"
)

// link is one accepted connection after its handshake.
type link struct {
	conn    net.Conn
	dec     *decoder
	peer    peer
	out     outbox
	pulse   pulse
	answers atomic.Bool // whether the peer has ever answered a PING
	asks    atomic.Bool // whether it has ever sent one
}

// Read reads from the connection and notes the sign of life.
func (l *link) Read(b []byte) (int, error) {
	n, err := l.conn.Read(b)
	if n > 0 {
		l.pulse.beat()
	}
	return n, err
}

// command handles the commands that mean the same to every socket.
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

// host is what both servers consist of besides their sockets' own manners.
type host struct {
	socket  string   // own Socket-Type
	accept  []string // those of the peers
	opts    transport.ListenOptions
	buffer  int // bytes to read into, per peer
	lim     limits
	backlog int // packets queued per peer
	stall   time.Duration
	lis     net.Listener
	log     *slog.Logger
	gripes  *netserve.RateLog // about peers
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
		opts:   o,
		stall:  stallTime,
		lis:    lis,
		log:    log,
		gripes: netserve.NewRateLog(log, 10, 10*time.Second),
		budget: o.Unfinished(),
		links:  make(map[*link]struct{}),
	}, nil
}

func (h *host) Addr() net.Addr { return h.lis.Addr() }

// Close unbinds a listener that was never served.
func (h *host) Close() error { return h.lis.Close() }

// serve runs talk for every peer whose handshake succeeds, until ctx ends.
func (h *host) serve(ctx context.Context, talk func(*link) error, drain func()) error {
	s := netserve.Server{Listener: h.lis, Log: h.log, Drain: drain,
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

// meet shakes hands with a new peer and talks to it until the end. What is on
// the stack meanwhile is most of what a connection costs, so the beginning is
// in greet, and waiting is done in await.
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

// greet shakes hands.
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

// complain tells why a peer was lost, if that is worth a word.
func (h *host) complain(c net.Conn, err error) {
	if err == nil || err == io.EOF {
		return
	}
	level := slog.LevelInfo
	if errors.Is(err, io.ErrUnexpectedEOF) || isNetError(err) {
		level = slog.LevelDebug // the peer vanished, as peers do
	}
	h.gripes.Log(level, "closing a connection", "socket", h.socket, "peer", c.RemoteAddr().String(), "err", err)
}

func isNetError(err error) bool {
	var ne net.Error
	return errors.As(err, &ne)
}

// heartbeats pings the peers that must know PING (ZMTP 3.1) and drops those
// that used to answer and are silent now. The TTL in the PING lets a libzmq
// peer notice by itself that this master is gone; such a peer must then hear
// the next one in time. One that sends PINGs itself, as Brine's do, is pinged
// only when it is silent.
func (h *host) heartbeats(ctx context.Context) {
	every := h.opts.Heartbeat
	if every <= 0 {
		return
	}
	patience := 3 * every
	ping := &packet{head: appendPing(nil, patience)}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		slept := now.Sub(last) > every+every/2 // we did, not the peers
		last = now
		for _, l := range h.current() {
			silence := l.pulse.silence()
			switch {
			case l.peer.minor < 1:
			case l.answers.Load() && silence > patience && !slept && !l.unread():
				l.out.shut(errors.New("the peer answers no heartbeats"))
			case l.asks.Load() && silence < every:
			default:
				l.out.send(ping)
			}
		}
	}
}

// unread tells whether something of the peer waits to be read.
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
