package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/bench/simulate"
	"brine/bench/system"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// parallel is the maximum number of concurrent requests.
const parallel = 500

// runRequests loads a master with the requests of 500 minions: sign-ins, returns at the maximum and
// at a fixed rate, and events.
func runRequests(ctx context.Context, b *bench, k kind, tr string) error {
	n := b.size(500)
	m, err := b.newMaster(k, tr, n, "")
	if err != nil {
		return err
	}
	defer m.remove()
	if err := m.run(ctx, b); err != nil {
		return err
	}
	if tr == "zeromq" {
		if err := b.idle(m); err != nil {
			return err
		}
	}
	f := m.fleet(b, n, 0)
	defer f.Close()
	if err := f.SignIn(ctx, 64); err != nil {
		return err
	}
	for _, load := range []struct {
		name string
		run  func(context.Context, *bench, *master, *simulate.Fleet) (float64, error)
	}{{"signin-", signIns}, {"return-", returns}, {"event-", events}} {
		ms, err := load.run(ctx, b, m, f)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSuffix(load.name, "-"), err)
		}
		b.add(load.name+tr, k, 0, ms)
	}
	return paced(ctx, b, m, f, tr)
}

// idle records the cost of an idle master.
func (b *bench) idle(m *master) error {
	b.add("start-master", m.kind, 0, m.startup.Seconds())
	time.Sleep(restTime)
	mem, err := system.MemoryOf(m.pid())
	b.add("memory-idle", m.kind, 0, float64(mem.PSS)/1e6)
	return err
}

// requests returns the number of requests for a measurement: fewer for a stock master, which is
// slow and whose cost is large compared with the clock's resolution.
func (b *bench) requests(k kind, n int) int {
	if k == stock {
		n /= 10
	}
	return b.size(n)
}

// per returns the cost of one of n operations in ms.
func per(cost time.Duration, n int) float64 { return cost.Seconds() * 1e3 / float64(n) }

// repeated calls do n times in all for the minions in turn.
func repeated(f *simulate.Fleet, n, at int, do func(*simulate.Minion) error) error {
	for done := 0; done < n; {
		part := f.Minions[:min(n-done, len(f.Minions))]
		if err := simulate.Each(part, at, do); err != nil {
			return err
		}
		done += len(part)
	}
	return nil
}

// signIns returns the cost of a sign-in over a new connection, as minions make it.
func signIns(ctx context.Context, b *bench, m *master, f *simulate.Fleet) (float64, error) {
	n := b.requests(m.kind, 2000)
	cost, err := m.cost(func() error {
		return repeated(f, n, 32, func(mi *simulate.Minion) error { return mi.SignInAnew(ctx) })
	})
	return per(cost, n), err
}

// returns returns the cost of a return. Every minion returns once for each job; the jobs are
// published, but there is no subscriber.
func returns(ctx context.Context, b *bench, m *master, f *simulate.Fleet) (float64, error) {
	op, err := m.operator()
	if err != nil {
		return 0, err
	}
	defer op.Close()
	// The first request of a minion includes a check of its key, which belongs to the sign-in.
	if err := sendReturns(ctx, op, f, len(f.Minions)); err != nil {
		return 0, err
	}
	n := max(b.requests(m.kind, 15000), len(f.Minions))
	cost, err := m.cost(func() error { return sendReturns(ctx, op, f, n) })
	return per(cost, n), err
}

// sendReturns sends n returns, of all minions for each job.
func sendReturns(ctx context.Context, op *simulate.Operator, f *simulate.Fleet, n int) error {
	for done := 0; done < n; done += len(f.Minions) {
		jid, err := op.Publish(ctx, "test.ping")
		if err != nil {
			return err
		}
		part := f.Minions[:min(n-done, len(f.Minions))]
		if err := simulate.Each(part, parallel, func(mi *simulate.Minion) error { return mi.Return(ctx, jid) }); err != nil {
			return err
		}
	}
	return nil
}

// paced sends returns at a rate that even a slow master sustains, and records their latency.
func paced(ctx context.Context, b *bench, m *master, f *simulate.Fleet, tr string) error {
	const rate = 100
	op, err := m.operator()
	if err != nil {
		return err
	}
	defer op.Close()
	n := b.size(500)
	var latencies []float64
	cost, err := m.cost(func() error {
		latencies, err = pace(ctx, op, f, n, rate)
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(latencies)
	b.add("return-paced-"+tr, m.kind, 0, per(cost, n))
	b.add("return-p50-"+tr, m.kind, 0, latencies[len(latencies)/2])
	b.add("return-p99-"+tr, m.kind, 0, latencies[len(latencies)*99/100])
	return nil
}

// pace sends n returns at a rate per second, and returns their latencies in ms.
func pace(ctx context.Context, op *simulate.Operator, f *simulate.Fleet, n, rate int) ([]float64, error) {
	var mu sync.Mutex
	var latencies []float64
	var firstErr error
	var wg sync.WaitGroup
	var jid string
	var err error
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := range n {
		mi := f.Minions[i%len(f.Minions)]
		if i%len(f.Minions) == 0 { // each minion returns once for a job
			if jid, err = op.Publish(ctx, "test.ping"); err != nil {
				return nil, err
			}
		}
		<-tick.C
		wg.Go(func() {
			from := time.Now()
			err := mi.Return(ctx, jid)
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, time.Since(from).Seconds()*1e3)
			if err != nil && firstErr == nil {
				firstErr = err
			}
		})
	}
	wg.Wait()
	return latencies, firstErr
}

// eventData returns the data of an event of 5 KB.
func eventData() *value.Dict {
	d := value.NewDict(50)
	for i := range 50 {
		d.Set(fmt.Sprintf("value %02d", i), strings.Repeat("x", 90))
	}
	return d
}

// events returns the cost of an event that one program reads.
func events(ctx context.Context, b *bench, m *master, f *simulate.Fleet) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := event.Dial(ctx, m.sockets())
	if err != nil {
		return 0, err
	}
	var seen atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range r.Events("bench/") {
			if err != nil {
				return
			}
			seen.Add(1)
		}
	}()
	n := b.requests(m.kind, 10000)
	data := eventData()
	cost, err := m.cost(func() error {
		return repeated(f, n, parallel, func(mi *simulate.Minion) error { return mi.Event(ctx, "bench/event", data) })
	})
	for range 100 {
		if seen.Load() >= int64(n) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	<-done
	b.add("event-lost", m.kind, 0, float64(int64(n)-seen.Load()))
	return per(cost, n), err
}
