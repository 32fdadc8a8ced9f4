package ws

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
	"brine/internal/net/transport/netserve"
	"brine/internal/net/transport/transporttest"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/eventually"
	"brine/test/fuzztest"
)

type recording struct {
	Exchanges []struct {
		Case     string
		HTTP     string `json:"http_request"`
		Request  []byte `json:"request_b64"`
		Reply    []byte `json:"reply_b64"`
		Sent     []byte `json:"request_frame_b64"`
		Received []byte `json:"reply_frame_b64"`
	}
	Publications []struct {
		HTTP    string `json:"http_request"`
		Payload []byte `json:"payload_b64"`
		Frame   []byte `json:"frame_b64"`
	}
}

func recorded(t testing.TB) recording {
	t.Helper()
	b, err := os.ReadFile("testdata/ws.json")
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Exchanges) == 0 || len(r.Publications) == 0 {
		t.Fatal("no recordings")
	}
	return r
}

func serve(t testing.TB, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func listen(t testing.TB, o transport.ListenOptions, h transport.Handler) (addr string) {
	t.Helper()
	s, err := newTransport().ListenRequests("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, func(ctx context.Context) error { return s.Serve(ctx, h) })
	return s.Addr().String()
}

func publish(t testing.TB, o transport.ListenOptions) transport.Publisher {
	t.Helper()
	p, err := newTransport().ListenPublish("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, p.Serve)
	return p
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

// upgraded sends the recorded upgrade and reads the answer.
func upgraded(t *testing.T, c net.Conn, request string) *bufio.Reader {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for first := true; ; first = false {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if first && line != "HTTP/1.1 101 Switching Protocols\r\n" {
			t.Fatalf("the answer begins %q", line)
		}
		if line == "\r\n" {
			return in
		}
	}
}

// TestRecordedExchanges replays the bytes of Salt's client, and expects those
// of Salt's server.
func TestRecordedExchanges(t *testing.T) {
	for _, x := range recorded(t).Exchanges {
		addr := listen(t, transport.ListenOptions{}, func(r *transport.Request) {
			if !bytes.Equal(r.Body, x.Request) || r.NewSpec {
				t.Errorf("%s: the handler got %.60q, new spec %v", x.Case, r.Body, r.NewSpec)
			}
			r.Reply(x.Reply)
		})
		c := dial(t, addr)
		in := upgraded(t, c, x.HTTP)
		c.Write(x.Sent)
		got := make([]byte, len(x.Received))
		if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, x.Received) {
			t.Errorf("%s: got %.60q, %v", x.Case, got, err)
		}
	}
}

func TestRecordedPublication(t *testing.T) {
	x := recorded(t).Publications[0]
	p := publish(t, transport.ListenOptions{})
	in := upgraded(t, dial(t, p.Addr().String()), x.HTTP)
	eventually.True(t, "the subscriber is known", func() bool { return len(p.Peers()) == 1 })
	p.Publish(transport.Publication{Payload: x.Payload})
	got := make([]byte, len(x.Frame))
	if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, x.Frame) {
		t.Errorf("got %.60q, %v, want %.60q", got, err, x.Frame)
	}
}

func TestUpgradeRefusals(t *testing.T) {
	addr := listen(t, transport.ListenOptions{}, func(r *transport.Request) { r.Reply(r.Body) })
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                                               "HTTP/1.1 426 ",
		"POST / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n": "HTTP/1.1 405 ",
		"GET / HTTP/1.1\r\nHost: x\r\nOrigin: http://elsewhere\r\nConnection: upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ojBc5yO5eA3b7b8fvwn0HA==\r\n\r\n": "HTTP/1.1 403 ",
		"nonsense\r\n\r\n": "",
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n": "",
	} {
		c := dial(t, addr)
		io.WriteString(c, request)
		got, err := io.ReadAll(c)
		if err != nil && !isDisconnect(err) {
			t.Errorf("%.20q: %v", request, err)
		}
		if !strings.HasPrefix(string(got), want) || want == "" && len(got) > 0 {
			t.Errorf("%.20q: answered %.40q, want %q", request, got, want)
		}
	}
}

func rawClient(t *testing.T, addr string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(context.Background(), "ws://"+addr+"/any/path?at=all", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

// TestManyRequestsPerConnection sends several requests at once; the replies
// must keep the order, and the handler gets one request at a time.
func TestManyRequestsPerConnection(t *testing.T) {
	var open atomic.Int32
	addr := listen(t, transport.ListenOptions{}, func(r *transport.Request) {
		if open.Add(1) > 1 {
			t.Error("two requests of one connection are open")
		}
		go func() {
			runtime.Gosched()
			open.Add(-1)
			r.Reply(r.Body)
		}()
	})
	c := rawClient(t, addr)
	ctx, cancel := context.WithTimeout(context.Background(), transporttest.Timeout)
	defer cancel()
	for i := range 20 {
		if err := c.Write(ctx, websocket.MessageBinary, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if _, b, err := c.Read(ctx); err != nil || b[0] != byte(i) {
			t.Fatalf("reply %d is %v, %v", i, b, err)
		}
	}
	// Text messages are ignored, except one word.
	c.Write(ctx, websocket.MessageText, []byte("hello, server"))
	c.Write(ctx, websocket.MessageText, []byte("hi"))
	c.Write(ctx, websocket.MessageBinary, []byte{0x55})
	if _, b, err := c.Read(ctx); err != nil || b[0] != 0x55 {
		t.Fatalf("got %v, %v", b, err)
	}
	c.Write(ctx, websocket.MessageText, []byte("close"))
	if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("after close: %v", err)
	}
}

func TestNotMsgpackClosesOnlyItsSender(t *testing.T) {
	var handled atomic.Int32
	addr := listen(t, transport.ListenOptions{}, func(r *transport.Request) {
		handled.Add(1)
		r.Reply(r.Body)
	})
	ctx, cancel := context.WithTimeout(context.Background(), transporttest.Timeout)
	defer cancel()
	good := rawClient(t, addr)
	for _, bad := range []string{"", "\xc1", "\x92\x01", "\x01\x02"} {
		c := rawClient(t, addr)
		c.Write(ctx, websocket.MessageBinary, []byte(bad))
		if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if handled.Load() != 0 {
		t.Errorf("%d messages that are no objects reached the handler", handled.Load())
	}
	good.Write(ctx, websocket.MessageBinary, []byte{7})
	if _, b, err := good.Read(ctx); err != nil || b[0] != 7 {
		t.Errorf("got %v, %v", b, err)
	}
}

// TestConnectionsAreReused counts the connections of a requester.
func TestConnectionsAreReused(t *testing.T) {
	var mu sync.Mutex
	peers := map[string]bool{}
	s, err := newTransport().ListenRequests("127.0.0.1:0", transport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, func(ctx context.Context) error {
		return s.Serve(ctx, func(r *transport.Request) {
			mu.Lock()
			peers[r.Peer.String()] = true
			mu.Unlock()
			r.Reply(r.Body)
		})
	})
	r := newTransport().NewRequester(s.Addr().String(), transport.DialOptions{})
	defer r.Close()
	for range 50 {
		if _, err := r.Request(context.Background(), []byte{7}); err != nil {
			t.Fatal(err)
		}
	}
	if len(peers) != 1 {
		t.Errorf("50 requests one after another took %d connections", len(peers))
	}
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() { r.Request(context.Background(), []byte{7}) })
	}
	wg.Wait()
	eventually.True(t, "only so many connections are kept", func() bool { return s.(*requestServer).srv.Len() <= maxIdle })
}

// TestForeignSubscriberIsNotDropped: Salt's subscriber hangs when its
// connection ends, so its silence must not end it.
func TestForeignSubscriberIsNotDropped(t *testing.T) {
	const beat = 50 * time.Millisecond
	p := publish(t, transport.ListenOptions{Heartbeat: beat})
	in := upgraded(t, dial(t, p.Addr().String()), recorded(t).Publications[0].HTTP)
	eventually.True(t, "the subscriber is known", func() bool { return len(p.Peers()) == 1 })
	ping := make([]byte, 3)
	if _, err := io.ReadFull(in, ping); err != nil || ping[0] != 0x89 {
		t.Fatalf("got %x, %v, want a ping", ping, err)
	}
	time.Sleep(5 * beat)
	p.Publish(transport.Publication{Payload: []byte{7}})
	got := make([]byte, 5)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "\x82\x03\xc4\x01\x07" {
		t.Errorf("got %x, %v: either dropped, or pinged while a ping was open", got, err)
	}
}

func TestStockRequestClient(t *testing.T) {
	addr := listen(t, transport.ListenOptions{}, func(r *transport.Request) { go r.Reply(r.Body) })
	_, port, _ := net.SplitHostPort(addr)
	s := transporttest.StartStock(t, "ws", "requests", port, "10")
	for i := range 10 {
		if v := s.Next(); v["n"] != float64(i) || v["same"] != true {
			t.Errorf("reply %d is %v", i, v)
		}
	}
}

func TestStockSubscriber(t *testing.T) {
	p := publish(t, transport.ListenOptions{Heartbeat: 50 * time.Millisecond})
	_, port, _ := net.SplitHostPort(p.Addr().String())
	s := transporttest.StartStock(t, "ws", "subscribe", port, "lisa")
	eventually.True(t, "the subscriber is known", func() bool { return len(p.Peers()) == 1 })
	for _, key := range []string{"first", "end"} {
		b, err := msgpack.Marshal(value.DictOf(key, strings.Repeat("é", 1000)), msgpack.Wire)
		if err != nil {
			t.Fatal(err)
		}
		p.Publish(transport.Publication{Payload: b, Minions: []string{"bart"}})
	}
	for _, want := range []string{"first", "end"} {
		if v := s.Next(); v[want] == nil {
			t.Errorf("received %v, want %s", v, want)
		}
	}
}

func TestStockServer(t *testing.T) {
	ret, pub := transporttest.UnusedPort(t), transporttest.UnusedPort(t)
	s := transporttest.StartStock(t, "ws", "serve", ret, pub)
	if v := s.Next(); v["ready"] != true {
		t.Fatalf("got %v", v)
	}
	o := transport.DialOptions{Heartbeat: 50 * time.Millisecond}
	r := newTransport().NewRequester("127.0.0.1:"+ret, o)
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), transporttest.Timeout)
	defer cancel()
	for round := range 3 { // later rounds use connections again
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				body, err := msgpack.Marshal(value.DictOf("n", int64(i), "blob", bytes.Repeat([]byte{0xff}, 1+i*1000)), msgpack.Wire)
				if err != nil {
					t.Error(err)
					return
				}
				reply, err := r.Request(ctx, body)
				if err != nil || !bytes.Equal(reply, body) {
					t.Errorf("round %d: reply %d is %.40q, %v", round, i, reply, err)
				}
			})
		}
		wg.Wait()
	}
	sub, err := newTransport().Subscribe(ctx, "127.0.0.1:"+pub, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	last := int64(0)
	for range 20 { // a second, many heartbeats
		b, err := sub.Receive()
		if err != nil {
			t.Fatal(err)
		}
		v, err := msgpack.Unmarshal(b)
		if err != nil {
			t.Fatal(err)
		}
		n := v.(*value.Dict).Int("n")
		if last > 0 && n != last+1 {
			t.Errorf("publication %d follows %d", n, last)
		}
		last = n
	}
	if logs := s.Pending(); logs != nil {
		t.Errorf("Salt logs: %q", logs)
	}
}

