package runners

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/store/lastrun"
)

// LastStates has the last runs of states of each minion.
type LastStates interface {
	Minion(id string) lastrun.Minion
	All() map[string]lastrun.Minion
	Change(h lastrun.Hash) *value.Dict
}

var _ LastStates = (*lastrun.Store)(nil)

// runDict describes a run without its states.
func runDict(r *lastrun.Run) *value.Dict {
	d := value.DictOf("jid", r.JID, "fun", r.Fun, "time", stamp(r.Time), "test", r.Test, "ok", r.OK, "changed", r.Changed, "failed", r.Failed,
		"would_change", r.Would)
	if len(r.Mods) > 0 {
		d.Set("mods", value.Strings(r.Mods))
	}
	if r.Broken {
		d.Set("broken", true)
	}
	return d
}

// runsOf describes the last runs of a minion with the states that were not in order.
func (f fleet) runsOf(id string) *value.Dict {
	m := f.states.Minion(id)
	d := value.DictOf("severity", m.Severity(time.Now()))
	for _, x := range []struct {
		name string
		run  *lastrun.Run
	}{{"applied", m.Applied}, {"tested", m.Tested}} {
		if x.run == nil {
			continue
		}
		one := runDict(x.run)
		states := &value.List{}
		for _, it := range x.run.Items {
			states.Append(value.DictOf("state", it.State, "fun", it.Fun, "sls", it.SLS, "outcome", it.Outcome, "change", it.Change.String()))
		}
		one.Set("states", states)
		slowest := &value.List{}
		for _, s := range x.run.Slow {
			slowest.Append(value.DictOf("state", s.State, "fun", s.Fun, "sls", s.SLS, "ms", s.MS))
		}
		one.Set("slowest", slowest)
		d.Set(x.name, one)
	}
	if m.Waits != "" {
		d.Set("waiting_for", value.DictOf("jid", m.Waits, "since", stamp(m.Since)))
	}
	return d
}

type stateListArgs struct {
	Outcome string `salt:"outcome" doc:"failed, drift or changed; empty: failed and drift" default:""`
	Search  string `salt:"search" doc:"part of the state, its function or its SLS file" default:""`
	Minion  string `salt:"minion" doc:"id of a minion; empty: all" default:""`
	Tgt     string `salt:"tgt" doc:"a target; empty: all" default:""`
	TgtType string `salt:"tgt_type" doc:"type of the target" default:"compound"`
	pageArgs
}

// Bounds of fleet.states.
const (
	// maxChanges bounds the groups of a state that are described.
	maxChanges = 20
	// maxChangeText bounds the bytes of all changes in an answer.
	maxChangeText = 4 << 20
	maxSlowest    = 50
)

// stateKey identifies a state over all minions.
type stateKey struct{ state, fun, sls string }

// sameChange is a group of minions with the same outcome and change of a state.
type sameChange struct {
	outcome string
	change  lastrun.Hash
	ids     []string
}

type stateRow struct {
	key    stateKey
	counts map[string]int64
	groups map[string]*sameChange
}

type slowState struct {
	key       stateKey
	sum, most float64
	count     int64
	minion    string // that with the longest
}

// current returns the states of the runs of a minion that count: those of the newest, and the failed ones of an older
// one that applied states. A state that failed in both counts once, as it was applied.
func current(m lastrun.Minion) []lastrun.Item {
	last := m.Last()
	if last == nil {
		return nil
	}
	items := last.Items
	if last == m.Tested && m.Applied != nil {
		var failed []lastrun.Item
		seen := map[stateKey]bool{}
		for _, it := range m.Applied.Items {
			if it.Outcome == lastrun.Failed {
				failed = append(failed, it)
				seen[stateKey{it.State, it.Fun, it.SLS}] = true
			}
		}
		items = slices.DeleteFunc(slices.Clone(items), func(it lastrun.Item) bool {
			return it.Outcome == lastrun.Failed && seen[stateKey{it.State, it.Fun, it.SLS}]
		})
		items = append(items, failed...)
	}
	return items
}

func (f fleet) stateList(_ context.Context, _ *fn.Call, a stateListArgs) (*value.Dict, error) {
	if !slices.Contains([]string{"", lastrun.Failed, lastrun.Drift, lastrun.Changed}, a.Outcome) {
		return nil, salt.Errorf(salt.Invalid, "outcome must be failed, drift or changed")
	}
	ids, err := f.keys.Accepted()
	if a.Tgt != "" {
		ids, err = f.targeted(a.Tgt, a.TgtType)
	}
	if err != nil {
		return nil, err
	}
	if a.Minion != "" {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id != a.Minion })
	}
	ids = slices.Sorted(slices.Values(ids))
	all, now, search := f.states.All(), time.Now(), strings.ToLower(a.Search)
	rows, slow, severities := map[stateKey]*stateRow{}, map[stateKey]*slowState{}, map[string]int64{}
	wants := func(k stateKey) bool {
		return search == "" || strings.Contains(strings.ToLower(k.state), search) || strings.Contains(strings.ToLower(k.fun), search) ||
			strings.Contains(strings.ToLower(k.sls), search)
	}
	for _, id := range ids {
		m := all[id]
		severities[m.Severity(now)]++
		for _, it := range current(m) {
			k := stateKey{it.State, it.Fun, it.SLS}
			if !wants(k) || a.Outcome != "" && it.Outcome != a.Outcome || a.Outcome == "" && it.Outcome == lastrun.Changed {
				continue
			}
			if rows[k] == nil {
				if len(rows) >= maxStateRows*10 {
					continue
				}
				rows[k] = &stateRow{key: k, counts: map[string]int64{}, groups: map[string]*sameChange{}}
			}
			rows[k].add(id, it)
		}
		if last := m.Last(); last != nil {
			for _, s := range last.Slow {
				k := stateKey{s.State, s.Fun, s.SLS}
				if !wants(k) {
					continue
				}
				if slow[k] == nil {
					slow[k] = &slowState{key: k}
				}
				slow[k].add(id, s.MS)
			}
		}
	}
	sorted := slices.SortedFunc(maps.Values(rows), func(a, b *stateRow) int {
		return cmp.Or(cmp.Compare(b.counts[lastrun.Failed], a.counts[lastrun.Failed]), cmp.Compare(b.counts[lastrun.Drift], a.counts[lastrun.Drift]),
			cmp.Compare(b.counts[lastrun.Changed], a.counts[lastrun.Changed]), cmp.Compare(a.key.sls, b.key.sls), cmp.Compare(a.key.state, b.key.state),
			cmp.Compare(a.key.fun, b.key.fun))
	})
	out, room := &value.List{}, maxChangeText
	from, to := a.of(len(sorted))
	for _, r := range sorted[from:to] {
		out.Append(f.stateDict(r, &room))
	}
	return value.DictOf("minions", int64(len(ids)), "severities", counted(severities), "matched", int64(len(sorted)), "offset", int64(from), "rows", out,
		"slowest", slowest(slow)), nil
}

