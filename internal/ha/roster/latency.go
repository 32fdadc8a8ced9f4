package roster

import (
	"slices"
	"time"

	"brine/internal/base/salt"
)

// Bounds are where the classes of latency end, ascending: a master that answers
// within the first is of class 0. There may be none: then all masters are of
// one class.
type Bounds []time.Duration

// maxClasses bounds the classes.
const maxClasses = 8

// Check tells what is wrong with bounds.
func (b Bounds) Check() error {
	if len(b) > maxClasses {
		return salt.Errorf(salt.Invalid, "there are %d bounds, and %d at most", len(b), maxClasses)
	}
	for i, d := range b {
		if d <= 0 || i > 0 && d <= b[i-1] {
			return salt.Errorf(salt.Invalid, "the bounds must be greater than 0, and each greater than the one before")
		}
	}
	return nil
}

// class is that of a time, between bounds that are moved by a factor.
func (b Bounds) class(d time.Duration, factor float64) int {
	n := 0
	for n < len(b) && float64(d) >= float64(b[n])*factor {
		n++
	}
	return n
}

// Latency is what a minion makes of how quickly one master answers. The zero
// value knows nothing.
type Latency struct {
	times [window]time.Duration // the last ones, in a ring
	n     int                   // that were added since the ring was empty
	last  time.Time
	known bool
	class int
}

const (
	// window is how many answers are looked at. The quickest of them counts:
	// what slows a single one down is no trait of the master or of the way.
	window = 8
	// enough is how many answers it takes to say anything.
	enough = 5
	// margin is the factor by which a bound must be passed for a class to change,
	// so that a master near a bound stays where it is.
	margin = 1.5
	// stale is the gap between two answers after which the older one says nothing
	// of now.
	stale = 10 * time.Minute
)

// Forget is how long what is known of a master that is not asked any more is
// believed. Without an end a master that was slow for an hour would never have
// its minions back.
const Forget = 2 * time.Hour

// Add notes an answer that took so long, and reports whether the class is
// another one now, or known for the first time.
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

// Class returns the class; known is false if nothing is known, or it was too
// long ago.
func (l *Latency) Class(now time.Time) (class int, known bool) {
	if !l.known || now.Sub(l.last) > Forget {
		return 0, false
	}
	return l.class, true
}
