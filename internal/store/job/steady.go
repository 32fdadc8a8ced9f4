package job

import (
	"sync"
	"time"
)

// steadyClock compares the wall clock with the time that has passed, so that a clock that is days ahead or behind for a moment makes no job
// expire. A jump of the clock is believed after believeTime, since it may also be the correction of a clock that was wrong at the start.
type steadyClock struct {
	mu    sync.Mutex
	began bool
	// base and passed are the wall clock and the time that had passed when they were last believed.
	base   time.Time
	passed time.Duration
	// jumped is when a jump was noticed, in time that has passed; 0: there is none.
	jumped time.Duration
}

const (
	jumpSize    = 10 * time.Minute
	believeTime = time.Hour
)

// look returns the believed time for a reading of the wall clock, and the time that has passed since any fixed moment, above 0.
func (c *steadyClock) look(wall time.Time, passed time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall = wall.Round(0)
	expected := c.base.Add(passed - c.passed)
	switch {
	case !c.began || wall.Sub(expected).Abs() <= jumpSize:
	case c.jumped == 0:
		c.jumped = passed
		return expected
	case passed-c.jumped < believeTime:
		return expected
	}
	c.began, c.base, c.passed, c.jumped = true, wall, passed, 0
	return wall
}

// filing is the time by which a job is filed: that of the clock, unless it has jumped back.
func filing(s *Store) time.Time {
	now := s.now()
	if t := s.steady.look(now, s.passed(now)); t.After(now) {
		return t
	}
	return now
}

// expiryTime is the time by which jobs expire: that of the clock, unless it has jumped ahead.
func expiryTime(s *Store) time.Time {
	now := s.now()
	if t := s.steady.look(now, s.passed(now)); t.Before(now) {
		return t
	}
	return now
}
