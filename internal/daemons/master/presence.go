package master

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/net/event"
	"brine/internal/net/transport"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// presence knows which minions are connected: those that a transport names, or
// that say their accepted id, and those whose address, by their cached grains, is that of a subscriber.
// It is computed at most once in a while, and only for those who ask.
type presence struct {
	id         string // of this master
	publishers []transport.Publisher
	cluster    *cluster.Cluster // nil for a master of its own
	bus        *event.Bus
	ctx        func() context.Context
	accepted   func() ([]string, error)
	data       func(id string) (grains, pillar *value.Dict)
	now        func() time.Time

	mu    sync.Mutex
	at    time.Time
	there map[string]bool
	known map[string]bool // of the last presence event

	answers map[string][]string // of other masters, for events; fire alone uses it
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
func (p *presence) elsewhere(ctx context.Context) map[string]bool {
	answers := p.cluster.Present(ctx)
	for _, peer := range p.cluster.Members() {
		if _, ok := answers[peer.ID]; !ok && peer.Up {
			answers[peer.ID] = p.answers[peer.ID]
		}
	}
	p.answers = answers
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
	var in wire.Present
	wire.View(data, &in)
	known := map[string]bool{}
	for _, it := range value.Items(in.Present) {
		if id, ok := it.(string); ok && salt.CheckID(id) == nil {
			known[id] = true
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = known
}

// fire sends the presence events. Of the masters of a cluster the one
// that does what one is to do sends them for all; another one goes on where it
// ended.
func (p *presence) fire(ctx context.Context) {
	now := p.current()
	if p.cluster != nil {
		if !p.cluster.Leads() {
			return
		}
		now = maps.Clone(now)
		for id := range p.elsewhere(ctx) {
			now[id] = true
		}
		if ctx.Err() != nil || !p.cluster.Leads() {
			return
		}
	}
	present, came, gone := p.events(now)
	if len(came)+len(gone) > 0 {
		p.bus.Fire(salt.Tag("presence", "change"), value.DictOf("new", came, "lost", gone))
	}
	p.bus.Fire(tagPresent, value.DictOf("present", present))
}

// holders returns for each minion the masters that it is connected to, nil if
// there is no cluster. Of stock masters that is not known.
func (p *presence) holders() map[string][]string {
	if p.cluster == nil {
		return nil
	}
	out := map[string][]string{}
	for id := range p.current() {
		out[id] = append(out[id], p.id)
	}
	for master, ids := range p.cluster.Present(p.ctx()) {
		for _, id := range ids {
			out[id] = append(out[id], master)
		}
	}
	for _, masters := range out {
		slices.Sort(masters)
	}
	return out
}

// connected returns the minions that are connected to this master or another
// one of its cluster.
func (p *presence) connected() map[string]bool {
	here := p.current()
	if p.cluster == nil {
		return here
	}
	all := maps.Clone(here)
	for _, ids := range p.cluster.Present(p.ctx()) {
		for _, id := range ids {
			all[id] = true
		}
	}
	return all
}

// subscribers returns the peers that listen for publications now, over all
// transports.
func subscribers(publishers []transport.Publisher) (out []transport.Peer) {
	for _, p := range publishers {
		out = append(out, p.Peers()...)
	}
	return out
}
