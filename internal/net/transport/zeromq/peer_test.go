package zeromq

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"brine/internal/net/transport"
)

// waitLimit is how long a test waits for what must happen.
const waitLimit = 60 * time.Second

// rawPeer is a bare connection for arbitrary data.
type rawPeer struct {
	t *testing.T
	net.Conn
	dec *decoder
}

func newRawPeer(t *testing.T, c net.Conn) *rawPeer {
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(waitLimit))
	return &rawPeer{t, c, newDecoder(c, 4096, limits{command: 1 << 16, message: 1 << 30, frames: 100})}
}

func rawDial(t *testing.T, addr net.Addr) *rawPeer {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	return newRawPeer(t, c)
}

// rawConnect dials and shakes hands.
func rawConnect(t *testing.T, addr net.Addr, minor byte, socket string) *rawPeer {
	t.Helper()
	p := rawDial(t, addr)
	p.shake(minor, socket)
	return p
}

// shake shakes hands as a peer of ZMTP 3.minor.
func (p *rawPeer) shake(minor byte, socket string) {
	p.t.Helper()
	g := greeting()
	g[11] = minor
	p.say(appendReady(g, ready{socket: socket}))
	if _, err := readPeer(p.dec); err != nil {
		p.t.Fatalf("handshake: %v", err)
	}
}

// sync returns when the listener has read all earlier data.
func (p *rawPeer) sync() {
	p.t.Helper()
	p.say(appendCommand(nil, cmdPing, []byte("\x00\x00sync")))
	p.expectCommand(cmdPong, "sync")
}

func (p *rawPeer) say(b ...[]byte) {
	p.t.Helper()
	bufs := net.Buffers(b)
	if _, err := bufs.WriteTo(p.Conn); err != nil {
		p.t.Fatal(err)
	}
}

func (p *rawPeer) frame() frame {
	p.t.Helper()
	f, err := p.dec.frame()
	if err != nil {
		p.t.Fatalf("no frame: %v", err)
	}
	return f
}

// expect reads a frame and fails the test unless it is this one.
func (p *rawPeer) expect(flags byte, body string) {
	p.t.Helper()
	if f := p.frame(); f.flags&^flagLong != flags || string(f.body) != body {
		p.t.Fatalf("got the frame %#x %q, want %#x %q", f.flags, f.body, flags, body)
	}
}

func (p *rawPeer) expectCommand(name, data string) {
	p.t.Helper()
	p.expect(flagCommand, string(rune(len(name)))+name+data)
}

// expectClosed fails the test unless the peer closes the connection.
func (p *rawPeer) expectClosed() {
	p.t.Helper()
	for {
		_, err := p.dec.frame()
		switch ne, ok := err.(net.Error); {
		case err == nil:
		case ok && ne.Timeout():
			p.t.Fatal("the connection was not closed")
		default:
			return
		}
	}
}

func request(body string) []byte {
	return appendFrame(appendFrame(nil, flagMore, nil), 0, []byte(body))
}

func serveRequests(t testing.TB, o transport.ListenOptions, h transport.Handler) *requestServer {
	t.Helper()
	s, err := listenRequests("127.0.0.1:0", o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	run(t, func(ctx context.Context) error { return s.Serve(ctx, h) })
	return s
}

// servePublisher lets change modify the publisher before it is served.
func servePublisher(t testing.TB, o transport.ListenOptions, change func(*publisher)) *publisher {
	t.Helper()
	p, err := listenPublish("127.0.0.1:0", o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(p)
	}
	run(t, p.Serve)
	return p
}

func run(t testing.TB, serve func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(waitLimit):
			t.Error("Serve does not return")
		}
	})
}

func echo(r *transport.Request) { r.Reply(r.Body) }

func ask(t testing.TB, r transport.Requester, body string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	reply, err := r.Request(ctx, []byte(body))
	return string(reply), err
}

func mustEcho(t testing.TB, r transport.Requester, body string) {
	t.Helper()
	if got, err := ask(t, r, body); err != nil || got != body {
		t.Errorf("got %d bytes, %v, want an echo of %d", len(got), err, len(body))
	}
}

// fakeServer accepts connections for a test that acts as the master.
type fakeServer struct {
	t *testing.T
	net.Listener
}

func newFakeServer(t *testing.T) *fakeServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &fakeServer{t, l}
}

func (s *fakeServer) addr() string { return s.Listener.Addr().String() }

func (s *fakeServer) accept(minor byte, socket string) *rawPeer {
	s.t.Helper()
	c, err := s.Listener.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	p := newRawPeer(s.t, c)
	p.shake(minor, socket)
	return p
}

func beUint64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// subscriptions returns the number of subscribed prefixes.
func subscriptions(p *publisher) (n int) {
	for _, s := range p.shards {
		s.mu.Lock()
		n += len(s.topics.lists)
		s.mu.Unlock()
	}
	return n
}
