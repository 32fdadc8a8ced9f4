package tcp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
	"brine/internal/net/transport/netserve"
)

const (
	// maxRegistration bounds a subscriber's message; Salt's has some 500 bytes.
	maxRegistration = 64 << 10
	// maxRefused bounds the refused registrations of one peer. Each costs a decryption and a
	// signature check.
	maxRefused = 10
	// unregisteredTime is how long a subscriber may stay whose only registrations were refused.
	unregisteredTime = 10 * time.Second
	// drainTime is the time for the queues to empty at the end.
	drainTime = time.Second
	// maxWriters bounds the goroutines that write publications.
	maxWriters = 8
)

// publisher is the publish port.
type publisher struct {
	o      transport.ListenOptions
	srv    *netserve.Server
	log    *ratelimit.Log
	budget *netserve.Budget
	crew   netpeer.Crew // writes
	// unregistered is unregisteredTime.
	unregistered time.Duration

	mu     sync.Mutex // also keeps publications in the same order for all subscribers
	closed bool
	seq    uint64 // of the publication
	// changes is the result of Changes, and is increased under mu.
	changes atomic.Uint64
	peers   map[*subscriber]struct{}
	byID    map[string]map[*subscriber]struct{}
}

func listenPublish(addr string, o transport.ListenOptions, log *slog.Logger) (*publisher, error) {
	p := &publisher{
		o: withDefaults(o), unregistered: unregisteredTime,
		peers: make(map[*subscriber]struct{}),
		byID:  make(map[string]map[*subscriber]struct{}),
	}
	var err error
	if p.srv, p.log, err = newServer(addr, "publish_port", o, log); err != nil {
		return nil, err
	}
	p.budget = p.o.Unfinished()
	p.srv.Handle = p.serve
	p.srv.Drain = p.drain
	return p, nil
}

func (p *publisher) Addr() net.Addr { return p.srv.Listener.Addr() }

func (p *publisher) Close() error { return p.srv.Listener.Close() }

func (p *publisher) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { everyTick(p.o.Heartbeat, ctx.Done(), p.pulse) })
	for range min(runtime.GOMAXPROCS(0), maxWriters) {
		wg.Go(p.crew.Work)
	}
	err := p.srv.Serve(ctx)
	cancel()
	p.crew.Stop()
	wg.Wait()
	return err
}

func (p *publisher) pulse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.peers {
		s.pulse(p.o.Heartbeat)
	}
}

// Publish queues the publication. With Filter each peer that registered as one of pub.Minions gets
// it once. Peers without registration only get publications without pub.Minions.
func (p *publisher) Publish(pub transport.Publication) {
	m := netpeer.Message{Body: append(publishHead(pub.Payload), pub.Payload...)} // in one piece, shared by all subscribers
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	var ready []*netpeer.Queue
	put := func(s *subscriber) {
		if _, rest := s.out.Put(m); rest {
			ready = append(ready, &s.out)
		}
	}
	if !p.o.Filter || pub.Minions == nil {
		for s := range p.peers {
			put(s)
		}
	} else {
		p.seq++
		for _, id := range pub.Minions {
			for s := range p.byID[id] {
				if s.seq != p.seq {
					s.seq = p.seq
					put(s)
				}
			}
		}
	}
	p.crew.Add(ready)
}

func (p *publisher) Peers() []transport.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	peers := make([]transport.Peer, 0, len(p.peers))
	for s := range p.peers {
		peers = append(peers, transport.Peer{Addr: s.conn.RemoteAddr(), ID: s.id, Dropped: s.out.Dropped()})
	}
	return peers
}

// Changes implements transport.Publisher.
func (p *publisher) Changes() uint64 { return p.changes.Load() }

// drain stops accepting publications and gives the queues a moment.
func (p *publisher) drain() {
	p.mu.Lock()
	p.closed = true
	peers := make([]*subscriber, 0, len(p.peers))
	for s := range p.peers {
		peers = append(peers, s)
	}
	p.mu.Unlock()
	deadline := time.Now().Add(drainTime)
	for _, s := range peers {
		s.conn.SetWriteDeadline(deadline)
	}
	for _, s := range peers {
		s.out.Wait()
	}
}

