package target

import (
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestSpentBudget checks that a pattern with an exhausted budget yields
// neither a match nor a mismatch, even if negated.
func TestSpentBudget(t *testing.T) {
	for _, expr := range []string{"E@(?=a)", "not E@(?=a)", "E@(?!a)"} {
		budget := NewBudget(time.Hour)
		m, err := Nodegroups(nil).ParseWithin(budget, "compound", expr, "")
		if err != nil {
			t.Fatal(err)
		}
		s := Data{MinionID: "abc"}
		if expr == "E@(?=a)" && !m.Match(s) {
			t.Errorf("%s does not match", expr)
		}
		budget.left.Store(0)
		if m.Match(s) || !m.Expect(s) {
			t.Errorf("%s without time: match %v, expect %v", expr, m.Match(s), m.Expect(s))
		}
	}
}

// TestBudgetIsShared checks that all slow patterns of one target spend one
// budget, so that a compound of 100 is not 100 times as slow as one.
func TestBudgetIsShared(t *testing.T) {
	grains := value.DictOf("big", strings.Repeat("a", 200)+"!")
	slow := "P@big:(?=a)(a+)+$"
	m, err := Nodegroups(nil).ParseWithin(NewBudget(20*time.Millisecond), "compound", strings.Repeat(slow+" or ", 99)+slow, "")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool, 1)
	go func() { done <- m.Match(Data{MinionID: "a", GrainData: grains}) }()
	select {
	case got := <-done:
		if got {
			t.Error("a pattern without an answer matches")
		}
	case <-time.After(60 * time.Second):
		t.Fatal("100 patterns with a budget of 20 ms take more than a minute: each has its own")
	}
}

// TestUnclosedBrackets uses a glob that would take hours if each bracket were
// searched up to the end.
func TestUnclosedBrackets(t *testing.T) {
	pattern := strings.Repeat("[", 16<<20)
	if g := ParseGlob(pattern); !g.Match(pattern) || g.Match("[") {
		t.Error("open brackets do not stand for themselves")
	}
	if g := ParseGlob("[a[b]c["); !g.Match("[c[") || !g.Match("bc[") || g.Match("xc[") {
		t.Error("a bracket that is closed is no set")
	}
}
