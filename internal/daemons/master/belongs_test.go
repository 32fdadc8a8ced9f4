package master

import (
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestQuota: the bytes that a minion stores per hour are bounded, for each minion
// and each hour separately.
func TestQuota(t *testing.T) {
	now := time.Now()
	q := quota{now: func() time.Time { return now }}
	if !q.take("a", 60, 100) || q.take("a", 60, 100) || !q.take("a", 40, 100) || !q.take("b", 100, 100) || !q.take("a", 1000, 0) {
		t.Error("60 and 40 of 100 are to be granted, and 60 more are not")
	}
	now = now.Add(time.Hour)
	if !q.take("a", 100, 100) {
		t.Error("the next hour begins with nothing used")
	}
}

// TestReturnsOfOthers: a return is refused only if the target certainly excludes
// the minion. Minions themselves evaluate targets by grains or pillar.
func TestReturnsOfOthers(t *testing.T) {
	for _, c := range []struct {
		typ  string
		tgt  any
		want bool
	}{
		{"glob", "a", false}, {"", "a", false}, {"glob", "*", true}, {"list", value.ListOf("a", "b"), false}, {"list", "a,evil", true},
		{"pcre", "a.*", false}, {"pcre", "(?=e)evil", true}, {"grain", "os:x", true}, {"pillar", "os:x", true}, {"compound", "a or b", false},
		{"compound", "a or G@os:x", true}, {"compound", "a and G@os:x", false}, {"ipcidr", "10.0.0.0/8", true}, {"nonsense", "x", true},
	} {
		if got := mayMatch(nil, value.DictOf("tgt_type", c.typ, "tgt", c.tgt), "evil"); got != c.want {
			t.Errorf("%s %s may mean the minion: %t, want %t", c.typ, value.Repr(c.tgt), got, c.want)
		}
	}
}
