package master

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"brine/internal/net/transport"
)

// listeners is who listens for publications at one time. It is shared: do not
// write.
type listeners struct {
	ids   map[string]bool     // that they have proved to have, or say they have
	conns map[netip.Addr]int  // how many of the others, by address
	addrs map[netip.Addr]bool // those of conns
	odd   bool                // there is one of which neither is known
}

// audience keeps who listens until that changes: with ten thousand subscribers
// it takes milliseconds to ask all of them, and each job asks.
type audience struct {
	mu      sync.Mutex
	changes []uint64 // of the publishers, from before last was made
	last    *listeners
}

// now returns who listens to these publishers, always the same ones.
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
