package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/test/eventually"
)

func testRequestReply(t *testing.T, tr transport.Transport) {
	if tr.Name() == "" {
		t.Error("the transport has no name")
	}
	var mu sync.Mutex
	var peers []net.Addr
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, func(r *transport.Request) {
		mu.Lock()
		peers = append(peers, r.Peer)
		mu.Unlock()
		r.Reply(append([]byte{0x92, 0x01}, r.Body...))
	})
	r := requester(t, tr, s.addr, transport.DialOptions{})
	for i := range 10 {
		body := Text(fmt.Sprint("number ", i))
		got, err := ask(r, body)
		if err != nil {
			t.Fatal(err)
		}
		if want := append([]byte{0x92, 0x01}, body...); !bytes.Equal(got, want) {
			t.Fatalf("reply is %s, want %s", short(got), short(want))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, p := range peers {
		if host, _, err := net.SplitHostPort(p.String()); err != nil || host != "127.0.0.1" {
			t.Errorf("peer is %v", p)
		}
	}
}

func testConcurrentRequesters(t *testing.T, tr transport.Transport) {
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, echo)
	var wg sync.WaitGroup
	for i := range 40 {
		r := requester(t, tr, s.addr, transport.DialOptions{})
		wg.Go(func() {
			for j := range 25 {
				body := Text(fmt.Sprintf("requester %d, request %d", i, j))
				if got, err := ask(r, body); err != nil || !bytes.Equal(got, body) {
					t.Errorf("sent %s, got %s, %v", short(body), short(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func testSharedRequester(t *testing.T, tr transport.Transport) {
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, echo)
	r := requester(t, tr, s.addr, transport.DialOptions{})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range 25 {
				body := Text(fmt.Sprintf("goroutine %d, request %d", i, j))
				if got, err := ask(r, body); err != nil || !bytes.Equal(got, body) {
					t.Errorf("sent %s, got %s, %v", short(body), short(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func testReplyLater(t *testing.T, tr transport.Transport) {
	const peers = 5
	requests := make(chan *transport.Request, peers)
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, func(r *transport.Request) { requests <- r })
	answered := make(chan int, peers)
	for i := range peers {
		r := requester(t, tr, s.addr, transport.DialOptions{})
		go func() {
			body := Text(fmt.Sprint("later ", i))
			got, err := ask(r, body)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("sent %s, got %s, %v", short(body), short(got), err)
			}
			answered <- i
		}()
	}
	var held []*transport.Request
	for range peers {
		select {
		case r := <-requests:
			held = append(held, r)
		case <-time.After(Timeout):
			t.Fatal("a held request keeps others from arriving")
		}
	}
	// Newest first, one at a time: each reply must reach its own peer while
	// the older requests are still open.
	for i := range held {
		r := held[peers-1-i]
		go r.Reply(r.Body)
		select {
		case <-answered:
		case <-time.After(Timeout):
			t.Fatal("a reply does not arrive while other requests are open")
		}
	}
}

func testLargeMessages(t *testing.T, tr transport.Transport) {
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, echo)
	r := requester(t, tr, s.addr, transport.DialOptions{})
	for _, n := range []int{31, 255, 256, 4095, 4096, 65535, 65536, 5 << 20, 9<<20 + 1} {
		mustEcho(t, r, big(n))
	}
	p, ps := servePublisher(t, tr, transport.ListenOptions{})
	sub := subscribe(t, tr, ps.addr, transport.DialOptions{})
	joined(t, p, sub)
	for _, n := range []int{255, 65536, 7 << 20} {
		b := big(n)
		p.Publish(transport.Publication{Payload: b})
		sub.mustReceive(t, b)
	}
}

func testOversizedRequest(t *testing.T, tr transport.Transport) {
	handled := make(chan int, 100)
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{MaxMessage: 64 << 10, MaxBuffered: 16 << 20}, func(r *transport.Request) {
		handled <- len(r.Body)
		r.Reply(r.Body)
	})
	good := requester(t, tr, s.addr, transport.DialOptions{})
	bad := requester(t, tr, s.addr, transport.DialOptions{})
	mustEcho(t, good, big(60<<10))
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		_, err := bad.Request(ctx, big(300<<10))
		if err == nil {
			t.Fatal("an oversized request is answered")
		}
		if ctx.Err() != nil {
			t.Fatal("an oversized request does not fail before its time is up")
		}
		cancel()
		mustEcho(t, good, Text("others go on"))
	}
	eventuallyEcho(t, bad, Text("and the sender too"))
	s.stop()
	close(handled)
	for n := range handled {
		if n > 64<<10 {
			t.Errorf("a request of %d bytes reached the handler", n)
		}
	}
}

func testOversizedReply(t *testing.T, tr transport.Transport) {
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, echo)
	r := requester(t, tr, s.addr, transport.DialOptions{MaxMessage: 64 << 10})
	mustEcho(t, r, big(60<<10))
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if _, err := r.Request(ctx, big(300<<10)); err == nil {
		t.Fatal("an oversized reply is accepted")
	} else if ctx.Err() != nil {
		t.Fatal("an oversized reply does not fail the request before its time is up")
	}
	eventuallyEcho(t, r, Text("still usable"))
}

func testCancelledRequest(t *testing.T, tr transport.Transport) {
	requests := make(chan *transport.Request, 10)
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, func(r *transport.Request) {
		if bytes.Equal(r.Body, Text("hold")) {
			requests <- r
			return
		}
		r.Reply(r.Body)
	})
	r := requester(t, tr, s.addr, transport.DialOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() {
		_, err := r.Request(ctx, Text("hold"))
		failed <- err
	}()
	var held *transport.Request
	select {
	case held = <-requests:
	case <-time.After(Timeout):
		t.Fatal("the request does not arrive")
	}
	cancel()
	select {
	case err := <-failed:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled request returns %v", err)
		}
	case <-time.After(Timeout):
		t.Fatal("a cancelled request does not return")
	}
	mustEcho(t, r, Text("after"))
	held.Reply(Text("too late"))
	for i := range 5 {
		mustEcho(t, r, Text(fmt.Sprint("after the late reply ", i)))
	}
	if _, err := r.Request(ctx, Text("hold")); !errors.Is(err, context.Canceled) {
		t.Errorf("a request with a cancelled context returns %v", err)
	}
}

func testTimedOutRequest(t *testing.T, tr transport.Transport) {
	release := make(chan struct{})
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, func(r *transport.Request) {
		if bytes.Equal(r.Body, Text("hold")) {
			go func() {
				<-release
				r.Reply(Text("too late"))
			}()
			return
		}
		r.Reply(r.Body)
	})
	r := requester(t, tr, s.addr, transport.DialOptions{})
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		_, err := r.Request(ctx, Text("hold"))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a timed out request returns %v", err)
		}
	}
	close(release)
	mustEcho(t, r, Text("usable"))
}

func testRestart(t *testing.T, tr transport.Transport) {
	first := serveRequests(t, tr, freeAddress(t), transport.ListenOptions{}, echo)
	r := requester(t, tr, first.addr, transport.DialOptions{DialTimeout: time.Second})
	mustEcho(t, r, Text("first"))
	first.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.Request(ctx, Text("nobody")); err == nil {
		t.Error("a request is answered although the server is gone")
	}
	serveRequests(t, tr, first.addr, transport.ListenOptions{}, echo)
	eventuallyEcho(t, r, Text("second"))
	for i := range 5 {
		mustEcho(t, r, Text(fmt.Sprint("steady ", i)))
	}
}

func testPeerGone(t *testing.T, tr transport.Transport) {
	requests := make(chan *transport.Request, 1)
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, func(r *transport.Request) {
		if bytes.Equal(r.Body, Text("hold")) {
			requests <- r
			return
		}
		r.Reply(r.Body)
	})
	gone := tr.NewRequester(s.addr, transport.DialOptions{})
	failed := make(chan error, 1)
	go func() {
		_, err := ask(gone, Text("hold"))
		failed <- err
	}()
	held := <-requests
	if held.Gone != nil && held.Gone() {
		t.Error("a waiting peer is reported as gone")
	}
	gone.Close()
	if err := <-failed; err == nil {
		t.Error("the request of a closed requester is answered")
	}
	if held.Gone != nil {
		eventually.True(t, "the peer is known to be gone", held.Gone)
	}
	other := requester(t, tr, s.addr, transport.DialOptions{})
	for i := range 5 {
		mustEcho(t, other, Text(fmt.Sprint("while it is leaving ", i)))
	}
	within(t, "a reply to a peer that is gone", func() { held.Reply(big(1 << 20)) })
	mustEcho(t, other, Text("afterwards"))
	// A reply after the server has ended must do nothing either.
	go ask(other, Text("hold"))
	held = <-requests
	s.stop()
	within(t, "a reply after the end of the server", func() { held.Reply(Text("x")) })
}

func testClosedRequester(t *testing.T, tr transport.Transport) {
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, echo)
	r := tr.NewRequester(s.addr, transport.DialOptions{})
	mustEcho(t, r, Text("open"))
	r.Close()
	if _, err := ask(r, Text("closed")); err == nil {
		t.Error("a closed requester gets an answer")
	}
	r.Close()
	tr.NewRequester(s.addr, transport.DialOptions{}).Close()
}

func testRequestNobody(t *testing.T, tr transport.Transport) {
	r := requester(t, tr, unusedAddr(t), transport.DialOptions{DialTimeout: time.Second})
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := r.Request(ctx, Text("x")); err == nil {
		t.Error("a request without an answer")
	}
}

// unusedAddr returns an address at which no server listens.
func unusedAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
