package minion

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"brine/internal/base/wait"
	"brine/internal/daemons/minion/roles"
	"brine/internal/py/value"
)

// failover drives the state machine of package roles: it is there when the
// minion uses one master at a time.
type failover struct {
	m       *Minion
	machine *roles.Machine
	events  chan roles.Event
	news    chan struct{} // there is a new list of masters
	held    bool
	classes map[string]int // of the masters, as they are arranged

	// current is the master that is, or was last, the active one; greeted the
	// last one that was told of this minion's start, -1 for none.
	current, greeted atomic.Int32
}

// patience is how long a master may take to answer before the next one is
// tried as well.
const masterPatience = 2 * time.Second

// drainTime bounds how long a failback waits for what the master that is to be
// left has asked for.
const drainTime = 5 * time.Minute

// usualFailback is how long the preferred master must have been good where
// the configuration does not say.
const usualFailback = 30 * time.Second

func newFailover(m *Minion) *failover {
	o := &m.cfg.Options
	back := time.Duration(0)
	if o.Failback {
		if back = o.FailbackInterval; back <= 0 {
			back = o.AliveInterval
		}
		if back <= 0 {
			back = usualFailback
		}
	}
	if o.learns() {
		back = o.rebalance()
	}
	f := &failover{m: m, events: make(chan roles.Event, 64), news: make(chan struct{}, 1), machine: roles.New(roles.Options{
		Masters: len(m.masters()), Failback: back, Patience: masterPatience, Drain: drainTime, Leave: wait.Jitter(leaveSpread),
	})}
	f.greeted.Store(-1)
	if o.learns() {
		f.arrange(time.Now())
	}
	return f
}

// notify tells the one who chooses what a connection has met.
func (m *Minion) notify(e roles.Event) {
	if m.failover == nil {
		return
	}
	select {
	case m.failover.events <- e:
	case <-m.ended:
	}
}

// run takes decisions until ctx ends.
func (f *failover) run(ctx context.Context) {
	f.step(roles.Event{})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-f.events:
			f.step(e)
		case <-f.news:
			f.arrange(time.Now())
			f.step(roles.Event{})
		case <-timer.C:
			f.step(roles.Event{})
		}
		if f.m.cfg.Options.learns() && !maps.Equal(f.classes, f.m.classes()) {
			f.learned() // what is known of a master was too long ago
		}
		pause := time.Minute
		now := time.Now()
		if at, ok := f.machine.Wake(now); ok {
			pause = min(pause, max(at.Sub(now), time.Millisecond))
			if f.held {
				pause = min(pause, time.Second) // for the end of the jobs
			}
		}
		timer.Reset(pause)
	}
}

func (f *failover) step(e roles.Event) {
	now := time.Now()
	f.drain(now)
	done := f.machine.Step(e, now)
	if i := f.machine.Active(); i >= 0 {
		f.current.Store(int32(i))
	}
	for i, c := range f.m.masters() {
		c.role.set(f.machine.Role(i))
	}
	if done != nil {
		f.switched(done)
	}
}

// drain tells the machine whether the active master waits for jobs.
func (f *failover) drain(now time.Time) {
	i := f.machine.Active()
	held := i >= 0 && len(f.m.jobs.runningFor(f.m.masters()[i])) > 0
	if held == f.held {
		return
	}
	f.held = held
	kind := roles.Free
	if held {
		kind = roles.Held
	}
	if i >= 0 {
		f.machine.Step(roles.Event{Kind: kind, Master: i}, now)
	}
}

// switched tells the masters and the log of a change.
func (f *failover) switched(s *roles.Switch) {
	to := f.m.masters()[s.To]
	data := value.DictOf("id", f.m.cfg.ID, "from", nil, "to", to.addr.Text, "reason", s.Why, "seconds", s.Took.Seconds())
	if s.From >= 0 {
		data.Set("from", f.m.masters()[s.From].addr.Text)
	}
	f.m.standing.switched(data)
	if (s.From != s.To || s.Outage) && f.greeted.Load() == int32(s.To) {
		// Salt looks for a master then as at its start, and reports that. A
		// master that was not told of the minion's start is told in settle.
		f.m.masters()[s.To].sendStart()
	}
	if s.From < 0 || s.From == s.To {
		return
	}
	from := f.m.masters()[s.From]
	f.m.log.Warn("this minion uses another master now", "from", from.addr.Text, "to", to.addr.Text,
		"reason", s.Why, "seconds", s.Took.Seconds())
	from.out.HandOver(to.out)
	tag := "salt/minion/" + f.m.cfg.ID + "/master_changed"
	load := value.DictOf("id", f.m.cfg.ID, "cmd", "_minion_event", "pretag", nil, "tag", tag, "data", data)
	to.out.Put(load)
	for _, c := range f.m.masters() {
		if c != to && (c.is(standingBy) || c == from) {
			c.out.Put(load)
		}
	}
}

// receivers are the masters that are told what concerns all: every one of hot
// masters, else the active one.
func (m *Minion) receivers() []*connection {
	if m.failover == nil {
		return m.masters()
	}
	i := m.failover.current.Load()
	return m.masters()[i : i+1]
}

// toGreet reports whether c is to be told of the minion's start: a master that
// is connected for the first time, or anew after another one was used.
func (m *Minion) toGreet(c *connection) bool {
	if m.failover == nil {
		return !c.greeted
	}
	return int(m.failover.greeted.Load()) != c.index
}

// greeted notes that c was told.
func (m *Minion) greeted(c *connection) {
	c.greeted = true
	if m.failover != nil {
		m.failover.greeted.Store(int32(c.index))
	}
}
