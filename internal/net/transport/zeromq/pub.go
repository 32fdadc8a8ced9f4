package zeromq

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/net/transport"
)

const (
	// topicAll and topicSyndic are the topics in addition to the minions' own.
	topicAll    = "broadcast"
	topicSyndic = "syndic"
	// subscriberBuffer is enough for one message of a subscriber.
	subscriberBuffer = 512
	// lastWords is how long Serve continues to send when it is stopped.
	lastWords = time.Second
)

// publisher is the PUB. Its subscribers are distributed over a few shards. Publish only queues;
// each shard has a goroutine that writes to its subscribers with queued messages, without waiting
// for any.
type publisher struct {
	*host
	shards []*shard
	next   atomic.Uint32 // distributes the subscribers
	// changes counts changes of the result of Peers; it is increased before the lock of the shard
	// is released.
	changes atomic.Uint64
}

// shard owns the subscriptions of some subscribers. Its lock is held for queueing and never while
// writing.
type shard struct {
	changes *atomic.Uint64 // the publisher's
	mu      sync.Mutex
	wake    sync.Cond
	topics  topics
	members map[*subscriber]struct{}
	ready   []*subscriber // have something to flush
	stopped bool
}

func listenPublish(addr string, o transport.ListenOptions, log *slog.Logger) (*publisher, error) {
	o = listenDefaults(o)
	h, err := listen(addr, "publish_port", o, log)
	if err != nil {
		return nil, err
	}
	h.socket, h.accept = "PUB", []string{"SUB", "XSUB"}
	h.buffer = subscriberBuffer
	h.lim = limits{command: maxCommand, message: 1 + maxPrefix, frames: 1}
	h.backlog = o.HighWater
	p := &publisher{host: h}
	for range min(runtime.GOMAXPROCS(0), 8) {
		s := &shard{changes: &p.changes, topics: topics{lists: make(map[string][]*subscriber)}, members: make(map[*subscriber]struct{})}
		s.wake.L = &s.mu
		p.shards = append(p.shards, s)
	}
	return p, nil
}

// Serve accepts subscribers until ctx ends.
func (p *publisher) Serve(ctx context.Context) error {
	var writers sync.WaitGroup
	for _, s := range p.shards {
		writers.Go(s.write)
	}
	err := p.serve(ctx, p.talk, p.finish)
	for _, s := range p.shards {
		s.stop()
	}
	writers.Wait()
	return err
}

// finish waits a moment for queued messages to be sent.
func (p *publisher) finish() {
	end := time.NewTimer(lastWords)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !p.idle() {
		select {
		case <-end.C:
			return
		case <-tick.C:
		}
	}
}

func (p *publisher) idle() bool {
	for _, l := range p.current() {
		if !l.out.idle() {
			return false
		}
	}
	return true
}

// talk reads the subscriptions of one peer.
func (p *publisher) talk(l *link) error {
	sh := p.shards[p.next.Add(1)%uint32(len(p.shards))]
	s := &subscriber{link: l, shard: sh}
	sh.join(s)
	defer sh.leave(s)
	for {
		if err := l.dec.await(); err != nil {
			return err
		}
		f, err := l.dec.frame()
		if err != nil {
			return err
		}
		if err = s.handle(f); err != nil {
			return err
		}
	}
}

func (s *subscriber) handle(f frame) error {
	if !f.command() {
		prefix, on, err := subscribes(f.body)
		if err != nil {
			return err
		}
		return s.shard.subscribe(s, prefix, on)
	}
	name, data, err := parseCommand(f.body)
	if err != nil {
		return err
	}
	switch name {
	case cmdSubscribe:
		return s.shard.subscribe(s, string(data), true)
	case cmdCancel:
		return s.shard.subscribe(s, string(data), false)
	}
	return s.command(name, data)
}

// Peers returns the peers with a subscription.
func (p *publisher) Peers() []transport.Peer {
	var peers []transport.Peer
	for _, sh := range p.shards {
		sh.mu.Lock()
		for s := range sh.members {
			if len(s.subs) > 0 {
				peers = append(peers, transport.Peer{Addr: s.conn.RemoteAddr(), Claimed: s.peer.identity, Dropped: s.out.missed()})
			}
		}
		sh.mu.Unlock()
	}
	return peers
}

// Changes implements transport.Publisher.
func (p *publisher) Changes() uint64 { return p.changes.Load() }

// outgoing is one message and the topic that selects its receivers.
type outgoing struct {
	topic []byte
	body  []byte // the payload's frame
	named bool   // the topic precedes it in a separate frame
}

// Publish queues the publication for its subscribers.
func (p *publisher) Publish(pub transport.Publication) {
	messages := p.messages(pub)
	for _, s := range p.shards {
		s.publish(messages)
	}
}

// messages encodes a publication. The payload is encoded once and shared by all.
func (p *publisher) messages(pub transport.Publication) []outgoing {
	body := appendFrame(make([]byte, 0, 9+len(pub.Payload)), 0, pub.Payload)
	if !p.opts.Filter {
		return []outgoing{{topic: pub.Payload, body: body}}
	}
	if pub.Minions == nil {
		return []outgoing{{topic: []byte(topicAll), body: body, named: true}}
	}
	messages := make([]outgoing, 0, len(pub.Minions)+1)
	space := make([]byte, 0, 2*sha1.Size*len(pub.Minions)) // one allocation for all topics
	for _, id := range pub.Minions {
		sum := sha1.Sum([]byte(id))
		start := len(space)
		space = hex.AppendEncode(space, sum[:])
		messages = append(messages, outgoing{topic: space[start:], body: body, named: true})
	}
	if p.opts.Syndics {
		messages = append(messages, outgoing{topic: []byte(topicSyndic), body: body, named: true})
	}
	return messages
}

// publish queues messages; the topic's frame is created only if there is a subscriber.
func (s *shard) publish(messages []outgoing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		var p *packet
		s.topics.match(m.topic, func(sub *subscriber) {
			if p == nil {
				p = &packet{body: m.body}
				if m.named {
					p.head = appendFrame(nil, flagMore, m.topic)
				}
			}
			if sub.out.push(p) {
				s.ready = append(s.ready, sub)
			}
		})
	}
	if len(s.ready) > 0 {
		s.wake.Signal()
	}
}

// write runs the shard's writer.
func (s *shard) write() {
	var turn, again []*subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped {
		if len(s.ready) == 0 {
			s.wake.Wait()
			continue
		}
		turn, s.ready = s.ready, turn[:0]
		s.mu.Unlock()
		for _, sub := range turn {
			if sub.out.flush() {
				again = append(again, sub) // after all other subscribers
			}
		}
		clear(turn)
		s.mu.Lock()
		s.ready = append(s.ready, again...)
		clear(again)
		again = again[:0]
	}
}

func (s *shard) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.wake.Signal()
}

func (s *shard) join(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[sub] = struct{}{}
}

func (s *shard) leave(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topics.clear(sub)
	delete(s.members, sub)
	s.changes.Add(1)
}

func (s *shard) subscribe(sub *subscriber, prefix string, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changes.Add(1)
	if on {
		return s.topics.add(sub, prefix)
	}
	s.topics.remove(sub, prefix)
	return nil
}
