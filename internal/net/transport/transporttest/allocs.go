package transporttest

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"brine/internal/base/wait"
	"brine/internal/net/transport"
)

// PublishAllocations fails the test if a publication causes more than most
// allocations. conns have subscribed to p, which is being served, and size is
// the size of payload on each connection. Nothing else may run.
func PublishAllocations(t *testing.T, p transport.Publisher, conns []net.Conn, payload []byte, size int, most float64) {
	t.Helper()
	got := counter{n: new(atomic.Int64), more: wait.NewWakeup()}
	for _, c := range conns {
		go io.CopyBuffer(got, struct{ io.Reader }{c}, make([]byte, 4<<10))
	}
	var sent int64
	if n := testing.AllocsPerRun(50, func() {
		p.Publish(transport.Publication{Payload: payload})
		for sent += int64(size * len(conns)); got.n.Load() < sent; {
			<-got.more.C()
		}
	}); n > most {
		t.Errorf("%v allocations for a publication to %d, want at most %v", n, len(conns), most)
	}
}

// counter counts written bytes without allocations of its own.
type counter struct {
	n    *atomic.Int64
	more wait.Wakeup
}

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	c.more.Wake()
	return len(b), nil
}

// RequestAllocations fails the test if an echoed request of 600 bytes causes
// more than most allocations on both ends together.
func RequestAllocations(t *testing.T, tr transport.Transport, most float64) {
	t.Helper()
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, echo)
	r := requester(t, tr, s.addr, transport.DialOptions{})
	body := big(600)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.Request(context.Background(), body); err != nil {
			t.Error(err)
		}
	}); n > most {
		t.Errorf("%v allocations for a request, want at most %v", n, most)
	}
}
