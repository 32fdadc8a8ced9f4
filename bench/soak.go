package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"brine/bench/simulate"
	"brine/bench/system"
)

// Rates of the soak test per second. A publication is for 15 minions, which causes 300 returns.
const (
	soakSignIns   = 10
	soakPublish   = 20
	soakMinions   = 500
	soakSlack     = 1.25        // factor by which memory may grow after the first quarter
	soakMinGrowth = 8           // growth in MB that is ignored
	soakJudged    = time.Minute // a shorter run says nothing about growth
)

// soakTest runs the soak test and stores its log in the directory for reports.
func (b *bench) soakTest(ctx context.Context) error {
	var text bytes.Buffer
	b.log = io.MultiWriter(os.Stdout, &text)
	err := b.keepBusy(ctx)
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	if b.out == "" {
		return err
	}
	return errors.Join(err, os.MkdirAll(b.out, 0o755), os.WriteFile(filepath.Join(b.out, "soak.txt"), text.Bytes(), 0o644))
}

// keepBusy keeps a Brine master busy and watches its memory and its log. It fails when memory grows
// or the log is not empty.
func (b *bench) keepBusy(ctx context.Context) error {
	m, err := b.newMaster(brine, "zeromq", soakMinions, "")
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
	f := m.fleet(b, soakMinions, 0)
	defer f.Close()
	f.Resubscribe = true
	if err := f.SignIn(ctx, 64); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.soak)
	defer cancel()
	failures := make(chan error, 100)
	fail := func(err error) {
		select {
		case failures <- err:
		default:
		}
	}
	if err := f.Subscribe(ctx, 64, b.counted(simulate.Answer(ctx, fail))); err != nil {
		return err
	}
	f.AuthTimeout = authTimeout
	var wg sync.WaitGroup
	next, group := counter(f), atomic.Int64{}
	for _, load := range []struct {
		rate int
		do   func() error
	}{
		{soakSignIns, func() error { return persist(ctx, next(), &b.late) }},
		{soakPublish, func() error {
			// 15 of 500 minions, different ones each time.
			_, err := op.PublishTo(ctx, fmt.Sprintf("minion-*[0-2]%d", group.Add(1)%10), "test.ping")
			return err
		}},
	} {
		wg.Go(func() { atRate(ctx, load.rate, load.do, fail) })
	}
	err = b.watch(ctx, m, f, failures)
	cancel()
	wg.Wait()
	return err
}

// counted counts the publications that require an answer.
func (b *bench) counted(answer func(*simulate.Minion, *simulate.Publication)) func(*simulate.Minion, *simulate.Publication) {
	return func(mi *simulate.Minion, p *simulate.Publication) {
		answer(mi, p)
		if p.For(mi.ID) {
			b.returns.Add(1)
		}
	}
}

// goroutines queries a master that serves profiles for its number of goroutines.
func goroutines(m *master) (n int, err error) {
	rep, err := http.Get("http://" + m.profiling + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, err
	}
	defer rep.Body.Close()
	_, err = fmt.Fscanf(rep.Body, "goroutine profile: total %d", &n)
	return n, err
}

// counter returns the minions in turn.
func counter(f *simulate.Fleet) func() *simulate.Minion {
	var mu sync.Mutex
	i := 0
	return func() *simulate.Minion {
		mu.Lock()
		defer mu.Unlock()
		i++
		return f.Minions[i%len(f.Minions)]
	}
}

// atRate calls do at a rate per second, regardless of its duration, until ctx ends.
func atRate(ctx context.Context, rate int, do func() error, fail func(error)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		wg.Go(func() {
			if err := do(); err != nil && ctx.Err() == nil {
				fail(err)
			}
		})
	}
}

// watch records the resources of the master until ctx ends, and checks them. The first quarter of
// the time is for warming up.
func (b *bench) watch(ctx context.Context, m *master, f *simulate.Fleet, failures <-chan error) error {
	from := time.Now()
	var base health
	tick := time.NewTicker(max(b.soak/60, time.Second))
	defer tick.Stop()
	fmt.Fprintf(b.log, "%d minions, %d returns, %d sign-ins and %d publications per second, for %v\n",
		soakMinions, 15*soakPublish, soakSignIns, soakPublish, b.soak)
	for {
		select {
		case err := <-failures:
			return err
		case <-ctx.Done():
			if text := m.complaints(); text != "" {
				return fmt.Errorf("the master complained: %s", text)
			}
			fmt.Fprintf(b.log, "flat, and no error logged; %.0f returns per second; %d sign-ins took a second attempt, %d subscriptions a second connection\n",
				float64(b.returns.Load())/time.Since(from).Seconds(), b.late.Load(), f.Dropped.Load())
			return nil
		case <-tick.C:
		}
		now, err := m.health()
		if err != nil {
			return err
		}
		fmt.Fprintf(b.log, "%7.0f s  %s\n", time.Since(from).Seconds(), now)
		if b.soak < soakJudged || time.Since(from) < b.soak/4 {
			base = base.max(now)
		} else if err := now.flat(base); err != nil {
			return err
		}
	}
}

// health are the resources that must not grow.
type health struct {
	mem        system.Memory
	cpu        time.Duration
	goroutines int
}

func (m *master) health() (h health, err error) {
	if h.mem, err = system.MemoryOf(m.pid()); err != nil {
		return h, err
	}
	if h.cpu, err = system.CPU(m.pid()); err != nil {
		return h, err
	}
	h.goroutines, err = goroutines(m)
	return h, err
}

func (h health) String() string {
	return fmt.Sprintf("own memory %6.1f MB, with mapped files %6.1f MB, %d goroutines, %6.1f s CPU",
		float64(h.mem.Own)/1e6, float64(h.mem.PSS)/1e6, h.goroutines, h.cpu.Seconds())
}

func (h health) max(o health) health {
	h.mem.Own, h.goroutines = max(h.mem.Own, o.mem.Own), max(h.goroutines, o.goroutines)
	return h
}

// flat returns an error if h exceeds base. It ignores the pages of the job database, which grows
// with the stored jobs.
func (h health) flat(base health) error {
	if own := float64(h.mem.Own); own > float64(base.mem.Own)*soakSlack && own > float64(base.mem.Own)+soakMinGrowth*1e6 {
		return fmt.Errorf("the master's memory grew from %.1f to %.1f MB", float64(base.mem.Own)/1e6, own/1e6)
	}
	if float64(h.goroutines) > float64(base.goroutines)*soakSlack {
		return fmt.Errorf("the master's goroutines grew from %d to %d", base.goroutines, h.goroutines)
	}
	return nil
}
