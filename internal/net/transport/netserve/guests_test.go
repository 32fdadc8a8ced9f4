package netserve

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// visitor is a connection from an arbitrary address.
type visitor struct {
	net.Conn
	from   string
	closed bool
}

func (v *visitor) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(v.from + ":1"))
}
func (v *visitor) Close() error { v.closed = true; return nil }

// TestGuests: at the limit the oldest connection of the unknown address with
// the most connections is closed; known addresses keep theirs; without unknown
// ones a new connection is refused.
func TestGuests(t *testing.T) {
	now := time.Now()
	g := NewGuests(4)
	g.now = func() time.Time { return now }
	come := func(from string) (*visitor, func()) {
		t.Helper()
		v := &visitor{from: from}
		leave, ok := g.enter(v)
		if !ok {
			t.Fatalf("a connection from %s is refused", from)
		}
		return v, leave
	}
	g.Known(netip.MustParseAddr("10.0.0.1"))
	good, leaveGood := come("10.0.0.1")
	good2, _ := come("10.0.0.1")
	evil, leaveEvil := come("10.0.0.9")
	evil2, _ := come("10.0.0.9")
	newcomer, _ := come("10.0.0.2")
	if !evil.closed || evil2.closed || good.closed || good2.closed || newcomer.closed {
		t.Errorf("closed: evil %t %t, good %t %t, new %t", evil.closed, evil2.closed, good.closed, good2.closed, newcomer.closed)
	}
	leaveEvil() // its handler ends after it was closed
	if g.total != 4 {
		t.Errorf("%d connections are counted, 4 are open", g.total)
	}
	g.Known(netip.MustParseAddr("10.0.0.2"))
	g.Known(netip.MustParseAddr("10.0.0.9"))
	if _, ok := g.enter(&visitor{from: "10.0.0.8"}); ok {
		t.Error("a connection has room although all others are of known addresses")
	}
	leaveGood()
	come("10.0.0.8")
	now = now.Add(knownFor)
	come("10.0.0.7")
	if !good2.closed || evil2.closed || newcomer.closed { // the oldest of four with one connection
		t.Errorf("an address stays known for ever: closed %t, %t, %t", good2.closed, evil2.closed, newcomer.closed)
	}
	if local, ok := g.enter(&net.UnixConn{}); !ok || local == nil {
		t.Error("a local socket is counted")
	}
}

// TestGuestsAreForgotten: an address without connections uses no memory.
func TestGuestsAreForgotten(t *testing.T) {
	now := time.Now()
	g := NewGuests(10)
	g.now = func() time.Time { return now }
	for i := range 200 {
		leave, ok := g.enter(&visitor{from: netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}).String()})
		if !ok {
			t.Fatal("refused")
		}
		leave()
	}
	now = now.Add(2 * time.Minute)
	leave, _ := g.enter(&visitor{from: "10.0.0.1"})
	defer leave()
	if len(g.hosts) != 1 {
		t.Errorf("%d addresses are remembered, one has a connection", len(g.hosts))
	}
}
