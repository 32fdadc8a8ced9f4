package zeromq

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/test/eventually"
)

func (p *publisher) say(payload string) { p.Publish(transport.Publication{Payload: []byte(payload)}) }

// subscribeRaw subscribes a raw peer and waits until the publisher knows.
func subscribeRaw(t *testing.T, p *publisher, minor byte, prefixes ...string) *rawPeer {
	t.Helper()
	before := len(p.Peers())
	c := rawConnect(t, p.Addr(), minor, "SUB")
	for _, prefix := range prefixes {
		c.say(appendSubscribe(nil, int(minor), prefix))
	}
	eventually.True(t, "the subscription is known", func() bool { return len(p.Peers()) > before })
	c.sync() // so all of them are
	return c
}

func TestSubscriptionsOfBothVersions(t *testing.T) {
	p := servePublisher(t, transport.ListenOptions{}, nil)
	for _, minor := range []byte{0, 1, 9} {
		c := subscribeRaw(t, p, minor, "a", "bb", "a")
		both := [][]byte{appendFrame(nil, 0, []byte("\x00a")), appendCommand(nil, cmdCancel, []byte("a"))}
		for _, s := range []string{"a1", "b", "bb2", "", "abb"} {
			p.say(s)
		}
		c.expect(0, "a1")
		c.expect(0, "bb2")
		c.expect(0, "abb")
		c.say(both[minor%2]) // in either form
		c.say(both[0])       // a repetition is harmless
		c.sync()
		p.say("a3")
		p.say("bb3")
		c.expect(0, "bb3")
		c.Close()
		eventually.True(t, "the subscriber is gone", func() bool { return len(p.Peers()) == 0 })
	}
}

func TestSubscriberMatchedTwiceGetsOne(t *testing.T) {
	p := servePublisher(t, transport.ListenOptions{}, nil)
	c := subscribeRaw(t, p, 1, "", "a", "ab")
	p.say("abc")
	p.say("end")
	c.expect(0, "abc")
	c.expect(0, "end")
}

func TestPublisherRefuses(t *testing.T) {
	p := servePublisher(t, transport.ListenOptions{}, nil)
	var many []byte
	for i := range maxSubscriptions + 1 {
		many = appendCommand(many, cmdSubscribe, []byte(fmt.Sprint(i)))
	}
	healthy := subscribeRaw(t, p, 1, "")
	for name, say := range map[string][]byte{
		"too many":            many,
		"too long":            appendCommand(nil, cmdSubscribe, make([]byte, maxPrefix+1)),
		"too long in 3.0":     appendFrame(nil, 0, append([]byte{1}, make([]byte, maxPrefix+1)...)),
		"a message":           appendFrame(nil, 0, []byte("hello")),
		"an empty message":    appendFrame(nil, 0, nil),
		"a message in frames": appendFrame(appendFrame(nil, flagMore, []byte{1}), 0, []byte{1}),
	} {
		t.Run(name, func(t *testing.T) {
			c := rawConnect(t, p.Addr(), 1, "XSUB")
			c.say(say)
			c.expectClosed()
		})
	}
	t.Run("a requester", func(t *testing.T) { rawConnect(t, p.Addr(), 1, "REQ").expectClosed() })
	eventually.True(t, "they are forgotten", func() bool { return len(p.Peers()) == 1 })
	p.say("still here")
	healthy.expect(0, "still here")
	for _, s := range p.shards {
		s.mu.Lock()
		for prefix := range s.topics.lists {
			if prefix != "" {
				t.Errorf("the subscription %q is left over", prefix)
			}
		}
		s.mu.Unlock()
	}
}

