package channel

import (
	"container/list"
	"sync"
	"time"
)

const (
	// patience bounds how long a sign-in waits for its turn: by then the
	// minion, whose auth_timeout is 5 s, is about to give up.
	patience = 4 * time.Second
	// crowd is how long a queue may become, by the time that it takes, before
	// those who understand that are asked to come back.
	crowd = time.Second
	// maxHint bounds when they are told to.
	maxHint = 20 * time.Second
	// usualTime is what a sign-in takes until that is known: rather too much,
	// so that the first crowd is not let in too fast.
	usualTime = 6 * time.Millisecond
)

// gate lets a few through at a time, in the order in which they came. When more
// come than get through, all would be served just before they give up, or just
// after. So whoever has waited for half of its patience lets those pass who
// have not, and is served when there are none, the latest first.
type gate struct {
	pace *pace // of all gates together, or nil

	mu         sync.Mutex
	free       int           // places
	places     int           // in all
	young, old list.List     // of *guest, the latest first
	each       time.Duration // mean time inside
	booked     time.Time     // up to when others were told to come back
}

type guest struct {
	came time.Time
	at   *list.Element // where it waits
	turn chan struct{} // closed when it is its turn
}

func newGate(places int, pace *pace) *gate {
	return &gate{pace: pace, free: places, places: places, each: usualTime}
}

// enter waits for a place, and for its time if there is a rate, and reports
// whether it got a place in time. If so, leave must be called.
func (g *gate) enter() (from time.Time, ok bool) {
	from, _, ok = g.come(false)
	return from, ok
}

// come is enter for somebody who may be able to come back: if so, and there is
// a crowd, back says after which time, and nothing was waited for. Whether
// there is one is decided as the place in the queue is taken, or all of a
// thousand who come at once would find none.
func (g *gate) come(again bool) (from time.Time, back time.Duration, ok bool) {
	if from, back, ok = g.place(again); ok {
		g.pace.wait()
	}
	return from, back, ok
}

func (g *gate) place(again bool) (from time.Time, back time.Duration, ok bool) {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return time.Now(), 0, true
	}
	if again {
		if back = g.hint(); back > 0 {
			g.mu.Unlock()
			return time.Time{}, back, false
		}
	}
	me := &guest{came: time.Now(), turn: make(chan struct{})}
	me.at = g.young.PushFront(me)
	g.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-me.turn:
		return time.Now(), 0, true
	case <-late.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-me.turn: // at the last moment
		return time.Now(), 0, true
	default:
	}
	g.young.Remove(me.at) // one of these does nothing
	g.old.Remove(me.at)
	return time.Time{}, 0, false
}

// leave gives the place to the next one.
func (g *gate) leave(entered time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.each += (time.Since(entered) - g.each) / 16
	if next := g.next(); next != nil {
		close(next.turn)
		return
	}
	g.free++
}

// next takes out who is next, if anybody waits.
func (g *gate) next() *guest {
	for first := g.young.Back(); first != nil; first = g.young.Back() {
		who := g.young.Remove(first).(*guest)
		if time.Since(who.came) < patience/2 {
			return who
		}
		who.at = g.old.PushFront(who)
	}
	if latest := g.old.Front(); latest != nil {
		return g.old.Remove(latest).(*guest)
	}
	return nil
}

// hint returns when somebody who can wait should come back, or 0 if that is
// not necessary. It deals the times out so that a crowd arrives as fast as it
// can be served. g.mu is held.
func (g *gate) hint() time.Duration {
	each := max(g.each/time.Duration(g.places), g.pace.interval())
	queue := time.Duration(g.young.Len()+g.old.Len()) * each
	if queue < crowd {
		return 0
	}
	now := time.Now()
	if first := now.Add(queue); g.booked.Before(first) || g.booked.After(now.Add(maxHint)) {
		g.booked = first
	}
	g.booked = g.booked.Add(each)
	return g.booked.Sub(now)
}

// pace has those who are let in follow each other at a rate that the operator
// has set.
type pace struct {
	rate func() int // per second; 0 is no limit

	mu   sync.Mutex
	next time.Time
}

// burst is for how long times that were not used can be made up for: a clock
// that wakes sleepers a little late would slow down a fast pace.
const burst = 50 * time.Millisecond

// interval is the time between two who are let in.
func (p *pace) interval() time.Duration {
	if p == nil {
		return 0
	}
	if r := p.rate(); r > 0 {
		return time.Second / time.Duration(r)
	}
	return 0
}

// wait waits for the next time at which one may be let in.
func (p *pace) wait() {
	each := p.interval()
	if each == 0 {
		return
	}
	p.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-burst); p.next.Before(earliest) {
		p.next = earliest
	}
	turn := p.next
	p.next = turn.Add(each)
	p.mu.Unlock()
	time.Sleep(turn.Sub(now))
}
