// Package roles decides which of several masters a minion uses when it uses one at a time
// (master_type failover, distributed and cluster). It is a state machine without sockets and
// without a clock: its input is what happened and when, its output the role of each master.
// Package failover drives it.
//
// One master is active. The next responding one in the order, or the next ones, are on
// standby: the minion is signed in there and keeps the sessions valid. When the active
// master is lost, the first standby master takes its place at once, and the lost one moves
// to the end of the order. While none answers, all are tried again and again. The set of
// masters and the preferred one may change meanwhile (Arrange).
package roles

import (
	"slices"
	"time"
)

// Role is the role of a master for the minion.
type Role uint8

// The roles.
const (
	// Off: there is no session.
	Off Role = iota
	// Standby: a session is established and kept valid.
	Standby
	// Active: its commands are accepted.
	Active
)

// String returns the role's name.
func (r Role) String() string { return [...]string{"off", "standby", "active"}[r] }

// Kind is the kind of an event.
type Kind uint8

// The kinds of events. All but Tick concern one master.
const (
	// Tick: time has passed.
	Tick Kind = iota
	// Up: the session is valid.
	Up
	// Serving: commands of the active master are being received.
	Serving
	// Lost: there is no session, or an attempt to establish one failed.
	Lost
	// Held: the active master must not be left now, because its jobs are running. Free ends
	// Held.
	Held
	Free
)

// Event is an input.
type Event struct {
	Kind   Kind
	Master int
	Why    string // the reason, for Lost
}

// Switch is a change of the active master. From is -1 for the first switch.
type Switch struct {
	From, To int
	Why      string
	// Took is the time from the loss of From, or from the decision to leave it,
	// until the minion received the commands of To.
	Took time.Duration
	// Outage means that there was no master for a while: no other master took over, and
	// From was not reachable at the first attempt.
	Outage bool
}

// Reasons of switches that the machine decides by itself.
const (
	WhyFirst    = "first connection"
	WhyFailback = "failback"
	WhyLeave    = "it drains, or is no master of this minion any more"
)

// Options are the configuration of a Machine.
type Options struct {
	// Masters is the initial number of masters; 0 is the preferred one.
	Masters int
	// Standbys is the number of standby masters; 0 means one.
	Standbys int
	// Failback is how long the preferred master must have been reachable before the minion
	// returns to it; 0 disables the return.
	Failback time.Duration
	// Patience is how long one candidate may take before the next one is tried as well.
	Patience time.Duration
	// Drain is how long a failback waits for running jobs.
	Drain time.Duration
	// Leave is the time between Arrange and the switch from a master that must be left, if
	// another one is reachable.
	Leave time.Duration
}

// Limits of the failback delay when the preferred master keeps being lost soon
// after a failback.
const (
	maxFailback = time.Hour
	soon        = 10 // times Options.Failback
)

// Machine is the state machine. It is not safe for concurrent use.
type Machine struct {
	o       Options
	order   []int // current order; the active master need not be the first
	pref    []int // configured order: the preferred master is first
	m       []master
	active  int // -1: none
	leaving int // the previous master, still active until the new one serves; -1: none
	serving bool
	held    bool

	pending *Switch // the switch that is not complete yet
	since   time.Time
	lastOK  int // the last master that served; -1: none

	chosen time.Time     // when the preferred master was chosen
	need   time.Duration // how long it must be reachable before the next failback
	backAt time.Time     // time of the last failback
}

type master struct {
	role   Role
	up     bool
	since  time.Time // when up or the role Standby began
	failed bool      // failed since it was last up or tried
	// left is when Arrange first asked to leave it; zero if it need not be left.
	left time.Time
}

// New returns a machine in its initial state; call Step with a Tick.
func New(o Options) *Machine {
	m := &Machine{o: o, m: make([]master, o.Masters), active: -1, leaving: -1, lastOK: -1, need: o.Failback}
	for i := range o.Masters {
		m.order = append(m.order, i)
		m.pref = append(m.pref, i)
	}
	return m
}

