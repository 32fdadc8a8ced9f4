//go:build !race

package tcp

import (
	"context"
	"io"
	"testing"

	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
)

func TestWaitingPeersTakeSmallStacks(t *testing.T) {
	const peers = 200
	s, err := newTransport().ListenRequests("127.0.0.1:0", transport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	serveTB(t, func(ctx context.Context) error { return s.Serve(ctx, transporttest.Deep) })
	frame := append(requestHead("m", false), 0xc0)
	transporttest.SmallStacks(t, peers, func() {
		for range peers {
			c := dial(t, s.Addr().String())
			c.Write(frame)
			if _, err := io.ReadFull(c, make([]byte, len(frame))); err != nil {
				t.Fatal(err)
			}
		}
	})
	p, err := newTransport().ListenPublish("127.0.0.1:0", transport.ListenOptions{Identify: func([]byte) (string, bool) { return "id", true }})
	if err != nil {
		t.Fatal(err)
	}
	serveTB(t, p.Serve)
	transporttest.SmallStacks(t, peers, func() {
		for range peers {
			dial(t, p.Addr().String()).Write(append([]byte(emptyHead), 0xc0))
		}
	})
}
