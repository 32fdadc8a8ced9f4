package netpeer

import (
	"time"

	"brine/internal/net/transport"
)

// Verdict is the decision about a connection.
type Verdict uint8

// The verdicts.
const (
	Fine Verdict = iota // nothing
	Ping                // ask for a sign of life
	Dead                // close it
)

// Ticks is how often Watch.Judge should be called per interval.
const Ticks = 4

// limit is the number of ticks that an answer may take. With the quiet interval before it, and the
// partial ticks, a peer is given up within transport.Misses intervals.
const limit = (transport.Misses-1)*Ticks - 1

// maxLimit is the maximum of limit for a peer that answers slowly.
const maxLimit = 3 * Ticks

// Watch decides, for one peer that answers pings, when to ask it for a sign of life and when to
// give it up. The zero value is ready for use.
//
// Time is counted in calls of Judge and not in seconds. A late call, because the process or the
// machine was busy, counts once, and the call right after it that catches up does not count: a peer
// must not be given up for time in which its answer could not have been read. So the timeout grows
// with the load of the machine. It also grows for a peer with slow answers: twice the ticks that
// the last answers took beyond the first are added.
type Watch struct {
	called time.Time // last
	sign   int64     // as of that call
	quiet  uint8     // calls since a new sign
	asked  bool      // there was none since the ping
	waited uint8     // calls since the ping
	slow   uint8     // ticks that answers took recently, beyond the first
}

// Judge must be called Ticks times per interval. sign is any value that changes with each sign of
// life of the peer, such as the time of the last one.
func (w *Watch) Judge(now time.Time, sign int64, interval time.Duration) Verdict {
	late := !w.called.IsZero() && now.Sub(w.called) < interval/(2*Ticks)
	w.called = now
	switch {
	case sign != w.sign:
		w.sign = sign
		if w.asked {
			w.slow = max(w.waited, max(w.slow, 1)-1)
		}
		w.quiet, w.waited, w.asked = 0, 0, false
		return Fine
	case late:
		return Fine
	}
	w.quiet = min(w.quiet+1, Ticks)
	switch {
	case w.asked:
		w.waited++
		if w.waited >= min(limit+2*w.slow, maxLimit) {
			return Dead
		}
	case w.quiet >= Ticks:
		w.asked = true
		return Ping
	}
	return Fine
}

// Again resets the state: the peer is asked again after a while.
func (w *Watch) Again() { w.quiet, w.waited, w.asked = 0, 0, false }
