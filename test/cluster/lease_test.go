package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
)

type leaseSaid struct {
	Here     bool              `json:"here"`
	Token    uint64            `json:"token"`
	Holder   string            `json:"holder"`
	Majority bool              `json:"majority"`
	Voters   map[string]string `json:"voters"`
}

func lease(m *node) (l leaseSaid, err error) {
	out, errs, _ := m.Run(brine, "salt-run", "--out=json", "cluster.lease")
	if err := json.Unmarshal([]byte(out), &l); err != nil {
		return l, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	return l, nil
}

// withWitness returns a cluster of two masters and a witness, which vote.
func withWitness(t *testing.T, more string) (a *apart, w *node) {
	t.Helper()
	a = newApart(t, 2, more)
	return a, addWitness(a, daemontest.Host())
}

// addWitness configures a witness, and adds it to the voters of all masters.
func addWitness(a *apart, host string) *node {
	w := daemontest.NewMaster(a.t, brine, "witness", host, "")
	w.Program, w.Level = "witness", ""
	var ids []string
	for _, m := range a.masters {
		ids = append(ids, m.Name)
	}
	voters := fmt.Sprintf("cluster_voters: [%s]\n", strings.Join(append(ids, host), ", "))
	w.Write("witness", fmt.Sprintf("id: %s\ninterface: %s\ncluster_id: test\ncluster_secret: %s\ncluster_pool_port: %d\ncachedir: %s\nlog_level: debug\n%s",
		host, host, secret, poolPort, w.Path("state"), voters))
	for _, m := range a.masters {
		m.Write("master", m.Read("master")+voters)
	}
	return w
}

// holder waits until one of some masters holds the lease with a token greater than above, and
// reports that itself.
func holder(t *testing.T, what string, above uint64, among ...*node) (m *node, token uint64) {
	t.Helper()
	took := eventually.Nil(t, soon, "one has the lease "+what, func() error {
		for _, n := range among {
			l, err := lease(n)
			if err != nil {
				return err
			}
			if l.Here && l.Token > above {
				m, token = n, l.Token
				return nil
			}
		}
		return errors.New("none")
	})
	t.Logf("%s has the lease %s after %v, token %d", m.Name, what, took.Round(time.Millisecond), token)
	return m, token
}

func but(all []*node, out *node) []*node {
	return slices.DeleteFunc(slices.Clone(all), func(m *node) bool { return m == out })
}

// TestLease: of two masters and a witness, one master holds the lease. When it is killed or
// freezes, the other gets the lease with a greater token. The frozen one does not believe that it
// holds it when it resumes. Without a majority no master holds it, and everything else works.
func TestLease(t *testing.T) {
	t.Parallel()
	a, w := withWitness(t, "auto_accept: true\n")
	w.Launch()
	a.start()
	a.minion("m0", a.masters...)
	eventually.Nil(t, soon, "it answers", func() error { return a.masters[0].PingAll(brine, "m0") })
	first, token := holder(t, "at first", 0, a.masters...)
	other := but(a.masters, first)[0]
	eventually.Nil(t, soon, "all know of it", func() error {
		for _, m := range a.masters {
			if l, err := lease(m); err != nil || l.Holder == "" || !l.Majority || len(l.Voters) != 3 {
				return fmt.Errorf("%+v %w", l, err)
			}
		}
		return nil
	})
	eventually.Nil(t, soon, "the exit code is 0 at one of them", func() error {
		_, _, one := first.Run(brine, "salt-run", "cluster.lease", "here=True")
		_, _, two := other.Run(brine, "salt-run", "cluster.lease", "here=True")
		if one+two != 1 {
			return fmt.Errorf("%d and %d", one, two)
		}
		return nil
	})

	first.Kill()
	second, next := holder(t, "after a kill", token, other)
	first.Start()
	eventually.Nil(t, soon, "the master that was killed sees it", func() error {
		l, err := lease(first)
		if err == nil && l.Holder == "" {
			err = fmt.Errorf("%+v", l)
		}
		return err
	})

	second.Signal(syscall.SIGSTOP)
	third, last := holder(t, "after a freeze", next, first)
	second.Signal(syscall.SIGCONT)
	for range 5 {
		if l, err := lease(second); err == nil && l.Here && l.Token <= last {
			t.Errorf("the master that was frozen thinks that it has the lease: %+v, and %s had %d", l, third.Name, last)
		}
	}

	// The witness and one master are gone: no majority.
	w.Kill()
	_, last = holder(t, "without the witness", 0, a.masters...)
	a.masters[0].Kill()
	left := a.masters[1]
	eventually.Nil(t, soon, "no master has the lease", func() error {
		l, err := lease(left)
		if err == nil && (l.Here || l.Majority || l.Holder != "") {
			err = fmt.Errorf("%+v", l)
		}
		return err
	})
	eventually.Nil(t, soon, "all else works", func() error { return left.PingAll(brine, "m0") })
	w.Launch()
	holder(t, "with the witness back", last, left)
}

// TestWitnessRefuses checks that a witness refuses masters that do not know the secret, and reports
// errors in its options.
func TestWitnessRefuses(t *testing.T) {
	t.Parallel()
	a, w := withWitness(t, "")
	w.Write("witness", strings.Replace(w.Read("witness"), secret, "another secret of the tests", 1))
	w.Launch()
	a.start()
	eventually.Nil(t, soon, "it is told why the witness does not vote", func() error {
		l, err := lease(a.masters[0])
		if err == nil && !strings.Contains(l.Voters[w.Host], "does not know cluster_secret") {
			err = fmt.Errorf("%+v", l)
		}
		return err
	})
	holder(t, "by the masters alone", 0, a.masters...)
	for text, want := range map[string]string{
		"cluster_id: test":                      "cluster_id is not set",
		"cluster_secret: another":               "cluster_witness_secret is not set",
		"cluster_voters: [":                     "cluster_voters is not set",
		fmt.Sprintf("id: %s\n", w.Host):         "is not the address or name of this witness",
		fmt.Sprintf("[%s, ", a.masters[0].Name): "an odd number of at least 3",
	} {
		bad := daemontest.NewMaster(t, brine, "witness", daemontest.Host(), "")
		var lines []string
		for _, l := range strings.Split(w.Read("witness"), "\n") {
			switch {
			case strings.HasPrefix(text, "[") && strings.HasPrefix(l, "cluster_voters"):
				l = fmt.Sprintf("cluster_voters: [%s, x]", w.Host)
			case strings.HasPrefix(l, strings.TrimSuffix(text, "\n")):
				continue
			}
			lines = append(lines, l)
		}
		bad.Write("witness", strings.Join(lines, "\n"))
		if out, errs, code := bad.Run(brine, "witness"); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("without %q: exit code %d, and it does not say %q: %s%s", text, code, want, out, errs)
		}
	}
}

