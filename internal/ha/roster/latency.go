package roster

import (
	"slices"
	"time"

	"brine/internal/base/salt"
)

// Bounds are the upper limits of the latency classes, ascending: a master that answers within the first is in class 0. Without bounds all
// masters are in one class.
type Bounds []time.Duration

// maxClasses bounds the classes.
const maxClasses = 8

// Check returns an error for invalid bounds.
func (b Bounds) Check() error {
	if len(b) > maxClasses {
		return salt.Errorf(salt.Invalid, "%d bounds, but at most %d are allowed", len(b), maxClasses)
	}
	for i, d := range b {
		if d <= 0 || i > 0 && d <= b[i-1] {
			return salt.Errorf(salt.Invalid, "the bounds must be greater than 0, and each greater than the one before")
		}
	}
	return nil
}

// class returns the class of a duration, with bounds multiplied by a factor.
func (b Bounds) class(d time.Duration, factor float64) int {
	n := 0
	for n < len(b) && float64(d) >= float64(b[n])*factor {
		n++
	}
	return n
}

// Latency tracks how quickly one master answers. The zero value has no data.
type Latency struct {
	times [window]time.Duration // the last ones, a ring buffer
	n     int                   // number added since the buffer was empty
	last  time.Time
	known bool
	class int
}

const (
	// window is the number of answers considered. The quickest one counts: a single slow answer says nothing about the master or the
	// network.
	window = 8
	// enough is the number of answers needed for a result.
	enough = 5
	// margin is the factor by which a time must exceed a bound before the class changes, so that a master near a bound keeps its class.
	margin = 1.5
	// stale is the gap between two answers after which the older one is ignored.
	stale = 10 * time.Minute
)

// Forget is how long data about a master is used after its last answer. Without a limit a master that was slow for an hour would never
// get its minions back.
const Forget = 2 * time.Hour

// Add records the duration of an answer and reports whether the class changed or became known.
func (l *Latency) Add(took time.Duration, now time.Time, b Bounds) (changed bool) {
	if now.Sub(l.last) > stale {
		l.n = 0
	}
	l.times[l.n%window] = took
	l.n++
	l.last = now
	if l.n < enough {
		return false
	}
	least := slices.Min(l.times[:min(l.n, window)])
	class, known := l.class, l.known
	switch {
	case !known:
		class = b.class(least, 1)
	case b.class(least, margin) > class:
		class = b.class(least, margin)
	case b.class(least, 1/margin) < class:
		class = b.class(least, 1/margin)
	}
	l.class, l.known = class, true
	return !known || class != l.class
}

// Class returns the class; known is false without data, or if it is outdated.
func (l *Latency) Class(now time.Time) (class int, known bool) {
	if !l.known || now.Sub(l.last) > Forget {
		return 0, false
	}
	return l.class, true
}
