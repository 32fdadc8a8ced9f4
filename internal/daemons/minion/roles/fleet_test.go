package roles

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"brine/internal/ha/roster"
	"brine/test/tools"
)

// fleet simulates minions and masters. Only the decisions are real: which master each
// minion prefers (roster.Prefer), by measured response times (roster.Latency), and when it
// moves (Machine). Time passes in turns.
type fleet struct {
	now     time.Time
	rand    *rand.Rand
	masters []*simMaster
	minions []*simMinion
	moves   map[[2]int]int // from, to
	most    int            // moves in one turn
}

type simMaster struct {
	m     roster.Member
	there bool
	took  time.Duration // response time, without jitter
	other float64       // load of its machine by other programs, from 0 to 1
	load  *roster.Load
	held  int
}

type simMinion struct {
	id      string
	machine *Machine
	latency []roster.Latency
	asked   []time.Time
	classes []int
	up      []bool
	next    time.Time // when the minion acts next
}

const (
	// askPause is the interval of liveness requests.
	askPause = 30 * time.Second
	turn     = 5 * time.Second
	// cost is the load of one minion on its master's machine: 2,000 minions make a load of
	// 0.4.
	cost = 0.4 / 2000
)

var bounds = roster.Bounds{5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond}

func newFleet(minions int, masters ...*simMaster) *fleet {
	f := &fleet{now: start, rand: rand.New(rand.NewPCG(1, 2)), masters: masters, moves: map[[2]int]int{}}
	for i := range minions {
		rebalance := 30*time.Second + time.Duration(f.rand.Int64N(int64(270*time.Second)))
		leave := time.Duration(f.rand.Int64N(int64(5 * time.Second)))
		f.minions = append(f.minions, &simMinion{
			id:      fmt.Sprint("minion", i),
			machine: New(Options{Masters: 1, Failback: rebalance, Patience: 2 * time.Second, Drain: 5 * time.Minute, Leave: leave}),
			latency: make([]roster.Latency, len(masters)), asked: make([]time.Time, len(masters)), classes: make([]int, len(masters)),
			up: make([]bool, len(masters)),
		})
	}
	for _, x := range f.minions {
		f.arrange(x)
	}
	return f
}

// arrange does what package failover does with a new list or with new response times.
func (f *fleet) arrange(x *simMinion) {
	var there []roster.Member
	var leave, order []int
	for i, m := range f.masters {
		class, _ := x.latency[i].Class(f.now)
		x.classes[i] = class
		if m.there {
			there = append(there, m.m)
		}
	}
	index := func(id string) int {
		return slices.IndexFunc(f.masters, func(m *simMaster) bool { return m.m.ID == id })
	}
	for _, m := range roster.Prefer(there, x.id, "", func(id string) int { return x.classes[index(id)] }) {
		order = append(order, index(m.ID))
		if m.Draining {
			leave = append(leave, index(m.ID))
		}
	}
	x.machine.Arrange(order, leave, f.now)
	f.step(x, Event{})
}

func (f *fleet) step(x *simMinion, e Event) {
	before := x.machine.Active()
	if s := x.machine.Step(e, f.now); s != nil && s.From >= 0 {
		f.moves[[2]int{s.From, s.To}]++
	}
	if now := x.machine.Active(); now != before {
		if before >= 0 {
			f.masters[before].held--
		}
		f.masters[now].held++
	}
}

// run simulates a duration.
func (f *fleet) run(d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); f.now = f.now.Add(turn) {
		news := false
		for _, m := range f.masters {
			if m.load == nil {
				m.load = &roster.Load{}
			}
			if share := m.load.Look(m.other+cost*float64(m.held), f.now); share != cmp(m.m.Share) {
				m.m.Share, news = share, true
			}
		}
		before := f.total()
		for _, x := range f.minions {
			f.turn(x, news)
		}
		f.most = max(f.most, f.total()-before)
	}
}

func cmp(share int) int {
	if share == 0 {
		return roster.FullShare
	}
	return share
}

func (f *fleet) turn(x *simMinion, news bool) {
	if !news && f.now.Before(x.next) {
		return
	}
	x.next = f.now.Add(askPause)
	for i, m := range f.masters {
		if i >= len(x.machine.m) {
			break
		}
		role := x.machine.Role(i)
		if role == Off {
			x.up[i] = false
			continue
		}
		if !x.up[i] {
			x.up[i] = true
			f.step(x, Event{Kind: Up, Master: i})
		}
		if role = x.machine.Role(i); role == Active && !x.machine.serving && x.machine.active == i {
			f.step(x, Event{Kind: Serving, Master: i})
			x.next = f.now
		}
		_, known := x.latency[i].Class(f.now)
		if !known {
			x.next = f.now
		}
		if !known || f.now.Sub(x.asked[i]) >= askPause {
			x.asked[i] = f.now
			// One answer in eight is very late.
			took := m.took + time.Duration(f.rand.Int64N(int64(m.took)+1))
			if f.rand.IntN(8) == 0 {
				took += 200 * time.Millisecond
			}
			x.latency[i].Add(took, f.now, bounds)
		}
	}
	for i := range f.masters {
		class, _ := x.latency[i].Class(f.now)
		news = news || class != x.classes[i]
	}
	if news {
		f.arrange(x)
		x.next = f.now
	}
	if at, ok := x.machine.Wake(f.now.Add(-askPause)); ok && !at.After(f.now) {
		f.step(x, Event{})
		x.next = f.now
	} else if ok && at.Before(x.next) {
		x.next = at
	}
}

