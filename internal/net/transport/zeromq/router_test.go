package zeromq

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/host/freeport"
	"brine/internal/net/transport"
	"brine/test/eventually"
)

func TestRouterRefuses(t *testing.T) {
	s := serveRequests(t, transport.ListenOptions{}, func(*transport.Request) { t.Error("a request was handed on") })
	with := func(at int, b string) []byte {
		g := greeting()
		copy(g[at:], b)
		return g
	}
	for name, say := range map[string][]byte{
		"http":             []byte("GET / HTTP/1.1\r\n\r\n"),
		"zmtp 2":           with(10, "\x02")[:11],
		"curve":            with(12, "CURVE"),
		"plain":            with(12, "PLAIN"),
		"message at once":  append(greeting(), request("x")...),
		"command at once":  append(greeting(), appendCommand(nil, cmdPing, []byte{0, 0})...),
		"ready of nothing": append(greeting(), appendCommand(nil, cmdReady)...),
		"cut property":     append(greeting(), appendCommand(nil, cmdReady, []byte("\x0bSock"))...),
		"huge ready":       append(greeting(), appendHeader(nil, flagCommand, maxCommand+1)...),
	} {
		t.Run(name, func(t *testing.T) {
			p := rawDial(t, s.Addr())
			p.say(say)
			p.skipGreeting()
			p.expectClosed()
		})
	}
	t.Run("a subscriber", func(t *testing.T) {
		p := rawConnect(t, s.Addr(), 1, "SUB")
		f := p.frame()
		if !f.command() || !bytes.Contains(f.body, []byte("cannot talk to a ROUTER")) {
			t.Errorf("told %q, want an ERROR with the reason", f.body)
		}
		p.expectClosed()
	})
	for name, say := range map[string][]byte{
		"no delimiter":     appendFrame(nil, 0, []byte("x")),
		"delimiter only":   appendFrame(nil, 0, nil),
		"two bodies":       append(appendFrame(appendFrame(nil, flagMore, nil), flagMore, []byte("x")), appendFrame(nil, 0, []byte("y"))...),
		"route only":       appendFrame(appendFrame(nil, flagMore, []byte("r")), 0, []byte("x")),
		"many routes":      bytes.Repeat(appendFrame(nil, flagMore, []byte("r")), maxRoute+1),
		"long route":       appendFrame(nil, flagMore, make([]byte, maxRouteFrame+1)),
		"bad ping":         appendCommand(nil, cmdPing),
		"nameless command": appendFrame(nil, flagCommand, nil),
		"error":            appendError(nil, "tired"),
	} {
		t.Run(name, func(t *testing.T) {
			p := rawConnect(t, s.Addr(), 1, "REQ")
			p.say(say)
			p.expectClosed()
		})
	}
}

// skipGreeting reads the greeting of a listener.
func (p *rawPeer) skipGreeting() {
	p.t.Helper()
	if _, err := readPeer(p.dec); err != nil {
		p.t.Fatal(err)
	}
}

func TestRouterOversizedRequest(t *testing.T) {
	s := serveRequests(t, transport.ListenOptions{MaxMessage: 1000}, echo)
	p := rawConnect(t, s.Addr(), 1, "REQ")
	body := strings.Repeat("x", 1000)
	p.say(request(body))
	p.expect(flagMore, "")
	p.expect(0, body)
	p.say(request(body + "x"))
	p.expectClosed()
}

func TestRouterRepeatsTheRoute(t *testing.T) {
	s := serveRequests(t, transport.ListenOptions{}, echo)
	p := rawConnect(t, s.Addr(), 0, "DEALER")
	p.say(appendFrame(nil, flagMore, []byte("one")), appendFrame(nil, flagMore, []byte("two")), request("body"))
	p.expect(flagMore, "one")
	p.expect(flagMore, "two")
	p.expect(flagMore, "")
	p.expect(0, "body")
}

func TestRouterPassesAnyBody(t *testing.T) {
	s := serveRequests(t, transport.ListenOptions{}, echo)
	p := rawConnect(t, s.Addr(), 1, "REQ")
	for _, body := range []string{"\xc1 is no msgpack", "", strings.Repeat("\x91", 300)} {
		p.say(request(body))
		p.expect(flagMore, "")
		p.expect(0, body)
	}
}

