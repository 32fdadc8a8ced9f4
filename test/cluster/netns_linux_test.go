package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
	"brine/test/tools"
)

// TestNetworkFaults: three masters on separate machines behind a balancer lose packets. First a
// master is cut off from the others, but not from its minions; then a master is cut off from the
// balancer, but not from the others. All share the directory throughout. Jobs sent at that moment
// run once on each minion, and all returns are stored.
func TestNetworkFaults(t *testing.T) {
	t.Parallel()
	tools.Need(t, "haproxy", "haproxy")
	net := netns.New(t)
	f := &fleet{t: t, shared: daemontest.ShortDir(t)}
	for _, dir := range []string{"pki", "cache", "ledger"} {
		if err := os.Mkdir(filepath.Join(f.shared, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	at := map[*node]*netns.Machine{}
	var machines []*netns.Machine
	var hosts []string
	for i := range 3 {
		m := net.Machine(i + 1)
		machines, hosts = append(machines, m), append(hosts, m.Addr)
	}
	for i, where := range machines {
		m := f.master(brine, hosts[i], slices.Delete(slices.Clone(hosts), i, i+1), "auto_accept: true\n")
		m.Within = where.Within()
		f.masters, at[m] = append(f.masters, m), where
	}
	f.start()
	balancer, away := net.Machine(8), net.Machine(9)
	f.balanceAt(balancer.Addr, balancer.Within())
	ids := []string{"m0", "m1", "m2"}
	for _, id := range ids {
		w := daemontest.NewMinion(t, brine, id, []string{balancer.Addr}, "")
		w.Within = away.Within()
		w.Start()
	}
	ready := func(what string) {
		t.Helper()
		for _, m := range f.masters {
			eventually.Nil(t, soon, "all answer to "+m.Name+" "+what, func() error { return m.PingAll(brine, ids...) })
		}
	}
	ready("at first")
	var sent []string
	// job publishes a job at a master, and waits until all minions return it.
	job := func(to *node, what string) {
		t.Helper()
		word := fmt.Sprintf("job%d", len(sent))
		sent = append(sent, word)
		from := time.Now()
		jid := f.publish(to, "*", "cmd.run", "echo "+word+" >> "+f.shared+"/ledger/{{grains.id}}", "python_shell=True", "template=jinja")
		eventually.Nil(t, soon, "the job has returned: "+what, func() error {
			for _, id := range ids {
				if !f.returned(jid, id) {
					return errors.New("no return of " + id)
				}
			}
			return nil
		})
		t.Logf("%s: all returned after %v", what, time.Since(from).Round(time.Millisecond))
	}

	victim := f.holder(f.masters[0], ids[0])
	others := slices.DeleteFunc(slices.Clone(f.masters), func(m *node) bool { return m == victim })
	for _, m := range others {
		net.Part(at[victim], at[m])
	}
	job(others[0], "sent by another master, when the one that holds a minion is cut off from the others")
	job(victim, "sent by the master that is cut off from the others")
	for _, m := range others {
		net.Join(at[victim], at[m])
	}
	ready("when the masters hear each other again")

	victim = f.holder(f.masters[0], ids[1])
	survivor := other(f, victim)
	net.Part(at[victim], balancer)
	job(survivor, "sent when the master that holds a minion is cut off from the balancer")
	job(victim, "sent by the master that is cut off from the balancer")
	net.Join(at[victim], balancer)
	ready("when the balancer reaches all")

	for _, id := range ids {
		b, err := os.ReadFile(filepath.Join(f.shared, "ledger", id))
		if got := strings.Fields(string(b)); err != nil || len(got) != len(sent) || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(sent) {
			t.Errorf("%s ran %q, sent were %q: %v", id, got, sent, err)
		}
	}
}
