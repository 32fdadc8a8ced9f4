package zeromq

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
)

const (
	// requestBuffer holds a usual request.
	requestBuffer = 2 << 10
	// maxAsked and maxAskedBytes bound the requests of one peer that are unanswered or whose
	// answers it has not received; nothing more is read from it then. A REQ never has more than
	// one.
	maxAsked      = 64
	maxAskedBytes = 1 << 20
	// maxRoute bounds the routing frames of proxies, maxRouteFrame each.
	maxRoute      = 8
	maxRouteFrame = 255
)

// requestServer is the ROUTER.
type requestServer struct {
	*host
	window int
}

func listenRequests(addr string, o transport.ListenOptions, log *slog.Logger) (*requestServer, error) {
	o = listenDefaults(o)
	h, err := listen(addr, "ret_port", o, log)
	if err != nil {
		return nil, err
	}
	h.socket, h.accept = "ROUTER", []string{"REQ", "DEALER"}
	h.buffer = requestBuffer
	h.lim = limits{command: maxCommand, message: o.MaxMessage, frames: maxRoute + 2}
	h.backlog = o.Backlog
	return &requestServer{host: h, window: min(maxAsked, o.Backlog)}, nil
}

// Serve accepts peers and hands their requests to handle until ctx ends.
func (s *requestServer) Serve(ctx context.Context, handle transport.Handler) error {
	return s.serve(ctx, func(l *link) error { return s.talk(l, handle) }, nil)
}

// talk reads the requests of one peer.
func (s *requestServer) talk(l *link, handle transport.Handler) error {
	addr, gone := l.conn.RemoteAddr(), l.gone
	for {
		if !l.out.awaitRoom(s.window, maxAskedBytes) {
			return errors.New("the connection was closed")
		}
		if err := l.dec.await(); err != nil {
			return err
		}
		route, body, err := readRequest(l)
		if err != nil {
			return err
		}
		l.out.ask(len(body))
		answer := l.replier(route, len(body))
		handle(&transport.Request{Body: body, Peer: addr, Answer: answer, Gone: gone,
			Reply: func(reply []byte) { answer(transport.Answer{Body: reply}) }})
	}
}

// gone implements transport.Request.
func (l *link) gone() bool {
	if l.out.raw == nil {
		return false
	}
	_, closed := netpeer.Peek(l.out.raw)
	return closed
}

// replier returns the function that answers a request of n bytes.
func (l *link) replier(route []byte, n int) func(transport.Answer) {
	var given atomic.Bool
	return func(a transport.Answer) {
		if given.Swap(true) {
			a.Done(true)
			return
		}
		head := make([]byte, 0, len(route)+2+9+len(a.Head))
		head = append(head, route...)
		head = appendHeader(head, flagMore, 0)
		head = appendHeader(head, 0, len(a.Head)+len(a.Body))
		head = append(head, a.Head...)
		if l.out.answer(&packet{head: head, body: a.Body, sent: a.Sent}, n) {
			l.out.flushAll()
		}
	}
}

// readRequest reads up to the next request and returns its routing frames, which the reply repeats,
// and its body.
func readRequest(l *link) (route, body []byte, err error) {
	f, err := l.message()
	for frames := 0; err == nil && f.more() && len(f.body) > 0; frames++ {
		if frames == maxRoute || len(f.body) > maxRouteFrame {
			return nil, nil, errNoRequest
		}
		route = appendFrame(route, flagMore, f.body)
		f, err = l.message()
	}
	if err != nil {
		return nil, nil, err
	}
	if !f.more() {
		return nil, nil, errNoRequest
	}
	if f, err = l.message(); err != nil {
		return nil, nil, err
	}
	if f.more() {
		return nil, nil, errNoRequest
	}
	return route, f.body, nil
}

var errNoRequest = errors.New("a message that is not an empty frame and one body")

// message returns the next frame that belongs to a message.
func (l *link) message() (frame, error) {
	for {
		f, err := l.dec.frame()
		if err != nil || !f.command() {
			return f, err
		}
		name, data, err := parseCommand(f.body)
		if err != nil {
			return f, err
		}
		if err = l.command(name, data); err != nil {
			return f, err
		}
	}
}

// awaitRoom waits until fewer than n requests are open and, if any is, they and their answers take
// fewer than size bytes. It returns false if the connection is closed.
func (o *outbox) awaitRoom(n, size int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed {
		open := o.asked + o.q.n
		if open == 0 || open < n && o.askBytes+o.bytes < size {
			return true
		}
		o.room.Wait()
	}
	return false
}

// ask counts a request of n bytes that awaits its answer.
func (o *outbox) ask(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	o.askBytes += n
}

// answer is push for the reply to a request of n bytes.
func (o *outbox) answer(p *packet, n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked--
	o.askBytes -= n
	if o.closed {
		p.done(true)
		return false
	}
	return o.queue(p) // awaitRoom bounds their number
}
