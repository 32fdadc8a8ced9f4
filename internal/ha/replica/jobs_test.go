package replica

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// comparedJobs are some masters that compare their jobs. Time advances with each step.
type comparedJobs struct {
	t       *testing.T
	now     time.Time
	dirs    []string
	stores  []*job.Store
	watches []*Watch
	found   []string
	taken   map[string]int
}

func newComparedJobs(t *testing.T, n int) *comparedJobs {
	x := &comparedJobs{t: t, now: time.Now(), taken: map[string]int{}}
	for i := range n {
		x.dirs = append(x.dirs, t.TempDir())
		x.stores = append(x.stores, nil)
		x.open(i)
		x.watches = append(x.watches, &Watch{
			Source: NewJobs(x.stores[i]), Kinds: []string{KindJob}, Union: true, Show: ShowJob, Log: slog.New(slog.DiscardHandler),
			Peers: func() (ids []string, members int) {
				for j := range n {
					if j != i {
						ids = append(ids, fmt.Sprint(j))
					}
				}
				return ids, n
			},
			Ask: func(_ context.Context, peer string, q []byte) ([]byte, error) {
				return x.watches[int(peer[0]-'0')].Answer(q), nil
			},
			Found: func(d Difference) { x.found = append(x.found, fmt.Sprintf("%d: %s %s %s", i, d.Kind, d.Name, d.Peer)) },
		})
	}
	t.Cleanup(func() {
		for _, s := range x.stores {
			s.Close()
		}
	})
	return x
}

