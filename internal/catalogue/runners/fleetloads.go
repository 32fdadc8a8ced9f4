package runners

import (
	"math"
	"time"

	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// MasterLoad is how busy a master was, and when it said so.
type MasterLoad struct {
	wire.MasterLoad
	// Began is its start, Seen when it said so.
	Began, Seen time.Time
}

// addLoads adds the version and start of members that told them.
func (f fleet) addLoads(rows map[string]*value.Dict) {
	if f.console.Loads == nil {
		return
	}
	for id, l := range f.console.Loads() {
		if d := rows[id]; d != nil && !d.Has("version") {
			d.Set("version", l.Version)
			if !l.Began.IsZero() {
				d.Set("since", stamp(l.Began))
			}
		}
	}
}

// loads returns how busy masters are, by id.
func (f fleet) loads(p *picture) *value.Dict {
	out := value.NewDict(1 + len(p.hot))
	if f.console.Loads != nil {
		for id, l := range f.console.Loads() {
			out.Set(id, l.dict())
		}
	}
	for _, m := range p.hot {
		if m.Load != nil && m.Problem == "" {
			out.Set(m.ID, m.Load.dict())
		}
	}
	return out
}

// withLoads adds loads to an answer, if there are any.
func withLoads(d, loads *value.Dict) *value.Dict {
	if loads.Len() > 0 {
		d.Set("loads", loads)
	}
	return d
}

// dict describes a load, rounded: what does not matter is no change.
func (l *MasterLoad) dict() *value.Dict {
	thousandths := func(n int64) float64 { return math.Round(float64(n)/100) / 10 }
	const mega = 1 << 20
	d := value.DictOf("cpu", l.CPU, "machine", l.Machine, "cores", l.Cores, "memory", l.Memory/mega*mega, "ram", l.RAM,
		"requests", thousandths(l.Requests), "mean", thousandths(l.Mean), "most", thousandths(l.Most), "leads", l.Leads)
	if l.Revision != "" {
		d.Set("revision", l.Revision)
	}
	d.Set("seen", stamp(l.Seen))
	return d
}
