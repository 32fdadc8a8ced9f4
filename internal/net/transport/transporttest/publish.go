package transporttest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/test/eventually"
)

func testPublishMany(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{})
	const n = 50
	subs := make([]subscriber, n)
	for i := range subs {
		subs[i] = subscribe(t, tr, s.addr, transport.DialOptions{Identity: fmt.Sprint("minion", i)})
	}
	joined(t, p, subs...)
	if got := p.Peers(); len(got) != n {
		t.Errorf("%d peers, want %d", len(got), n)
	}
	for i := range 5 {
		p.Publish(transport.Publication{Payload: Text(fmt.Sprint("job ", i))})
	}
	var wg sync.WaitGroup
	for _, sub := range subs {
		wg.Go(func() {
			for i := range 5 {
				want := string(Text(fmt.Sprint("job ", i)))
				if got, err := sub.receive(); err != nil || string(got) != want {
					t.Errorf("received %s, %v, want %q", short(got), err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

// testPublisherChanges checks that Changes increases when the result of Peers changes.
func testPublisherChanges(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{})
	first := subscribe(t, tr, s.addr, transport.DialOptions{})
	joined(t, p, first)
	before := p.Changes()
	one := len(p.Peers())
	for range 10 {
		p.Publish(transport.Publication{Payload: Text("a job")})
	}
	if now := p.Changes(); one != 1 || now != before {
		t.Errorf("%d peers; a publication takes Changes from %d to %d", one, before, now)
	}
	second := subscribe(t, tr, s.addr, transport.DialOptions{})
	joined(t, p, second)
	both := p.Changes()
	if len(p.Peers()) != 2 || both == before {
		t.Errorf("with %d peers Changes is %d, with one it was %d", len(p.Peers()), both, before)
	}
	second.Close()
	eventually.True(t, "the second has gone", func() bool { return len(p.Peers()) == 1 })
	if now := p.Changes(); now == both || now == before {
		t.Errorf("after the second has gone Changes is %d, before it was %d, and %d before the second came", now, both, before)
	}
}

func testPublishNobody(t *testing.T, tr transport.Transport) {
	p, err := tr.ListenPublish("127.0.0.1:0", transport.ListenOptions{HighWater: 1})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "Publish before Serve", func() { p.Publish(transport.Publication{Payload: Text("early")}) })
	s := start(t, p.Addr(), p.Serve)
	within(t, "Publish without subscribers", func() {
		for range 100 {
			p.Publish(transport.Publication{Payload: Text("nobody")})
		}
	})
	sub := subscribe(t, tr, s.addr, transport.DialOptions{})
	joined(t, p, sub)
	s.stop()
	within(t, "Publish after the end", func() { p.Publish(transport.Publication{Payload: Text("late")}) })
	if got := p.Peers(); len(got) != 0 {
		t.Errorf("%d peers after the end", len(got))
	}
}

func testPublishOrder(t *testing.T, tr transport.Transport) {
	const n = 2000
	p, s := servePublisher(t, tr, transport.ListenOptions{HighWater: n + 100})
	subs := []subscriber{
		subscribe(t, tr, s.addr, transport.DialOptions{}),
		subscribe(t, tr, s.addr, transport.DialOptions{}),
	}
	joined(t, p, subs...)
	for i := range n {
		p.Publish(transport.Publication{Payload: Text(fmt.Sprint(i))})
	}
	for _, sub := range subs {
		for i := range n {
			sub.mustReceive(t, Text(fmt.Sprint(i)))
		}
	}
}

// testSlowSubscriber has one subscriber that does not read. The messages are
// large, so that the buffers of the operating system cannot hide it.
func testSlowSubscriber(t *testing.T, tr transport.Transport) {
	const highWater = 10
	p, s := servePublisher(t, tr, transport.ListenOptions{HighWater: highWater})
	fast := subscribe(t, tr, s.addr, transport.DialOptions{})
	slow := subscribe(t, tr, s.addr, transport.DialOptions{})
	joined(t, p, fast, slow)
	payload := big(512 << 10)
	const n = 120
	for range n {
		within(t, "Publish", func() { p.Publish(transport.Publication{Payload: payload}) })
		fast.mustReceive(t, payload)
	}
	var dropped []uint64
	for _, peer := range p.Peers() {
		if peer.Dropped > 0 {
			dropped = append(dropped, peer.Dropped)
		}
	}
	if len(dropped) != 1 {
		t.Fatalf("%d of 2 peers dropped messages, want only the slow one: %v", len(dropped), dropped)
	}
	// The slow subscriber must have got the exact rest of the messages.
	for i := range n - int(dropped[0]) {
		got, err := slow.receive()
		if err != nil || string(got) != string(payload) {
			t.Fatalf("message %d of %d: received %s, %v", i, n-int(dropped[0]), short(got), err)
		}
	}
	end := Text("end")
	p.Publish(transport.Publication{Payload: end})
	slow.mustReceive(t, end)
}

func testOversizedPublication(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{})
	other := subscribe(t, tr, s.addr, transport.DialOptions{})
	sub := subscribe(t, tr, s.addr, transport.DialOptions{MaxMessage: 64 << 10})
	joined(t, p, sub, other)
	payload := big(300 << 10)
	p.Publish(transport.Publication{Payload: payload})
	other.mustReceive(t, payload)
	if got, err := sub.receive(); err == nil {
		t.Fatalf("an oversized publication is accepted: %s", short(got))
	}
}

func testServerEnds(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{})
	sub := subscribe(t, tr, s.addr, transport.DialOptions{})
	joined(t, p, sub)
	s.stop()
	sub.mustFail(t)
}

func testQueueSentAtEnd(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{})
	sub := subscribe(t, tr, s.addr, transport.DialOptions{})
	joined(t, p, sub)
	const n = 200
	for i := range n {
		p.Publish(transport.Publication{Payload: Text(fmt.Sprint(i))})
	}
	s.stop()
	for i := range n {
		sub.mustReceive(t, Text(fmt.Sprint(i)))
	}
	sub.mustFail(t)
}

func testSubscriberCloses(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{})
	sub := subscribe(t, tr, s.addr, transport.DialOptions{})
	joined(t, p, sub)
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		for {
			if _, err := sub.Receive(); err != nil {
				return
			}
		}
	}()
	within(t, "Close", func() { sub.Close() })
	select {
	case <-failed:
	case <-time.After(Timeout):
		t.Fatal("Close does not end Receive")
	}
	sub.Close()
}

