package master

import (
	"net"
	"net/netip"
	"testing"

	"brine/internal/net/transport"
)

// heardBy is a publisher with fixed subscribers.
type heardBy struct {
	transport.Publisher
	peers   []transport.Peer
	changes uint64
	asked   int
}

func (h *heardBy) Changes() uint64 { return h.changes }

func (h *heardBy) Peers() []transport.Peer {
	h.asked++
	return h.peers
}

func TestAudience(t *testing.T) {
	from := func(a string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a)) }
	zmq := &heardBy{peers: []transport.Peer{{Claimed: "a"}, {Addr: from("10.0.0.1:1")}, {Addr: from("[::ffff:10.0.0.1]:2")}}}
	tcp := &heardBy{peers: []transport.Peer{{ID: "b", Addr: from("10.0.0.2:1")}}}
	publishers := []transport.Publisher{zmq, tcp}
	var a audience
	l := a.now(publishers)
	at := netip.MustParseAddr("10.0.0.1")
	if len(l.ids) != 2 || !l.ids["a"] || !l.ids["b"] || len(l.conns) != 1 || l.conns[at] != 2 || !l.addrs[at] || l.odd {
		t.Errorf("got %+v", l)
	}
	for range 10 {
		if a.now(publishers) != l {
			t.Fatal("they are others though nothing has changed")
		}
	}
	if zmq.asked != 1 || tcp.asked != 1 {
		t.Errorf("asked %d and %d times, want once", zmq.asked, tcp.asked)
	}
	tcp.changes++
	tcp.peers = append(tcp.peers, transport.Peer{Addr: &net.UnixAddr{Name: "x"}})
	if l := a.now(publishers); !l.odd || !l.ids["b"] {
		t.Errorf("after a change: %+v", l)
	}
	zmq.changes++
	zmq.peers = nil
	if l := a.now(publishers); len(l.conns) != 0 || l.ids["a"] || !l.ids["b"] {
		t.Errorf("after all of one have gone: %+v", l)
	}
}
