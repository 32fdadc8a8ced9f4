package master

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"brine/internal/net/transport"
)

// listeners is a snapshot of the subscribers to publications. It is shared and
// must not be modified.
type listeners struct {
	ids   map[string]bool     // authenticated or claimed ids
	conns map[netip.Addr]int  // number of connections without an id, by address
	addrs map[netip.Addr]bool // addresses in conns
	odd   bool                // some connection has neither an id nor an IP address
}

// audience caches the subscribers until they change: each job needs them, and
// enumerating ten thousand takes milliseconds.
type audience struct {
	mu      sync.Mutex
	changes []uint64 // change counters of the publishers, read before last was built
	last    *listeners
}

// now returns the subscribers of these publishers, which must be the same in
// each call.
func (a *audience) now(publishers []transport.Publisher) *listeners {
	a.mu.Lock()
	defer a.mu.Unlock()
	changes := make([]uint64, len(publishers))
	for i, p := range publishers {
		changes[i] = p.Changes()
	}
	if a.last == nil || !slices.Equal(changes, a.changes) {
		a.last, a.changes = listenersOf(publishers), changes
	}
	return a.last
}

func listenersOf(publishers []transport.Publisher) *listeners {
	l := &listeners{ids: map[string]bool{}, conns: map[netip.Addr]int{}, addrs: map[netip.Addr]bool{}}
	for _, pub := range publishers {
		for _, p := range pub.Peers() {
			if id := cmp.Or(p.ID, p.Claimed); id != "" {
				l.ids[id] = true
			} else if ip, ok := hostOf(p.Addr); ok {
				l.conns[ip]++
				l.addrs[ip] = true
			} else {
				l.odd = true
			}
		}
	}
	return l
}
