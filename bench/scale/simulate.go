package main

import (
	"container/heap"
	"math/rand/v2"
)

// The simulation sends every message of a command, or of many concurrent sign-ins, through masters
// with cores and one writer each. It does not use the model's formulas: they must agree
// (TestModelAndSimulation).

// network is the latency of a message, in seconds, and answerIn the time that a minion takes to
// answer; both vary.
const (
	network  = 0.001
	answerIn = 0.02
)

type event struct {
	at float64
	do func(now float64)
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// world has the time and the pending events.
type world struct {
	queue events
	rng   *rand.Rand
	last  float64
}

func newWorld() *world { return &world{rng: rand.New(rand.NewPCG(1, 2))} }

func (w *world) at(t float64, do func(float64)) { heap.Push(&w.queue, event{t, do}) }

// run processes all events and returns the time of the last.
func (w *world) run() float64 {
	for len(w.queue) > 0 {
		e := heap.Pop(&w.queue).(event)
		w.last = max(w.last, e.at)
		e.do(e.at)
	}
	return w.last
}

// about varies a time by up to half of it.
func (w *world) about(t float64) float64 { return t * (0.5 + w.rng.Float64()) }

// master has cores that process work in order of arrival, and a writer, which needs one of them.
type master struct {
	cores  []float64 // when each is free
	writer float64   // when the writer is
	jobs   int
}

// take makes a core do work from now on and returns when it is done.
func (m *master) take(now, work float64) float64 {
	i := 0
	for j, t := range m.cores {
		if t < m.cores[i] {
			i = j
		}
	}
	m.cores[i] = max(now, m.cores[i]) + work
	return m.cores[i]
}

// store makes the writer store one entry.
func (m *master) store(now, work float64) float64 {
	m.writer = max(now, m.writer)
	m.writer = max(m.take(m.writer, work), m.writer+work)
	m.jobs++
	return m.writer
}

func (w *world) masters(f Fleet) []*master {
	ms := make([]*master, f.Masters)
	for i := range ms {
		ms[i] = &master{cores: make([]float64, f.Cores)}
	}
	return ms
}

// SimulateCommand sends one command to all minions of a fleet without leaves. It returns when the
// last return is stored on all masters that store it; stored is the number of entries in all
// databases.
func (c Costs) SimulateCommand(f Fleet) (took float64, stored int) {
	w := newWorld()
	ms := w.masters(f)
	for i, m := range ms {
		begun := m.take(0, c.Command)
		for n := i; n < f.Minions; n += f.Masters {
			sent := m.take(begun, c.Publish)
			w.at(sent+w.about(network)+w.about(answerIn)+w.about(network), func(now float64) {
				done := m.store(m.take(now, c.Return-c.Store), c.Store)
				w.at(done, func(float64) {})
				for k := range f.Masters - 1 {
					other := ms[(i+1+k)%len(ms)]
					w.at(done+w.about(network), func(now float64) {
						w.at(other.store(other.take(now, c.Copy-c.Store), c.Store), func(float64) {})
					})
				}
			})
		}
	}
	took = w.run()
	for _, m := range ms {
		stored += m.jobs
	}
	return took, stored
}

// waitLimit is a minion's timeout for the answer to a sign-in. hint is the backlog of a master above
// which it tells minions when to retry.
const (
	waitLimit = 5.0
	hint      = 2.0
)

// SimulateSignIns makes minions sign in at the remaining masters at the same moment. It returns
// when the last one is signed in, and how many were answered too late.
func (c Costs) SimulateSignIns(f Fleet, minions, left int) (took float64, late int) {
	f.Masters = left
	w := newWorld()
	ms := w.masters(f)
	for n := range minions {
		m := ms[n%left]
		var try func(now float64)
		try = func(now float64) {
			free := m.cores[0]
			for _, t := range m.cores {
				free = min(free, t)
			}
			if wait := free - now; wait > hint {
				// The minion is told to retry when its turn is near, after those told before.
				m.jobs++
				w.at(now+hint/2+float64(m.jobs)*c.SignIn/float64(f.Cores), func(now float64) { m.jobs--; try(now) })
				return
			}
			done := m.take(now, c.SignIn)
			if done-now > waitLimit {
				late++
			}
			w.at(done, func(float64) {})
		}
		w.at(w.about(network), try)
	}
	return w.run(), late
}