// TestLeaseCutOff: the network separates the holder from the other master and the witness. The
// other gets the lease, and replaces the AES key when it is old. The separated one does not, and
// still accepts jobs. Afterwards both agree.
func TestLeaseCutOff(t *testing.T) {
	t.Parallel()
	net := netns.New(t)
	a := &apart{t: t, more: "auto_accept: true\npublish_session: 6\n"}
	at := map[*node]*netns.Machine{}
	var hosts []string
	var machines []*netns.Machine
	for i := range 3 {
		m := net.Machine(i + 1)
		machines, hosts = append(machines, m), append(hosts, m.Addr)
	}
	for i := range 2 {
		m := a.add(hosts[i], hosts[1-i])
		m.Within = machines[i].Within()
		at[m] = machines[i]
	}
	w := addWitness(a, hosts[2])
	w.Within = machines[2].Within()
	w.Launch()
	a.start()
	replaced := func(m *node) int { return strings.Count(m.Log(), "the AES key of the cluster was replaced") }
	eventually.Nil(t, soon, "the AES key is replaced", func() error {
		if replaced(a.masters[0])+replaced(a.masters[1]) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	first, token := holder(t, "at first", 0, a.masters...)
	other := but(a.masters, first)[0]
	net.Part(at[first], at[other])
	net.Part(at[first], machines[2])
	_, next := holder(t, "after a cut", token, other)
	l, err := lease(first)
	if err != nil || l.Here && l.Token <= next {
		t.Errorf("the master that is cut off: %+v %v", l, err)
	}
	before, there := replaced(first), replaced(other)
	eventually.Nil(t, soon, "the other replaces the AES key", func() error {
		if replaced(other) < there+1 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := replaced(first); n != before {
		t.Errorf("the master that is cut off has replaced the AES key %d times", n-before)
	}
	net.Join(at[first], at[other])
	net.Join(at[first], machines[2])
	eventually.Nil(t, soon, "both agree", func() error {
		x, err := lease(first)
		y, err2 := lease(other)
		if err = errors.Join(err, err2); err == nil && (x.Holder == "" || x.Holder != y.Holder || x.Here == y.Here) {
			err = fmt.Errorf("%+v %+v", x, y)
		}
		return err
	})
}

// TestMajorityLost: two of three voting masters are lost with their disks. brine cluster recover
// shows them. It changes nothing without confirmation, or while there is a majority. Then the
// remaining one alone is a majority and still has all its data; two new masters join it, get the
// data, and vote.
func TestMajorityLost(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n")
	var ids []string
	for _, m := range a.masters {
		ids = append(ids, m.Name)
	}
	voters := func(ids ...string) string { return fmt.Sprintf("cluster_voters: [%s]\n", strings.Join(ids, ", ")) }
	for _, m := range a.masters {
		m.Write("master", m.Read("master")+voters(ids...))
	}
	a.start()
	left := a.masters[2]
	a.minion("m0", left)
	eventually.Nil(t, soon, "it answers", func() error { return a.masters[0].PingAll(brine, "m0") })
	out, errs, _ := a.masters[0].Run(brine, "salt", "--async", "m0", "test.echo", "kept")
	jid := jidIn(out + errs)
	before := a.equal(left, 3, map[string]int{"job": 2, "return": 2})
	holder(t, "at first", 0, a.masters...)

	recoverLost := func(more ...string) (string, int) {
		out, errs, code := left.Run(brine, "cluster", append([]string{"recover"}, more...)...)
		return out + errs, code
	}
	if text, code := recoverLost("--sure"); code == 0 || !strings.Contains(text, "a majority of cluster_voters answers") {
		t.Errorf("while all are there: %d %s", code, text)
	}
	for _, m := range a.masters[:2] {
		m.Kill()
	}
	eventually.Nil(t, soon, "the lost ones are named, and nothing is done", func() error {
		text, code := recoverLost()
		if code != 0 || !strings.Contains(text, ids[0]) || !strings.Contains(text, ids[1]) {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	if rows, _, err := status(left); err != nil || len(rows) != 3 {
		t.Errorf("%+v %v", rows, err)
	}
	if text, code := recoverLost("--sure"); code != 0 || !strings.Contains(text, "restart the master") {
		t.Fatalf("%d %s", code, text)
	}
	eventually.Nil(t, soon, "the lost ones are taken out", func() error {
		rows, code, err := status(left)
		if err != nil || code != 0 || len(rows) != 1 {
			return fmt.Errorf("%d %+v %w", code, rows, err)
		}
		return nil
	})
	left.Signal(syscall.SIGTERM)
	left.Wait(30 * time.Second)
	left.Start()
	eventually.Nil(t, soon, "it has the rights of one, and what it held", func() error {
		if err := left.PingAll(brine, "m0"); err != nil {
			return err
		}
		if _, errs, code := left.Run(brine, "salt-run", "cluster.lease", "here=True"); code != 0 {
			return errors.New(errs)
		}
		if out, errs, _ := left.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid); !strings.Contains(out, "kept") {
			return errors.New(out + errs)
		}
		r, err := check(left)
		for k, n := range before.Counts {
			if k != "peer" && k != "member" && k != "share" && r.Counts[k] < n {
				return fmt.Errorf("%d of %s, and there were %d", r.Counts[k], k, n)
			}
		}
		return err
	})

	// New masters, which vote with the remaining one.
	hosts := []string{daemontest.Host(), daemontest.Host()}
	now := voters(left.Name, hosts[0], hosts[1])
	left.Write("master.d/cluster.voters.conf", now)
	left.Signal(syscall.SIGTERM)
	left.Wait(30 * time.Second)
	left.Start()
	for _, h := range hosts {
		m := a.add(h, left.Host)
		m.Write("master", m.Read("master")+now)
		m.Start()
	}
	a.equal(left, 3, before.Counts)
	holder(t, "with new voters", 0, append(slices.Clone(a.masters[3:]), left)...)
	for _, m := range a.masters[3:] {
		eventually.Nil(t, soon, "the job is at "+m.Name, func() error {
			if out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid); !strings.Contains(out, "kept") {
				return errors.New(out + errs)
			}
			return nil
		})
	}
}
