// Package transporttest is the suite that every transport must pass. A
// transport's own tests call Run and add tests of its protocol.
//
// The suite works over real sockets on loopback and knows no wire format: to
// create half a message, for example, it makes the transport use a proxy that
// stops forwarding.
//
// Times in it are of two kinds. Short ones are settings of the transport under
// test. Timeout is how long the suite waits for an expected event; it is
// generous, and only a failing test waits that long.
package transporttest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/host/freeport"
	"brine/internal/net/transport"
	"brine/test/eventually"
)

// Timeout is how long the suite waits for an expected event.
const Timeout = 60 * time.Second

// Run runs the whole suite. newTransport returns a transport to test; it is called for every case.
func Run(t *testing.T, newTransport func() transport.Transport) {
	cases := []struct {
		name string
		test func(*testing.T, transport.Transport)
	}{
		{"request and reply", testRequestReply},
		{"concurrent requesters", testConcurrentRequesters},
		{"one requester, many goroutines", testSharedRequester},
		{"reply later and out of order", testReplyLater},
		{"answers in two parts", testAnswer},
		{"answers to a peer that is gone", testAnswerGone},
		{"large messages", testLargeMessages},
		{"oversized request", testOversizedRequest},
		{"oversized reply", testOversizedReply},
		{"oversized publication", testOversizedPublication},
		{"cancelled request", testCancelledRequest},
		{"timed out request", testTimedOutRequest},
		{"requester survives a restart", testRestart},
		{"peer gone before the reply", testPeerGone},
		{"closed requester", testClosedRequester},
		{"no server for requests", testRequestNobody},
		{"publish to many", testPublishMany},
		{"publisher changes", testPublisherChanges},
		{"publish without subscribers", testPublishNobody},
		{"publication order", testPublishOrder},
		{"slow subscriber", testSlowSubscriber},
		{"server ends", testServerEnds},
		{"queue is sent at the end", testQueueSentAtEnd},
		{"subscriber closes", testSubscriberCloses},
		{"subscriber leaves", testSubscriberLeaves},
		{"subscribe without a server", testSubscribeNobody},
		{"subscribe to a mute server", testSubscribeMute},
		{"ipv6", testIPv6},
		{"port in use", testPortInUse},
		{"close unserved", testCloseUnserved},
		{"garbage", testGarbage},
		{"truncated message", testTruncated},
		{"silent connection", testSilent},
		{"heartbeat keeps a quiet connection", testHeartbeatQuiet},
		{"heartbeat finds a frozen publisher", testHeartbeatFrozenPublisher},
		{"heartbeat finds a frozen subscriber", testHeartbeatFrozenSubscriber},
		{"memory budget", testMemoryBudget},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			c.test(t, newTransport())
		})
	}
}

// noLeaks fails the test if goroutines are left after all its clean-ups that did not run at its
// start.
func noLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(Timeout)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				buf = buf[:runtime.Stack(buf, true)]
				t.Errorf("%d goroutines, %d before the test:\n%s", runtime.NumGoroutine(), before, buf)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// Text returns s as one msgpack string.
func Text(s string) []byte {
	switch {
	case len(s) < 32:
		return append([]byte{0xa0 | byte(len(s))}, s...)
	case len(s) < 1<<16:
		return append(binary.BigEndian.AppendUint16([]byte{0xda}, uint16(len(s))), s...)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0xdb}, uint32(len(s))), s...)
}

// big returns one incompressible msgpack string of n bytes.
func big(n int) []byte {
	b := make([]byte, n)
	x := uint32(n)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return Text(string(b))
}

// echo answers every request with its own body.
func echo(r *transport.Request) { r.Reply(r.Body) }

// server is a running request server or publisher.
type server struct {
	addr string
	stop func() // ends it and waits; may be called twice
}

func start(t *testing.T, addr net.Addr, serve func(context.Context) error) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = serve(ctx)
	}()
	s := &server{addr: addr.String(), stop: sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(Timeout):
			t.Error("Serve does not return after its context ended")
		}
	})}
	t.Cleanup(s.stop)
	return s
}

func serveRequests(t *testing.T, tr transport.Transport, addr string, o transport.ListenOptions, h transport.Handler) *server {
	t.Helper()
	s, err := tr.ListenRequests(addr, o)
	if err != nil {
		t.Fatalf("ListenRequests(%s): %v", addr, err)
	}
	return start(t, s.Addr(), func(ctx context.Context) error { return s.Serve(ctx, h) })
}

func servePublisher(t *testing.T, tr transport.Transport, o transport.ListenOptions) (transport.Publisher, *server) {
	t.Helper()
	p, err := tr.ListenPublish("127.0.0.1:0", o)
	if err != nil {
		t.Fatalf("ListenPublish: %v", err)
	}
	return p, start(t, p.Addr(), p.Serve)
}

