package master

import (
	"testing"
	"time"

	"brine/internal/net/transport"
)

// peersOnly is a publisher with a list of peers.
type peersOnly struct {
	transport.Publisher
	peers []transport.Peer
}

func (p *peersOnly) Peers() []transport.Peer { return p.peers }

// TestDepartures: a Brine minion that was connected counts as disconnected a while after it left, until
// it is back. Minions that were never connected, or run stock Salt, are not.
func TestDepartures(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	pub := &peersOnly{peers: []transport.Peer{{Claimed: "web1"}, {ID: "web2"}, {Claimed: "stock"}}}
	brine := map[string]bool{"web1": true, "web2": true, "never": true}
	d := &departures{publishers: []transport.Publisher{pub}, brine: func(id string) bool { return brine[id] }, now: func() time.Time { return now }}
	all := []string{"web1", "web2", "stock", "never"}
	check := func(what string, want ...string) {
		t.Helper()
		got := d.away(all)
		if got.Len() != len(want) {
			t.Errorf("%s: %v", what, got)
		}
		for _, id := range want {
			if !got.Has(id) {
				t.Errorf("%s: %v", what, got)
			}
		}
	}
	d.look()
	check("all are connected")
	pub.peers = pub.peers[1:2]
	d.look()
	left := now
	check("just left")
	now = now.Add(awayAfter)
	check("left", "web1")
	if got := d.away(all).At("web1"); got != secondsOf(left) {
		t.Errorf("since %v, want %v", got, left)
	}
	pub.peers = nil
	d.look()
	brine["web1"] = false
	check("a stock minion took its place")
	brine["web1"] = true
	pub.peers = []transport.Peer{{Claimed: "web1"}}
	check("it is back")
	now = now.Add(awayAfter)
	check("the other left", "web2")
	for id := range d.left {
		if id == "stock" {
			t.Error("claims of unknown minions are remembered")
		}
	}
}
