package zeromq

import (
	"context"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/test/eventually"
)

// TestBusySubscriber processes a publication for much longer than two
// heartbeats: the publisher, which is alive and has sent more meanwhile, is not
// considered lost.
func TestBusySubscriber(t *testing.T) {
	t.Parallel()
	const every = 100 * time.Millisecond
	p := servePublisher(t, transport.ListenOptions{}, nil)
	s, err := subscribe(context.Background(), p.Addr().String(), transport.DialOptions{Heartbeat: every})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	eventually.True(t, "the subscription counts", func() bool { return len(p.Peers()) == 1 })
	for range 3 {
		p.say("x")
		if _, err := s.Receive(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * every) // busy
	}
}
