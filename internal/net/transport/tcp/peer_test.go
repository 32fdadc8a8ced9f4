package tcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
	"brine/internal/py/msgpack"
)

func listen(t testing.TB, o transport.ListenOptions, h transport.Handler) (addr string) {
	t.Helper()
	s, err := newTransport().ListenRequests("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	serveTB(t, func(ctx context.Context) error { return s.Serve(ctx, h) })
	return s.Addr().String()
}

func serveTB(t testing.TB, serve func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { serve(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(transporttest.Timeout))
	return c
}

func TestRegistrationFilters(t *testing.T) {
	p, err := newTransport().ListenPublish("127.0.0.1:0", transport.ListenOptions{
		Filter: true,
		Identify: func(body []byte) (string, bool) {
			id, _ := msgpack.Text(body)
			return string(id), !strings.HasPrefix(string(id), "bad")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.(*publisher).unregistered = 100 * time.Millisecond
	serveTB(t, p.Serve)
	subscribe := func(ids ...string) transport.Subscription {
		s, err := newTransport().Subscribe(context.Background(), p.Addr().String(), transport.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		for _, id := range ids {
			if err := s.(transport.Sender).Send(transporttest.Text(id)); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	a1, a2, b, unknown := subscribe("a"), subscribe("x", "bad", "a"), subscribe("b"), subscribe()
	if _, err := subscribe("bad").Receive(); err == nil {
		t.Error("a subscriber whose only registration is refused stays connected, and would get nothing")
	}
	ids := func() (ids []string) {
		for _, peer := range p.Peers() {
			ids = append(ids, peer.ID)
		}
		slices.Sort(ids)
		return ids
	}
	want := []string{"", "a", "a", "b"}
	for deadline := time.Now().Add(transporttest.Timeout); !slices.Equal(ids(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("registered are %q", ids())
		}
	}
	send := func(s string, minions []string) {
		p.Publish(transport.Publication{Payload: transporttest.Text(s), Minions: minions})
	}
	send("to a", []string{"a", "a", "nobody", "x"})
	send("to b", []string{"b"})
	send("to none", []string{})
	send("to both", []string{"a", "b"})
	send("to all", nil)
	for name, x := range map[string]struct {
		s    transport.Subscription
		want []string
	}{
		"a1": {a1, []string{"to a", "to both", "to all"}}, "a2": {a2, []string{"to a", "to both", "to all"}},
		"b": {b, []string{"to b", "to both", "to all"}}, "unknown": {unknown, []string{"to all"}},
	} {
		for _, w := range x.want {
			if got, err := x.s.Receive(); err != nil || string(got) != string(transporttest.Text(w)) {
				t.Errorf("%s received %q, %v, want %q", name, got, err, w)
			}
		}
	}
	a1.Close()
	b.Close()
	want = []string{"", "a"}
	for deadline := time.Now().Add(transporttest.Timeout); !slices.Equal(ids(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("registered are %q", ids())
		}
	}
	index := p.(*publisher)
	index.mu.Lock()
	defer index.mu.Unlock()
	if n := len(index.byID); n != 1 {
		t.Errorf("the index has %d ids", n)
	}
}

func TestRefusedRegistrationsAreBounded(t *testing.T) {
	var n atomic.Int32
	p, err := newTransport().ListenPublish("127.0.0.1:0", transport.ListenOptions{
		Identify: func([]byte) (string, bool) { n.Add(1); return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	serveTB(t, p.Serve)
	c := dial(t, p.Addr().String())
	c.Write(bytes.Repeat([]byte(emptyHead+"\x01"), 1000))
	if _, err := io.ReadAll(c); err != nil && !isDisconnect(err) {
		t.Fatalf("the connection is kept: %v", err)
	}
	if n.Load() != maxRefused {
		t.Errorf("%d registrations were checked, want %d", n.Load(), maxRefused)
	}
}

// TestPipeliningIsBounded has a peer that keeps sending and never reads.
func TestPipeliningIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		backlog, size int
		most          int32
	}{
		"by number": {10, 10, 10},
		"by bytes":  {1000, 1 << 20, 5},
	} {
		t.Run(name, func(t *testing.T) {
			var open, seen atomic.Int32
			var mu sync.Mutex
			var held []*transport.Request
			addr := listen(t, transport.ListenOptions{Backlog: c.backlog}, func(r *transport.Request) {
				seen.Add(1)
				if n := open.Add(1); n > c.most {
					t.Errorf("%d requests are open", n)
				}
				mu.Lock()
				held = append(held, r)
				mu.Unlock()
			})
			conn := dial(t, addr)
			const total = 40
			frame := append(requestHead("00000000", false), msgpack.AppendBin(nil, make([]byte, c.size), msgpack.NewSpec)...)
			go conn.Write(bytes.Repeat(frame, total))
			go io.Copy(io.Discard, conn)
			for deadline := time.Now().Add(transporttest.Timeout); seen.Load() < total; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d of %d requests arrived", seen.Load(), total)
				}
				mu.Lock()
				replies := held
				held = nil
				mu.Unlock()
				for _, r := range replies {
					open.Add(-1)
					r.Reply([]byte{0xc0})
				}
			}
		})
	}
}

// TestUnreadReplies has a peer that never reads: the server must stop reading.
func TestUnreadReplies(t *testing.T) {
	var sent atomic.Int64
	reply := append([]byte{0xc6, 0, 1, 0, 0}, make([]byte, 1<<16)...)
	addr := listen(t, transport.ListenOptions{}, func(r *transport.Request) {
		sent.Add(int64(len(reply)))
		r.Reply(reply)
	})
	c := dial(t, addr)
	c.(*net.TCPConn).SetReadBuffer(64 << 10)
	frame := append(requestHead("00000000", false), 0xc0)
	c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	c.Write(bytes.Repeat(frame, 200_000)) // the answers would amount to 13 GB
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d MiB of replies were made for a peer that reads none", n>>20)
	}
	// The peer gets the rest when it reads.
	got := make([]byte, 1<<20)
	if _, err := io.ReadFull(c, got); err != nil {
		t.Error(err)
	}
}

func TestReplyTwice(t *testing.T) {
	addr := listen(t, transport.ListenOptions{}, func(r *transport.Request) {
		r.Reply([]byte{1})
		r.Reply([]byte{2})
	})
	c := dial(t, addr)
	first := append(requestHead("one", false), 0xc0)
	c.Write(append(first, append(requestHead("two", false), 0xc0)...))
	want := string(requestHead("one", false)) + "\x01" + string(requestHead("two", false)) + "\x01"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestHeadComesBack checks the additional fields of heads that other clients
// may send.
func TestHeadComesBack(t *testing.T) {
	addr := listen(t, transport.ListenOptions{}, func(r *transport.Request) {
		if !r.NewSpec {
			t.Error("not told to use the new spec")
		}
		r.Reply(r.Body)
	})
	c := dial(t, addr)
	for _, frame := range []string{
		"\x82\xa4head\x82\xa3mid\x05\xa1x\x91\xc0\xa4body\x81\xa1k\xc4\x01\xff",
		"\x82\xa4head\xc0\xa4body\x07",
		"\x82\xa4head\x80\xa4body\xc0",
	} {
		c.Write([]byte(frame))
		got := make([]byte, len(frame))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != frame {
			t.Errorf("sent %q, got %q, %v", frame, got, err)
		}
	}
}

// TestBeats simulates a peer with heartbeats that stops responding.
func TestBeats(t *testing.T) {
	addr := listen(t, transport.ListenOptions{Heartbeat: 100 * time.Millisecond}, func(r *transport.Request) { r.Reply(r.Body) })
	c := dial(t, addr)
	request := append(requestHead("m", true), 0x07)
	c.Write(request)
	all, err := io.ReadAll(c)
	if err != nil && !isDisconnect(err) {
		t.Fatalf("the silent peer is kept: %v", err)
	}
	want := string(pongFrame) + string(request) + string(pingFrame)
	if !strings.HasPrefix(string(all), want) {
		t.Errorf("got %q, want it to begin with %q", all, want)
	}
}

// TestFrozenServer suspends a server in the middle of a request.
func TestFrozenServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Write(pongFrame)
		io.Copy(io.Discard, c)
	}()
	r := newTransport().NewRequester(l.Addr().String(), transport.DialOptions{Heartbeat: 50 * time.Millisecond})
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), transporttest.Timeout)
	defer cancel()
	if _, err := r.Request(ctx, []byte{7}); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "no sign of life") {
		t.Errorf("got %v", err)
	}
}

// TestMuteServer has a server that accepts and sends nothing: after a timeout
// the next request must use a new connection.
func TestMuteServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conns := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	r := newTransport().NewRequester(l.Addr().String(), transport.DialOptions{})
	defer r.Close()
	for range 2 {
		var c net.Conn
		// A slow machine may not even connect before the timeout.
		for limit := 30 * time.Millisecond; c == nil; limit *= 2 {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			if _, err := r.Request(ctx, []byte{7}); err == nil {
				t.Error("answered")
			}
			cancel()
			select {
			case c = <-conns:
			case <-time.After(limit):
			}
		}
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(transporttest.Timeout))
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("the connection is kept: %v", err)
		}
	}
}

