package tcp

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

func portOf(t *testing.T, a net.Addr) string {
	t.Helper()
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// run serves until the test ends.
func run(t *testing.T, serve func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func TestStockRequestClient(t *testing.T) {
	s, err := newTransport().ListenRequests("127.0.0.1:0", transport.ListenOptions{Heartbeat: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// Answer in reverse order, to prove that mid works.
	const n = 20
	var held []*transport.Request
	run(t, func(ctx context.Context) error {
		return s.Serve(ctx, func(r *transport.Request) {
			if held = append(held, r); len(held) == n {
				for i := range held {
					r := held[n-1-i]
					r.Reply(r.Body)
				}
			}
		})
	})
	p := transporttest.StartStock(t, "tcp", "requests", portOf(t, s.Addr()), fmt.Sprint(n))
	for i := range n {
		if v := p.Next(); v["n"] != float64(i) || v["same"] != true {
			t.Errorf("reply %d is %v", i, v)
		}
	}
}

func TestStockSubscriber(t *testing.T) {
	registered := make(chan string, 1)
	p, err := newTransport().ListenPublish("127.0.0.1:0", transport.ListenOptions{
		Filter:    true,
		Heartbeat: 50 * time.Millisecond,
		Identify: func(body []byte) (string, bool) {
			raw, _, err := msgpack.Field(body, "load")
			id, _ := msgpack.Text(raw)
			if err == nil {
				registered <- string(id)
			}
			return string(id), err == nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p.Serve)
	s := transporttest.StartStock(t, "tcp", "subscribe", portOf(t, p.Addr()), "lisa")
	if id := <-registered; id != "lisa" {
		t.Errorf("registered as %q", id)
	}
	for len(p.Peers()) != 1 || p.Peers()[0].ID != "lisa" {
		time.Sleep(time.Millisecond)
	}
	send := func(key string, minions []string) {
		b, err := msgpack.Marshal(value.DictOf(key, bytes.Repeat([]byte("é"), 300)), msgpack.Wire)
		if err != nil {
			t.Fatal(err)
		}
		p.Publish(transport.Publication{Payload: b, Minions: minions})
	}
	send("all", nil)
	send("bart", []string{"bart"})
	send("lisa", []string{"bart", "lisa"})
	send("end", nil)
	for _, want := range []string{"all", "lisa", "end"} {
		if v := s.Next(); v[want] == nil {
			t.Errorf("received %v, want %s", v, want)
		}
	}
}

func TestStockServer(t *testing.T) {
	ret, pub := transporttest.UnusedPort(t), transporttest.UnusedPort(t)
	s := transporttest.StartStock(t, "tcp", "serve", ret, pub)
	if v := s.Next(); v["ready"] != true {
		t.Fatalf("got %v", v)
	}
	// With heartbeats, which the stock end must neither answer nor notice.
	o := transport.DialOptions{Heartbeat: 50 * time.Millisecond}
	r := newTransport().NewRequester("127.0.0.1:"+ret, o)
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), transporttest.Timeout)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			body, err := msgpack.Marshal(value.DictOf("n", int64(i), "blob", bytes.Repeat([]byte{0xff}, 1+i*1000)), msgpack.NewSpec)
			if err != nil {
				t.Error(err)
				return
			}
			reply, err := r.Request(ctx, body)
			if err != nil {
				t.Error(err)
				return
			}
			if !bytes.Equal(reply, body) {
				t.Errorf("reply %d is %.40q", i, reply)
			}
		})
	}
	wg.Wait()
	// A slow answer must not be considered silence.
	slow, err := msgpack.Marshal(value.DictOf("wait", 0.6), msgpack.NewSpec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Request(ctx, slow); err != nil {
		t.Error(err)
	}

	sub, err := newTransport().Subscribe(ctx, "127.0.0.1:"+pub, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	body, err := msgpack.Marshal(value.DictOf("enc", "aes", "load", "maggie"), msgpack.NewSpec)
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.(transport.Sender).Send(body); err != nil {
		t.Fatal(err)
	}
	if v := s.Next(); v["registered"] != "maggie" {
		t.Errorf("got %v", v)
	}
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
