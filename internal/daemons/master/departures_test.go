package master

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/net/transport"
	"brine/internal/py/value"
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
		got := d.away(t.Context(), all)
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
	if got := d.away(t.Context(), all).At("web1"); got != secondsOf(left) {
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

// TestDeparturesAfterRestart: minions that had left before the master started, or while it was down,
// count as disconnected since they were known to be connected, when the others have had time to
// return.
func TestDeparturesAfterRestart(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	start := func(peers ...transport.Peer) (*departures, *peersOnly) {
		t.Helper()
		pub := &peersOnly{peers: peers}
		d := &departures{publishers: []transport.Publisher{pub}, brine: func(id string) bool { return id != "stock" }, now: func() time.Time { return now },
			path: filepath.Join(t.TempDir(), "departures")}
		return d, pub
	}
	first, pub := start(transport.Peer{ID: "early"}, transport.Peer{ID: "late"}, transport.Peer{ID: "back"}, transport.Peer{ID: "stock"})
	first.look()
	pub.peers = pub.peers[1:]
	first.look()
	early := now
	now = now.Add(time.Hour)
	first.look()
	if err := first.save(); err != nil {
		t.Fatal(err)
	}
	late := now

	now = now.Add(10 * time.Minute)
	second, pub := start()
	second.path = first.path
	if err := second.load(); err != nil {
		t.Fatal(err)
	}
	all := []string{"early", "late", "back", "stock", "never"}
	second.look()
	now = now.Add(awayAfter)
	if got := second.away(t.Context(), all); got.Len() > 0 {
		t.Errorf("soon after the start: %v", got)
	}
	pub.peers = []transport.Peer{{ID: "back"}}
	now = now.Add(returnTime)
	got := second.away(t.Context(), all)
	if got.Len() != 2 || got.At("early") != secondsOf(early) || got.At("late") != secondsOf(late) {
		t.Errorf("%v, want early at %v and late at %v", got, early, late)
	}
}

// answers is what the other masters of a cluster answer.
type answers struct {
	left map[string]time.Time
	here map[string]bool
	all  bool
}

func (a *answers) ask(context.Context, []string) (map[string]time.Time, map[string]bool, bool) {
	return a.left, a.here, a.all
}

// TestDeparturesInACluster: a minion counts as disconnected if it has left any master and all masters
// answer that they do not have it.
func TestDeparturesInACluster(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	others := &answers{left: map[string]time.Time{"web1": now}, all: true}
	pub := &peersOnly{peers: []transport.Peer{{ID: "web2"}}}
	d := &departures{publishers: []transport.Publisher{pub}, brine: func(string) bool { return true }, now: func() time.Time { return now }, others: others}
	d.look()
	pub.peers = nil
	d.look()
	d.update(t.Context())
	left := now
	check := func(what string, want ...string) {
		t.Helper()
		got := d.away(t.Context(), []string{"web1", "web2", "web3"})
		for _, id := range want {
			if got.At(id) != secondsOf(left) {
				t.Errorf("%s: %v", what, got)
			}
		}
		if got.Len() != len(want) {
			t.Errorf("%s: %v", what, got)
		}
	}
	check("just left")
	now = now.Add(awayAfter)
	check("left", "web1", "web2")
	others.here = map[string]bool{"web2": true}
	check("another master has one", "web1")
	others.all = false
	check("another master does not answer")
	others.all, others.here = true, nil
	others.left = map[string]time.Time{"web1": left, "web2": now}
	check("one has just left another master", "web1")
	pub.peers = []transport.Peer{{ID: "web1"}}
	check("one has come here")
	answer := d.answer(value.DictOf("ids", value.ListOf("web1", "web2")))
	if here, left := answer.List("here"), answer.Dict("left"); len(here) != 1 || here[0] != "web1" || left.Len() != 1 || !left.Has("web2") {
		t.Errorf("%v", answer)
	}
}
