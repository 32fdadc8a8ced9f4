package salt

import (
	"fmt"
	"testing"
	"time"
)

// TestJIDsOfMastersDiffer checks that masters whose clocks agree to the
// microsecond create no duplicate ids, and that the ids of each increase and
// follow the clock, even when it goes back.
func TestJIDsOfMastersDiffer(t *testing.T) {
	var ids []string
	for i := range 40 {
		ids = append(ids, fmt.Sprint("master", i))
	}
	last := make([]time.Time, len(ids))
	made := map[time.Time]string{}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for round := range 3000 {
		switch {
		case round == 2000:
			now = now.Add(-time.Second)
		case round%7 == 0: // several jobs in one microsecond
		default:
			now = now.Add(time.Duration(round) * time.Microsecond / 2)
		}
		for i, id := range ids {
			next := nextJID(now, last[i], JIDSlot(id, ids))
			if !next.After(last[i]) {
				t.Fatalf("%s: %v after %v", id, next, last[i])
			}
			if by := made[next]; by != "" {
				t.Fatalf("%s and %s both made %v", by, id, next)
			}
			if d := next.Sub(now); round < 2000 && (d < -time.Millisecond || d > 100*time.Millisecond) { // a burst runs ahead
				t.Fatalf("%s: round %d: %v is %v from the clock", id, round, next, d)
			}
			made[next], last[i] = id, next
		}
	}
}

func TestJIDSlot(t *testing.T) {
	var ids []string
	seen := map[int]bool{}
	for i := range JIDSlots {
		ids = append(ids, fmt.Sprint("m", i))
	}
	for _, id := range ids {
		slot := JIDSlot(id, ids)
		if slot < 0 || slot >= JIDSlots || seen[slot] {
			t.Errorf("%s has slot %d", id, slot)
		}
		seen[slot] = true
	}
	if a, b := JIDSlot("a", nil), JIDSlot("a", []string{"a", "b", "c"}); a != b {
		t.Errorf("%d, then %d", a, b)
	}
	if slot := JIDSlot("new", append(ids, "new")); slot < 0 || slot >= JIDSlots {
		t.Errorf("slot %d", slot)
	}
}
