package console

import (
	"strings"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/py/value"
)

// Limits of what a page gets per second: events with their data, bare events, and bytes of
// both.
const (
	eventRate, eventBurst = 200, 400
	bareRate, bareBurst   = 5000, 10000
	byteRate, byteBurst   = 512 << 10, 1 << 20
)

// Flow collects events for a page. Events above its rates are sent bare, or dropped and
// counted.
type Flow struct {
	events, bare, bytes ratelimit.Bucket
	waiting             []string
	skipped             int64
}

// NewFlow returns an empty Flow.
func NewFlow() *Flow {
	return &Flow{
		events: ratelimit.Bucket{Rate: eventRate, Burst: eventBurst},
		bare:   ratelimit.Bucket{Rate: bareRate, Burst: bareBurst},
		bytes:  ratelimit.Bucket{Rate: byteRate, Burst: byteBurst},
	}
}

// Put adds an event.
func (f *Flow) Put(e *Event, now time.Time) {
	switch {
	case f.events.Admit(1, now) && f.bytes.Admit(float64(len(e.Brief)), now):
		f.waiting = append(f.waiting, e.Brief)
	case e.Bare != "" && f.bare.Admit(1, now) && f.bytes.Admit(float64(len(e.Bare)), now):
		f.waiting = append(f.waiting, e.Bare)
	default:
		f.skipped++
	}
}

// Take returns the waiting events as JSON, "" if there are none.
func (f *Flow) Take() string {
	if len(f.waiting) == 0 && f.skipped == 0 {
		return ""
	}
	text := `{"events": [` + strings.Join(f.waiting, ",") + `], "skipped": ` + value.Str(f.skipped) + "}"
	f.waiting, f.skipped = f.waiting[:0], 0
	return text
}

// Topology is the topology that a page has received.
type Topology struct {
	Revision string
	minions  map[string]string // by id, encoded
	loads    string            // encoded
}

// Update returns the changes since the last call as JSON, or "" if nothing has changed. d
// is the result of fleet.topology. How busy the masters are changes often, and then comes alone.
func (t *Topology) Update(d *value.Dict) (string, error) {
	revision := d.Str("revision")
	loads, err := encode(d.Dict("loads"))
	if err != nil {
		return "", err
	}
	same := loads == t.loads
	t.loads = loads
	if !d.Has("minions") || revision == t.Revision {
		if same || !d.Has("loads") {
			return "", nil
		}
		return `{"loads": ` + loads + "}", nil
	}
	now := map[string]string{}
	set := value.NewDict(0)
	for k, v := range d.Dict("minions").All() {
		id := value.Str(k)
		text, err := encode(v)
		if err != nil {
			return "", err
		}
		now[id] = text
		if t.minions[id] != text {
			set.Set(id, v)
		}
	}
	gone := &value.List{}
	for id := range t.minions {
		if _, ok := now[id]; !ok {
			gone.Append(id)
		}
	}
	first := t.minions == nil
	t.Revision, t.minions = revision, now
	return encode(value.DictOf("full", first, "here", d.At("here"), "keys_waiting", d.At("keys_waiting"), "masters", d.At("masters"),
		"set", set, "gone", gone, "loads", d.Dict("loads")))
}

// Hints reports whether an event means that the topology may have changed.
func Hints(tag string) bool {
	parts := strings.Split(tag, "/")
	switch {
	case tag == "salt/key", tag == "salt/auth", tag == "salt/presence/change", tag == "minion_start":
		return true
	case len(parts) == 4 && parts[1] == "minion":
		return parts[3] == "master_changed" || parts[3] == "start"
	}
	return len(parts) > 1 && parts[0] == "salt" && parts[1] == "cluster"
}