func TestFilteredTopics(t *testing.T) {
	const topic = "e6b146deea91540851f80f3ffb7fb75d7148c522" // SHA-1 of vecminion
	p := servePublisher(t, transport.ListenOptions{Filter: true, Syndics: true}, nil)
	minion := subscribeRaw(t, p, 1, topicAll, topic)
	syndic := subscribeRaw(t, p, 1, topicAll, topicSyndic)
	p.Publish(transport.Publication{Payload: []byte("all")})
	p.Publish(transport.Publication{Payload: []byte("others"), Minions: []string{"other"}})
	p.Publish(transport.Publication{Payload: []byte("you"), Minions: []string{"other", "vecminion"}})
	p.Publish(transport.Publication{Payload: []byte("none"), Minions: []string{}})
	p.Publish(transport.Publication{Payload: []byte("end")})
	for _, m := range [][2]string{{topicAll, "all"}, {topic, "you"}, {topicAll, "end"}} {
		minion.expect(flagMore, m[0])
		minion.expect(0, m[1])
	}
	for _, m := range [][2]string{{topicAll, "all"}, {topicSyndic, "others"}, {topicSyndic, "you"}, {topicSyndic, "none"}, {topicAll, "end"}} {
		syndic.expect(flagMore, m[0])
		syndic.expect(0, m[1])
	}
}

func TestSubscriptionPerPeerVersion(t *testing.T) {
	for minor, want := range map[byte][]string{0: {"\x01one", "\x01two"}, 1: {"\x09SUBSCRIBEone", "\x09SUBSCRIBEtwo"}} {
		s := newFakeServer(t)
		got := make(chan string, 10)
		go func() {
			sub, err := subscribe(context.Background(), s.addr(), transport.DialOptions{
				Topics: []string{"one", "two"}, Identity: "web1", Heartbeat: time.Hour})
			if err != nil {
				got <- err.Error()
				return
			}
			defer sub.Close()
			for {
				b, err := sub.Receive()
				if err != nil {
					got <- "the end"
					return
				}
				got <- string(b)
			}
		}()
		c := s.accept(minor, "XPUB")
		for _, w := range want {
			if f := c.frame(); string(f.body) != w || f.command() != (minor > 0) {
				t.Errorf("3.%d: the subscription is %q", minor, f.body)
			}
		}
		c.say(appendFrame(appendFrame(nil, flagMore, []byte("one")), 0, []byte("filtered")))
		c.say(appendCommand(nil, cmdPing, []byte("\x00\x00ctx")), appendFrame(nil, 0, []byte("plain")))
		for _, w := range []string{"filtered", "plain"} {
			if g := <-got; g != w {
				t.Errorf("received %q, want %q", g, w)
			}
		}
		c.expectCommand(cmdPong, "ctx")
		c.say(appendFrame(appendFrame(appendFrame(nil, flagMore, nil), flagMore, nil), 0, nil))
		if g := <-got; g != "the end" {
			t.Errorf("three frames are received as %q", g)
		}
	}
}

