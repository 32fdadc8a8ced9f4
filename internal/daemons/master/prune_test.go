package master

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"brine/internal/catalogue/runners"
	"brine/internal/py/value"
)

// TestForgottenMinions: minions that come and go leave no state behind, and job
// states do not change.
func TestForgottenMinions(t *testing.T) {
	now := time.Now()
	q := newQueue(func() time.Time { return now })
	s := &connectionReports{byID: map[string]runners.Standing{}}
	accepted := map[string]bool{"a": true, "b": true}
	for i := range 2000 {
		id := fmt.Sprint("ephemeral", i)
		q.missed(id, 0, 10)
		s.byID[id] = runners.Standing{}
	}
	s.byID["a"] = runners.Standing{}
	q.missed("a", 0, 10)
	q.missed("deleted", 0, 10)
	const jid = "20260101000000000001"
	q.add(value.DictOf("jid", jid, "fun", "test.ping"), jid, []string{"a", "b", "deleted"}, []string{"b"}, now.Add(time.Hour))
	q.runs(jid, "a")
	before, _, _, _ := q.states(jid)

	q.prune(accepted)
	s.prune(accepted)
	if len(q.index) != 3 || len(s.byID) != 1 {
		t.Errorf("%v and %v are kept", slices.Collect(maps.Keys(q.index)), slices.Collect(maps.Keys(s.byID)))
	}
	if after, _, _, _ := q.states(jid); !maps.Equal(after, before) || len(after) != 3 {
		t.Errorf("the job's states are %v, and were %v", after, before)
	}
	if got := q.mute([]string{"a", "b", "deleted"}); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%v have never asked", got)
	}
	q.missed("new", 0, 10)
	if n := q.index["new"]; n != 3 || q.speaks.has(4) {
		t.Errorf("a new minion has number %d", n)
	}
	if words := len(q.speaks.words); words != 1 {
		t.Errorf("%d words for four minions", words)
	}
}

// TestPruneOfAccepted: while most minions are accepted, prune does not read the
// sets of jobs. It runs at each loop_interval and blocks publications.
func TestPruneOfAccepted(t *testing.T) {
	q := newQueue(time.Now)
	accepted := map[string]bool{}
	var ids []string
	for i := range 1000 {
		id := fmt.Sprint("minion", i)
		ids = append(ids, id)
		accepted[id] = i > 100
	}
	const jid = "20260101000000000001"
	q.add(value.DictOf("jid", jid, "fun", "test.ping"), jid, ids, ids, time.Now().Add(time.Hour))
	if n := testing.AllocsPerRun(10, func() { q.prune(accepted) }); n != 0 {
		t.Errorf("%v allocations: the sets of jobs were read", n)
	}
	if len(q.index) != len(ids) {
		t.Errorf("%d minions are left", len(q.index))
	}
}
