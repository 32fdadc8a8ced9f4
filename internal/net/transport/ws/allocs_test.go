//go:build !race

package ws

import (
	"net"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
	"brine/test/eventually"
)

// TestPublishAllocations: a publication is encoded once, and costs only a place
// in the queue and a frame per receiver.
func TestPublishAllocations(t *testing.T) {
	const subscribers = 200
	p := publish(t, transport.ListenOptions{})
	upgrade := recorded(t).Publications[0].HTTP
	conns := make([]net.Conn, subscribers)
	for i := range conns {
		conns[i] = dial(t, p.Addr().String())
		if in := upgraded(t, conns[i], upgrade); in.Buffered() > 0 {
			t.Fatal("something was published already")
		}
		conns[i].SetDeadline(time.Time{})
	}
	eventually.True(t, "all have subscribed", func() bool { return len(p.Peers()) == subscribers })
	payload := make([]byte, 1<<10)
	const frameHead = 4 // for more than 125 bytes without a mask
	transporttest.PublishAllocations(t, p, conns, payload, frameHead+len(wrap(payload)), 3.2*subscribers)
}

func TestRequestAllocations(t *testing.T) { transporttest.RequestAllocations(t, newTransport(), 16) }