// TestMemoryStaysFlat checks that memory does not grow with requests or
// connections.
func TestMemoryStaysFlat(t *testing.T) {
	addr := listen(t, transport.ListenOptions{}, func(r *transport.Request) { r.Reply(r.Body) })
	r := newTransport().NewRequester(addr, transport.DialOptions{})
	defer r.Close()
	body := transporttest.Text(strings.Repeat("x", 500))
	work := func(n int) {
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range n / 50 {
					if _, err := r.Request(context.Background(), body); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		for range 20 {
			dial(t, addr).Close()
		}
	}
	work(5000)
	before := heap()
	work(100_000)
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("100000 requests left %d KiB behind", grown>>10)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkRequest(b *testing.B) {
	addr := listen(b, transport.ListenOptions{}, func(r *transport.Request) { r.Reply(r.Body) })
	r := newTransport().NewRequester(addr, transport.DialOptions{})
	defer r.Close()
	body := transporttest.Text(strings.Repeat("x", 500))
	for _, parallel := range []int{1, 50} {
		b.Run(fmt.Sprint(parallel, " at once"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(parallel)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := r.Request(context.Background(), body); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkPublish1000(b *testing.B) {
	p, err := newTransport().ListenPublish("127.0.0.1:0", transport.ListenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	serveTB(b, p.Serve)
	const subs = 1000
	var wg sync.WaitGroup
	var got atomic.Int64
	before := heap()
	for range subs {
		c, err := net.Dial("tcp", p.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		wg.Go(func() {
			buf := make([]byte, 4096)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				got.Add(int64(n))
			}
		})
	}
	for len(p.Peers()) < subs {
		time.Sleep(time.Millisecond)
	}
	b.Logf("%d bytes of heap per connection, with the 4 KiB of the test's own end", (heap()-before)/subs)
	payload := bytes.Repeat([]byte("x"), 800)
	frame := int64(len(publishHead(payload)) + len(payload))
	b.ReportAllocs()
	want := int64(0)
	for b.Loop() {
		p.Publish(transport.Publication{Payload: payload})
		want += frame * subs
		for got.Load() < want {
			runtime.Gosched()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/subs, "µs/message")
}