func TestRouterAnswersPing(t *testing.T) {
	s := serveRequests(t, transport.ListenOptions{}, echo)
	p := rawConnect(t, s.Addr(), 1, "REQ")
	p.say(appendCommand(nil, cmdPing, []byte("\x00\x0acontext")))
	p.expectCommand(cmdPong, "context")
	p.say(appendCommand(nil, "NEWS", []byte("of tomorrow"))) // unknown, so ignored
	// A command between the frames of a message is unusual, but libzmq may send it.
	p.say(appendFrame(nil, flagMore, nil), appendCommand(nil, cmdPing, []byte{0, 0}), appendFrame(nil, 0, []byte("x")))
	p.expectCommand(cmdPong, "")
	p.expect(flagMore, "")
	p.expect(0, "x")
}

// TestRouterPipeliningFlood has one peer that keeps sending while nothing is
// answered: only a limited number of requests may reach the handler.
func TestRouterPipeliningFlood(t *testing.T) {
	requests := make(chan *transport.Request, 1000)
	s := serveRequests(t, transport.ListenOptions{}, func(r *transport.Request) { requests <- r })
	p := rawConnect(t, s.Addr(), 1, "DEALER")
	const n = 300
	go func() {
		for i := range n {
			p.Write(request(fmt.Sprint(i)))
		}
	}()
	var open []*transport.Request
	for range maxAsked {
		open = append(open, <-requests)
	}
	// The server must be waiting now, and not reading another request.
	l := s.current()[0]
	eventually.True(t, "the flood is dammed", func() bool { return l.waiting(maxAsked) })
	select {
	case <-requests:
		t.Fatalf("more than %d open requests", maxAsked)
	default:
	}
	// Others do not wait.
	other := rawConnect(t, s.Addr(), 1, "REQ")
	other.say(request("me"))
	r := <-requests
	r.Reply(r.Body)
	other.expect(flagMore, "")
	other.expect(0, "me")

	for i := range n {
		r := open[0]
		if open = open[1:]; i+maxAsked < n {
			r.Reply(r.Body)
			open = append(open, <-requests)
		} else {
			r.Reply(r.Body)
		}
		r.Reply([]byte("again")) // has no effect
	}
	for i := range n {
		p.expect(flagMore, "")
		p.expect(0, fmt.Sprint(i))
	}
}

// waiting reports whether n requests are open and no more can be.
func (l *link) waiting(n int) bool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	return l.out.asked == n
}

// TestRouterPeerThatNeverReads: its replies must not fill the memory.
func TestRouterPeerThatNeverReads(t *testing.T) {
	t.Parallel()
	reply := make([]byte, 256<<10)
	var asked atomic.Int64
	s := serveRequests(t, transport.ListenOptions{}, func(r *transport.Request) {
		asked.Add(1)
		r.Reply(reply)
	})
	p := rawConnect(t, s.Addr(), 1, "DEALER")
	p.sync()
	go func() {
		for range 1000 {
			if _, err := p.Write(request("more")); err != nil {
				return
			}
		}
	}()
	l := s.current()[0]
	queued := func() int {
		l.out.mu.Lock()
		defer l.out.mu.Unlock()
		return l.out.bytes
	}
	eventually.Nil(t, time.Minute, "replies are held back", func() error {
		if n := queued(); n < maxAskedBytes {
			return fmt.Errorf("%d bytes are queued, %d requests were read, %d peers are connected", n, asked.Load(), len(s.current()))
		}
		return nil
	})
	for before := int64(-1); before != asked.Load(); time.Sleep(50 * time.Millisecond) {
		before = asked.Load() // until the kernel's buffers are full
	}
	if n := queued(); n > maxAskedBytes+2*len(reply) {
		t.Errorf("%d bytes are queued", n)
	}
	if asked.Load() == 1000 {
		t.Error("all requests were read")
	}
}

func TestRouterGivesUpAStalledPeer(t *testing.T) {
	s, err := listenRequests("127.0.0.1:0", transport.ListenOptions{}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	s.stall = 50 * time.Millisecond
	run(t, func(ctx context.Context) error {
		return s.Serve(ctx, func(r *transport.Request) { r.Reply(make([]byte, 64<<20)) })
	})
	p := rawConnect(t, s.Addr(), 1, "REQ")
	p.say(request("all of it"))
	eventually.True(t, "the peer is gone", func() bool { return len(s.current()) == 0 })
}

func TestRouterSlowloris(t *testing.T) {
	t.Parallel()
	s := serveRequests(t, transport.ListenOptions{HandshakeTimeout: 150 * time.Millisecond}, echo)
	p := rawDial(t, s.Addr())
	hello := appendReady(greeting(), ready{socket: "REQ"})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.skipGreeting()
		p.expectClosed()
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-closed:
			if i >= len(hello) {
				t.Fatal("the peer had time to finish")
			}
			return
		case <-tick.C:
			p.Write(hello[i : i+1])
		}
	}
}

