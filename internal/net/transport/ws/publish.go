package ws

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
)

// maxFromSubscriber bounds a subscriber's messages; there should be none.
const maxFromSubscriber = 4 << 10

// drainTime is the time for the queues to empty at the end.
const drainTime = time.Second

// publisher is the publish port.
type publisher struct {
	listener

	subMu  sync.Mutex // also keeps publications in the same order for all subscribers
	closed bool
	subs   map[*link]net.Addr
	// changes is the result of Changes, and is increased under subMu.
	changes atomic.Uint64
}

func listenPublish(addr string, o transport.ListenOptions, log *slog.Logger) (*publisher, error) {
	p := &publisher{subs: make(map[*link]net.Addr)}
	if err := p.init(addr, "publish_port", "publish port", o, log); err != nil {
		return nil, err
	}
	p.srv.Drain = p.drain
	return p, nil
}

func (p *publisher) Serve(ctx context.Context) error { return p.run(ctx, p.o.HighWater, p.serve) }

func (p *publisher) serve(_ context.Context, s *link) error {
	p.subMu.Lock()
	if p.closed {
		p.subMu.Unlock()
		return nil
	}
	p.subs[s] = s.live.RemoteAddr()
	p.changes.Add(1)
	p.subMu.Unlock()
	defer func() {
		p.subMu.Lock()
		delete(p.subs, s)
		p.changes.Add(1)
		p.subMu.Unlock()
	}()
	s.ws.SetReadLimit(maxFromSubscriber)
	for {
		if _, err := s.read(p.budget); err != nil {
			return err
		}
	}
}

func (p *publisher) Publish(pub transport.Publication) {
	m := netpeer.Message{Body: wrap(pub.Payload)}
	p.subMu.Lock()
	defer p.subMu.Unlock()
	if p.closed {
		return
	}
	for s := range p.subs {
		s.out.Push(m)
	}
}

func (p *publisher) Peers() []transport.Peer {
	p.subMu.Lock()
	defer p.subMu.Unlock()
	peers := make([]transport.Peer, 0, len(p.subs))
	for s, addr := range p.subs {
		peers = append(peers, transport.Peer{Addr: addr, Dropped: s.out.Dropped()})
	}
	return peers
}

// Changes implements transport.Publisher.
func (p *publisher) Changes() uint64 { return p.changes.Load() }

// drain stops accepting publications and gives the queues a moment.
func (p *publisher) drain() {
	p.subMu.Lock()
	p.closed = true
	subs := make([]*link, 0, len(p.subs))
	for s := range p.subs {
		subs = append(subs, s)
	}
	p.subMu.Unlock()
	deadline := time.Now().Add(drainTime)
	for _, s := range subs {
		s.live.SetWriteDeadline(deadline)
	}
	for _, s := range subs {
		s.out.Wait()
	}
}
