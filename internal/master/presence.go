package master

import (
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"brine/internal/salt"
	"brine/internal/transport"
	"brine/internal/value"
)

// presence knows which minions are connected: those that a transport names, or
// that say their accepted id, and those whose address, by their cached grains, is that of a subscriber.
// It is computed at most once in a while, and only for those who ask.
type presence struct {
	publishers []transport.Publisher
	accepted   func() ([]string, error)
	data       func(id string) (grains, pillar *value.Dict)
	now        func() time.Time

	mu    sync.Mutex
	at    time.Time
	there map[string]bool
	known map[string]bool // of the last presence event
}

// presenceAge is how old an answer may be.
const presenceAge = 2 * time.Second

// current returns the connected minions. The map is shared: do not write.
func (p *presence) current() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.there != nil && p.now().Sub(p.at) < presenceAge {
		return p.there
	}
	p.there, p.at = p.compute(), p.now()
	return p.there
}

func (p *presence) compute() map[string]bool {
	there, claimed, addrs := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, pub := range p.publishers {
		for _, peer := range pub.Peers() {
			if peer.ID != "" {
				there[peer.ID] = true
			} else if peer.Claimed != "" {
				// Better than the address, which may be that of a balancer.
				claimed[peer.Claimed] = true
			} else if host, _, err := net.SplitHostPort(peer.Addr.String()); err == nil {
				addrs[host] = true
			}
		}
	}
	if len(addrs) == 0 && len(claimed) == 0 {
		return there
	}
	ids, err := p.accepted()
	if err != nil {
		return there
	}
	for _, id := range ids {
		if !there[id] && (claimed[id] || len(addrs) > 0 && p.isAt(id, addrs)) {
			there[id] = true
		}
	}
	return there
}

// isAt reports whether one of the minion's addresses is connected.
func (p *presence) isAt(id string, addrs map[string]bool) bool {
	grains, _ := p.data(id)
	for _, key := range []string{"ipv4", "ipv6"} {
		for _, a := range grains.List(key) {
			s, ok := a.(string)
			// Loopback is on every host; it tells something only if that
			// is where the subscriber comes from.
			if ok && addrs[s] {
				return true
			}
		}
	}
	return false
}

// events returns what a presence event tells: who is there, and who came and
// went since the last one.
func (p *presence) events() (present, came, gone []string) {
	now := p.current()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range now {
		if !p.known[id] {
			came = append(came, id)
		}
	}
	for id := range p.known {
		if !now[id] {
			gone = append(gone, id)
		}
	}
	p.known = maps.Clone(now)
	slices.Sort(came)
	slices.Sort(gone)
	return slices.Sorted(maps.Keys(now)), came, gone
}

// firePresence sends the presence events.
func (m *Master) firePresence() {
	present, came, gone := m.presence.events()
	if len(came)+len(gone) > 0 {
		m.bus.Fire(salt.Tag("presence", "change"), value.DictOf("new", came, "lost", gone))
	}
	m.bus.Fire(salt.Tag("presence", "present"), value.DictOf("present", present))
}

// Subscribers returns the peers that listen for publications now, over all
// transports.
func (m *Master) Subscribers() []transport.Peer {
	var out []transport.Peer
	for _, p := range m.publishers {
		out = append(out, p.Peers()...)
	}
	return out
}
