package ws

import (
	"context"
	"log/slog"
	"sync/atomic"

	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
)

// requestServer is the request port.
type requestServer struct {
	listener
	handle transport.Handler
}

func listenRequests(addr string, o transport.ListenOptions, log *slog.Logger) (*requestServer, error) {
	s := &requestServer{}
	return s, s.init(addr, "ret_port", "request port", o, log)
}

func (s *requestServer) Serve(ctx context.Context, h transport.Handler) error {
	s.handle = h
	return s.run(ctx, 0, s.serve)
}

// serve reads requests from one peer, each after the last was answered.
func (s *requestServer) serve(ctx context.Context, p *link) error {
	answered := make(chan struct{}, 1)
	for first := true; ; first = false {
		body, err := p.read(s.budget)
		if err == nil {
			err = checkObject(body)
		}
		if err != nil {
			return err
		}
		if !first {
			select {
			case <-answered:
			case <-ctx.Done():
				return nil
			}
		}
		e := &exchange{p: p, answered: answered}
		e.Request = transport.Request{Body: body, Peer: p.live.RemoteAddr(), Reply: e.reply, Answer: e.answer}
		s.handle(&e.Request)
	}
}

// exchange is one request and its reply.
type exchange struct {
	transport.Request
	p        *link
	answered chan<- struct{}
	replied  atomic.Bool
}

func (e *exchange) reply(body []byte) { e.answer(transport.Answer{Body: body}) }

func (e *exchange) answer(a transport.Answer) {
	if e.replied.Swap(true) {
		a.Done(true)
		return
	}
	e.p.out.Push(netpeer.Message{Head: a.Head, Body: a.Body, Sent: a.Sent})
	e.answered <- struct{}{} // has room: the next request waits for it
}