func testSubscriberLeaves(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{})
	stays := subscribe(t, tr, s.addr, transport.DialOptions{})
	leaves := subscribe(t, tr, s.addr, transport.DialOptions{})
	joined(t, p, stays, leaves)
	leaves.Close()
	eventually.True(t, "the publisher forgets a subscriber that left", func() bool {
		p.Publish(transport.Publication{Payload: hello})
		return len(p.Peers()) == 1
	})
	p.Publish(transport.Publication{Payload: Text("go on")})
	stays.mustReceive(t, Text("go on"))
}

func testSubscribeNobody(t *testing.T, tr transport.Transport) {
	addr := unusedAddr(t)
	within(t, "Subscribe to a closed port", func() {
		if s, err := tr.Subscribe(context.Background(), addr, transport.DialOptions{DialTimeout: 200 * time.Millisecond}); err == nil {
			s.Close()
			t.Error("Subscribe succeeds although no server listens")
		}
	})
}

// testSubscribeMute subscribes to a server that accepts and never sends. A transport with a
// handshake must give up after DialTimeout; one without cannot detect it, and succeeds at once.
func testSubscribeMute(t *testing.T, tr transport.Transport) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	subscribe := func(ctx context.Context, timeout time.Duration) {
		s, err := tr.Subscribe(ctx, l.Addr().String(), transport.DialOptions{DialTimeout: timeout})
		if err == nil {
			s.Close()
		}
	}
	within(t, "Subscribe to a mute server", func() { subscribe(context.Background(), 100*time.Millisecond) })
	within(t, "Subscribe with a context that ends", func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		subscribe(ctx, time.Hour)
	})
}