func (f *fleet) total() (n int) {
	for _, c := range f.moves {
		n += c
	}
	return n
}

// settle is the time until all minions have reached their preferred masters: the longest
// wait, plus the time to measure a master.
const settle = 10 * time.Minute

// TestFleet: 10,000 minions and five masters, of which one is slow, one is overloaded for
// some hours, one joins and one drains. Otherwise the minions spread evenly. Only those
// that must move do, never many at once, and they do not move back.
func TestFleet(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	const n = 10_000
	quick := func(id string) *simMaster {
		return &simMaster{m: roster.Member{ID: id}, there: true, took: 2 * time.Millisecond}
	}
	a, b, c, d, slow, late := quick("a"), quick("b"), quick("c"), quick("d"), quick("slow"), quick("late")
	slow.took, late.there = 40*time.Millisecond, false
	f := newFleet(n, a, b, c, d, slow, late)
	all := f.masters
	index := func(m *simMaster) int { return slices.Index(all, m) }

	// evenly checks that the number of minions of each master is within a tenth of its
	// share by weight.
	evenly := func(when string, weights map[*simMaster]float64) {
		t.Helper()
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		for _, m := range all {
			want := n * weights[m] / sum
			if float64(m.held) < want*.9 || float64(m.held) > want*1.1 {
				t.Errorf("%s: %s has %d minions, want %.0f", when, m.m.ID, m.held, want)
			}
		}
		t.Logf("%s: a %d, b %d, c %d, d %d, slow %d, late %d; %d moves, at most %d within %v", when, a.held, b.held, c.held, d.held, slow.held, late.held,
			f.total(), f.most, turn)
	}
	// only checks that all moves since the last call are from one master, or to it, and are
	// as many as the change of its number of minions.
	only := func(when string, m *simMaster, before int, herd int) {
		t.Helper()
		moved := f.total()
		if diff := max(m.held-before, before-m.held); moved != diff {
			t.Errorf("%s: %d moves, and %s has %d minions more or less", when, moved, m.m.ID, diff)
		}
		for k := range f.moves {
			if (k[0] == index(m)) == (k[1] == index(m)) {
				t.Errorf("%s: some go from %s to %s", when, all[k[0]].m.ID, all[k[1]].m.ID)
			}
		}
		if f.most > herd {
			t.Errorf("%s: %d move within %v", when, f.most, turn)
		}
		clear(f.moves)
		f.most = 0
	}
	even := map[*simMaster]float64{a: 1, b: 1, c: 1, d: 1}

	f.run(turn)
	first := slow.held // not measured yet
	f.run(settle)
	evenly("at first", even)
	only("at first", slow, first, first/20)

	// The machine of d gets other load: its total goes from 1.15 to 0.9 or less.
	before := d.held
	d.other = 0.65
	f.run(20*time.Minute + settle)
	evenly("overloaded", map[*simMaster]float64{a: 1, b: 1, c: 1, d: float64(d.m.Share) / 100})
	if d.m.Share != 35 || d.other+cost*float64(d.held) > 0.9 {
		t.Errorf("d has %d %% and is busy for %.2f", d.m.Share, d.other+cost*float64(d.held))
	}
	only("overloaded", d, before, before/20)
	before, d.other = d.held, 0
	f.run(30*time.Minute + settle)
	evenly("no more", even)
	only("no more", d, before, 2500/20)

	late.there = true
	before = late.held
	f.learn()
	f.run(settle)
	evenly("one joins", map[*simMaster]float64{a: 1, b: 1, c: 1, d: 1, late: 1})
	only("one joins", late, before, 2000/20)

	before, b.m.Draining = b.held, true
	f.learn()
	f.run(settle)
	evenly("one drains", map[*simMaster]float64{a: 1, c: 1, d: 1, late: 1})
	only("one drains", b, before, n) // within 5 s, as the list requests

	// The measurements of the slow master expire, and probes repeat them: no minion moves
	// there for that.
	f.run(roster.Forget + settle)
	evenly("hours later", map[*simMaster]float64{a: 1, c: 1, d: 1, late: 1})
	only("hours later", a, a.held, 0)
}

// learn gives all minions a new list.
func (f *fleet) learn() {
	for _, x := range f.minions {
		f.arrange(x)
	}
}