func (r *stateRow) add(id string, it lastrun.Item) {
	r.counts[it.Outcome]++
	key := it.Outcome + it.Change.String()
	if r.groups[key] == nil {
		r.groups[key] = &sameChange{outcome: it.Outcome, change: it.Change}
	}
	r.groups[key].ids = append(r.groups[key].ids, id)
}

func (s *slowState) add(id string, ms float64) {
	s.sum += ms
	s.count++
	if ms > s.most {
		s.most, s.minion = ms, id
	}
}

// stateDict describes a state and its groups. room is how many bytes of changes the answer may still have.
func (f fleet) stateDict(r *stateRow, room *int) *value.Dict {
	d := value.DictOf("state", r.key.state, "fun", r.key.fun, "sls", r.key.sls)
	for _, o := range []string{lastrun.Failed, lastrun.Drift, lastrun.Changed} {
		d.Set(o, r.counts[o])
	}
	groups := slices.SortedFunc(maps.Values(r.groups), func(a, b *sameChange) int {
		return cmp.Or(cmp.Compare(len(b.ids), len(a.ids)), cmp.Compare(a.outcome, b.outcome), cmp.Compare(a.ids[0], b.ids[0]))
	})
	list := &value.List{}
	for _, g := range groups[:min(len(groups), maxChanges)] {
		list.Append(f.changeDict(g, maxMembers, room))
	}
	d.Set("groups", list)
	d.Set("more_groups", int64(max(0, len(groups)-maxChanges)))
	return d
}

func (f fleet) changeDict(g *sameChange, members int, room *int) *value.Dict {
	d := value.DictOf("outcome", g.outcome, "change", g.change.String(), "count", int64(len(g.ids)), "minions", value.Strings(g.ids[:min(len(g.ids), members)]))
	what := f.states.Change(g.change)
	if what == nil {
		d.Set("cut", true)
		return d
	}
	size := Size(what, *room)
	if size > *room {
		d.Set("cut", true)
		return d
	}
	*room -= size
	d.Update(what)
	return d
}

func slowest(all map[stateKey]*slowState) *value.List {
	out := &value.List{}
	sorted := slices.SortedFunc(maps.Values(all), func(a, b *slowState) int {
		return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(a.key.sls, b.key.sls), cmp.Compare(a.key.state, b.key.state), cmp.Compare(a.key.fun, b.key.fun))
	})
	for _, s := range sorted[:min(len(sorted), maxSlowest)] {
		out.Append(value.DictOf("state", s.key.state, "fun", s.key.fun, "sls", s.key.sls, "ms", s.most, "mean_ms", s.sum/float64(s.count), "count", s.count,
			"minion", s.minion))
	}
	return out
}

type changeArgs struct {
	Change string `salt:"change" doc:"the change, as fleet.states names it"`
}

func (f fleet) change(_ context.Context, _ *fn.Call, a changeArgs) (*value.Dict, error) {
	var h lastrun.Hash
	if err := h.UnmarshalText([]byte(a.Change)); err != nil {
		return nil, salt.Errorf(salt.Invalid, "change must be 32 hexadecimal digits, as fleet.states returns them")
	}
	ids, err := f.keys.Accepted()
	if err != nil {
		return nil, err
	}
	ids = slices.Sorted(slices.Values(ids))
	all := f.states.All()
	var found *sameChange
	var where stateKey
	for _, id := range ids {
		for _, it := range current(all[id]) {
			if it.Change != h {
				continue
			}
			if found == nil {
				found, where = &sameChange{outcome: it.Outcome, change: h}, stateKey{it.State, it.Fun, it.SLS}
			}
			if where != (stateKey{it.State, it.Fun, it.SLS}) || it.Outcome != found.outcome {
				continue
			}
			found.ids = append(found.ids, id)
			break
		}
	}
	if found == nil {
		return nil, salt.Errorf(salt.NotFound, "no minion has the change %.64q in its last run", a.Change)
	}
	room := maxChangeText
	d := f.changeDict(found, len(found.ids), &room)
	d.Insert(0, "state", where.state)
	d.Insert(1, "fun", where.fun)
	d.Insert(2, "sls", where.sls)
	return d, nil
}
