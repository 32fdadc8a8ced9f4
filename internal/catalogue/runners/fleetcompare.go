package runners

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// Bounds of fleet.compare.
const (
	// maxDifferences bounds the groups of equal differences, maxComparedMinions the minions that each names.
	maxDifferences, maxComparedMinions = 500, 100
	// maxComparedValue and maxComparedText bound the values that are shown, in bytes: one, and all.
	maxComparedValue, maxComparedText = 8 << 10, 2 << 20
	// maxDifferenceGroups bounds the memory of a comparison.
	maxDifferenceGroups = 20_000
)

type compareArgs struct {
	JID     string `salt:"jid" doc:"job id"`
	Against string `salt:"against" doc:"id of an earlier job of the same function"`
}

// Outcomes of a state in a job, besides those of package lastrun.
const (
	outcomeOK      = "ok"
	outcomeChanged = "changed"
	outcomeWould   = "would_change"
	outcomeFailed  = "failed"
	outcomeNone    = "none" // the state did not run
)

// difference is the same difference on several minions.
type difference struct {
	state         string // "" for a function that applies no states
	before, after any    // a state or a return; nil if it did not run
	from, to      string // outcomes
	ids           []string
}

// rank orders differences: first what fails now, then what failed before.
func (d *difference) rank() int {
	switch {
	case d.to == outcomeFailed && d.from != outcomeFailed:
		return 0
	case d.to == outcomeFailed:
		return 1
	case d.from == outcomeFailed:
		return 2
	}
	return 3
}

func (f fleet) compare(_ context.Context, _ *fn.Call, a compareArgs) (*value.Dict, error) {
	jids := [2]string{a.Against, a.JID} // before, after
	var loads [2]*value.Dict
	var returns [2]map[string]*value.Dict
	for i, jid := range jids {
		var err error
		if loads[i], err = f.jobs.Load(jid); err != nil {
			return nil, err
		}
		if loads[i] == nil {
			return nil, salt.Errorf(salt.NotFound, "there is no job %.64q in the job cache", jid)
		}
		if returns[i], err = f.jobs.Returns(jid); err != nil {
			return nil, err
		}
		for _, id := range slices.Sorted(maps.Keys(returns[i])) {
			if r := returns[i][id]; job.Unavailable(r) {
				return nil, salt.Errorf(salt.Unavailable, "cannot compare the return of %s for job %s. %s", id, jid, r.Str("return"))
			}
		}
	}
	if !value.Equal(loads[0].At("fun"), loads[1].At("fun")) {
		return nil, salt.Errorf(salt.Invalid, "the jobs have different functions: %.100s and %.100s", value.Str(loads[0].At("fun")), value.Str(loads[1].At("fun")))
	}
	c := comparison{groups: map[[sha256.Size]byte]*difference{}}
	var only [2][]string
	same, both := int64(0), int64(0)
	for _, id := range slices.Sorted(maps.Keys(returns[1])) {
		if returns[0][id] == nil {
			only[1] = append(only[1], id)
			continue
		}
		both++
		if !c.add(id, returns[0][id], returns[1][id]) {
			same++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(returns[0])) {
		if returns[1][id] == nil {
			only[0] = append(only[0], id)
		}
	}
	d := value.DictOf("fun", loads[1].At("fun"), "before", about(jids[0], loads[0]), "after", about(jids[1], loads[1]), "compared", both, "same", same,
		"only_before", value.Strings(only[0][:min(len(only[0]), maxComparedMinions)]), "only_after", value.Strings(only[1][:min(len(only[1]), maxComparedMinions)]))
	rows, more := c.rows()
	d.Set("differences", rows)
	d.Set("more_differences", more)
	return d, nil
}

// comparison collects the differences between the returns of two jobs.
type comparison struct {
	groups map[[sha256.Size]byte]*difference
	more   int64 // differences that are left out
}

// add compares the returns of a minion, and reports whether they differ.
func (c *comparison) add(id string, before, after *value.Dict) bool {
	old, now := before.At("return"), after.At("return")
	if StatesOf(old) == nil || StatesOf(now) == nil {
		if value.Equal(old, now) && Failed(before) == Failed(after) {
			return false
		}
		c.put(id, &difference{before: old, after: now, from: outcomeOf(before), to: outcomeOf(after)})
		return true
	}
	differs := false
	a, b := old.(*value.Dict), now.(*value.Dict)
	one := func(name string, x, y *value.Dict) {
		from, to := stateOutcome(x), stateOutcome(y)
		if from == to && value.Equal(x.At("changes"), y.At("changes")) && (to != outcomeFailed || value.Equal(x.At("comment"), y.At("comment"))) {
			return
		}
		differs = true
		c.put(id, &difference{state: name, before: shownState(x), after: shownState(y), from: from, to: to})
	}
	for k, v := range b.All() {
		name := k.(string)
		one(name, a.Dict(name), v.(*value.Dict))
	}
	for k, v := range a.All() {
		if name := k.(string); !b.Has(name) {
			one(name, v.(*value.Dict), nil)
		}
	}
	return differs
}

// put adds a difference to those that are equal.
func (c *comparison) put(id string, d *difference) {
	key := sha256.Sum256([]byte(value.Repr(value.ListOf(d.state, d.from, d.to, d.before, d.after))))
	g := c.groups[key]
	if g == nil {
		if len(c.groups) >= maxDifferenceGroups {
			c.more++
			return
		}
		g = d
		c.groups[key] = g
	}
	g.ids = append(g.ids, id)
}

func outcomeOf(ret *value.Dict) string {
	if Failed(ret) {
		return outcomeFailed
	}
	return outcomeOK
}

// stateOutcome returns the outcome of a state; nil did not run.
func stateOutcome(s *value.Dict) string {
	if s == nil {
		return outcomeNone
	}
	var n States
	n.add(s)
	switch {
	case n.Failed > 0:
		return outcomeFailed
	case n.Unknown > 0:
		return outcomeWould
	case n.Changed > 0:
		return outcomeChanged
	}
	return outcomeOK
}

// shownState returns what a comparison shows of a state.
func shownState(s *value.Dict) any {
	if s == nil {
		return nil
	}
	return value.DictOf("changes", s.At("changes"), "comment", s.At("comment"))
}

// rows returns the differences, the most important first, and the number of those left out.
func (c *comparison) rows() (*value.List, int64) {
	all := slices.SortedFunc(maps.Values(c.groups), func(a, b *difference) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(len(b.ids), len(a.ids)), strings.Compare(a.state, b.state), strings.Compare(a.ids[0], b.ids[0]))
	})
	out, room := &value.List{}, maxComparedText
	for _, g := range all[:min(len(all), maxDifferences)] {
		d := value.DictOf("from", g.from, "to", g.to, "count", int64(len(g.ids)), "minions", value.Strings(g.ids[:min(len(g.ids), maxComparedMinions)]))
		if p := strings.Split(g.state, "_|-"); len(p) == 4 {
			d.Set("state", p[2])
			d.Set("fun", p[0]+"."+p[3])
			d.Set("id", p[1])
		}
		for _, x := range []struct {
			name string
			v    any
		}{{"before", g.before}, {"after", g.after}} {
			shown, size := bounded(x.v, min(room, maxComparedValue))
			if d.Set(x.name, shown); x.v != nil && shown == nil {
				d.Set("cut", true)
			} else {
				room -= size
			}
		}
		out.Append(d)
	}
	return out, c.more + int64(max(0, len(all)-maxDifferences))
}