func TestSubscriptionHeartbeats(t *testing.T) {
	t.Parallel()
	const every = 100 * time.Millisecond
	s := newFakeServer(t)
	ended := make(chan error)
	receive := func() {
		sub, err := subscribe(context.Background(), s.addr(), transport.DialOptions{Heartbeat: every})
		if err == nil {
			_, err = sub.Receive()
			if _, again := sub.Receive(); again != err {
				err = fmt.Errorf("%w, and then %w", err, again)
			}
		}
		ended <- err
	}
	go receive()
	c := s.accept(1, "PUB")
	c.expectCommand(cmdSubscribe, "")
	for range 5 {
		c.expectCommand(cmdPing, "\x00\x00")
		c.say(appendCommand(nil, cmdPong))
	}
	if err := <-ended; salt.KindOf(err) != salt.Timeout || !strings.Contains(err.Error(), "no sign of life") {
		t.Errorf("got %v", err)
	}
	go receive()
	old := s.accept(0, "PUB")
	old.expect(0, "\x01")
	select {
	case err := <-ended:
		t.Errorf("a peer of 3.0 was given up: %v", err)
	case <-time.After(5 * every):
	}
	old.Close()
	if err := <-ended; salt.KindOf(err) != salt.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestSubscribeGivesUp(t *testing.T) {
	s := newFakeServer(t) // does not accept
	_, err := subscribe(context.Background(), s.addr(), transport.DialOptions{DialTimeout: 20 * time.Millisecond})
	if salt.KindOf(err) != salt.Timeout || !strings.Contains(err.Error(), s.addr()) {
		t.Errorf("a mute server: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = subscribe(ctx, s.addr(), transport.DialOptions{}); err == nil {
		t.Error("subscribed with an ended context")
	}
	s.Close()
	_, err = subscribe(context.Background(), s.addr(), transport.DialOptions{})
	if salt.KindOf(err) != salt.Unavailable || strings.Count(err.Error(), s.addr()) != 1 {
		t.Errorf("no server: %v", err)
	}
}

// TestStalledAmongHealthy rules out writing to subscribers in turn: two of
// twelve never read, and ten must get everything.
func TestStalledAmongHealthy(t *testing.T) {
	const healthy, stalled, messages, size = 10, 2, 20_000, 1024
	p := servePublisher(t, transport.ListenOptions{HighWater: 1000}, nil)
	for range stalled {
		c := subscribeRaw(t, p, 1, "")
		c.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	}
	var progress [healthy]atomic.Int64
	var wg sync.WaitGroup
	for i := range healthy {
		sub, err := subscribe(context.Background(), p.Addr().String(), transport.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		wg.Go(func() {
			for n := range messages {
				b, err := sub.Receive()
				if err != nil || binary.BigEndian.Uint64(b) != uint64(n) {
					t.Errorf("healthy one: message %d: %d bytes, %v", n, len(b), err)
					return
				}
				progress[i].Store(int64(n + 1))
			}
		})
	}
	eventually.True(t, "all have subscribed", func() bool { return len(p.Peers()) == healthy+stalled })
	for n := range messages {
		if n%500 == 0 { // half the high-water mark ahead of the slowest healthy one
			eventually.True(t, "the healthy ones keep pace", func() bool {
				for i := range progress {
					if progress[i].Load() < int64(n-500) {
						return false
					}
				}
				return true
			})
		}
		b := make([]byte, size)
		binary.BigEndian.PutUint64(b, uint64(n))
		p.Publish(transport.Publication{Payload: b})
	}
	wg.Wait()
	missed := 0
	for _, peer := range p.Peers() {
		if peer.Dropped > 0 {
			missed++
		}
	}
	if missed != stalled {
		t.Errorf("%d peers missed messages, want the %d stalled", missed, stalled)
	}
}

// TestDropsAreCounted has a subscriber that stalls for a while and then
// continues: the received and the dropped messages must add up, in order.
func TestDropsAreCounted(t *testing.T) {
	const highWater, size = 50, 16 << 10
	p := servePublisher(t, transport.ListenOptions{HighWater: highWater}, nil)
	c := subscribeRaw(t, p, 1, "")
	dropped := func() int { return int(p.Peers()[0].Dropped) }
	sent := 0
	publish := func() {
		b := make([]byte, size)
		binary.BigEndian.PutUint64(b, uint64(sent))
		sent++
		p.Publish(transport.Publication{Payload: b})
	}
	for dropped() < 10 {
		publish()
	}
	l := p.current()[0]
	l.out.mu.Lock()
	if l.out.q.n > highWater {
		t.Errorf("%d messages are queued", l.out.q.n)
	}
	l.out.mu.Unlock()
	last, got := -1, 0
	for got+dropped() < sent {
		f := c.frame()
		n := int(binary.BigEndian.Uint64(f.body))
		if n <= last || len(f.body) != size {
			t.Fatalf("message %d of %d bytes after %d", n, len(f.body), last)
		}
		last = n
		got++
	}
	eventually.True(t, "the queue is empty", p.idle)
	publish() // it is like any other again
	if f := c.frame(); int(binary.BigEndian.Uint64(f.body)) != sent-1 {
		t.Error("the message after the stall was missed")
	}
	if got+1+dropped() != sent {
		t.Errorf("%d received + %d dropped of %d sent", got+1, dropped(), sent)
	}
}

func TestPublisherGivesUpAStalledPeer(t *testing.T) {
	p := servePublisher(t, transport.ListenOptions{HighWater: 5}, func(p *publisher) { p.stall = 50 * time.Millisecond })
	subscribeRaw(t, p, 1, "")
	healthy := subscribeRaw(t, p, 1, "")
	b := make([]byte, 1<<20)
	for len(p.Peers()) == 2 {
		p.Publish(transport.Publication{Payload: b})
		healthy.expect(0, string(b))
	}
}

// TestShardLosesNothing publishes from many goroutines while many subscribers
// come and go.
func TestShardLosesNothing(t *testing.T) {
	p := servePublisher(t, transport.ListenOptions{HighWater: 100_000}, nil)
	const writers, each = 4, 200
	subs := make([]*rawPeer, 10)
	for i := range subs {
		subs[i] = subscribeRaw(t, p, 1, "")
	}
	stop := make(chan struct{})
	var churn, wg sync.WaitGroup
	churn.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if s, err := subscribe(context.Background(), p.Addr().String(), transport.DialOptions{}); err == nil {
					s.Close()
				}
			}
		}
	})
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				p.say(fmt.Sprintf("%d %d", w, n))
			}
		})
	}
	for _, c := range subs {
		wg.Go(func() {
			var next [writers]int
			for range writers * each {
				var w, n int
				f, err := c.dec.frame()
				if err != nil {
					t.Error(err)
					return
				}
				fmt.Sscanf(string(f.body), "%d %d", &w, &n)
				if n != next[w] {
					t.Errorf("writer %d: message %d, want %d", w, n, next[w])
					return
				}
				next[w]++
			}
		})
	}
	wg.Wait()
	close(stop)
	churn.Wait()
}