func TestRouterConnectionFlood(t *testing.T) {
	t.Parallel()
	s := serveRequests(t, transport.ListenOptions{HandshakeTimeout: 200 * time.Millisecond}, echo)
	r := newRequester(s.Addr().String(), transport.DialOptions{})
	defer r.Close()
	mustEcho(t, r, "before")
	var silent []net.Conn
	for range 500 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	mustEcho(t, r, "among them")
	for _, c := range silent {
		c.SetReadDeadline(time.Now().Add(waitLimit))
		for b := make([]byte, 1024); ; {
			if _, err := c.Read(b); err != nil {
				if ne, ok := err.(net.Error); ok && ne.Timeout() {
					t.Fatal("a silent connection is kept")
				}
				break
			}
		}
	}
	mustEcho(t, r, "after")
	if n := len(s.current()); n != 1 {
		t.Errorf("%d peers are left, want 1", n)
	}
}

func TestRouterHeartbeats(t *testing.T) {
	t.Parallel()
	const every = 100 * time.Millisecond
	s := serveRequests(t, transport.ListenOptions{Heartbeat: every}, echo)
	old := rawConnect(t, s.Addr(), 0, "REQ")
	mute := rawConnect(t, s.Addr(), 1, "REQ")
	fickle := rawConnect(t, s.Addr(), 1, "REQ")
	ping := appendPing(nil, 3*every)
	for range 10 {
		mute.expect(flagCommand, string(ping[2:]))
	}
	fickle.say(appendCommand(nil, cmdPong))
	fickle.expectClosed() // it answered before and is silent now
	mute.say(request("here"))
	for f := mute.frame(); f.command(); f = mute.frame() {
	}
	mute.expect(0, "here")
	old.say(request("unbothered"))
	old.expect(flagMore, "") // and no PING before it
	old.expect(0, "unbothered")
}

// TestRepliesFromManyGoroutines: replies of any size are not mixed with others.
func TestRepliesFromManyGoroutines(t *testing.T) {
	var wg sync.WaitGroup
	s := serveRequests(t, transport.ListenOptions{}, func(r *transport.Request) {
		wg.Go(func() { r.Reply(bytes.Repeat(r.Body, 100_000)) })
	})
	p := rawConnect(t, s.Addr(), 1, "DEALER")
	const n = 40
	for i := range n {
		p.say(request(string(rune('A' + i))))
	}
	seen := make(map[byte]bool)
	for range n {
		p.expect(flagMore, "")
		f := p.frame()
		if len(f.body) != 100_000 || bytes.Count(f.body, f.body[:1]) != 100_000 || seen[f.body[0]] {
			t.Fatalf("a bad reply of %d bytes", len(f.body))
		}
		seen[f.body[0]] = true
	}
	wg.Wait()
}

func TestRequesterUsesFewConnections(t *testing.T) {
	var most, now atomic.Int64
	gate := make(chan struct{})
	s := serveRequests(t, transport.ListenOptions{}, func(r *transport.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		go func() {
			<-gate
			now.Add(-1)
			r.Reply(r.Body)
		}()
	})
	r := newRequester(s.Addr().String(), transport.DialOptions{})
	defer r.Close()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { mustEcho(t, r, fmt.Sprint(i)) })
	}
	eventually.True(t, "all connections are busy", func() bool { return now.Load() == maxConns })
	close(gate)
	wg.Wait()
	if most.Load() != maxConns || len(s.current()) != maxConns {
		t.Errorf("%d at once over %d connections, want %d", most.Load(), len(s.current()), maxConns)
	}
}

func TestRequesterClosesIdleConnections(t *testing.T) {
	s := serveRequests(t, transport.ListenOptions{}, echo)
	r := newRequester(s.Addr().String(), transport.DialOptions{})
	r.keep = time.Millisecond
	defer r.Close()
	mustEcho(t, r, "x")
	eventually.True(t, "the connection is closed", func() bool { return len(s.current()) == 0 })
	mustEcho(t, r, "y")
}

