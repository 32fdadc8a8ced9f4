package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/bench/simulate"
	"brine/internal/net/transport/zeromq"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// load publishes jobs at masters in turn, one after the other, while it runs.
type load struct {
	stop context.CancelFunc
	done sync.WaitGroup
	jobs atomic.Int64 // accepted by masters
}

func giveJobs(t *testing.T, every time.Duration, at ...*node) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	var ops []*simulate.Operator
	for _, m := range at {
		ops = append(ops, operatorOf(t, m))
	}
	l.done.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			// A job without an answer was not promised: a master that leaves accepts no more.
			one, ended := context.WithTimeout(ctx, 30*time.Second)
			if _, err := ops[i%len(ops)].Publish(one, "test.ping"); err == nil {
				l.jobs.Add(1)
			}
			ended()
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	})
	return l
}

// end stops the load and returns the number of jobs.
func (l *load) end() int {
	l.stop()
	l.done.Wait()
	return int(l.jobs.Load())
}

func operatorOf(t *testing.T, m *node) *simulate.Operator {
	t.Helper()
	op, err := simulate.NewOperator(zeromq.New(slog.New(slog.DiscardHandler)), m.Requests(), m.Path("var/cache/salt/master/.root_key"))
	must(t, err)
	t.Cleanup(func() { op.Close() })
	return op
}

// TestJoinAndLeaveUnderLoad: a third master joins two that have 2,000 keys and many jobs, under
// load; it soon has all data, and leaves under load. No job or return is lost. The durations are
// logged. BRINE_CLUSTER_LOAD is the number of minions and jobs, such as 300x50.
func TestJoinAndLeaveUnderLoad(t *testing.T) {
	t.Parallel()
	count, before, every := 50, 10, 300*time.Millisecond
	if s := os.Getenv("BRINE_CLUSTER_LOAD"); s != "" {
		if _, err := fmt.Sscanf(s, "%dx%d", &count, &before); err != nil {
			t.Fatal(err)
		}
	}
	const keys = 2000
	a := newApart(t, 2, "")
	pairs, err := simulate.NewKeys(4)
	must(t, err)
	must(t, simulate.Accept(a.masters[0].Path("cluster"), pairs, keys))
	a.start()
	a.equal(a.masters[1], 2, map[string]int{"key": keys})
	pub := a.masters[0].Read("cluster/cluster.pub")
	f := simulate.New(simulate.Config{Transport: zeromq.New(slog.New(slog.DiscardHandler)), Publish: a.masters[0].Publications(),
		Request: a.masters[0].Requests(), MasterKey: pub, Keys: pairs, Count: count, Timeout: time.Minute})
	defer f.Close()
	must(t, f.SignIn(t.Context(), 8))
	var failed atomic.Pointer[error]
	must(t, f.Subscribe(t.Context(), 8, simulate.Answer(t.Context(), func(err error) { failed.Store(&err) })))
	eventually.Nil(t, soon, "all minions listen", func() error {
		rows, _, err := status(a.masters[0])
		for _, r := range rows {
			if r.ID == a.masters[0].Name && r.Minions == count {
				return nil
			}
		}
		return fmt.Errorf("%+v %w", rows, err)
	})
	jobs := 0
	op := operatorOf(t, a.masters[1])
	for range before {
		_, err := op.Publish(t.Context(), "test.ping")
		must(t, err)
		jobs++
	}
	a.equal(a.masters[1], 2, map[string]int{"key": keys, "job": jobs, "return": jobs * count})

	going := giveJobs(t, every, a.masters...)
	late := a.add(daemontest.Host(), a.masters[0].Host)
	from := time.Now()
	late.Launch()
	eventually.Nil(t, soon, "it has joined", func() error {
		if !strings.Contains(late.Log(), "joined the cluster") {
			return errors.New("not yet")
		}
		return nil
	})
	joined := time.Since(from)
	eventually.Nil(t, soon, "nothing that was there is missing", func() error {
		rows, _, err := status(a.masters[0])
		for _, r := range rows {
			if r.ID == late.Name && r.State == "up" && r.Lag == 0 && r.Version != "" {
				return nil
			}
		}
		return fmt.Errorf("%+v %w", rows, err)
	})
	whole := time.Since(from)
	now, err := check(late) // other jobs may be under way
	must(t, err)
	if now.Counts["key"] != keys || now.Counts["job"] < before || now.Counts["return"] < before*count {
		t.Errorf("without lag it has %v", now.Counts)
	}
	jobs += going.end()
	r := a.equal(late, 3, map[string]int{"key": keys, "job": jobs, "return": jobs * count})
	t.Logf("%d keys, %d jobs and %d returns before: joined after %v, has everything after %v; %v afterwards", keys, before, before*count,
		joined.Round(time.Millisecond), whole.Round(time.Millisecond), r.Counts)

	// It leaves while jobs are published at it, too.
	going = giveJobs(t, every, late, a.masters[1])
	eventually.Nil(t, soon, "it takes jobs", func() error {
		if going.jobs.Load() < 4 {
			return errors.New("not yet")
		}
		return nil
	})
	from = time.Now()
	if _, errs, code := late.Run(brine, "cluster", "leave"); code != 0 {
		t.Fatal(errs)
	}
	late.Wait(60 * time.Second)
	took := time.Since(from)
	if !strings.Contains(late.Log(), "this master left the cluster") {
		t.Errorf("it does not know that it has left: %s", late.Log())
	}
	jobs += going.end()
	a.equal(a.masters[0], 2, map[string]int{"key": keys, "job": jobs, "return": jobs * count})
	t.Logf("it left after %v; %d jobs in all", took.Round(time.Millisecond), jobs)
	if err := failed.Load(); err != nil {
		t.Error(*err)
	}
}