// FuzzMessages sends arbitrary data after an upgrade to a server.
func FuzzMessages(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	r := recorded(f)
	for _, x := range r.Exchanges {
		f.Add(x.Sent)
	}
	f.Add([]byte("\x81\x85\x00\x00\x00\x00close"))
	f.Add([]byte("\x89\x80\x00\x00\x00\x00\x02\x81\x00\x00\x00\x00\x90\x80\x81\x00\x00\x00\x00\x07"))
	f.Add([]byte("\x82\xff\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x00\x01"))
	s := &requestServer{}
	if err := s.init("127.0.0.1:0", "ret_port", "request port", transport.ListenOptions{MaxMessage: 1 << 20, MaxBuffered: 2 << 20},
		newTransport().(*Transport).log); err != nil {
		f.Fatal(err)
	}
	s.Close()
	s.handle = func(r *transport.Request) {
		if err := checkObject(r.Body); err != nil {
			panic(err)
		}
		r.Reply(r.Body)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		ours, theirs := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() {
			s.listener.serve(context.Background(), ours, 0, s.serve)
			ours.Close()
		})
		wg.Go(func() { io.Copy(io.Discard, theirs) })
		io.WriteString(theirs, r.Exchanges[0].HTTP)
		theirs.Write(stream)
		theirs.Close()
		wg.Wait()
		if s.budget.Used() != 0 {
			t.Fatal("the budget is not given back")
		}
	})
}

