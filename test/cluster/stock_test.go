package cluster

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestBesideSalt: a stock master and two Brine masters share a directory. Each commands all
// minions, of both kinds, connected to any master; jobs and keys are the same everywhere.
func TestBesideSalt(t *testing.T) {
	t.Parallel()
	daemontest.StockTree(t)
	f := newFleet(t, "", stock, brine, brine).start()
	var ids []string
	for i, m := range f.masters {
		for _, k := range []kind{brine, stock} {
			id := fmt.Sprintf("%s%d", k, i)
			ids = append(ids, id)
			f.minion(k, id, m.Host, "")
		}
	}
	// Keys: half are accepted at the stock master, half at a Brine master.
	f.masters[0].Accept(ids[:3]...)
	f.masters[1].Accept(ids[3:]...)
	for _, m := range f.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(m.Kind, ids...) })
	}
	for _, m := range f.masters {
		eventually.Nil(t, soon, "a job's returns are the same everywhere", func() error {
			out, errs, _ := m.Run(m.Kind, "salt", "--async", "*", "test.echo", "from-"+m.Name)
			jid := jidIn(out + errs)
			return sameJob(f, jid, "from-"+m.Name, len(ids))
		})
	}
	// A master of each kind replaces the AES key, and all continue.
	for i, m := range f.masters[:2] {
		if _, errs, code := m.Run(m.Kind, "salt-key", "-y", "-d", ids[i]); code != 0 {
			t.Fatalf("salt-key -d on %s: %s", m.Name, errs)
		}
		// An idle minion notices it at the next command.
		eventually.Nil(t, soon, ids[i]+" asks to be accepted again", func() error {
			f.masters[2].SaltJSON(brine, "*", "test.ping")
			keys, err := f.masters[2].Keys()
			if err == nil && !slices.Contains(keys["minions_pre"], ids[i]) {
				err = fmt.Errorf("%v", keys)
			}
			return err
		})
		f.masters[2].Accept(ids[i])
		for _, m := range f.masters {
			eventually.Nil(t, soon, "all answer again to "+m.Name, func() error { return m.PingAll(m.Kind, ids...) })
		}
	}
	for _, m := range f.masters[1:] {
		// A master that has not started yet refuses connections.
		if log := strings.ReplaceAll(m.Log(), "connection refused", ""); strings.Contains(log, "cannot decrypt") || strings.Contains(log, "refus") {
			t.Errorf("%s complains:\n%s", m.Name, log)
		}
	}
	if log := f.masters[0].Log(); strings.Contains(log, "tag not valid") || strings.Contains(log, "Unhandled error while polling") {
		t.Error("Salt's master does not understand what Brine's send")
	}
}

// sameJob expects all masters to show all returns of a job.
func sameJob(f *fleet, jid, text string, n int) error {
	if jid == "" {
		return errors.New("no job")
	}
	for _, m := range f.masters {
		var out string
		for range 20 {
			out, _, _ = m.Run(m.Kind, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			if strings.Count(out, text) == n {
				break
			}
		}
		if got := strings.Count(out, text); got != n {
			return fmt.Errorf("%s shows %d of %d returns: %s", m.Name, got, n, out)
		}
	}
	return nil
}

// saltsMinionLimit is the maximum duration of a job for a stock minion that has lost its master:
// measured are two to four seconds. With stock masters the job is lost.
const saltsMinionLimit = 45 * time.Second

// TestSaltsMinionBehindHAProxy: a stock minion loses the master of its subscription, killed or
// frozen, and gets the job sent at that moment when it is back. The time is logged, and bounded.
func TestSaltsMinionBehindHAProxy(t *testing.T) {
	t.Parallel()
	daemontest.StockTree(t)
	haproxyProgram(t)
	f := newFleet(t, "auto_accept: true\n", brine, brine, brine).start()
	host := f.balance()
	f.minion(stock, "old", host, "") // with recon_default and recon_max at most as in docs/cluster.md
	for _, m := range f.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "old") })
	}
	for _, fault := range []struct {
		name     string
		do, undo func(n *node)
	}{
		{"killed", func(n *node) { n.Kill() }, func(n *node) { n.Start() }},
		{"frozen", func(n *node) { n.Signal(syscall.SIGSTOP) }, func(n *node) { n.Signal(syscall.SIGCONT) }},
	} {
		// It must be at the second master when the others are dead.
		for _, i := range []int{0, 2} {
			f.masters[i].Kill()
		}
		eventually.Nil(t, soon, "it is at the one that is left", func() error { return f.masters[1].PingAll(brine, "old") })
		for _, i := range []int{0, 2} {
			f.masters[i].Start()
		}
		fault.do(f.masters[1])
		from := time.Now()
		jid := f.publish(f.masters[0], "old", "test.echo", fault.name)
		eventually.Nil(t, soon, "the job has returned", func() error {
			if !f.returned(jid, "old") {
				return errors.New("no return")
			}
			return nil
		})
		took := time.Since(from)
		t.Logf("%s: returned after %v", fault.name, took.Round(time.Millisecond))
		if took > saltsMinionLimit {
			t.Errorf("%s: the job took %v to come back, more than %v", fault.name, took, saltsMinionLimit)
		}
		fault.undo(f.masters[1])
		for _, m := range f.masters {
			eventually.Nil(t, soon, "it answers again to "+m.Name, func() error { return m.PingAll(brine, "old") })
		}
	}
}

// TestStockMinionKilledInAJob: a stock minion is killed during a job and restarted, and then its
// master is killed and restarted: the job does not run again.
func TestStockMinionKilledInAJob(t *testing.T) {
	t.Parallel()
	daemontest.StockTree(t)
	for name, cluster := range map[string]func(t *testing.T) *node{
		"shared directory": func(t *testing.T) *node { return newFleet(t, "auto_accept: true\n", brine, brine).start().masters[0] },
		"isolated":         func(t *testing.T) *node { return newApart(t, 2, "auto_accept: true\n").start().masters[0] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := cluster(t)
			minion := daemontest.NewMinion(t, stock, "old", []string{one.Host}, "").Start()
			answers := func(when string) {
				t.Helper()
				eventually.Nil(t, soon, "it answers "+when, func() error { return one.PingAll(brine, "old") })
			}
			answers("at first")
			ran := minion.Path("ran")
			if out, errs, code := one.Run(brine, "salt", "--async", "--expire", "1h", "old", "cmd.run", fmt.Sprintf("echo ran >>%s; sleep 100", ran)); code != 0 {
				t.Fatal(out, errs)
			}
			lines := func() string {
				b, _ := os.ReadFile(ran)
				return string(b)
			}
			eventually.Nil(t, soon, "the job runs", func() error {
				if lines() == "" {
					return errors.New("not yet")
				}
				return nil
			})
			minion.Kill()
			must(t, os.RemoveAll(minion.Path("var/run"))) // a minion may conclude from its files that it already runs
			minion.Start()
			answers("after its restart")
			one.Kill()
			one.Start()
			answers("after the restart of its master")
			time.Sleep(5 * time.Second) // the master checks five times for new minions
			answers("later")
			if got := lines(); got != "ran\n" {
				t.Errorf("it ran %q", got)
			}
		})
	}
}
