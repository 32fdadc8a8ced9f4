package interop

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestSyndicWithStock: a Brine syndic below a stock master of masters, one beside a stock master, and
// a stock syndic below a Brine master of masters: pings, states, the job cache, events, and that no
// return of many jobs is lost or doubled.
func TestSyndicWithStock(t *testing.T) {
	stockTree(t)
	jobs := 500
	if testing.Short() {
		jobs = 40
	}
	for _, k := range []struct{ above, syndic, below kind }{
		{stock, brine, brine},
		{brine, brine, stock},
		{brine, stock, stock},
		{brine, stock, brine},
	} {
		t.Run(fmt.Sprintf("%s above, %s syndic, %s below", k.above, k.syndic, k.below), func(t *testing.T) {
			up, down := daemontest.Host(), daemontest.Host()
			above := newMaster(t, k.above, "above", up, "auto_accept: true\norder_masters: true\nsyndic_wait: 3\n").Start()
			below := newMaster(t, k.below, "below", down, "auto_accept: true\n")
			below.Write("master", below.Read("master")+"file_roots: {base: ["+below.Path("srv")+"]}\n")
			below.Write("srv/one.sls", "here:\n  test.succeed_without_changes\n")
			below.Start()
			ids := []string{"m1", "m2"}
			for _, id := range ids {
				newMinion(t, brine, id, []string{down}, "").Start()
			}
			eventually.Nil(t, stockLimit, "the minions answer the master below", func() error { return below.PingAll(k.below, ids...) })
			events := above.Events()
			daemontest.NewSyndic(k.syndic, below, "", up).Start()
			eventually.Nil(t, stockLimit, "the minions answer the master above", func() error { return above.PingOnly(k.above, ids...) })

			// The id of the syndic is no minion that did not return.
			if rets, err := above.SaltJSON(k.above, "*", "test.ping"); err != nil || !slices.Equal(slices.Sorted(maps.Keys(rets)), ids) {
				t.Errorf("a ping of all: %v, %v", rets, err)
			}
			if rets, err := above.SaltJSON(k.above, "m1", "state.apply", "one"); err != nil || !strings.Contains(fmt.Sprint(rets["m1"]), "Success!") {
				t.Errorf("state.apply: %v, %v", rets, err)
			}
			below.Run(k.below, "salt-run", "event.send", "my/news", `{"a": 1}`)
			for _, tag := range []string{"syndic/syndic/start", "syndic/syndic/my/news"} {
				eventually.Nil(t, stockLimit, "the event "+tag+" comes up", func() error {
					if !strings.Contains(events(), tag+"\n") {
						return fmt.Errorf("events:\n%s", events())
					}
					return nil
				})
			}
			manyJobs(t, above, events, jobs, ids)
		})
	}
}

// manyJobs publishes jobs above, and expects one return of each minion for each.
func manyJobs(t *testing.T, above *daemontest.Node, events func() string, n int, ids []string) {
	t.Helper()
	var mu sync.Mutex
	var jids []string
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < n; i += 4 {
				out, errs, _ := above.Run(brine, "salt", "--async", "-L", strings.Join(ids, ","), "test.echo", fmt.Sprint("job ", i))
				words := strings.Fields(out)
				mu.Lock()
				if len(words) == 0 {
					t.Errorf("job %d: %s", i, errs)
				} else {
					jids = append(jids, words[len(words)-1])
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	count := func() map[string]int {
		got := map[string]int{}
		for line := range strings.Lines(events()) {
			if tag := strings.TrimSpace(line); strings.HasPrefix(tag, "salt/job/") && strings.Contains(tag, "/ret/") {
				got[tag]++
			}
		}
		return got
	}
	eventually.Nil(t, stockLimit, "all returns are above", func() error {
		got := count()
		for _, jid := range jids {
			for _, id := range ids {
				if got["salt/job/"+jid+"/ret/"+id] == 0 {
					return fmt.Errorf("job %s of %s is missing", jid, id)
				}
			}
		}
		return nil
	})
	// What would double a return is under way before the returns of one more job.
	if err := above.PingOnly(brine, ids...); err != nil {
		t.Error(err)
	}
	got := count()
	for _, jid := range jids {
		for _, id := range ids {
			if n := got["salt/job/"+jid+"/ret/"+id]; n != 1 {
				t.Errorf("%d returns of %s for job %s", n, id, jid)
			}
		}
	}
	out, errs, _ := above.Run(above.Kind, "salt-run", "--out=json", "jobs.lookup_jid", jids[len(jids)-1])
	var rets map[string]any
	if err := json.Unmarshal([]byte(out), &rets); err != nil || !slices.Equal(slices.Sorted(maps.Keys(rets)), ids) {
		t.Errorf("the job cache: %q %q", out, errs)
	}
}