// Arrange sets the order of the masters, the preferred one first. New numbers must follow
// the existing ones. A master that is not in pref, or that is in avoid, is left as soon as
// another one is reachable; one that is not in pref is not tried again. Arrange takes
// effect at the next Step. pref must not be empty.
func (m *Machine) Arrange(pref, avoid []int, now time.Time) {
	for _, i := range pref {
		for len(m.m) <= i {
			m.m = append(m.m, master{})
		}
	}
	if len(m.pref) == 0 || m.pref[0] != pref[0] {
		m.chosen = now
	}
	m.pref = slices.Clone(pref)
	// Lost masters stay at the end of the order.
	m.order = slices.Clone(pref)
	slices.SortStableFunc(m.order, func(a, b int) int { return after(m.m[a].failed) - after(m.m[b].failed) })
	for i := range m.m {
		x := &m.m[i]
		switch leave := !slices.Contains(pref, i) || slices.Contains(avoid, i); {
		case !leave:
			x.left = time.Time{}
		case x.left.IsZero():
			x.left = now
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func after(b bool) int {
	if b {
		return 1
	}
	return 0
}

// SetStandbys changes Options.Standbys. It takes effect at the next Step.
func (m *Machine) SetStandbys(n int) { m.o.Standbys = n }

// Role returns the role of master i.
func (m *Machine) Role(i int) Role { return m.m[i].role }

// Active returns the master whose commands are accepted, now or once it serves; -1 for
// none.
func (m *Machine) Active() int { return m.active }

// Step processes an event. It returns the switch that it completed, if any.
func (m *Machine) Step(e Event, now time.Time) *Switch {
	var done *Switch
	x := &master{}
	if e.Kind != Tick {
		x = &m.m[e.Master]
	}
	switch e.Kind {
	case Up:
		if !x.up {
			x.up, x.failed, x.since = true, false, now
		}
	case Serving:
		if !x.up {
			x.up, x.failed, x.since = true, false, now
		}
		if e.Master == m.active && !m.serving {
			done = m.arrived(now)
		}
	case Lost:
		m.lost(e, now)
	case Held:
		m.held = true
	case Free:
		m.held = false
	}
	m.goBack(now)
	m.plan(now)
	return done
}

// arrived completes a switch and returns it.
func (m *Machine) arrived(now time.Time) *Switch {
	m.serving, m.leaving = true, -1
	s := m.pending
	m.pending = nil
	m.lastOK = m.active
	if s == nil {
		return nil
	}
	s.To, s.Took = m.active, now.Sub(m.since)
	return s
}

// lost handles the loss of a master.
func (m *Machine) lost(e Event, now time.Time) {
	x := &m.m[e.Master]
	x.up, x.failed, x.since = false, true, now
	if e.Master == m.leaving {
		m.leaving = -1
	}
	if e.Master != m.active {
		if p := m.pending; p != nil && m.active < 0 && p.From == e.Master {
			p.Outage = true
		}
		return
	}
	if m.leaving >= 0 {
		// The failback failed; undo it.
		m.active, m.leaving, m.serving, m.pending = m.leaving, -1, true, nil
		m.punish(now)
		return
	}
	if e.Master == m.pref[0] && m.serving {
		m.punish(now)
	}
	if m.pending == nil {
		m.pending = &Switch{From: m.lastOK, Why: e.Why}
		m.since = now
	}
	m.active, m.serving = -1, false
	m.toEnd(e.Master)
}

// punish makes the next failback wait longer if the last one was recent.
func (m *Machine) punish(now time.Time) {
	if !m.backAt.IsZero() && now.Sub(m.backAt) < soon*m.o.Failback {
		m.need = min(2*m.need, max(maxFailback, m.o.Failback))
	} else {
		m.need = m.o.Failback
	}
}

func (m *Machine) toEnd(i int) {
	m.order = slices.DeleteFunc(m.order, func(x int) bool { return x == i })
	if slices.Contains(m.pref, i) {
		m.order = append(m.order, i)
	}
}

// goBack starts the switch to a better master when it is due.
func (m *Machine) goBack(now time.Time) {
	to, why, at := m.better(now)
	if to < 0 || now.Before(at) {
		return
	}
	m.leaving, m.active, m.serving = m.active, to, false
	m.pending, m.since = &Switch{From: m.leaving, Why: why}, now
	if why == WhyFailback {
		m.backAt = now
		m.order = slices.Clone(m.pref)
	}
	m.held = false
}

// better returns the master to which the minion will move if nothing else happens, and
// when; -1 for none. If the active master must be left, it is any other one, otherwise the
// preferred one.
func (m *Machine) better(now time.Time) (to int, why string, at time.Time) {
	if m.active < 0 || !m.serving {
		return -1, "", at
	}
	if left := m.m[m.active].left; !left.IsZero() {
		i := slices.IndexFunc(m.order, func(i int) bool { return i != m.active && m.m[i].up && m.m[i].left.IsZero() })
		if i < 0 {
			return -1, "", at
		}
		to, why, at = m.order[i], WhyLeave, left.Add(m.o.Leave)
	} else {
		to, why = m.pref[0], WhyFailback
		x := &m.m[to]
		if m.o.Failback <= 0 || to == m.active || !x.up || !x.left.IsZero() {
			return -1, "", at
		}
		// Count from the later of the two times: a standby master may have been reachable
		// for long, and all minions that have just come to prefer it would move to it at
		// once.
		at = later(x.since, m.chosen).Add(m.need)
	}
	if m.held {
		at = at.Add(m.o.Drain)
	}
	return to, why, at
}

// plan assigns the roles.
func (m *Machine) plan(now time.Time) {
	if m.active < 0 {
		for _, i := range m.order {
			if m.m[i].up {
				m.active, m.serving = i, false
				break
			}
		}
		if m.active >= 0 && m.pending == nil {
			m.pending, m.since = &Switch{From: -1, Why: WhyFirst}, now
		}
	}
	want := make([]Role, len(m.m))
	if m.active >= 0 {
		want[m.active] = Active
	}
	if m.leaving >= 0 {
		want[m.leaving] = Active
	}
	m.candidates(want, now)
	if p := m.pref; m.o.Failback > 0 && len(p) > 0 && want[p[0]] == Off {
		want[p[0]] = Standby
	}
	for i, r := range want {
		x := &m.m[i]
		if x.role == Off && r != Off {
			x.since, x.failed = now, false
		}
		if r == Off {
			x.up, x.failed = false, false
		}
		x.role = r
	}
}

// candidates marks the masters that are on standby or being tried: the first that are up,
// and all before them that have not failed yet.
func (m *Machine) candidates(want []Role, now time.Time) {
	left := 1
	if m.active >= 0 { // without an active master, a second one that answers faster would become active
		left = max(m.o.Standbys, 1)
	}
	for _, i := range m.order {
		if want[i] == Active {
			continue
		}
		x := &m.m[i]
		want[i] = Standby
		if x.up || x.role == Off || !x.failed && now.Sub(x.since) < m.o.Patience {
			if left--; left == 0 {
				return
			}
		}
	}
}

// Wake returns the time at which Step needs a Tick if no event comes before.
func (m *Machine) Wake(now time.Time) (at time.Time, ok bool) {
	note := func(t time.Time) {
		if t.After(now) && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	if to, _, t := m.better(now); to >= 0 {
		note(t)
	}
	for i := range m.m {
		if x := &m.m[i]; x.role == Standby && !x.up && !x.failed {
			note(x.since.Add(m.o.Patience))
		}
	}
	return at, ok
}
