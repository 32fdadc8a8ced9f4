package master

import (
	"sync"
	"time"

	"brine/internal/net/transport"
	"brine/internal/py/value"
)

// departures tells which minions are certainly not connected to this master, and since when. It
// considers only minions that name themselves when they subscribe, as Brine minions do, and that
// have been connected since this master started.
type departures struct {
	publishers []transport.Publisher
	// brine reports whether a minion ran Brine when it started last.
	brine func(id string) bool
	now   func() time.Time

	mu   sync.Mutex
	here map[string]bool
	left map[string]time.Time
}

const (
	// lookEvery is the interval of checks, and so the accuracy of the times.
	lookEvery = 5 * time.Second
	// awayAfter is the time after which a minion is not expected to come back at once, as it does
	// after a short cut or a restart.
	awayAfter = 20 * time.Second
)

// look records which minions are connected and which have left.
func (d *departures) look() {
	now := d.now()
	here := map[string]bool{}
	for _, p := range d.publishers {
		for _, peer := range p.Peers() {
			if id := peer.ID; id != "" {
				here[id] = true
			} else if peer.Claimed != "" {
				here[peer.Claimed] = true
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == nil {
		d.left = map[string]time.Time{}
	}
	for id := range d.here {
		if !here[id] && d.brine(id) { // any peer can claim any id
			d.left[id] = now
		}
	}
	for id := range d.left {
		if here[id] {
			delete(d.left, id)
		}
	}
	d.here = here
}

// away returns those of the given minions that are not connected, with the seconds of the Unix time
// at which that was noticed.
func (d *departures) away(ids []string) *value.Dict {
	if len(d.since(ids)) == 0 {
		return nil
	}
	d.look() // one may have come back since the last check
	since, out := d.since(ids), value.NewDict(0)
	for _, id := range ids {
		if t, ok := since[id]; ok {
			out.Set(id, secondsOf(t))
		}
	}
	return out
}

func (d *departures) since(ids []string) map[string]time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.left) == 0 {
		return nil
	}
	var out map[string]time.Time
	for _, id := range ids {
		if t, ok := d.left[id]; ok && d.now().Sub(t) >= awayAfter && d.brine(id) {
			if out == nil {
				out = map[string]time.Time{}
			}
			out[id] = t
		}
	}
	return out
}