func FuzzPublication(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, p := range recorded(f).Publications {
		f.Add(wrap(p.Payload))
	}
	f.Add([]byte("\xa3abc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, err := unwrap(b)
		if err != nil {
			return
		}
		if again, err := unwrap(wrap(payload)); err != nil || !bytes.Equal(again, payload) {
			t.Fatalf("%q becomes %q, %v", payload, again, err)
		}
	})
}

func TestBudgetIsGivenBack(t *testing.T) {
	budget := netserve.NewBudget(40_000)
	l := &link{}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	l.init(nil, netpeer.Wrap(a), 0)
	if got, err := l.readAll(bytes.NewReader(make([]byte, 10_000)), budget); err != nil || len(got) != 10_000 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if _, err := l.readAll(bytes.NewReader(make([]byte, 50_000)), budget); err == nil {
		t.Error("a message above the budget is taken")
	}
	if budget.Used() != 0 {
		t.Errorf("%d bytes are not given back", budget.Used())
	}
}

func BenchmarkRequest(b *testing.B) {
	addr := listen(b, transport.ListenOptions{}, func(r *transport.Request) { r.Reply(r.Body) })
	r := newTransport().NewRequester(addr, transport.DialOptions{})
	defer r.Close()
	body := transporttest.Text(strings.Repeat("x", 500))
	for _, parallel := range []int{1, 4} {
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
	p := publish(b, transport.ListenOptions{})
	const subs = 1000
	var got atomic.Int64
	upgrade := recorded(b).Publications[0].HTTP
	for range subs {
		c, err := net.Dial("tcp", p.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		io.WriteString(c, upgrade)
		in := bufio.NewReaderSize(c, 4096)
		for line := ""; line != "\r\n"; {
			if line, err = in.ReadString('\n'); err != nil {
				b.Fatal(err)
			}
		}
		go func() {
			buf := make([]byte, 4096)
			for {
				n, err := in.Read(buf)
				if err != nil {
					return
				}
				got.Add(int64(n))
			}
		}()
	}
	eventually.True(b, "all have subscribed", func() bool { return len(p.Peers()) == subs })
	payload := bytes.Repeat([]byte("x"), 800)
	frame := int64(4 + len(wrap(payload)))
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
