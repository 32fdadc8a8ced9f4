package federation

import (
	"crypto/sha256"
	"slices"

	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Limits of a summary.
const (
	maxNamed     = 1000 // ids of minions that failed or did not return
	maxGroups    = 20
	maxGroupIDs  = 20
	maxKinds     = 1000    // kinds of returns that are told apart
	maxSample    = 4 << 10 // bytes of the return that a group shows
	maxSampleSum = 64 << 10
)

// tally counts the returns of a job. It keeps a hash of each return, and a sample of each kind.
type tally struct {
	returned map[string]bool
	ok       int64
	changed  int64
	failed   []string
	failures int64
	groups   map[[32]byte]*group
}

// group are the minions with equal returns.
type group struct {
	count  int64
	ids    []string
	sample any
	size   int
	shown  bool // the return is small enough for a sample
}

func newTally() *tally {
	return &tally{returned: map[string]bool{}, groups: map[[32]byte]*group{}}
}

// add counts a return, and reports whether it is the first one of the minion.
func (t *tally) add(id string, ret *value.Dict) bool {
	if t.returned[id] {
		return false
	}
	t.returned[id] = true
	var in wire.Return
	wire.View(ret, &in)
	if in.Succeeded() {
		t.ok++
	} else {
		t.failures++
		if len(t.failed) < maxNamed {
			t.failed = append(t.failed, id)
		}
	}
	if changes(in.Return) {
		t.changed++
	}
	b, err := msgpack.Marshal(in.Return, msgpack.NewSpec)
	if err != nil {
		b = nil
	}
	key := sha256.Sum256(b)
	g := t.groups[key]
	if g == nil {
		if len(t.groups) >= maxKinds {
			return true
		}
		g = &group{}
		if len(b) <= maxSample {
			g.sample, g.size, g.shown = in.Return, len(b), true
		}
		t.groups[key] = g
	}
	g.count++
	if len(g.ids) < maxGroupIDs {
		g.ids = append(g.ids, id)
	}
	return true
}

// changes reports whether a return is that of states, one of which made changes.
func changes(ret any) bool {
	states, _ := ret.(*value.Dict)
	for _, v := range states.All() {
		if chunk, ok := v.(*value.Dict); ok && chunk.Has("result") {
			if did, ok := chunk.At("changes").(*value.Dict); ok && did.Len() > 0 {
				return true
			}
		}
	}
	return false
}

// summary returns what is known, for a job with these targets.
func (t *tally) summary(jid string, targets []string) wire.SiteSummary {
	s := wire.SiteSummary{JID: jid, Targeted: int64(len(targets)), OK: t.ok, Changed: t.changed, Failed: t.failures}
	var absent []string
	for _, id := range targets {
		if !t.returned[id] && len(absent) < maxNamed {
			absent = append(absent, id)
		}
	}
	s.FailedIDs, s.AbsentIDs, s.Groups = value.Strings(t.failed), value.Strings(absent), &value.List{}
	all := make([]*group, 0, len(t.groups))
	for _, g := range t.groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *group) int {
		if a.count != b.count {
			return int(b.count - a.count)
		}
		return slices.Compare(a.ids, b.ids)
	})
	size := 0
	for _, g := range all[:min(len(all), maxGroups)] {
		d := value.DictOf("count", g.count, "ids", value.Strings(g.ids))
		if size += g.size; g.shown && size <= maxSampleSum {
			d.Set("return", g.sample)
		}
		s.Groups.Append(d)
	}
	return s
}
