package master

import (
	"maps"
	"strings"
	"sync"
	"time"

	"brine/internal/catalogue/runners"
)

// Bounds of what is kept of the beacons of minions, and of the bytes of a name.
const (
	maxBeaconMinions, maxBeaconsOfOne = 20_000, 100
	maxBeaconName                     = 100
)

// beaconEvents counts the events of each beacon of each minion: the settings of beacons in the configuration of minions are unknown to the master. A
// nil *beaconEvents counts none.
type beaconEvents struct {
	mu   sync.Mutex
	byID map[string]map[string]runners.BeaconEvents
}

// note counts an event with this tag, if it is that of a beacon.
func (b *beaconEvents) note(tag string) {
	rest, ok := strings.CutPrefix(tag, "salt/beacon/")
	if !ok || b == nil {
		return
	}
	id, rest, _ := strings.Cut(rest, "/")
	name, _, _ := strings.Cut(rest, "/")
	if id == "" || name == "" || len(name) > maxBeaconName {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.byID[id]
	if all == nil {
		if len(b.byID) >= maxBeaconMinions {
			return
		}
		if b.byID == nil {
			b.byID = map[string]map[string]runners.BeaconEvents{}
		}
		all = map[string]runners.BeaconEvents{}
		b.byID[id] = all
	}
	e, known := all[name]
	if !known && len(all) >= maxBeaconsOfOne {
		return
	}
	e.Count++
	e.Last = time.Now()
	all[name] = e
}

// of returns the events of the beacons of a minion by name.
func (b *beaconEvents) of(id string) map[string]runners.BeaconEvents {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := maps.Clone(b.byID[id])
	if out == nil {
		out = map[string]runners.BeaconEvents{}
	}
	return out
}
