package roster

import (
	"math"
	"time"
)

// Load decides which share of the minions a master asks for, by how busy its
// machine is. It goes in few steps, and slowly, since each of them has minions
// go elsewhere. The zero value asks for all of its share.
type Load struct {
	step int
	busy float64 // averaged over loadAverage
	last time.Time
	// since is when the last step was taken, or first looked.
	since time.Time
}

// steps are the shares in percent. Each is about seven tenths of the one before:
// at calm, a step up makes a machine that is busy by what minions ask no busier
// than calm * 1.43 = 0.64, far from busy, so that no step is followed by its
// opposite.
var steps = [...]int{100, 70, 50, 35, 25}

const (
	loadAverage = time.Minute
	// The part of the time of all processors above which a machine is too
	// busy, and below which it can take more.
	tooBusy, calm = 0.9, 0.45
	// downPause is between two steps down: as long as minions take to go
	// (master_rebalance), so that the effect of the one is seen before the other.
	downPause = 5 * time.Minute
	// firstPause is before the first step.
	firstPause = time.Minute
	upPause    = 10 * time.Minute
)

// Look notes how busy the machine was since the last look, from 0 to 1, and
// returns the share in percent to ask for.
func (l *Load) Look(busy float64, now time.Time) (percent int) {
	if l.last.IsZero() {
		l.last, l.since, l.busy = now, now, calm
	}
	gap := min(max(now.Sub(l.last), 0), loadAverage)
	l.last = now
	l.busy += (min(max(busy, 0), 1) - l.busy) * (1 - math.Exp(-gap.Seconds()/loadAverage.Seconds()))
	pause := downPause
	if l.step == 0 {
		pause = firstPause
	}
	switch quiet := now.Sub(l.since); {
	case l.busy >= tooBusy && l.step < len(steps)-1 && quiet >= pause:
		l.step, l.since = l.step+1, now
	case l.busy <= calm && l.step > 0 && quiet >= upPause:
		l.step, l.since = l.step-1, now
	}
	return steps[l.step]
}

// Busy is the average that decides.
func (l *Load) Busy() float64 { return l.busy }
