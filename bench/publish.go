package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/bench/simulate"
)

// audience counts which publications arrived where.
type audience struct {
	listening int
	heard     sync.Map // jid -> *round
}

type round struct {
	got  atomic.Int64
	all  chan struct{}
	last time.Time // when all had received it; to be read after all is closed
}

func (a *audience) round(jid string) *round {
	r, ok := a.heard.Load(jid)
	if !ok {
		r, _ = a.heard.LoadOrStore(jid, &round{all: make(chan struct{})})
	}
	return r.(*round)
}

// hear is a handler for simulate.Minion.Subscribe.
func (a *audience) hear(_ *simulate.Minion, p *simulate.Publication) {
	r := a.round(p.JID)
	if r.got.Add(1) == int64(a.listening) {
		r.last = time.Now()
		close(r.all)
	}
}

// lostAfter is the time after which a publication counts as lost.
const lostAfter = 15 * time.Second

// publish sends one job and waits until all have received it. It returns the time since the
// operator's request, and how many did not receive it.
func (a *audience) publish(ctx context.Context, op *simulate.Operator) (last time.Duration, lost int, err error) {
	from := time.Now()
	jid, err := op.Publish(ctx, "test.ping")
	if err != nil {
		return 0, 0, err
	}
	r := a.round(jid)
	defer a.heard.Delete(jid)
	select {
	case <-r.all:
		return r.last.Sub(from), 0, nil
	case <-time.After(lostAfter):
		return lostAfter, a.listening - int(r.got.Load()), nil
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// gather subscribes all minions of the fleet. The last of them stall: they never read, and their
// socket buffers are full.
func (a *audience) gather(ctx context.Context, m *master, op *simulate.Operator, f *simulate.Fleet, stalled int) error {
	// One minion must have signed in, for the key of publications.
	if err := f.Minions[0].SignIn(ctx); err != nil {
		return err
	}
	n := len(f.Minions) - stalled
	a.listening = n
	if err := simulate.Each(f.Minions[n:], 32, func(mi *simulate.Minion) error { return mi.Stall(ctx) }); err != nil {
		return err
	}
	if stalled > 0 {
		if err := choke(ctx, op); err != nil {
			return err
		}
	}
	if err := simulate.Each(f.Minions[:n], 64, func(mi *simulate.Minion) error { return mi.Subscribe(ctx, a.hear) }); err != nil {
		return err
	}
	return a.awaitAll(ctx, m, op)
}

// choke publishes until the buffers of subscribers that do not read are full.
func choke(ctx context.Context, op *simulate.Operator) error {
	time.Sleep(500 * time.Millisecond)
	for range 20 { // more than a subscription buffers
		if _, err := op.Publish(ctx, "test.ping"); err != nil {
			return err
		}
	}
	mega := strings.Repeat("x", 1<<20)
	for range 8 {
		if _, err := op.Publish(ctx, "test.echo", mega); err != nil {
			return err
		}
	}
	return nil
}

// awaitAll publishes until all minions receive it, since the master needs time for subscriptions.
func (a *audience) awaitAll(ctx context.Context, m *master, op *simulate.Operator) error {
	for range 5 {
		if _, err := m.settled(); err != nil {
			return err
		}
		_, lost, err := a.publish(ctx, op)
		if err != nil || lost == 0 {
			return err
		}
	}
	return fmt.Errorf("%d minions never got all publications", a.listening)
}

// measure publishes n times and returns the master's mean cost of a publication, the mean time
// until the last minion received it, and how many were lost.
func (a *audience) measure(ctx context.Context, m *master, op *simulate.Operator, n int) (each, last time.Duration, lost int, err error) {
	var sum time.Duration
	cost, err := m.cost(func() error {
		for range n {
			took, missing, err := a.publish(ctx, op)
			if err != nil {
				return err
			}
			sum += took
			lost += missing
		}
		return nil
	})
	return cost / time.Duration(n), sum / time.Duration(n), lost, err
}

// runPublish publishes to many subscribers of which 1 % do not read.
func runPublish(ctx context.Context, b *bench, k kind, tr string, minions int) error {
	n := b.size(minions)
	m, err := b.newMaster(k, tr, n, "")
	if err != nil {
		return err
	}
	defer m.remove()
	if err := m.run(ctx, b); err != nil {
		return err
	}
	op, err := m.operator()
	if err != nil {
		return err
	}
	defer op.Close()
	f := m.fleet(b, n, 0)
	defer f.Close()
	a := &audience{}
	if err := a.gather(ctx, m, op, f, n/100); err != nil {
		return err
	}
	jobs := 20
	if k == stock {
		jobs = 5
	}
	each, last, lost, err := a.measure(ctx, m, op, jobs)
	if err != nil {
		return err
	}
	b.add("publish-cpu-"+tr, k, 0, each.Seconds()*1e6/float64(n))
	b.add("publish-last-"+tr, k, 0, last.Seconds())
	b.add("publish-lost-"+tr, k, 0, float64(lost))
	return nil
}
