package runners

import (
	"context"
	"maps"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// BeaconEvents are the events of one beacon of a minion, as long as they are kept.
type BeaconEvents struct {
	Count int64     `json:"n"`
	Last  time.Time `json:"last"`
}

type idArgs struct {
	ID string `salt:"id" doc:"id of the minion"`
}

// Bounds of what fleet.minion and fleet.mine return of one minion.
const (
	// maxBeacons bounds the beacons, maxMineNames the functions in its mine.
	maxBeacons, maxMineNames = 200, 500
	// maxMineValue and maxMineValues bound the size of mine data in bytes: of one function, and of all.
	maxMineValue, maxMineValues = 64 << 10, 1 << 20
)

func (f fleet) minion(ctx context.Context, c *fn.Call, a idArgs) (*value.Dict, error) {
	p, err := f.picture(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	l, ok := p.links[a.ID]
	if !ok {
		return nil, noMinion(a.ID)
	}
	d := l.dict()
	d.Insert(0, "id", a.ID)
	if ch := p.changes[a.ID]; ch != nil {
		d.Set("changed", ch.dict())
	}
	d.Update(p.connections(a.ID, f.movesOf(p, a.ID)))
	d.Update(f.runsOf(a.ID))
	d.Set("key", f.keyOf(a.ID, c.ID, p.hot))
	data := f.cache.MinionData(a.ID)
	d.Set("beacons", f.beacons(a.ID, data.Pillar))
	d.Set("mine", f.mineNames(a.ID))
	d.Set("grains", data.Grains)
	if data.Grains == nil {
		d.Set("grains", value.NewDict(0))
	}
	return d, nil
}

func noMinion(id string) error {
	return salt.Errorf(salt.NotFound, "there is no accepted minion %.200q", id)
}

// connections returns what a minion last reported about its masters: since, mode, reported, links and moves.
func (p *picture) connections(id string, changes []StandingChange) *value.Dict {
	d := value.NewDict(5)
	if since := p.links[id].since; !since.IsZero() {
		d.Set("since", stamp(since))
	}
	moves := &value.List{}
	for i := range changes {
		moves.Append(changes[i].dict())
	}
	s, ok := p.reports[id]
	if !ok {
		if len(changes) > 0 {
			d.Set("moves", moves)
		}
		return d
	}
	d.Set("mode", s.Mode)
	d.Set("reported", stamp(s.At))
	links := &value.List{}
	for _, m := range s.Masters {
		one := value.DictOf("master", p.display(m), "name", m.Master, "state", m.State, "here", m.Here)
		if !m.Since.IsZero() {
			one.Set("since", stamp(m.Since))
		}
		if m.Jobs {
			one.Set("jobs", true)
		}
		links.Append(one)
	}
	d.Set("links", links)
	d.Set("moves", moves)
	return d
}

// keyOf describes the key of an accepted minion, also at hot masters.
func (f fleet) keyOf(id, own string, hot []HotMaster) *value.Dict {
	d := value.NewDict(3)
	finger := ""
	if f.console.KeyOf != nil {
		finger = f.console.KeyOf(id)
	}
	d.Set("fingerprint", orNil(finger))
	if len(hot) == 0 {
		return d
	}
	masters := value.DictOf(own, keyRow(keystore.Accepted.DirName(), finger))
	if finger == "" {
		masters.Set(own, nil)
	}
	for _, m := range hot {
		masters.Set(m.ID, nil)
		for _, k := range m.Keys {
			if k.ID == id {
				masters.Set(m.ID, keyRow(k.List, k.Fingerprint))
			}
		}
	}
	d.Set("masters", masters)
	return d
}

func keyRow(list, finger string) *value.Dict {
	return value.DictOf("list", list, "fingerprint", orNil(finger))
}

// beacons returns what the master knows of the beacons of a minion: those in its pillar, and those whose events arrived. Their settings are left
// out, since they may have passwords.
func (f fleet) beacons(id string, pillar *value.Dict) *value.List {
	seen := map[string]BeaconEvents{}
	if f.console.Beacons != nil {
		seen = f.console.Beacons(id)
	}
	out := &value.List{}
	add := func(d *value.Dict, e BeaconEvents) {
		if e.Count > 0 {
			d.Set("events", e.Count)
			d.Set("last", stamp(e.Last))
		}
		if len(out.Items) < maxBeacons {
			out.Append(d)
		}
	}
	all := pillar.Dict("beacons")
	off := all.At("enabled") == false
	for k, v := range all.All() {
		name, ok := k.(string)
		if !ok || name == "enabled" {
			continue
		}
		d := value.DictOf("name", name, "source", "pillar", "enabled", !off)
		for _, o := range beaconOptions(v) {
			if o.At("enabled") == false {
				d.Set("enabled", false)
			}
			if n, ok := o.Get("interval"); ok {
				if shown, _ := bounded(n, 100); shown != nil {
					d.Set("interval", shown)
				}
			}
		}
		add(d, seen[name])
		delete(seen, name)
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		add(value.DictOf("name", name, "source", "events"), seen[name])
	}
	return out
}

// beaconOptions returns the maps of the settings of a beacon: a list of maps, or in an old form one map.
func beaconOptions(v any) (out []*value.Dict) {
	if d, ok := v.(*value.Dict); ok {
		return []*value.Dict{d}
	}
	for _, it := range value.Items(v) {
		if d, ok := it.(*value.Dict); ok {
			out = append(out, d)
		}
	}
	return out
}

// mineData returns the stored mine data of a minion, nil if there is none.
func (f fleet) mineData(id string) *value.Dict {
	v, _, _ := f.cache.Fetch("minions/"+id, "mine")
	d, _ := v.(*value.Dict)
	return d
}

// unwrapMine returns the data of an entry, and the minions that may read it, nil for all.
func unwrapMine(entry any) (data, allow any) {
	d, ok := entry.(*value.Dict)
	var in wire.MineEntry
	if !ok || wire.Decode(d, &in) != nil {
		return entry, nil
	}
	return in.Data, in.AllowTgt
}

func (f fleet) mineNames(id string) *value.List {
	out := &value.List{}
	for k, entry := range f.mineData(id).All() {
		data, allow := unwrapMine(entry)
		d := value.DictOf("name", value.Str(k), "bytes", int64(Size(data, maxMineValue)))
		if shown, _ := bounded(allow, maxArgs); shown != nil {
			d.Set("allow_tgt", shown)
		}
		if len(out.Items) == maxMineNames {
			break
		}
		out.Append(d)
	}
	return out
}

// mine returns the mine data of a minion, as far as it fits an answer.
func (f fleet) mine(ctx context.Context, c *fn.Call, a idArgs) (*value.Dict, error) {
	p, err := f.picture(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	if _, ok := p.links[a.ID]; !ok {
		return nil, noMinion(a.ID)
	}
	out, cut, room := value.NewDict(0), &value.List{}, maxMineValues
	for k, entry := range f.mineData(a.ID).All() {
		data, _ := unwrapMine(entry)
		size := Size(data, maxMineValue)
		if size > maxMineValue || size > room || out.Len() == maxMineNames {
			if len(cut.Items) < maxMineNames {
				cut.Append(value.Str(k))
			}
			continue
		}
		room -= size
		out.Set(k, data)
	}
	return value.DictOf("id", a.ID, "mine", out, "cut", cut), nil
}