// subscriber is one connection to the publish port.
type subscriber struct {
	link
	id  string // registered, under publisher.mu
	seq uint64 // last publication sent by id, under publisher.mu
}

// serve reads from one peer until it ends. The stack meanwhile is most of the cost of a connection,
// as for requests.
func (p *publisher) serve(ctx context.Context, c net.Conn) {
	s, r := p.meet(ctx, c)
	if s == nil {
		return
	}
	defer func() {
		p.leave(s)
		s.end()
	}()
	defer r.release()
	switch err := p.listen(s, r); {
	case errors.Is(err, errRefused):
		p.log.Log(slog.LevelWarn, "closed a connection to the publish port: too many refused registrations", peerName(c))
	case err != nil:
		complain(p.log, "publish port", s.conn, err)
	}
}

// meet prepares a new peer. It returns nil if that fails.
func (p *publisher) meet(ctx context.Context, c net.Conn) (*subscriber, *frameReader) {
	live := netpeer.Wrap(c)
	if p.o.TLS != nil {
		c.SetDeadline(time.Now().Add(p.o.HandshakeTimeout))
	}
	conn, err := accept(ctx, live, p.o.TLS)
	if err != nil {
		p.log.Log(slog.LevelInfo, "TLS handshake failed on the publish port", peerName(c), "err", err)
		return nil, nil
	}
	c.SetDeadline(time.Time{})
	s := &subscriber{}
	s.init(conn, live, p.o.HighWater)
	if !p.join(s) {
		return nil, nil
	}
	return s, newFrameReader(conn, min(p.o.MaxMessage, maxRegistration), p.budget)
}

var errRefused = errors.New("too many refused registrations")

// listen reads registrations and beats.
func (p *publisher) listen(s *subscriber, r *frameReader) error {
	var deadline *time.Timer
	defer func() {
		if deadline != nil {
			deadline.Stop()
		}
	}()
	for refused := 0; refused < maxRefused; {
		frame, err := r.next()
		if err != nil {
			return err
		}
		kind, err := p.received(s, frame)
		if err != nil {
			return err
		}
		switch kind {
		case registration:
			refused = 0 // a minion may register with an old key after each change of ours
		case refusedRegistration:
			if p.o.Filter && deadline == nil {
				// Without a registration it gets no command. After a restart of this master, minions
				// register with the key of before. Most do so again with the new key; those of Salt 3006
				// only after they have connected again.
				deadline = time.AfterFunc(p.unregistered, func() {
					if !p.registered(s) {
						s.conn.Close()
					}
				})
			}
			refused++
		}
	}
	return errRefused
}

// registered reports whether a minion has registered on a connection.
func (p *publisher) registered(s *subscriber) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.id != ""
}

// frameKind is the kind of a subscriber's frame.
type frameKind uint8

const (
	otherFrame          frameKind = iota
	registration                  // a minion registered
	refusedRegistration           // a registration was refused
)

// received handles one frame.
func (p *publisher) received(s *subscriber, frame []byte) (frameKind, error) {
	head, body, err := splitFrame(frame)
	if err != nil {
		return otherFrame, err
	}
	_, beat := readHead(head)
	if s.heard(beat); beat != noBeat {
		return otherFrame, nil
	}
	if p.o.Identify == nil {
		return otherFrame, nil
	}
	id, ok := p.o.Identify(body)
	if !ok {
		p.log.Log(slog.LevelInfo, "refused the registration of a subscriber", peerName(s.conn))
		return refusedRegistration, nil
	}
	p.register(s, id)
	return registration, nil
}

// join adds a new peer, unless the publisher is stopping.
func (p *publisher) join(s *subscriber) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.peers[s] = struct{}{}
	p.changes.Add(1)
	return true
}

func (p *publisher) leave(s *subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.peers, s)
	p.forgetID(s)
	p.changes.Add(1)
}

func (p *publisher) register(s *subscriber, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetID(s)
	s.id = id
	if p.byID[id] == nil {
		p.byID[id] = make(map[*subscriber]struct{}, 1)
	}
	p.byID[id][s] = struct{}{}
	p.changes.Add(1)
}

func (p *publisher) forgetID(s *subscriber) {
	if set := p.byID[s.id]; set != nil {
		if delete(set, s); len(set) == 0 {
			delete(p.byID, s.id)
		}
	}
	s.id = ""
}
