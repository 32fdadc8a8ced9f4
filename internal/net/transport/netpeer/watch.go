package netpeer

import (
	"time"

	"brine/internal/net/transport"
)

// Verdict is what to do about a connection now.
type Verdict uint8

// The verdicts.
const (
	Fine Verdict = iota // nothing
	Ping                // ask for a sign of life
	Dead                // close it
)

// Ticks is how often Watch.Judge should be called per interval.
const Ticks = 4

// limit is how many ticks an answer may take: with the interval of quiet
// before it, and the part of a tick that may have passed before either, a peer
// is given up within transport.Misses intervals.
const limit = (transport.Misses-1)*Ticks - 1

// maxLimit is what that may grow to for a peer that answers slowly.
const maxLimit = 3 * Ticks

// Watch decides, for one peer that answers pings, when to ask it for a sign of
// life and when to give it up. The zero value is ready for use.
//
// Time is counted in calls of Judge and not in seconds. A call that comes late,
// because this process or its machine had no time for it, counts as one, and
// the one after it that comes at once to make up for that counts as none: a
// peer must not be given up for time in which its answer could not have been
// read. The busier the machine, the more patience there is. So it is with a
// peer whose answers have been slow: of the ticks that the last ones took above
// the first, twice as many are added.
type Watch struct {
	called time.Time // last
	sign   int64     // as of that call
	quiet  uint8     // calls since a new sign
	asked  bool      // there was none since the ping
	waited uint8     // calls since the ping
	slow   uint8     // calls that answers took lately, beyond the first
}

// Judge is to be called Ticks times per interval. sign is anything that changes
// with each sign of life of the peer, such as the time of the last one.
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

// Again forgets that the peer was asked: it will be asked anew after a while.
func (w *Watch) Again() { w.quiet, w.waited, w.asked = 0, 0, false }
