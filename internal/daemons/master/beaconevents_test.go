package master

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"brine/internal/catalogue/runners"
)

// TestBeaconEvents: events of beacons are counted by minion and name, within bounds; other events are not.
func TestBeaconEvents(t *testing.T) {
	b := &beaconEvents{}
	for _, tag := range []string{"salt/beacon/web1/load/", "salt/beacon/web1/load/x/y", "salt/beacon/web1/disk", "salt/beacon/web2/load/", "salt/beacon/web1/",
		"salt/beacon//load/", "salt/beacon", "salt/job/web1/load", "salt/beacon/web1/" + strings.Repeat("x", maxBeaconName+1) + "/"} {
		b.note(tag)
	}
	got := b.of("web1")
	if len(got) != 2 || got["load"].Count != 2 || got["disk"].Count != 1 || got["load"].Last.IsZero() || len(b.of("web3")) != 0 || len(b.byID) != 2 {
		t.Errorf("%v", b.byID)
	}
	for i := range 2 * maxBeaconsOfOne {
		b.note(fmt.Sprintf("salt/beacon/web1/b%d/", i))
	}
	if n := len(b.of("web1")); n != maxBeaconsOfOne {
		t.Errorf("%d beacons of one minion", n)
	}
	(*beaconEvents)(nil).note("salt/beacon/web1/load/")
}

// TestMovesKept: a repeated report adds no change of the master, and the number is bounded.
func TestMovesKept(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var all []runners.StandingChange
	for i := range 2 * maxMoves {
		c := &runners.StandingChange{From: "a", To: fmt.Sprint(i), At: at.Add(time.Duration(i) * time.Second)}
		all = movesWith(movesWith(all, c), c)
		if len(all) != min(i+1, maxMoves) || all[0].To != c.To {
			t.Fatalf("after %d changes: %v", i+1, all)
		}
	}
	if got := movesWith(all, nil); len(got) != maxMoves {
		t.Errorf("without a change: %v", got)
	}
}
