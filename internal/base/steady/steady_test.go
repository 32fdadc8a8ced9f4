package steady

import (
	"testing"
	"time"
)

// TestJumps: a clock that is days ahead or behind for a moment changes neither of the two times in the wrong direction. A clock that stays as
// it is counts after an hour.
func TestJumps(t *testing.T) {
	now, passed := time.Date(2026, 11, 21, 4, 30, 0, 0, time.UTC), time.Duration(1)
	c := Of(func() time.Time { return now }, func(time.Time) time.Duration { return passed })
	right := now
	wait := func(d time.Duration) { now, right, passed = now.Add(d), right.Add(d), passed+d }
	is := func(what string, early, late time.Duration) {
		t.Helper()
		if got := c.Early().Sub(right); got != early {
			t.Errorf("%s: the early time is %v off, want %v", what, got, early)
		}
		if got := c.Late().Sub(right); got != late {
			t.Errorf("%s: the late time is %v off, want %v", what, got, late)
		}
	}
	const days = 72 * time.Hour
	is("at first", 0, 0)
	wait(time.Hour)
	is("an hour later", 0, 0)
	now = now.Add(days)
	is("ahead", 0, days)
	wait(time.Second)
	is("still ahead", 0, days)
	now = now.Add(-2 * days)
	is("behind", -days, 0)
	now = now.Add(days)
	is("right again", 0, 0)
	now = now.Add(5 * time.Minute)
	is("set by five minutes", 5*time.Minute, 5*time.Minute)
	now = right.Add(days)
	is("ahead for long", 5*time.Minute, days)
	wait(believeTime - time.Second)
	is("almost believed", 5*time.Minute, days)
	wait(2 * time.Second)
	is("believed", days, days)
}

// TestNew: the clock of a process follows the wall clock.
func TestNew(t *testing.T) {
	c := New(time.Now)
	for range 3 {
		before := time.Now().Round(0)
		early, late := c.Early(), c.Late()
		if after := time.Now().Round(0); early.Before(before) || late.Before(early) || after.Before(late) {
			t.Errorf("%v and %v are not between %v and %v", early, late, before, after)
		}
	}
}
