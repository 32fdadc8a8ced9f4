package durable

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/test/eventually"
)

// amount returns the number of jobs and minions of TestManyJobs.
func amount(t *testing.T) (jobs, minions int) {
	t.Helper()
	text := os.Getenv("BRINE_DURABLE")
	if text == "" {
		return 45, 3
	}
	j, m, _ := strings.Cut(text, "x")
	jobs, err := strconv.Atoi(j)
	if err == nil {
		minions, err = strconv.Atoi(m)
	}
	if err != nil || jobs < 1 || minions < 1 {
		t.Fatalf("BRINE_DURABLE=%q is not JOBSxMINIONS", text)
	}
	return jobs, minions
}

// ledger records for each job and minion how often it ran, and which masters show its result.
type ledger struct {
	jobs    []string // job ids
	minions []string
	ran     map[string]map[string]int      // job, minion
	shown   map[string]map[string][]string // job, minion: names of masters
	owner   map[string]string              // job: the master that published it
	// everywhere are the masters that must show all results, instead of only the owner.
	everywhere []string
}

// faults returns the violations of this rule: each job ran exactly once on each minion, and its
// result is shown by the master that published it, or by all.
func (l *ledger) faults() (out []string) {
	for _, jid := range l.jobs {
		for _, id := range l.minions {
			if n := l.ran[jid][id]; n != 1 {
				out = append(out, fmt.Sprintf("job %s ran %d times on %s", jid, n, id))
			}
			for _, master := range l.showing(jid) {
				if !slices.Contains(l.shown[jid][id], master) {
					out = append(out, fmt.Sprintf("the result of job %s on %s is not shown by %s, but by %v", jid, id, master, l.shown[jid][id]))
				}
			}
		}
	}
	return out
}

// showing returns the masters that must show the results of a job.
func (l *ledger) showing(jid string) []string {
	if l.everywhere != nil {
		return l.everywhere
	}
	return []string{l.owner[jid]}
}

// read reads the files of the minions, which have a line with the id for each run.
func (l *ledger) read(file func(id string) string) {
	l.ran = map[string]map[string]int{}
	for _, id := range l.minions {
		for _, jid := range lines(file(id)) {
			if l.ran[jid] == nil {
				l.ran[jid] = map[string]int{}
			}
			l.ran[jid][id]++
		}
	}
}

