//go:build !race

package zeromq

import (
	"testing"

	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
)

// TestPublishAllocations: a publication is encoded once, and costs nothing per
// receiver.
func TestPublishAllocations(t *testing.T) {
	p := servePublisher(t, transport.ListenOptions{}, nil)
	conns := connectBench(t, p, 200, "")
	payload := make([]byte, 1<<10)
	transporttest.PublishAllocations(t, p, conns, payload, len(appendFrame(nil, 0, payload)), 10)
}

func TestRequestAllocations(t *testing.T) { transporttest.RequestAllocations(t, New(quiet()), 24) }
