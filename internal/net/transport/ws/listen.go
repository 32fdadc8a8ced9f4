package ws

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"brine/internal/base/ratelimit"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
	"brine/internal/net/transport/netserve"
)

const (
	// maxHeader bounds the upgrade request.
	maxHeader        = 16 << 10
	defaultHighWater = 1000
	defaultHandshake = 10 * time.Second
)

// listener is the common part of both ports: it accepts, upgrades, and sends heartbeats.
type listener struct {
	o      transport.ListenOptions
	port   string // for logs
	srv    *netserve.Server
	log    *ratelimit.Log
	budget *netserve.Budget

	mu    sync.Mutex
	peers map[*link]struct{}
}

func (l *listener) init(addr, option, port string, o transport.ListenOptions, log *slog.Logger) error {
	ln, err := netserve.Listen(addr, option, o.KeepAlive)
	if err != nil {
		return err
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = transport.DefaultMaxMessage
	}
	if o.MaxBuffered <= 0 {
		o.MaxBuffered = 4 * int64(o.MaxMessage)
	}
	if o.HighWater <= 0 {
		o.HighWater = defaultHighWater
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = defaultHandshake
	}
	l.o, l.port = o, port
	l.srv = &netserve.Server{Listener: ln, Log: log, Guests: o.Guests}
	l.log = ratelimit.NewLog(log, 5, 10*time.Second)
	l.budget = o.Unfinished()
	l.peers = make(map[*link]struct{})
	return nil
}

func (l *listener) Addr() net.Addr { return l.srv.Listener.Addr() }

func (l *listener) Close() error { return l.srv.Listener.Close() }

// run serves until ctx ends; each upgraded connection is given to handle.
func (l *listener) run(ctx context.Context, limit int, handle func(context.Context, *link) error) error {
	l.srv.Handle = func(ctx context.Context, c net.Conn) { l.serve(ctx, c, limit, handle) }
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { everyTick(l.o.Heartbeat, ctx.Done(), l.pulse) })
	err := l.srv.Serve(ctx)
	cancel()
	wg.Wait()
	return err
}

func (l *listener) pulse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.peers {
		p.pulse(l.o.Heartbeat)
	}
}

func (l *listener) serve(ctx context.Context, c net.Conn, limit int, handle func(context.Context, *link) error) {
	live := netpeer.Wrap(c)
	c.SetDeadline(time.Now().Add(l.o.HandshakeTimeout))
	ws, brine, err := upgrade(ctx, live, l.o.TLS)
	if err != nil {
		l.complain(c, fmt.Errorf("upgrade: %w", err))
		return
	}
	c.SetDeadline(time.Time{})
	ws.SetReadLimit(int64(l.o.MaxMessage))
	p := &link{}
	p.init(ws, live, limit)
	p.mayDrop.Store(brine)
	l.mu.Lock()
	l.peers[p] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.peers, p)
		l.mu.Unlock()
		p.end()
	}()
	if err := handle(ctx, p); err != nil {
		l.complain(c, err)
	}
}

// complain logs why a connection ended, unless the peer just disconnected.
func (l *listener) complain(c net.Conn, err error) {
	if !isDisconnect(err) {
		l.log.Log(slog.LevelInfo, "closed a connection to the "+l.port, "peer", c.RemoteAddr().String(), "err", err)
	}
}

// upgrade completes the handshakes. brine says whether the peer is Brine's client. The caller has
// set a deadline.
func upgrade(ctx context.Context, live *netpeer.Conn, cfg *tls.Config) (ws *websocket.Conn, brine bool, err error) {
	var conn net.Conn = live
	if cfg != nil {
		t := tls.Server(live, cfg)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, false, err
		}
		conn = t
	}
	in := &io.LimitedReader{R: conn, N: maxHeader}
	w := &responseWriter{conn: conn, header: make(http.Header)}
	w.rw = bufio.NewReadWriter(bufio.NewReaderSize(in, 1<<10), bufio.NewWriterSize(conn, 1<<10))
	req, err := http.ReadRequest(w.rw.Reader)
	if err != nil {
		if in.N <= 0 {
			err = errors.New("the request is too long")
		}
		return nil, false, err
	}
	ws, err = websocket.Accept(w, req, &websocket.AcceptOptions{OnPingReceived: func(context.Context, []byte) bool {
		live.Discount()
		return true
	}})
	if err != nil {
		w.rw.Flush()
		return nil, false, err
	}
	return ws, req.UserAgent() == userAgent, nil
}

// responseWriter is the part of an HTTP server that an upgrade needs. The connection stays with
// netserve.
type responseWriter struct {
	conn   net.Conn
	rw     *bufio.ReadWriter
	header http.Header
	wrote  bool
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	if w.wrote {
		return
	}
	w.wrote = true
	if status != http.StatusSwitchingProtocols {
		w.header.Set("Connection", "close")
	}
	fmt.Fprintf(w.rw, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	w.header.Write(w.rw)
	w.rw.WriteString("\r\n")
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.rw.Write(b)
}

func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, w.rw, w.rw.Flush()
}
