package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"brine/bench/simulate"
	"brine/bench/system"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// runStalled measures the cost of a few misbehaving peers for the others.
func runStalled(ctx context.Context, b *bench, k kind) error {
	if err := b.stall(ctx, k); err != nil {
		return err
	}
	return b.hostile(ctx, k)
}

// stall measures what 1 % of subscribers that do not read add to publications for the rest. Two
// masters, one with such subscribers, publish in turn, because one master's results vary over
// minutes by more than the effect to measure. The median of the turns is used.
func (b *bench) stall(ctx context.Context, k kind) error {
	const turns, jobs = 7, 30
	n := b.size(2000)
	var halls [2]*hall
	for i, stalled := range []int{0, n / 100} {
		h, err := b.openHall(ctx, k, n, stalled)
		if err != nil {
			return err
		}
		defer h.close()
		halls[i] = h
	}
	var added []float64
	for range turns {
		var each [2]float64
		for i, h := range halls {
			cost, _, lost, err := h.audience.measure(ctx, h.master, h.op, jobs)
			if err != nil {
				return err
			}
			if lost > 0 {
				return fmt.Errorf("%d publications were lost", lost)
			}
			each[i] = cost.Seconds()
		}
		added = append(added, 100*(each[1]/each[0]-1))
	}
	slices.Sort(added)
	b.add("stalled-publish", k, 0, added[turns/2])
	return nil
}

// A hall is a master with subscribers.
type hall struct {
	master   *master
	op       *simulate.Operator
	fleet    *simulate.Fleet
	audience *audience
}

// openHall starts a master with n minions that read publications and some that do not.
func (b *bench) openHall(ctx context.Context, k kind, n, stalled int) (_ *hall, err error) {
	h := &hall{audience: &audience{}}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if h.master, err = b.newMaster(k, "zeromq", n+stalled, ""); err != nil {
		return nil, err
	}
	if err = h.master.run(ctx, b); err != nil {
		return nil, err
	}
	if h.op, err = h.master.operator(); err != nil {
		return nil, err
	}
	h.fleet = h.master.fleet(b, n+stalled, 0)
	err = h.audience.gather(ctx, h.master, h.op, h.fleet, stalled)
	return h, err
}

func (h *hall) close() {
	if h.fleet != nil {
		h.fleet.Close()
	}
	if h.op != nil {
		h.op.Close()
	}
	if h.master != nil {
		h.master.remove()
	}
}

// hostile measures the cost that others add to returns: one invalid request in a hundred, and 1 %
// of connections that begin a request and never finish it. It compares in turns, several times.
func (b *bench) hostile(ctx context.Context, k kind) error {
	n := b.size(500)
	m, err := b.newMaster(k, "zeromq", n, "")
	if err != nil {
		return err
	}
	defer m.remove()
	if err := m.run(ctx, b); err != nil {
		return err
	}
	f := m.fleet(b, n, 0)
	defer f.Close()
	if err := f.SignIn(ctx, 64); err != nil {
		return err
	}
	const turns = 7
	var added []float64
	for range turns {
		alone, err := returns(ctx, b, m, f)
		if err != nil {
			return err
		}
		stop, err := m.pester(ctx, f)
		if err != nil {
			return err
		}
		among, err := returns(ctx, b, m, f)
		stop()
		if err != nil {
			return err
		}
		added = append(added, 100*(among/alone-1))
	}
	slices.Sort(added)
	b.add("stalled-return", k, 0, added[turns/2])
	return nil
}

