package system

import (
	"testing"

	"brine/internal/py/value"
)

// TestRulesAggregated merges the rules of a run that are added in the same way.
func TestRulesAggregated(t *testing.T) {
	low := func(id string, more ...any) *value.Dict {
		d := value.DictOf("state", "iptables", "fun", "append", "__id__", id, "name", id)
		d.Update(value.DictOf(more...))
		return d
	}
	names := func(d *value.Dict) string {
		l := &value.List{}
		for _, r := range d.List("rules") {
			l.Append(r.(*value.Dict).At("name"))
		}
		return value.Repr(l)
	}
	first := low("a", "__agg__", true) // the engine marks a state before it merges others
	inserted, chain, done := low("i", "fun", "insert"), low("c", "fun", "chain_present"), low("done")
	other := low("p", "state", "pkg")
	b, several := low("b"), low("s", "rules", value.ListOf(value.DictOf("name", "s1")))
	chunks := []*value.Dict{first, inserted, chain, done, other, b, several}
	running := value.DictOf("iptables_|-done_|-done_|-append", value.NewDict(0))
	got := rulesAggregated(first, chunks, running)
	if names(got) != "['a', 'b', 's1']" {
		t.Errorf("merged are %s", names(got))
	}
	for _, d := range chunks {
		if marked := d == first || d == b || d == several; d.Has("__agg__") != marked {
			t.Errorf("%s: marked is %v", d.Str("name"), !marked)
		}
	}
	if first.Has("rules") {
		t.Error("the state itself was changed")
	}
	if got := rulesAggregated(first, chunks, running); got.Has("rules") {
		t.Error("a state without others to merge with has rules")
	}
	if got := rulesAggregated(chain, chunks, running); got.Has("rules") {
		t.Error("a state that adds no rule has rules")
	}
}
