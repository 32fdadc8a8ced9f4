//go:build !race

package zeromq

import (
	"context"
	"io"
	"sync/atomic"
	"testing"

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

// TestPublishAllocations: a publication is made once, and costs nothing more
// for each who gets it.
func TestPublishAllocations(t *testing.T) {
	const subscribers = 200
	p := servePublisher(t, transport.ListenOptions{}, nil)
	got := counter{n: &atomic.Int64{}, reached: make(chan struct{}, 1)}
	for _, c := range connectBench(t, p, subscribers, "") {
		go io.CopyBuffer(got, struct{ io.Reader }{c}, make([]byte, 4<<10))
	}
	payload := make([]byte, 1<<10)
	size := int64(len(appendFrame(nil, 0, payload))) * subscribers
	sent := int64(0)
	if n := testing.AllocsPerRun(50, func() {
		p.Publish(transport.Publication{Payload: payload})
		for sent += size; got.n.Load() < sent; {
			<-got.reached
		}
	}); n > 10 {
		t.Errorf("%v allocations for a publication to %d", n, subscribers)
	}
}

// TestRequestAllocations: both ends of a request together.
func TestRequestAllocations(t *testing.T) {
	s := serveRequests(t, transport.ListenOptions{}, echo)
	r := newRequester(s.Addr().String(), transport.DialOptions{})
	defer r.Close()
	body := make([]byte, 600)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.Request(context.Background(), body); err != nil {
			t.Error(err)
		}
	}); n > 24 {
		t.Errorf("%v allocations", n)
	}
}