// TestRequesterNeverSendsTwice has a master that disconnects at two moments.
func TestRequesterNeverSendsTwice(t *testing.T) {
	s := newFakeServer(t)
	r := newRequester(s.addr(), transport.DialOptions{})
	defer r.Close()
	results := make(chan error)
	send := func() {
		reply, err := ask(t, r, "q")
		if err == nil && reply != "a" {
			err = fmt.Errorf("the reply is %q", reply)
		}
		results <- err
	}
	go send()
	p := s.accept(1, "ROUTER")
	p.expect(flagMore, "")
	p.expect(0, "q")
	p.say(request("a"))
	if err := <-results; err != nil {
		t.Fatal(err)
	}
	// The connection ends while it is unused: the next request detects that before
	// it is sent, and uses another one.
	p.Close()
	go send()
	p = s.accept(1, "ROUTER")
	p.expect(flagMore, "")
	p.expect(0, "q")
	// The connection ends when the request may have been executed: it fails.
	p.Close()
	if err := <-results; salt.KindOf(err) != salt.Unavailable {
		t.Errorf("got %v, want it to be unavailable", err)
	}
	go send()
	p = s.accept(1, "ROUTER") // of the next request, because the queue was empty
	p.expect(flagMore, "")
	p.expect(0, "q")
	p.say(request("a"))
	if err := <-results; err != nil {
		t.Error(err)
	}
}

func TestRequesterRefuses(t *testing.T) {
	for name, say := range map[string][]byte{
		"no delimiter":  appendFrame(nil, 0, []byte("x")),
		"no empty one":  appendFrame(appendFrame(nil, flagMore, []byte("r")), 0, []byte("x")),
		"three frames":  append(appendFrame(appendFrame(nil, flagMore, nil), flagMore, nil), appendFrame(nil, 0, nil)...),
		"an error":      appendError(nil, "tired"),
		"too large":     request(strings.Repeat("x", 1001)),
		"unknown flags": {0x80, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeServer(t)
			r := newRequester(s.addr(), transport.DialOptions{MaxMessage: 1000})
			defer r.Close()
			result := make(chan error)
			go func() {
				_, err := ask(t, r, "q")
				result <- err
			}()
			p := s.accept(1, "REP")
			p.expect(flagMore, "")
			p.expect(0, "q")
			p.say(say)
			if err := <-result; err == nil || !strings.Contains(err.Error(), s.addr()) {
				t.Errorf("got %v", err)
			}
			p.expectClosed()
		})
	}
}

// TestRequesterTakesNoUnaskedReply has a master that answers twice: the second
// answer must not be returned for the next request.
func TestRequesterTakesNoUnaskedReply(t *testing.T) {
	s := newFakeServer(t)
	r := newRequester(s.addr(), transport.DialOptions{})
	defer r.Close()
	results := make(chan string)
	send := func() {
		reply, err := ask(t, r, "q")
		results <- fmt.Sprint(reply, err)
	}
	go send()
	p := s.accept(1, "ROUTER")
	p.expect(flagMore, "")
	p.expect(0, "q")
	p.say(request("a"), request("late"))
	if got := <-results; got != "a<nil>" {
		t.Fatal(got)
	}
	p.expectClosed()
	go send()
	p = s.accept(1, "ROUTER")
	p.expect(flagMore, "")
	p.expect(0, "q")
	p.say(request("b"))
	if got := <-results; got != "b<nil>" {
		t.Fatal(got)
	}
}

func TestRequesterHeartbeats(t *testing.T) {
	t.Parallel()
	const every = 100 * time.Millisecond
	s := newFakeServer(t)
	r := newRequester(s.addr(), transport.DialOptions{Heartbeat: every})
	defer r.Close()
	result := make(chan error)
	send := func() {
		_, err := ask(t, r, "q")
		result <- err
	}
	go send()
	p := s.accept(1, "ROUTER")
	p.expect(flagMore, "")
	p.expect(0, "q")
	for range 5 { // while the master answers, the request waits
		p.expectCommand(cmdPing, "\x00\x00")
		p.say(appendCommand(nil, cmdPong))
	}
	if err := <-result; salt.KindOf(err) != salt.Timeout || !strings.Contains(err.Error(), "no sign of life") {
		t.Errorf("got %v", err)
	}
	go send()
	old := s.accept(0, "ROUTER") // may lack PING, so it may be slow
	old.expect(flagMore, "")
	old.expect(0, "q")
	time.Sleep(5 * every)
	old.say(request("a"))
	if err := <-result; err != nil {
		t.Error(err)
	}
	old.say(appendCommand(nil, cmdPing, []byte{0, 0}))
	old.expectCommand(cmdPong, "") // and nothing before
}

func TestFixedLocalPort(t *testing.T) {
	s := serveRequests(t, transport.ListenOptions{}, echo)
	ports, err := freeport.TCP(1)
	if err != nil {
		t.Fatal(err)
	}
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: ports[0]}
	r := newRequester(s.Addr().String(), transport.DialOptions{LocalAddr: local})
	defer r.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { mustEcho(t, r, "x") })
	}
	wg.Wait()
	if l := s.current(); len(l) != 1 || l[0].conn.RemoteAddr().String() != local.String() {
		t.Errorf("%d connections", len(l))
	}
}