// TestTopicsAgainstAModel compares the look-up with a linear scan.
func TestTopicsAgainstAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	topics := topics{lists: make(map[string][]*subscriber)}
	subs := make([]*subscriber, 20)
	model := make([]map[string]bool, len(subs))
	for i := range subs {
		subs[i], model[i] = &subscriber{}, make(map[string]bool)
	}
	word := func() string {
		b := make([]byte, rng.IntN(4))
		for i := range b {
			b[i] = 'a' + byte(rng.IntN(2))
		}
		return string(b)
	}
	for range 20_000 {
		i, w := rng.IntN(len(subs)), word()
		switch op := rng.IntN(50); {
		case op == 0:
			topics.clear(subs[i])
			clear(model[i])
		case op < 25:
			if err := topics.add(subs[i], w); err != nil {
				t.Fatal(err)
			}
			model[i][w] = true
		default:
			topics.remove(subs[i], w)
			delete(model[i], w)
		}
		topic := word() + word()
		got := make(map[*subscriber]int)
		topics.match([]byte(topic), func(s *subscriber) { got[s]++ })
		for i, s := range subs {
			want := 0
			for prefix := range model[i] {
				if strings.HasPrefix(topic, prefix) {
					want = 1
				}
			}
			if got[s] != want {
				t.Fatalf("topic %q: subscriber with %v matched %d times", topic, model[i], got[s])
			}
		}
	}
	for i := range subs {
		topics.clear(subs[i])
	}
	if len(topics.lists) != 0 || topics.lengths != [maxPrefix + 1]int{} {
		t.Error("something is left of the subscriptions")
	}
}

// TestOutboxWritesAllInOrder sends packets of boundary sizes through a
// connection that only supports blocking writes.
func TestOutboxWritesAllInOrder(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	var o outbox
	var wg sync.WaitGroup
	o.init(ours, &pulse{start: time.Now()}, 1000, time.Minute, &wg)
	var want bytes.Buffer
	rng := rand.New(rand.NewPCG(3, 4))
	var packets []*packet
	for i := range 100 {
		p := &packet{head: bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(20))}
		if i%3 > 0 {
			p.body = bytes.Repeat([]byte{byte(i)}, rng.IntN(batchBytes*3/2))
		}
		want.Write(p.head)
		want.Write(p.body)
		packets = append(packets, p)
	}
	done := make(chan struct{})
	var got bytes.Buffer
	go func() {
		defer close(done)
		buf := make([]byte, 100_000)
		for got.Len() < want.Len() {
			n, err := theirs.Read(buf[:1+rng.IntN(len(buf))])
			got.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	for _, p := range packets {
		if o.push(p) {
			o.flushAll()
		}
	}
	<-done
	wg.Wait()
	if !bytes.Equal(got.Bytes(), want.Bytes()) || !o.idle() || o.bytes != 0 || o.busy {
		t.Errorf("got %d bytes of %d, idle %v, %d queued", got.Len(), want.Len(), o.idle(), o.bytes)
	}
	o.shut(nil)
	if o.push(packets[0]) || o.missed() != 0 {
		t.Error("a closed outbox takes a packet")
	}
}
