package roster

import (
	"math"
	"time"
)

// Load decides which share of the minions a master requests, by the load of its machine. Steps are few and slow because each makes
// minions change masters. The zero value requests the full share.
type Load struct {
	step int
	busy float64 // averaged over loadAverage
	last time.Time
	// since is the time of the last step, or of the first Look.
	since time.Time
}

// steps are the shares in percent. Each is about seven tenths of the previous one. A step up at the load calm gives at most calm * 1.43 =
// 0.64, far below busy, so that no step causes its opposite.
var steps = [...]int{100, 70, 50, 35, 25}

const (
	loadAverage = time.Minute
	// The load of all processors above which a machine is too busy, and below which it can take more minions.
	tooBusy, calm = 0.9, 0.45
	// downPause is the time between two steps down. Minions take that long to leave (master_rebalance), so that a step takes effect before
	// the next one.
	downPause = 5 * time.Minute
	// firstPause is the time before the first step.
	firstPause = time.Minute
	upPause    = 10 * time.Minute
)

// Look records the load since the last Look, from 0 to 1, and returns the share in percent to request.
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

// Busy returns the average load.
func (l *Load) Busy() float64 { return l.busy }