// TestLedgerSeesLossAndDuplicate proves that the checks of a ledger can fail.
func TestLedgerSeesLossAndDuplicate(t *testing.T) {
	fresh := func() (*ledger, string) {
		dir := t.TempDir()
		l := &ledger{jobs: []string{"j1", "j2"}, minions: []string{"a", "b"}, shown: map[string]map[string][]string{},
			owner: map[string]string{"j1": "m1", "j2": "m2"}}
		for _, j := range l.jobs {
			l.shown[j] = map[string][]string{"a": {"m1", "m2"}, "b": {"m2", "m1"}}
		}
		for _, id := range l.minions {
			if err := os.WriteFile(filepath.Join(dir, id), []byte("j1\nj2\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return l, dir
	}
	for _, c := range []struct {
		what  string
		spoil func(l *ledger, dir string) error
		want  string
	}{
		{"nothing", func(*ledger, string) error { return nil }, ""},
		{"a command lost", func(_ *ledger, dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("j1\n"), 0o600) },
			"job j2 ran 0 times on a"},
		{"a command run twice", func(_ *ledger, dir string) error {
			return os.WriteFile(filepath.Join(dir, "b"), []byte("j1\nj2\nj1\n"), 0o600)
		}, "job j1 ran 2 times on b"},
		{"a result lost", func(l *ledger, _ string) error { delete(l.shown["j2"], "a"); return nil },
			"the result of job j2 on a is not shown by m2, but by []"},
		{"a result that one of all masters lacks", func(l *ledger, _ string) error {
			l.everywhere, l.shown["j1"]["b"] = []string{"m1", "m2"}, []string{"m2"}
			return nil
		}, "the result of job j1 on b is not shown by m1, but by [m2]"},
		{"a result at another master only", func(l *ledger, _ string) error { l.shown["j1"]["b"] = []string{"m2"}; return nil },
			"the result of job j1 on b is not shown by m1, but by [m2]"},
	} {
		l, dir := fresh()
		if err := c.spoil(l, dir); err != nil {
			t.Fatal(err)
		}
		l.read(func(id string) string { return filepath.Join(dir, id) })
		if got := strings.Join(l.faults(), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// TestManyJobs publishes jobs over three hot masters in turn, while one after
// the other is killed and started again.
func TestManyJobs(t *testing.T) {
	manyJobs(t, bosses(t, 3, "pub_hwm: 20000\n"), &ledger{}, "", false)
}

// TestManyJobsShared does the same with a cluster whose masters share a directory. Every master
// shows every result.
func TestManyJobsShared(t *testing.T) { manyJobsShared(t, false) }

// TestManyJobsOfStock does both with a stock minion beside the others.
func TestManyJobsOfStock(t *testing.T) {
	t.Run("hot", func(t *testing.T) { manyJobs(t, bosses(t, 3, "pub_hwm: 20000\n"), &ledger{}, "", true) })
	t.Run("shared", func(t *testing.T) { manyJobsShared(t, true) })
}

func manyJobsShared(t *testing.T, withStock bool) {
	t.Helper()
	masters := sharing(t, 3, "pub_hwm: 20000\n")
	l := &ledger{}
	for _, b := range masters {
		l.everywhere = append(l.everywhere, b.Name)
	}
	manyJobs(t, masters, l, "master_type: cluster\n", withStock)
}

// manyJobs publishes jobs over masters in turn, while one after the other is killed and started
// again. The options are those of Brine minions.
func manyJobs(t *testing.T, masters []*boss, l *ledger, options string, withStock bool) {
	t.Helper()
	jobs, minions := amount(t)
	l.owner, l.shown = map[string]string{}, map[string]map[string][]string{}
	var workers []*node
	ran := func(id string) string { return workers[slices.Index(l.minions, id)].Path("ran") }
	for i := range minions {
		id := fmt.Sprintf("w%02d", i)
		l.minions = append(l.minions, id)
		workers = append(workers, worker(t, id, options, masters...))
	}
	if withStock { // at the same address as the others, as behind NAT
		l.minions, workers = append(l.minions, "stock"), append(workers, workerOf(t, stock, "stock", "", masters...))
	}
	for _, b := range masters {
		b.answered(l.minions...)
	}
	from := time.Now()
	stop, killed := killInTurn(t, masters)
	spread := 10*time.Second + time.Duration(jobs)*20*time.Millisecond // over several kills
	within := waitLimit + time.Duration(jobs*len(workers))*10*time.Millisecond
	if withStock {
		spread, within = spread+time.Duration(jobs)*stockPace, within+time.Duration(jobs)*stockPace
	}
	retries := publishAll(t, masters, l, jobs, spread)
	took := time.Since(from)
	stop()
	for _, w := range workers {
		if !w.Alive() {
			t.Errorf("minion %s has ended", w.Name)
		}
	}
	settled := time.Now()
	l.read(ran)
	t.Cleanup(func() { // why a job did not run
		for _, jid := range l.jobs {
			for _, id := range l.minions {
				if i := slices.IndexFunc(masters, func(b *boss) bool { return b.Name == l.owner[jid] }); l.ran[jid][id] == 0 {
					t.Logf("job %s of %s did not run on %s: %q", jid, l.owner[jid], id, masters[i].state(jid, id))
				}
			}
		}
	})
	eventually.Nil(t, within, "all jobs have run", func() error { l.read(ran); return missing(l) })
	for _, jid := range l.jobs {
		l.shown[jid] = map[string][]string{}
		for _, b := range masters {
			b.collect(l, jid)
		}
	}
	eventually.Nil(t, within, "all results are shown by the masters that must show them", func() error { return l.collectMissing(masters) })
	l.read(ran)
	faults := l.faults()
	for _, f := range faults[:min(len(faults), 20)] {
		t.Error(f)
	}
	t.Logf("%d jobs over 3 masters to %d minions: published in %.1f s with %d kills and %d repeated publications, all results %.1f s later; faults: %d",
		jobs, len(workers), took.Seconds(), killed(), retries, time.Since(settled).Seconds(), len(faults))
	if killed() < 3 {
		t.Errorf("only %d kills", killed())
	}
}

func missing(l *ledger) error {
	for _, jid := range l.jobs {
		if len(l.ran[jid]) != len(l.minions) {
			return fmt.Errorf("job %s ran on %d of %d", jid, len(l.ran[jid]), len(l.minions))
		}
	}
	return nil
}

// collect records which results of a job a master shows.
func (b *boss) collect(l *ledger, jid string) {
	rets, err := b.results(jid)
	if err != nil {
		return
	}
	for id, ret := range rets {
		if ret == jid && !slices.Contains(l.shown[jid][id], b.Name) {
			l.shown[jid][id] = append(l.shown[jid][id], b.Name)
		}
	}
}

// collectMissing asks again for missing results.
func (l *ledger) collectMissing(masters []*boss) (err error) {
	for _, jid := range l.jobs {
		for _, id := range l.minions {
			for _, name := range l.showing(jid) {
				if slices.Contains(l.shown[jid][id], name) {
					continue
				}
				i := slices.IndexFunc(masters, func(b *boss) bool { return b.Name == name })
				masters[i].collect(l, jid)
				if !slices.Contains(l.shown[jid][id], name) {
					err = fmt.Errorf("job %s on %s: %v, published by %s, not shown by %s", jid, id, l.shown[jid][id], l.owner[jid], name)
				}
			}
		}
	}
	return err
}

// killInTurn kills one master after the other, and restarts each after two seconds, until stop is
// called. It kills each at least once.
func killInTurn(t *testing.T, masters []*boss) (stop func(), killed func() int) {
	end, done := make(chan struct{}), make(chan struct{})
	var n atomic.Int32
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			if i >= len(masters) {
				select {
				case <-end:
					return
				default:
				}
			}
			b := masters[i%len(masters)]
			time.Sleep(time.Second) // it works for a while
			b.Kill()
			n.Add(1)
			time.Sleep(2 * time.Second) // its absence is long enough to matter
			b.Start()
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { close(end) }); <-done }
	t.Cleanup(stop)
	return stop, func() int { return int(n.Load()) }
}

// stockPace is the time for each job of a stock minion, which starts a process of Python for it. One that falls behind
// by 100 jobs also forgets which ones it got from another master.
const stockPace = 500 * time.Millisecond

// publishAll publishes the jobs within the time of spread. If a master is dead it repeats the request with the same job id
// until the master is back, as an operator would.
func publishAll(t *testing.T, masters []*boss, l *ledger, jobs int, spread time.Duration) (retries int) {
	t.Helper()
	var wg sync.WaitGroup
	pace := spread * time.Duration(len(masters)) / time.Duration(jobs)
	var again atomic.Int32
	var mu sync.Mutex
	for k, b := range masters {
		wg.Go(func() {
			for i := k; i < jobs; i += len(masters) {
				jid := salt.NewJID(time.Now())
				mu.Lock()
				l.jobs = append(l.jobs, jid)
				l.owner[jid] = b.Name
				mu.Unlock()
				again.Add(b.insist(t, jid, "echo "+jid+" >> /proc/$PPID/cwd/ran; echo "+jid)) // the minion's directory
				time.Sleep(pace)
			}
		})
	}
	wg.Wait()
	return int(again.Load())
}

func (b *boss) insist(t *testing.T, jid, script string) (retries int32) {
	for from := time.Now(); ; retries++ {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		// On a very busy machine the usual time may be over before a minion has reconnected, and
		// the job expires, as it should.
		err := b.shell(ctx, jid, "*", script, value.DictOf("expire", 600))
		cancel()
		if err == nil {
			return retries
		}
		if time.Since(from) > waitLimit {
			t.Errorf("job %s could not be published: %v", jid, err)
			return retries
		}
		time.Sleep(50 * time.Millisecond)
	}
}
