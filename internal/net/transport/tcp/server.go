package tcp

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/wait"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
	"brine/internal/net/transport/netserve"
)

// window bounds the bytes of unanswered requests and unsent replies of a peer; beyond it the server
// stops reading from the peer.
const window = 4 << 20

// requestServer is the request port.
type requestServer struct {
	o      transport.ListenOptions
	srv    *netserve.Server
	log    *ratelimit.Log
	budget *netserve.Budget
	handle transport.Handler

	mu    sync.Mutex
	peers map[*requestPeer]struct{}
}

func listenRequests(addr string, o transport.ListenOptions, log *slog.Logger) (*requestServer, error) {
	s := &requestServer{o: withDefaults(o), peers: make(map[*requestPeer]struct{})}
	var err error
	if s.srv, s.log, err = newServer(addr, "ret_port", o, log); err != nil {
		return nil, err
	}
	s.budget = s.o.Unfinished()
	s.srv.Handle = s.serve
	return s, nil
}

func (s *requestServer) Addr() net.Addr { return s.srv.Listener.Addr() }

func (s *requestServer) Close() error { return s.srv.Listener.Close() }

func (s *requestServer) Serve(ctx context.Context, h transport.Handler) error {
	s.handle = h
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { everyTick(s.o.Heartbeat, ctx.Done(), s.pulse) })
	err := s.srv.Serve(ctx)
	cancel()
	wg.Wait()
	return err
}

func (s *requestServer) pulse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		p.pulse(s.o.Heartbeat)
	}
}

// serve reads from one peer until it ends. The stack while it waits is most of the cost of a
// connection, so the beginning is in meet.
func (s *requestServer) serve(ctx context.Context, c net.Conn) {
	p, r := s.meet(ctx, c)
	if p == nil {
		return
	}
	defer p.close()
	defer r.release()
	if err := p.talk(r); err != nil {
		complain(s.log, "request port", p.conn, err)
	}
}

// meet prepares a new peer. It returns nil if that fails.
func (s *requestServer) meet(ctx context.Context, c net.Conn) (*requestPeer, *frameReader) {
	live := netpeer.Wrap(c)
	c.SetDeadline(time.Now().Add(s.o.HandshakeTimeout))
	conn, err := accept(ctx, live, s.o.TLS)
	if err != nil {
		s.log.Log(slog.LevelInfo, "TLS handshake failed on the request port", peerName(c), "err", err)
		return nil, nil
	}
	c.SetWriteDeadline(time.Time{})
	r := newFrameReader(conn, s.o.MaxMessage, s.budget)
	r.deadline = true
	return newRequestPeer(ctx, s, conn, live), r
}

// talk reads requests until the connection ends.
func (p *requestPeer) talk(r *frameReader) error {
	for p.waitForRoom() {
		frame, err := r.next()
		if err != nil {
			return err
		}
		if err := p.received(frame); err != nil {
			return err
		}
	}
	return nil
}

// accept completes the TLS handshake, if configured. The caller has set a deadline.
func accept(ctx context.Context, live *netpeer.Conn, cfg *tls.Config) (net.Conn, error) {
	if cfg == nil {
		return live, nil
	}
	t := tls.Server(live, cfg)
	return t, t.HandshakeContext(ctx)
}

// requestPeer is one connection to the request port.
type requestPeer struct {
	link
	s    *requestServer
	ctx  context.Context // ends with the server, or when nothing can be sent
	gone context.CancelFunc

	mu    sync.Mutex
	open  int         // requests without an answer and messages not sent
	bytes int         // of these requests and messages
	room  wait.Wakeup // has a token after open or bytes fell

	isGone func() bool // for transport.Request
}

func newRequestPeer(ctx context.Context, s *requestServer, conn net.Conn, live *netpeer.Conn) *requestPeer {
	p := &requestPeer{s: s, room: wait.NewWakeup(), isGone: live.Closed}
	p.ctx, p.gone = context.WithCancel(ctx)
	p.init(conn, live, 0)
	p.out.Write = func(ms []netpeer.Message) error {
		err := p.write(ms)
		if err != nil {
			p.gone()
		}
		return err
	}
	p.out.Written = func(messages, bytes int) { p.account(-messages, -bytes) }
	p.counts = p.account
	s.mu.Lock()
	s.peers[p] = struct{}{}
	s.mu.Unlock()
	return p
}

func (p *requestPeer) close() {
	p.s.mu.Lock()
	delete(p.s.peers, p)
	p.s.mu.Unlock()
	p.gone()
	p.end()
}

// account updates the peer's counters of pending requests and messages.
func (p *requestPeer) account(messages, bytes int) {
	p.mu.Lock()
	p.open += messages
	p.bytes += bytes
	p.mu.Unlock()
	if messages > 0 {
		return
	}
	p.room.Wake()
}

// waitForRoom returns true when the peer may send another request, false when
// reading on is pointless.
func (p *requestPeer) waitForRoom() bool {
	for {
		p.mu.Lock()
		ok := p.open < p.s.o.Backlog && p.bytes < window
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-p.room.C():
		case <-p.ctx.Done():
			return false
		}
	}
}

// exchange is one request and its reply.
type exchange struct {
	transport.Request
	p       *requestPeer
	head    []byte // the frame up to the body; the reply's frame begins alike
	size    int    // bytes counted for the request
	replied atomic.Bool
}

func (p *requestPeer) received(frame []byte) error {
	head, body, err := splitFrame(frame)
	if err != nil {
		return err
	}
	mid, beat := readHead(head)
	if beat != noBeat {
		if p.heard(beat); mid == nil {
			return nil
		}
	}
	p.live.Heard()
	e := &exchange{p: p, size: len(frame), head: replyHead(frame, head, body)}
	e.Request = transport.Request{Body: body, Peer: p.conn.RemoteAddr(), NewSpec: true, Reply: e.reply, Answer: e.answer, Gone: p.isGone}
	p.account(1, e.size)
	p.s.handle(&e.Request)
	return nil
}

// replyHead returns how the reply to a frame begins. If the frame is head and
// body in this order, it begins as the frame does.
func replyHead(frame, head, body []byte) []byte {
	if n := len(frame) - len(body); frame[0] == 0x82 && &frame[n] == &body[0] {
		return frame[:n:n]
	}
	b := append(make([]byte, 0, len(head)+11), "\x82\xa4head"...)
	return append(append(b, head...), "\xa4body"...)
}

func (e *exchange) reply(body []byte) { e.answer(transport.Answer{Body: body}) }

func (e *exchange) answer(a transport.Answer) {
	if e.replied.Swap(true) {
		a.Done(true)
		return
	}
	m := netpeer.Message{Head: append(e.head, a.Head...), Body: a.Body, Sent: a.Sent}
	e.p.account(0, len(m.Head)+len(m.Body)-e.size)
	e.p.out.Push(m)
}

// complain logs why a connection ended, unless the peer just left.
func complain(log *ratelimit.Log, port string, c net.Conn, err error) {
	if !isDisconnect(err) {
		log.Log(slog.LevelInfo, "closed a connection to the "+port, peerName(c), "err", err)
	}
}