func (x *comparedJobs) open(i int) {
	x.t.Helper()
	s, err := job.OpenSharing(x.dirs[i], fmt.Sprint(i), job.Options{KeepJobsSeconds: 86400, KeepJobs: 24, JobCache: true}, func(l []job.Taken) {
		for _, t := range l {
			x.taken[fmt.Sprintf("%d: %s %s", i, t.JID, t.ID)]++
		}
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		x.t.Fatal(err)
	}
	x.stores[i] = s
	if len(x.watches) > i {
		x.watches[i].Source = NewJobs(s)
	}
}

func (x *comparedJobs) exchange() {
	x.t.Helper()
	for _, from := range x.stores {
		for _, to := range x.stores {
			mine, err := from.Stream().Vector()
			if err != nil {
				x.t.Fatal(err)
			}
			theirs, err := to.Stream().Vector()
			if err != nil {
				x.t.Fatal(err)
			}
			for origin := range mine {
				for at := theirs[origin]; from != to && at < mine[origin]; {
					b, err := from.Stream().Read(origin, at, 1000, 4<<20)
					if err == nil {
						err = to.Stream().Apply(b)
					}
					if err != nil {
						x.t.Fatal(err)
					}
					at = b.To
				}
			}
		}
	}
}

func (x *comparedJobs) pass(d time.Duration) {
	for end := x.now.Add(d); x.now.Before(end); x.now = x.now.Add(StepTime) {
		for _, w := range x.watches {
			w.Step(x.t.Context(), x.now)
		}
		x.exchange()
	}
}

// edit changes the file of a master while it is closed.
func (x *comparedJobs) edit(i int, fn func(hour *bolt.Bucket, jid string) error, jid string) {
	x.t.Helper()
	if err := x.stores[i].Close(); err != nil {
		x.t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(x.dirs[i], "jobs.db"), 0o600, nil)
	if err == nil {
		err = db.Update(func(tx *bolt.Tx) error {
			hours := tx.Bucket([]byte("hours"))
			return hours.ForEach(func(k, _ []byte) error {
				b := hours.Bucket(k)
				if at, _ := b.Cursor().Seek([]byte(jid + "\x00")); !bytes.HasPrefix(at, []byte(jid)) {
					return nil
				}
				return fn(b, jid)
			})
		})
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.open(i)
}

// without returns an edit that drops the entries of a job whose keys begin with word.
func without(word string) func(hour *bolt.Bucket, jid string) error {
	return func(hour *bolt.Bucket, jid string) error {
		c := hour.Cursor()
		var keys [][]byte
		for k, _ := c.Seek([]byte(jid + "\x00" + word)); bytes.HasPrefix(k, []byte(jid+"\x00"+word)); k, _ = c.Next() {
			keys = append(keys, bytes.Clone(k))
		}
		for _, k := range keys {
			if err := hour.Delete(k); err != nil {
				return err
			}
		}
		return nil
	}
}

func with(entry string, v any) func(hour *bolt.Bucket, jid string) error {
	return func(hour *bolt.Bucket, jid string) error {
		b, err := msgpack.Marshal(v, msgpack.NewSpec)
		if err != nil {
			return err
		}
		return hour.Put([]byte(jid+"\x00"+entry), b)
	}
}

func jidAt(t time.Time, n int) string {
	return t.UTC().Add(time.Duration(n)*time.Microsecond).Format("20060102150405") + fmt.Sprintf("%06d", n%1000000)
}

func (x *comparedJobs) whole(i int, jid string, returns map[string]any) {
	x.t.Helper()
	if err := x.stores[i].Put(wholeJob(jid, returns)); err != nil {
		x.t.Fatal(err)
	}
}

func wholeJob(jid string, returns map[string]any) *job.Whole {
	w := &job.Whole{Job: job.Job{JID: jid, Load: value.DictOf("jid", jid, "fun", "test.ping", "tgt", "*")}, Returns: map[string]*value.Dict{}}
	for id, v := range returns {
		w.Minions = append(w.Minions, id)
		w.Returns[id] = value.DictOf("return", v, "retcode", int64(0), "success", true)
	}
	slices.Sort(w.Minions)
	return w
}

func (x *comparedJobs) result(i int, jid, id string) string {
	x.t.Helper()
	all, err := x.stores[i].Returns(jid)
	if err != nil {
		x.t.Fatal(err)
	}
	if all[id] == nil {
		return "none"
	}
	return fmt.Sprintf("%.20v", all[id].At("return"))
}

// TestJobsCompared: lost and damaged jobs, returns and targets are found, reported once by each master, and repaired. Returns are merged and
// nothing is deleted. If contents differ, that of the majority wins. Data that has expired on another master is not restored.
func TestJobsCompared(t *testing.T) {
	x := newComparedJobs(t, 3)
	now := time.Now()
	var jids []string
	for i := range 1000 {
		jid := jidAt(now.Add(-time.Duration(i%10)*time.Hour), i)
		jids = append(jids, jid)
		x.whole(i%3, jid, map[string]any{"a": "right", "b": "right"})
	}
	large := jidAt(now, 900001)
	x.whole(0, large, map[string]any{"a": strings.Repeat("large ", 400000)})
	old := jidAt(now.Add(-22*time.Hour), 900002)
	x.whole(0, old, map[string]any{"a": "old"})
	zone := jidAt(now.Add(8*time.Hour), 900003) // of a stock minion in another zone
	x.whole(0, zone, map[string]any{"a": "zone"})
	x.exchange()
	x.pass(time.Minute)
	if len(x.found) > 0 {
		t.Fatalf("found in equal masters: %v", x.found)
	}
	clear(x.taken)

	x.edit(1, without("ra"), jids[0])                                                      // a return
	x.edit(1, without(""), jids[1])                                                        // a job with all returns
	x.edit(1, without("ra"), large)                                                        // a large return
	x.edit(0, without("rb"), jids[2])                                                      // one that only one master has
	x.edit(1, without("rb"), jids[2])                                                      //
	x.edit(2, with("ra", value.DictOf("return", "damaged", "retcode", int64(0))), jids[3]) // it sorts first
	x.edit(2, with("m", value.Strings([]string{"a", "b", "damaged"})), jids[4])            // targets
	x.edit(0, with("ra", value.DictOf("return", "another one")), jids[5])                  // three contents
	x.edit(1, with("ra", value.DictOf("return", "another", "retcode", int64(0))), jids[5]) //
	x.edit(2, without(""), old)                                                            // it has expired there
	x.edit(1, without(""), zone)                                                           //
	x.pass(3 * time.Minute)
	for i := range x.stores {
		for jid, want := range map[string]string{jids[0]: "right", jids[1]: "right", jids[3]: "right", large: "large large large la"} {
			if got := x.result(i, jid, "a"); got != want {
				t.Errorf("%d: the return of %s is %q, not %q", i, jid, got, want)
			}
		}
		if got := x.result(i, jids[2], "b"); got != "right" {
			t.Errorf("%d: what one of three had is %q", i, got)
		}
		if l, err := x.stores[i].Minions(jids[4]); err != nil || !slices.Equal(l, []string{"a", "b"}) {
			t.Errorf("%d: the targets are %q %v", i, l, err)
		}
		if a, b := x.result(0, jids[5], "a"), x.result(i, jids[5], "a"); a != b {
			t.Errorf("%d: of three contents it has %q, not %q", i, b, a)
		}
		if load, err := x.stores[i].Load(jids[1]); err != nil || load == nil || load.Str("fun") != "test.ping" {
			t.Errorf("%d: the job is %v %v", i, load, err)
		}
		if l := x.watches[i].Differences(); len(l) > 0 {
			t.Errorf("%d: %+v", i, l)
		}
	}
	for jid, who := range map[string]int{old: 2, zone: 1} {
		if got := x.result(who, jid, "a"); got != "none" {
			t.Errorf("what has expired came back: %q", got)
		}
	}
	all := strings.Join(x.found, "\n")
	for _, want := range []string{"1: return " + jids[0] + "/a ", "1: job " + jids[1] + " ", "1: return " + large + "/a ",
		"2: return " + jids[3] + "/a ", "2: job " + jids[4] + " "} {
		if n := strings.Count(all, want); n == 0 || n > 2 {
			t.Errorf("%q was told %d times", want, n)
		}
	}
	if x.taken["1: "+jids[0]+" a"] != 1 || x.taken["1: "+jids[1]+" "] != 1 {
		t.Errorf("what was restored is not handled as new: %v", x.taken)
	}
	// The log sends a repaired return to a new master.
	fresh := newComparedJobs(t, 1)
	fresh.stores = append(fresh.stores, x.stores[1])
	fresh.exchange()
	fresh.stores = fresh.stores[:1]
	if got := fresh.result(0, jids[0], "a"); got != "right" {
		t.Errorf("a new master has %q", got)
	}
}

// TestRestoreRefused: data from another master for a job is accepted only if it belongs to that job and has not expired.
func TestRestoreRefused(t *testing.T) {
	x := newComparedJobs(t, 2)
	now := time.Now()
	jid, other := jidAt(now, 1), jidAt(now, 2)
	x.whole(0, jid, map[string]any{"a": "right"})
	x.whole(0, other, map[string]any{"a": "right"})
	from, to := x.stores[0].Compared(), x.stores[1].Compared()
	data, hour, err := from.Item(jid + "\x00a")
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func() (bool, error){
		"another job":    func() (bool, error) { return to.Restore(other+"\x00a", data, hour, false) },
		"another minion": func() (bool, error) { return to.Restore(jid+"\x00b", data, hour, true) },
		"noise":          func() (bool, error) { return to.Restore(jid+"\x00a", []byte("noise"), hour, false) },
		"no hour":        func() (bool, error) { return to.Restore(jid+"\x00a", data, "yesterday", false) },
	} {
		if changed, err := try(); changed || salt.KindOf(err) != salt.Invalid {
			t.Errorf("%s: %v %v", name, changed, err)
		}
	}
	if changed, err := to.Restore(jid+"\x00a", data, now.Add(-26*time.Hour).UTC().Format("2006010215"), false); changed || err != nil {
		t.Errorf("an expired one: %v %v", changed, err)
	}
	if changed, err := to.Restore(jid+"\x00a", data, hour, false); !changed || err != nil || x.result(1, jid, "a") != "right" {
		t.Errorf("%v %v", changed, err)
	}
	if changed, err := to.Restore(jid+"\x00a", data, hour, false); changed || err != nil {
		t.Errorf("twice: %v %v", changed, err)
	}
}

// TestComparedJobsCost compares many jobs of two masters, and reports the cost of a step. BRINE_COMPARED_JOBS is their number.
func TestComparedJobsCost(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("BRINE_COMPARED_JOBS"))
	if n = max(n, 3000); testing.Short() {
		n = 3000
	}
	x := newComparedJobs(t, 2)
	now := time.Now()
	returns := map[string]any{}
	for i := range 3 {
		returns[fmt.Sprintf("minion%02d", i)] = strings.Repeat("result ", 30)
	}
	var wg sync.WaitGroup
	for worker := range 128 { // so that many are stored with one flush
		wg.Go(func() {
			for i := worker; i < n; i += 128 {
				if err := x.stores[0].Put(wholeJob(jidAt(now.Add(-time.Duration(i%20)*time.Hour), i), returns)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	x.exchange()
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began, steps := used(), 0
	w := x.watches[0]
	for done := false; !done; steps++ {
		w.Step(t.Context(), now)
		done = w.cursors["1"].kind > 0
		if steps > n {
			t.Fatal("it does not come to an end")
		}
	}
	if len(x.found)+len(w.suspects) > 0 {
		t.Errorf("%v", x.found)
	}
	took := used() - began
	runtime.ReadMemStats(&after)
	t.Logf("%d jobs, %d things: %d steps of %v per pass; of both masters per step: %v of CPU time, %d kB allocated and freed", n, 4*n, steps,
		StepTime, took/time.Duration(steps), (after.TotalAlloc-before.TotalAlloc)>>10/uint64(steps))
	if want := 4*n/500 + 5; steps > want {
		t.Errorf("%d steps, more than %d", steps, want)
	}
}