func requester(t *testing.T, tr transport.Transport, addr string, o transport.DialOptions) transport.Requester {
	t.Helper()
	r := tr.NewRequester(addr, o)
	t.Cleanup(func() { r.Close() })
	return r
}

// ask sends body and returns the reply, within Timeout.
func ask(r transport.Requester, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	return r.Request(ctx, body)
}

// mustEcho fails the test unless r gets body back.
func mustEcho(t *testing.T, r transport.Requester, body []byte) {
	t.Helper()
	got, err := ask(r, body)
	if err != nil {
		t.Fatalf("request of %d bytes: %v", len(body), err)
	}
	if !bytes.Equal(got, body) {
		t.Fatalf("reply is %s, want %s", short(got), short(body))
	}
}

// eventuallyEcho is mustEcho for a requester whose connection may have died.
func eventuallyEcho(t *testing.T, r transport.Requester, body []byte) {
	t.Helper()
	eventually.True(t, "a request is answered", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		got, err := r.Request(ctx, body)
		return err == nil && bytes.Equal(got, body)
	})
}

func short(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%q... (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// within fails the test if f takes longer than Timeout.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(Timeout):
		t.Fatalf("%s takes longer than %v", what, Timeout)
	}
}

// subscriber is a subscription that skips the hello messages of joined.
type subscriber struct {
	transport.Subscription
}

var hello = Text("hello")

func subscribe(t *testing.T, tr transport.Transport, addr string, o transport.DialOptions) subscriber {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	s, err := tr.Subscribe(ctx, addr, o)
	if err != nil {
		t.Fatalf("Subscribe(%s): %v", addr, err)
	}
	t.Cleanup(func() { s.Close() })
	return subscriber{s}
}

// joined publishes hellos until every subscriber has got one, because a
// publisher may learn of a subscriber a moment after Subscribe returned.
func joined(t *testing.T, p transport.Publisher, subs ...subscriber) {
	t.Helper()
	got := make(chan error, len(subs))
	for _, s := range subs {
		go func() {
			_, err := s.Receive()
			got <- err
		}()
	}
	deadline := time.After(Timeout)
	for n := 0; n < len(subs); {
		p.Publish(transport.Publication{Payload: hello})
		select {
		case err := <-got:
			if err != nil {
				t.Fatalf("Receive: %v", err)
			}
			n++
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%d of %d subscribers got nothing", len(subs)-n, len(subs))
		}
	}
}

// receive returns the next publication except hellos. It closes the subscription if none comes.
func (s subscriber) receive() ([]byte, error) {
	watchdog := time.AfterFunc(Timeout, func() { s.Close() })
	defer watchdog.Stop()
	for {
		b, err := s.Receive()
		if err != nil || !bytes.Equal(b, hello) {
			return b, err
		}
	}
}

func (s subscriber) mustReceive(t *testing.T, want []byte) {
	t.Helper()
	got, err := s.receive()
	if err != nil {
		t.Fatalf("Receive: %v, want %s", err, short(want))
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("received %s, want %s", short(got), short(want))
	}
}

// mustFail reads until the subscription fails, and fails the test if it does not, or not
// permanently.
func (s subscriber) mustFail(t *testing.T) {
	t.Helper()
	within(t, "Receive to fail", func() {
		for {
			if _, err := s.Receive(); err != nil {
				break
			}
		}
		if _, err := s.Receive(); err == nil {
			t.Error("Receive succeeds after it failed")
		}
	})
}

func testIPv6(t *testing.T, tr transport.Transport) {
	probe, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here")
	}
	probe.Close()
	s := serveRequests(t, tr, "[::1]:0", transport.ListenOptions{}, echo)
	mustEcho(t, requester(t, tr, s.addr, transport.DialOptions{}), Text("six"))

	p, err := tr.ListenPublish("[::1]:0", transport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ps := start(t, p.Addr(), p.Serve)
	sub := subscribe(t, tr, ps.addr, transport.DialOptions{})
	joined(t, p, sub)
}

func testPortInUse(t *testing.T, tr transport.Transport) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	check := func(what string, err error) {
		if err == nil {
			t.Fatalf("%s binds a port in use", what)
		}
		if !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%s: the error %q does not name the address and the cause", what, err)
		}
	}
	_, err = tr.ListenRequests(addr, transport.ListenOptions{})
	check("ListenRequests", err)
	_, err = tr.ListenPublish(addr, transport.ListenOptions{})
	check("ListenPublish", err)
}

// freeAddress returns a free address for a server that listens on it twice.
func freeAddress(t *testing.T) string {
	t.Helper()
	ports, err := freeport.TCP(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

func testCloseUnserved(t *testing.T, tr transport.Transport) {
	addr := freeAddress(t)
	s, err := tr.ListenRequests(addr, transport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := tr.ListenPublish(addr, transport.ListenOptions{})
	if err != nil {
		t.Fatalf("the port is not free after Close: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}