// pester runs hostile peers until stop is called.
func (m *master) pester(ctx context.Context, f *simulate.Fleet) (stop func(), err error) {
	var conns []net.Conn
	for range max(len(f.Minions)/100, 1) {
		c, err := net.Dial("tcp", m.request)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
		c.Write([]byte{0xff, 0, 0, 0}) // the beginning of a greeting
	}
	ctx, cancel := context.WithCancel(ctx)
	garbage := make(chan int, 100)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range garbage {
				f.Minions[i%len(f.Minions)].Garbage(ctx, i)
			}
		})
	}
	var count atomic.Int64
	f.Before = func() {
		if i := count.Add(1); i%100 == 0 {
			select {
			case garbage <- int(i / 100):
			default: // it does not wait for the master
			}
		}
	}
	return func() {
		f.Before = nil
		close(garbage)
		cancel()
		wg.Wait()
		for _, c := range conns {
			c.Close()
		}
	}, nil
}

// runMemory measures the memory of a master with 1,000 connected minions over many requests.
func runMemory(ctx context.Context, b *bench, k kind, tr string) error {
	n := b.size(1000)
	m, err := b.newMaster(k, tr, n, "")
	if err != nil {
		return err
	}
	defer m.remove()
	if err := m.run(ctx, b); err != nil {
		return err
	}
	idle, err := m.memory()
	if err != nil {
		return err
	}
	f := m.fleet(b, n, 0)
	defer f.Close()
	if err := f.SignIn(ctx, 64); err != nil {
		return err
	}
	if err := f.Subscribe(ctx, 64, nil); err != nil {
		return err
	}
	now, err := m.memory()
	if err != nil {
		return err
	}
	b.add("memory-minion-"+tr, k, 0, float64(now.PSS-idle.PSS)/float64(n)/1e3)
	return b.memoryOver(ctx, m, f, tr)
}

// restTime is the time after which an idle master has freed unused memory.
const restTime = 5 * time.Second

// memory returns the master's memory at rest.
func (m *master) memory() (system.Memory, error) {
	if _, err := m.settled(); err != nil {
		return system.Memory{}, err
	}
	time.Sleep(restTime)
	return system.MemoryOf(m.pid())
}

// memoryOver records the memory after increasing numbers of requests: half of them returns, half of
// them events.
func (b *bench) memoryOver(ctx context.Context, m *master, f *simulate.Fleet, tr string) error {
	op, err := m.operator()
	if err != nil {
		return err
	}
	defer op.Close()
	data := value.DictOf("value", "x")
	done := 0
	for _, upto := range []int{2000, 10000, 100000} {
		if m.kind == stock && upto > 10000 {
			break
		}
		for ; done < b.size(upto); done += 2 * len(f.Minions) {
			jid, err := op.Publish(ctx, "test.ping")
			if err != nil {
				return err
			}
			if err := f.Each(64, func(mi *simulate.Minion) error {
				if err := mi.Return(ctx, jid); err != nil {
					return err
				}
				return mi.Event(ctx, "bench/event", data)
			}); err != nil {
				return err
			}
		}
		mem, err := m.memory()
		if err != nil {
			return err
		}
		b.add("memory-curve-"+tr, m.kind, float64(upto), float64(mem.PSS)/1e6)
		b.add("memory-own-"+tr, m.kind, float64(upto), float64(mem.Own)/1e6)
	}
	return nil
}

// runCurve measures whether costs depend on the size of the fleet.
func runCurve(ctx context.Context, b *bench, k kind) error {
	for _, n := range []int{100, 1000, maxMinions} {
		if k == stock && n == maxMinions {
			continue // it would take minutes
		}
		if err := b.curvePoint(ctx, k, b.size(n)); err != nil {
			return fmt.Errorf("%d minions: %w", n, err)
		}
	}
	return nil
}

func (b *bench) curvePoint(ctx context.Context, k kind, n int) error {
	m, err := b.newMaster(k, "zeromq", n, "")
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
	f := m.fleet(b, n, 100)
	defer f.Close()
	// The first sign-in of each minion creates its session key, which is part of the cost.
	cost, err := m.cost(func() error { return f.SignIn(ctx, 64) })
	if err != nil {
		return err
	}
	b.add("curve-signin", k, float64(n), per(cost, n))
	ms, err := returns(ctx, b, m, f)
	if err != nil {
		return err
	}
	b.add("curve-return", k, float64(n), ms)
	a := &audience{}
	if err := a.gather(ctx, m, op, f, 0); err != nil {
		return err
	}
	each, _, _, err := a.measure(ctx, m, op, max(10, 20000/n))
	b.add("curve-publish", k, float64(n), each.Seconds()*1e6/float64(n))
	return err
}

