package job

import (
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/steady"
)

// TestClockJumps: a clock that is days ahead or behind for a moment makes no job expire, neither those of before nor those of then. A clock
// that stays as it is counts after an hour.
func TestClockJumps(t *testing.T) {
	s := open(t, t.TempDir())
	now, passed := time.Date(2026, 11, 21, 4, 30, 0, 0, time.UTC), time.Duration(1)
	s.now = func() time.Time { return now }
	s.steady = steady.Of(s.now, func(time.Time) time.Duration { return passed })
	wait := func(d time.Duration) { now, passed = now.Add(d), passed+d }
	at := now
	var jids []string
	store := func() {
		t.Helper()
		at = at.Add(time.Second)
		j := salt.FormatJID(at) // a master goes on counting from its last id
		must(t, s.NewJob(load(j), nil))
		jids = append(jids, j)
	}
	stored := func(what string, want ...bool) {
		t.Helper()
		_, err := s.Prune()
		must(t, err)
		for i, want := range want {
			l, err := s.Load(jids[i])
			must(t, err)
			if got := l != nil; got != want {
				t.Errorf("%s: job %d is stored: %v, want %v", what, i, got, want)
			}
		}
	}
	store()
	wait(time.Minute)
	now = now.Add(72 * time.Hour)
	stored("ahead", true)
	wait(time.Second)
	store()
	now = now.Add(-72 * time.Hour)
	wait(time.Second)
	stored("right again", true, true)
	now = now.Add(-72 * time.Hour)
	store()
	stored("behind", true, true, true)
	wait(time.Second)
	now = now.Add(72 * time.Hour)
	store()
	stored("right once more", true, true, true, true)

	now = now.Add(72 * time.Hour)
	stored("ahead for longer", true, true, true, true)
	wait(time.Hour - time.Minute)
	stored("for less than an hour", true, true, true, true)
	wait(2 * time.Minute)
	stored("for an hour", false, true, false, false) // the second one was stored with this clock
	now = now.Add(-400 * 24 * time.Hour)
	wait(2 * time.Hour)
	store()
	stored("behind for longer", false, true, false, false, true)
}
