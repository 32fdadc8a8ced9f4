package master

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/internal/py/value"
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

	answers map[string][]string // of other masters, for events; firePresence alone uses it
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

// events returns what a presence event tells: who is there, by now, and who came
// and went since the last one.
func (p *presence) events(now map[string]bool) (present, came, gone []string) {
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

// elsewhere returns the minions of the other masters of the cluster. Of one that
// is there and does not answer in time the last answer counts: its minions have
// not gone.
func (m *Master) elsewhere(ctx context.Context) map[string]bool {
	answers := m.cluster.Present(ctx)
	for _, p := range m.cluster.Members() {
		if _, ok := answers[p.ID]; !ok && p.Up {
			answers[p.ID] = m.presence.answers[p.ID]
		}
	}
	m.presence.answers = answers
	out := map[string]bool{}
	for _, ids := range answers {
		for _, id := range ids {
			out[id] = true
		}
	}
	return out
}

// tagPresent is that of the event with all minions that are there. The masters
// of a cluster hear of each other's.
var tagPresent = salt.Tag("presence", "present")

// told notes what another master of the cluster has said of all minions.
func (p *presence) told(data *value.Dict) {
	known := map[string]bool{}
	for _, it := range data.List("present") {
		if id, ok := it.(string); ok && salt.CheckID(id) == nil {
			known[id] = true
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = known
}

// firePresence sends the presence events. Of the masters of a cluster the one
// that does what one is to do sends them for all; another one goes on where it
// ended.
func (m *Master) firePresence(ctx context.Context) {
	now := m.presence.current()
	if m.cluster != nil {
		if !m.cluster.Leads() {
			return
		}
		now = maps.Clone(now)
		for id := range m.elsewhere(ctx) {
			now[id] = true
		}
		if ctx.Err() != nil || !m.cluster.Leads() {
			return
		}
	}
	present, came, gone := m.presence.events(now)
	if len(came)+len(gone) > 0 {
		m.bus.Fire(salt.Tag("presence", "change"), value.DictOf("new", came, "lost", gone))
	}
	m.bus.Fire(tagPresent, value.DictOf("present", present))
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