// authTimeout is a minion's timeout for the answer to a sign-in.
const authTimeout = 5 * time.Second

// runRestart makes 5,000 minions sign in at once, as after a master's restart, first by the rules
// of Brine's minions and then by those of Salt's.
func runRestart(ctx context.Context, b *bench, k kind) error {
	n := b.size(5000)
	m, err := b.newMaster(k, "zeromq", n, "")
	if err != nil {
		return err
	}
	defer m.remove()
	if err := m.run(ctx, b); err != nil {
		return err
	}
	f := m.fleet(b, n, 100)
	defer f.Close()
	if err := f.SignIn(ctx, 64); err != nil {
		return err
	}
	if err := b.restart(ctx, m, f, "restart"); err != nil || k == stock {
		return err
	}
	f.NoHints = true
	return b.restart(ctx, m, f, "restart-salt")
}

func (b *bench) restart(ctx context.Context, m *master, f *simulate.Fleet, name string) error {
	m.stop()
	if err := m.run(ctx, b); err != nil {
		return err
	}
	k, n := m.kind, len(f.Minions)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	answered, stop, err := m.countAuth(ctx)
	if err != nil {
		return err
	}
	defer stop()
	f.AuthTimeout = authTimeout
	f.Hints.Store(0)
	var late atomic.Int64
	from := time.Now()
	var wall time.Duration
	cost, err := m.cost(func() error {
		err := f.Each(n, func(mi *simulate.Minion) error { return persist(ctx, mi, &late) })
		wall = time.Since(from)
		return err
	})
	if err != nil {
		return err
	}
	b.add(name+"-cpu", k, 0, cost.Seconds())
	b.add(name+"-wall", k, 0, wall.Seconds())
	b.add(name+"-vain", k, 0, float64(answered.Load()-int64(n)))
	b.add(name+"-late", k, 0, float64(late.Load()))
	b.add(name+"-hints", k, 0, float64(f.Hints.Load()))
	return nil
}

// persist repeats a sign-in with a minion's timeout until it succeeds, and counts the attempts that
// were not answered in time.
func persist(ctx context.Context, mi *simulate.Minion, late *atomic.Int64) error {
	for {
		err := mi.SignInAnew(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		late.Add(1)
		mi.Pause()
	}
}

// countAuth counts the sign-ins that a master has decided.
func (m *master) countAuth(ctx context.Context) (*atomic.Int64, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := event.Dial(ctx, m.sockets())
	if err != nil {
		cancel()
		return nil, nil, err
	}
	n := &atomic.Int64{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range r.Events("salt/auth") {
			if err != nil {
				return
			}
			n.Add(1)
		}
	}()
	return n, func() { cancel(); <-done }, nil
}

// runJobs measures whether finding a job takes longer among many.
func runJobs(ctx context.Context, b *bench, k kind) error {
	m, err := b.newMaster(k, "zeromq", 10, "job_cache_for_stock_cli: False\n")
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
	var jid string
	kept := 0
	for _, n := range []int{100, 1000, 10000} {
		for ; kept < b.size(n); kept++ {
			if jid, err = op.Publish(ctx, "test.ping"); err != nil {
				return err
			}
		}
		const runs = 10
		cost, err := m.cost(func() error {
			cli, _, err := cpuOfRuns(runs, func() *exec.Cmd {
				return b.command(ctx, k, "salt-run", "-c", m.dir, "jobs.list_job", jid)
			})
			b.add("jobs-lookup-cli", k, float64(n), cli)
			return err
		})
		if err != nil {
			return err
		}
		b.add("jobs-lookup", k, float64(n), cost.Seconds()/runs)
	}
	return nil
}
