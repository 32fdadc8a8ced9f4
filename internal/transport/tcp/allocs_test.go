//go:build !race

package tcp

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/transport"
)

// counter counts what it is sent.
type counter struct {
	n       *atomic.Int64
	reached chan struct{}
}

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	select {
	case c.reached <- struct{}{}:
	default:
	}
	return len(b), nil
}

// TestPublishAllocations: a publication is made once, and costs no more than its
// place in the queue for each who gets it.
func TestPublishAllocations(t *testing.T) {
	const subscribers = 200
	p, err := New(slog.New(slog.DiscardHandler)).ListenPublish("127.0.0.1:0", transport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, p.Serve)
	got := counter{n: &atomic.Int64{}, reached: make(chan struct{}, 1)}
	for range subscribers {
		c, err := net.Dial("tcp", p.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go io.CopyBuffer(got, struct{ io.Reader }{c}, make([]byte, 4<<10))
	}
	for deadline := time.Now().Add(time.Minute); len(p.Peers()) < subscribers; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not all have come")
		}
	}
	payload := make([]byte, 1<<10)
	size := int64(len(publishHead(payload))+len(payload)) * subscribers
	sent := int64(0)
	if n := testing.AllocsPerRun(50, func() {
		p.Publish(transport.Publication{Payload: payload})
		for sent += size; got.n.Load() < sent; {
			<-got.reached
		}
	}); n > 1.2*subscribers {
		t.Errorf("%v allocations for a publication to %d", n, subscribers)
	}
}

// TestRequestAllocations: both ends of a request together.
func TestRequestAllocations(t *testing.T) {
	tr := New(slog.New(slog.DiscardHandler))
	s, err := tr.ListenRequests("127.0.0.1:0", transport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, func(ctx context.Context) error {
		return s.Serve(ctx, func(r *transport.Request) { r.Reply(r.Body) })
	})
	r := tr.NewRequester(s.Addr().String(), transport.DialOptions{})
	t.Cleanup(func() { r.Close() })
	body := append([]byte{0xc5, 600 >> 8, 600 & 0xff}, make([]byte, 600)...)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.Request(context.Background(), body); err != nil {
			t.Error(err)
		}
	}); n > 16 {
		t.Errorf("%v allocations", n)
	}
}

// serving runs serve until the test ends.
func serving(t *testing.T, serve func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}
