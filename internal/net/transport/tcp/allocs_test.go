//go:build !race

package tcp

import (
	"context"
	"net"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
)

// TestPublishAllocations: a publication is encoded once, and costs only a place
// in the queue per receiver.
func TestPublishAllocations(t *testing.T) {
	const subscribers = 200
	p, err := newTransport().ListenPublish("127.0.0.1:0", transport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, p.Serve)
	conns := make([]net.Conn, subscribers)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", p.Addr().String()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	for deadline := time.Now().Add(transporttest.Timeout); len(p.Peers()) < subscribers; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not all have come")
		}
	}
	payload := make([]byte, 1<<10)
	transporttest.PublishAllocations(t, p, conns, payload, len(publishHead(payload))+len(payload), 1.2*subscribers)
}

func TestRequestAllocations(t *testing.T) {
	transporttest.RequestAllocations(t, newTransport(), 16)
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
