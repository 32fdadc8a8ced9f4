// Package steady compares the wall clock with the time that has passed, so that nothing is removed for good because the clock of a machine is
// wrong for a moment, or while a process starts.
package steady

import (
	"sync"
	"time"
)

// Clock knows two times: that of the wall clock, and the one that is believed. They differ after a jump of the wall clock, until that is
// believed too after believeTime: it may also be the correction of a clock that was wrong at the start. It is safe for concurrent use.
type Clock struct {
	now func() time.Time
	// passed returns the time that has passed until a reading of now, whatever the clock says. It is above 0.
	passed func(now time.Time) time.Duration

	mu sync.Mutex
	// base and at are the wall clock and the time that had passed when they were last believed; at is 0 before.
	base time.Time
	at   time.Duration
	// jumped is when a jump was noticed, in time that has passed; 0: there is none.
	jumped time.Duration
}

const (
	jumpSize    = 10 * time.Minute
	believeTime = time.Hour
)

// New returns a clock that believes the present time. now is time.Now, or a clock of a test.
func New(now func() time.Time) *Clock {
	began := now()
	return Of(now, func(at time.Time) time.Duration { return at.Sub(began) + 1 })
}

// Of is New with a count of the time that has passed until a reading of now, above 0.
func Of(now func() time.Time, passed func(now time.Time) time.Duration) *Clock {
	c := &Clock{now: now, passed: passed}
	c.look()
	return c
}

// look returns the time of the wall clock, and the believed one.
func (c *Clock) look() (wall, believed time.Time) {
	wall = c.now()
	passed := c.passed(wall)
	wall = wall.Round(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	expected := c.base.Add(passed - c.at)
	switch {
	case c.at == 0 || wall.Sub(expected).Abs() <= jumpSize:
	case c.jumped == 0:
		c.jumped = passed
		return wall, expected
	case passed-c.jumped < believeTime:
		return wall, expected
	}
	c.base, c.at, c.jumped = wall, passed, 0
	return wall, wall
}

// Late is the time for what must not get too old a mark: that of the clock, unless it has jumped back.
func (c *Clock) Late() time.Time {
	wall, believed := c.look()
	if believed.After(wall) {
		return believed
	}
	return wall
}

// Early is the time by which old things are removed: that of the clock, unless it has jumped ahead.
func (c *Clock) Early() time.Time {
	wall, believed := c.look()
	if believed.Before(wall) {
		return believed
	}
	return wall
}

// Removal is the time by which old things are removed for good: Early, less what the clock was ahead of the record of this program when
// it started, for its first hour (see Resume).
func (c *Clock) Removal() time.Time { return c.Early().Add(-start.doubt()) }

// process is the clock of this process, which begins with it.
var process = New(time.Now)

// Late is Clock.Late of this process.
func Late() time.Time { return process.Late() }

// Early is Clock.Early of this process.
func Early() time.Time { return process.Early() }

// Removal is Clock.Removal of this process.
func Removal() time.Time { return process.Removal() }
