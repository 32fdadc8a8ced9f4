package cluster

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brine/internal/ha/copies"
	"brine/internal/store/job"
	"brine/internal/store/oplog"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// TestLostCopies: of five masters that store each return twice, those that have some returns are killed, and one comes back with an
// empty disk. The others never show anything else instead of a return but an error that names these masters. The status, the doctor
// and the metrics show that copies are missing, and no longer when they are there again. Senseless numbers of copies are named.
func TestLostCopies(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	a := newApart(t, 5, "auto_accept: true\ncluster_return_copies: 2\n")
	for _, m := range a.masters {
		m.Write("master", m.Read("master")+"metrics_address: "+m.Host+":24575\n")
	}
	a.start()
	one, two, rest, last := a.masters[0], a.masters[1], a.masters[2:], a.masters[4]
	daemontest.NewMinion(t, brine, "m0", []string{one.Host}, "").Start()
	awaitCopies(t, one, 5, "2 of 5")
	eventually.Nil(t, soon, "it answers", func() error { return one.PingAll(brine, "m0") })

	// The first master has all returns. Of some of them the second one has the other copy.
	var members []copies.Member
	for _, m := range a.masters {
		members = append(members, copies.Member{ID: m.Name, Known: true, Copies: 2, Up: true})
	}
	rule := copies.Agree(members, time.Now())
	w := newWords(t, 1)
	var both []string // jobs whose returns only the first two masters have
	for range 60 {
		if len(both) > 0 && len(w.ids()) > len(both)+1 {
			break
		}
		if err := w.publish(one); err != nil {
			t.Fatal(err)
		}
		both = nil
		for _, jid := range w.ids() {
			if rule.Holds(two.Name, job.Place{JID: jid, ID: "m0", Receiver: oplog.Mark(one.Name), Issuer: one.Name}) {
				both = append(both, jid)
			}
		}
	}
	w.all(a.masters...)
	few := func() (n float64) {
		for _, m := range rest {
			n += metric(t, m, "brine_cluster_returns_few_copies")
		}
		return n
	}
	if n := few(); n != 0 {
		t.Errorf("%v returns have too few copies", n)
	}

	one.Kill()
	w.all(rest...)
	w.all(two)
	finds(t, rest[0], "copies", "", "have fewer copies on reachable masters than cluster_return_copies, the oldest of job ")
	eventually.Nil(t, soon, "the metrics show it", func() error {
		if n := few() + metric(t, two, "brine_cluster_returns_few_copies"); n < float64(len(w.ids())) {
			return fmt.Errorf("%v of %d", n, len(w.ids()))
		}
		return nil
	})
	two.Kill()
	// lost wants an error instead of a return, and the reasons in it.
	lost := func(m *node, jid string, reasons ...string) {
		t.Helper()
		for _, call := range [][]string{{"jobs.lookup_jid", jid}, {"jobs.print_job", jid}, {"jobs.list_job", jid}} {
			eventually.Nil(t, soon, call[0]+" names the masters", func() error {
				out, errs, code := m.Run(brine, "salt-run", append([]string{"--out=json"}, call...)...)
				if !containsAll(out, append(reasons, "ERROR: This return is stored on other masters", "m0")...) {
					return fmt.Errorf("%d %s%s", code, out, errs)
				}
				return nil
			})
		}
	}
	for _, m := range rest {
		lost(m, both[0], one.Name+" (unreachable)", two.Name+" (unreachable)")
	}
	// An empty disk does not make an empty return.
	if err := os.RemoveAll(two.Path("var/cache/salt/master/brine/masters/" + two.Name)); err != nil {
		t.Fatal(err)
	}
	two.Start()
	eventually.Nil(t, soon, "it lacks returns", func() error {
		all, err := copiesOf(rest[0])
		if text := all[two.Name]; !strings.Contains(text, " missing, the oldest of job ") {
			return fmt.Errorf("%v %w", all, err)
		}
		return nil
	})
	finds(t, rest[1], "copies", two.Name, "no reachable master has some of them, the oldest of job ")
	lost(rest[2], both[0], one.Name+" (unreachable)", two.Name+" (reachable, lacks it)")
	lost(two, both[0], one.Name+" (unreachable)", two.Name+" (this one, which lacks it)")
	// Returns of runners are stored in the same way.
	n, age := metric(t, two, "brine_cluster_returns_missing"), metric(t, two, "brine_cluster_returns_few_copies_oldest_seconds")
	if int(n) < len(both) || age <= 0 {
		t.Errorf("%v returns are missing there, the oldest is %v s old", n, age)
	}

	migrate := func(at *node) (string, int) {
		out, errs, code := at.Run(brine, "migrate", "jobs", "--from=brine", "--to=local_cache:"+t.TempDir(), "--out=json")
		return out + errs, code
	}
	if out, code := migrate(last); code == 0 || !strings.Contains(out, "are stored on other masters of the cluster only: start") {
		t.Errorf("jobs with lost returns were copied: %d %s", code, out)
	}

	one.Start()
	w.all(a.masters...)
	if out, code := migrate(last); code != 0 {
		t.Errorf("jobs were not copied: %d %s", code, out)
	}
	awaitCopies(t, rest[0], 5, "2 of 5")
	eventually.Nil(t, soon, "the doctor finds no missing copies", func() error {
		d, _, err := diagnose(rest[1])
		for _, f := range d.Findings {
			if f.Check == "copies" || f.Check == "members" {
				err = errors.Join(err, errors.New(f.Finding))
			}
		}
		return err
	})
	eventually.Nil(t, soon, "the metrics show that all is well", func() error {
		if n := few() + metric(t, two, "brine_cluster_returns_missing"); n != 0 {
			return errors.New(fmt.Sprint(n))
		}
		return nil
	})

	last.Kill()
	conf := last.Read("master")
	last.Write("master", strings.Replace(conf, "cluster_return_copies: 2", "cluster_return_copies: 9", 1))
	last.Start()
	finds(t, one, "copies", "", "cluster_return_copies differs between the masters")
	last.Logged("cluster_return_copies differs between the masters")
	last.Kill()
	last.Write("master", strings.Replace(conf, "cluster_return_copies: 2", "cluster_return_copies: -2", 1))
	last.Launch()
	if code := last.Wait(soon); code == 0 || code == -1 {
		t.Errorf("a negative number: exit code %d", code)
	}
}
