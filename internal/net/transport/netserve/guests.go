package netserve

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Guests bounds the connections of several listeners together, so that a peer that opens as many as
// possible leaves descriptors for others and for the process's own files. At the limit, the oldest
// connection of the address with the most connections is closed, unless the owner of an accepted
// key has recently sent a request from that address. The nil Guests admits everything. It is safe
// for concurrent use.
type Guests struct {
	max int
	now func() time.Time

	mu     sync.Mutex
	total  int
	count  uint64 // connections so far
	hosts  map[netip.Addr]*guestHost
	pruned time.Time // the last removal of hosts without connections
}

// knownFor is how long an address stays known after its last accepted request.
// Idle minions keep their subscription and send requests rarely.
const knownFor = 24 * time.Hour

// guestHost has the connections of one address.
type guestHost struct {
	known time.Time  // of the last accepted request; zero if there was none
	conns *list.List // of guest, oldest first
}

type guest struct {
	conn net.Conn
	n    uint64 // its number, counted from the start
}

// oldest returns the number of the oldest connection, of which there is one.
func (h *guestHost) oldest() uint64 { return h.conns.Front().Value.(guest).n }

// NewGuests admits up to max connections.
func NewGuests(max int) *Guests {
	return &Guests{max: max, now: time.Now, hosts: map[netip.Addr]*guestHost{}}
}

// Known records that the owner of an accepted key has sent a request from an address. It is cheap
// enough for every request.
func (g *Guests) Known(addr netip.Addr) {
	if g == nil {
		return
	}
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.host(addr).known = now
}

// enter counts a connection and returns the function that ends that, or false if the limit is
// reached. Only IP connections are counted, not local sockets.
func (g *Guests) enter(c net.Conn) (leave func(), ok bool) {
	a, isIP := c.RemoteAddr().(*net.TCPAddr)
	if g == nil || !isIP {
		return func() {}, true
	}
	addr := a.AddrPort().Addr().Unmap()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= g.max && !g.makeRoom(g.now()) {
		return nil, false
	}
	h := g.host(addr)
	e := h.conns.PushBack(guest{conn: c, n: g.count})
	g.count++
	g.total++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.drop(h, e)
	}, true
}

// makeRoom closes the oldest connection of the unknown address with the most connections; of
// several such addresses, of the one with the oldest connection.
func (g *Guests) makeRoom(now time.Time) bool {
	var worst *guestHost
	for addr, h := range g.hosts {
		known := !h.known.IsZero() && now.Sub(h.known) < knownFor
		switch {
		case known:
		case h.conns.Len() == 0:
			delete(g.hosts, addr)
		case worst == nil, h.conns.Len() > worst.conns.Len(), h.conns.Len() == worst.conns.Len() && h.oldest() < worst.oldest():
			worst = h
		}
	}
	if worst == nil {
		return false
	}
	e := worst.conns.Front()
	c := e.Value.(guest).conn
	g.drop(worst, e)
	c.Close() // its handler ends
	return true
}

// drop removes a connection, once.
func (g *Guests) drop(h *guestHost, e *list.Element) {
	if e.Value == nil {
		return
	}
	e.Value = nil
	h.conns.Remove(e)
	g.total--
}

func (g *Guests) host(addr netip.Addr) *guestHost {
	h := g.hosts[addr]
	if h == nil {
		g.prune()
		h = &guestHost{conns: list.New()}
		g.hosts[addr] = h
	}
	return h
}

// prune removes addresses without connections now and then, so that a peer with many addresses does
// not fill the memory.
func (g *Guests) prune() {
	now := g.now()
	if now.Sub(g.pruned) < time.Minute {
		return
	}
	g.pruned = now
	for addr, h := range g.hosts {
		if h.conns.Len() == 0 && (h.known.IsZero() || now.Sub(h.known) >= knownFor) {
			delete(g.hosts, addr)
		}
	}
}
