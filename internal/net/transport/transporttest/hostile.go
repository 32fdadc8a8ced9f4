package transporttest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/test/eventually"
)

// dialRaw opens a bare connection that is closed at the end of the test.
func dialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

var garbage = [][]byte{
	{},
	{0},
	{0xc1},
	[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	[]byte("GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"),
	[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
	[]byte("\x82\xa4head\x80\xa4body"),
	[]byte("\x82\xa4head\x81\xa3mid\xc0\xa4body\xc0"),
	[]byte("\x82\xa4body\xc6\xff\xff\xff\xff\xa4head"),
	[]byte("\xdf\xff\xff\xff\xff\xdf\xff\xff\xff\xff\xdf\xff\xff\xff\xff"),
	[]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL\x00\x00\x00\x00\x00\x00\x00\x00"),
	[]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01CURVE"),
	append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1}, make([]byte, 400)...),
}

func manyArrays() []byte {
	b := make([]byte, 100_000)
	for i := range b {
		b[i] = 0x91
	}
	return b
}

func testGarbage(t *testing.T, tr transport.Transport) {
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, echo)
	p, ps := servePublisher(t, tr, transport.ListenOptions{
		Identify: func([]byte) (string, bool) { return "", false },
	})
	r := requester(t, tr, s.addr, transport.DialOptions{})
	sub := subscribe(t, tr, ps.addr, transport.DialOptions{})
	joined(t, p, sub)
	for _, g := range append(garbage, manyArrays(), big(1<<20)) {
		for _, addr := range []string{s.addr, ps.addr} {
			open := dialRaw(t, addr)
			open.Write(g)
			gone := dialRaw(t, addr)
			gone.Write(g)
			gone.Close()
		}
		mustEcho(t, r, Text("unharmed"))
		p.Publish(transport.Publication{Payload: Text("unharmed")})
		sub.mustReceive(t, Text("unharmed"))
	}
}

// testTruncated sends the beginnings of a real conversation.
func testTruncated(t *testing.T, tr transport.Transport) {
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, echo)
	r := requester(t, tr, s.addr, transport.DialOptions{})
	whole := record(t, tr, s.addr, big(700))
	for n := 1; n < len(whole); n += 1 + n/30 {
		open := dialRaw(t, s.addr)
		open.Write(whole[:n])
		gone := dialRaw(t, s.addr)
		gone.Write(whole[:n])
		gone.Close()
	}
	mustEcho(t, r, Text("unharmed"))
}

// record returns what a requester sends for body. It can be replayed on a bare connection, because
// no client depends on the server's answers.
func record(t *testing.T, tr transport.Transport, addr string, body []byte) []byte {
	t.Helper()
	p := startProxy(t, addr)
	r := tr.NewRequester(p.addr, transport.DialOptions{})
	defer r.Close()
	mustEcho(t, r, body)
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.said)
}

func testSilent(t *testing.T, tr transport.Transport) {
	o := transport.ListenOptions{HandshakeTimeout: 200 * time.Millisecond}
	s := serveRequests(t, tr, "127.0.0.1:0", o, echo)
	p, ps := servePublisher(t, tr, o)
	r := requester(t, tr, s.addr, transport.DialOptions{})
	mustEcho(t, r, Text("before"))
	sub := subscribe(t, tr, ps.addr, transport.DialOptions{})
	joined(t, p, sub)

	mustClose(t, dialRaw(t, s.addr), "the request port")
	// Where a bare connection is a subscriber at once, its silence is correct.
	c := dialRaw(t, ps.addr)
	bare := false
	for deadline := time.Now().Add(100 * time.Millisecond); !bare && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		bare = len(p.Peers()) == 2
	}
	if !bare {
		mustClose(t, c, "the publish port")
	}

	// Connections that did send something stay, even if silent since.
	mustEcho(t, r, Text("after"))
	p.Publish(transport.Publication{Payload: Text("after")})
	sub.mustReceive(t, Text("after"))
}

func mustClose(t *testing.T, c net.Conn, what string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(Timeout))
	if _, err := io.Copy(io.Discard, c); err != nil {
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			t.Fatalf("a silent connection to %s is kept", what)
		}
	}
}

const heartbeat = 200 * time.Millisecond

