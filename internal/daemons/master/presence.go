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

// presence determines which minions are connected: those that a transport authenticates, those that
// claim their accepted id, and those whose cached grains have the address of a subscriber. The result
// is cached for a short time.
type presence struct {
	id         string // id of this master
	publishers []transport.Publisher
	cluster    *cluster.Cluster // nil without a cluster
	bus        *event.Bus
	ctx        func() context.Context
	accepted   func() ([]string, error)
	data       func(id string) (grains, pillar *value.Dict)
	now        func() time.Time

	mu    sync.Mutex
	at    time.Time
	there map[string]bool
	known map[string]bool // minions of the last presence event

	answers map[string][]string // last answers of other masters, for events; used by fire alone
}

// presenceAge is the maximum age of a cached result.
const presenceAge = 2 * time.Second

// current returns the connected minions. The map is shared: do not modify.
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
				// More reliable than the address, which may be that of a load balancer.
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

// isAt reports whether a subscriber has one of the minion's addresses.
func (p *presence) isAt(id string, addrs map[string]bool) bool {
	grains, _ := p.data(id)
	for _, key := range []string{"ipv4", "ipv6"} {
		for _, a := range grains.List(key) {
			s, ok := a.(string)
			// Every host has the loopback address; it counts only if a subscriber connects
			// from it.
			if ok && addrs[s] {
				return true
			}
		}
	}
	return false
}

// events returns the data of a presence event: the connected minions, and those that connected
// and disconnected since the last event.
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

// elsewhere returns the minions of the other masters of the cluster. If a
// connected master does not answer in time, its last answer counts: its minions
// are not gone.
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

// tagPresent is the tag of the event with all connected minions. The masters of
// a cluster exchange these events.
var tagPresent = salt.Tag("presence", "present")

// told stores another master's list of connected minions.
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

// fire fires the presence events. In a cluster the leader fires them for all,
// and a new leader continues where the last one stopped.
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

// holders returns for each minion the masters that it is connected to, nil
// without a cluster. For stock masters this is unknown.
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

// connected returns the minions that are connected to any master of the
// cluster.
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

// subscribers returns the subscribers to publications of all transports.
func subscribers(publishers []transport.Publisher) (out []transport.Peer) {
	for _, p := range publishers {
		out = append(out, p.Peers()...)
	}
	return out
}