func testHeartbeatQuiet(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{Heartbeat: heartbeat})
	sub := subscribe(t, tr, s.addr, transport.DialOptions{Heartbeat: heartbeat})
	// A peer without heartbeats must not be dropped by one that has them.
	plain := subscribe(t, tr, s.addr, transport.DialOptions{})
	joined(t, p, sub, plain)
	quiet, qs := servePublisher(t, tr, transport.ListenOptions{})
	other := subscribe(t, tr, qs.addr, transport.DialOptions{Heartbeat: heartbeat})
	joined(t, quiet, other)

	received := make(chan error, 3)
	for _, x := range []subscriber{sub, plain, other} {
		go func() {
			_, err := x.receive()
			received <- err
		}()
	}
	select {
	case err := <-received:
		t.Fatalf("a quiet connection ended: %v", err)
	case <-time.After(6 * heartbeat):
	}
	p.Publish(transport.Publication{Payload: Text("x")})
	quiet.Publish(transport.Publication{Payload: Text("x")})
	for range 3 {
		if err := <-received; err != nil {
			t.Errorf("Receive: %v", err)
		}
	}
}

func testHeartbeatFrozenPublisher(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{})
	proxy := startProxy(t, s.addr)
	sub := subscribe(t, tr, proxy.addr, transport.DialOptions{Heartbeat: heartbeat})
	joined(t, p, sub)
	// Either side may first have to learn that the other answers pings.
	time.Sleep(2 * heartbeat)
	proxy.frozen.Store(true)
	sub.mustFail(t)
}

func testHeartbeatFrozenSubscriber(t *testing.T, tr transport.Transport) {
	p, s := servePublisher(t, tr, transport.ListenOptions{Heartbeat: heartbeat})
	proxy := startProxy(t, s.addr)
	healthy := subscribe(t, tr, s.addr, transport.DialOptions{Heartbeat: time.Minute})
	frozen := subscribe(t, tr, proxy.addr, transport.DialOptions{Heartbeat: time.Minute})
	joined(t, p, healthy, frozen)
	go func() {
		for {
			if _, err := healthy.Receive(); err != nil {
				return
			}
		}
	}()
	go func() {
		for {
			if _, err := frozen.Receive(); err != nil {
				return
			}
		}
	}()
	time.Sleep(2 * heartbeat)
	proxy.frozen.Store(true)
	eventually.True(t, "the frozen subscriber is dropped", func() bool { return len(p.Peers()) == 1 })
}

// testMemoryBudget sends large incomplete requests from unauthenticated peers.
func testMemoryBudget(t *testing.T, tr transport.Transport) {
	const size, unauthenticated = 1 << 20, 32
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{
		MaxMessage:  2 * size,
		MaxBuffered: 3 * size,
	}, echo)
	good := requester(t, tr, s.addr, transport.DialOptions{})
	body := big(size)
	whole := record(t, tr, s.addr, body)

	before := liveHeap()
	var wg sync.WaitGroup
	var conns []net.Conn
	for range unauthenticated {
		c := dialRaw(t, s.addr)
		conns = append(conns, c)
		wg.Go(func() {
			// The server may refuse to read, or close the connection.
			c.SetWriteDeadline(time.Now().Add(time.Second))
			c.Write(whole[:size-1000])
		})
	}
	wg.Wait()
	mustEcho(t, good, Text("small ones pass"))
	// A connection that is being refused keeps what it read for a moment.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		grown := liveHeap() - before
		if grown <= 3*size+unauthenticated*(256<<10) {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%d half requests of 1 MiB take %d KiB, the budget is 3 MiB", unauthenticated, grown>>10)
			break
		}
	}
	for _, c := range conns {
		c.Close()
	}
	eventuallyEcho(t, good, body)
}

// liveHeap returns the bytes in use by reachable objects.
func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// proxy forwards connections to a server until it is frozen.
type proxy struct {
	addr   string
	frozen atomic.Bool // forwards nothing more, either way, and keeps all connections open

	mu    sync.Mutex
	said  []byte // data sent to the server
	conns []net.Conn
	wg    sync.WaitGroup
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	p.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			p.wg.Go(func() { p.forward(in, out, true) })
			p.wg.Go(func() { p.forward(out, in, false) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// forward copies bytes from one end to the other. When frozen it reads and drops them, so that both
// ends see a silent peer whose machine is up.
func (p *proxy) forward(from, to net.Conn, keep bool) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if p.frozen.Load() {
			if err != nil {
				return
			}
			continue
		}
		if err != nil {
			to.Close()
			return
		}
		if keep {
			p.mu.Lock()
			p.said = append(p.said, buf[:n]...)
			p.mu.Unlock()
		}
		if _, err := to.Write(buf[:n]); err != nil {
			from.Close()
			return
		}
	}
}
