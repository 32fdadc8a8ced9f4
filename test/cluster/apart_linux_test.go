package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
)

// TestApartFaults: three masters without a shared directory on separate machines suffer one fault
// after the other. During each, jobs return to the living masters for minions that use one of them.
// Minions of a dead master move to another one, and the test logs how long that took. A decision
// about a key reaches an unreachable master when it is back. Afterwards all have the same records.
func TestApartFaults(t *testing.T) {
	t.Parallel()
	net := netns.New(t)
	a := &apart{t: t, more: ""}
	at := map[*node]*netns.Machine{}
	var where []*netns.Machine
	for i := range 3 {
		where = append(where, net.Machine(i+1))
	}
	for i, w := range where {
		var peers []string
		for j, p := range where {
			if j != i {
				peers = append(peers, p.Addr)
			}
		}
		m := a.add(w.Addr, peers...)
		m.Within = w.Within()
		at[m] = w
	}
	for _, m := range a.masters {
		m.Launch()
	}
	away := net.Machine(9)
	minions := map[string]*node{}
	var ids []string
	for i := range 4 {
		id := fmt.Sprintf("m%d", i)
		m := daemontest.NewMinion(t, brine, id, []string{where[i%3].Addr}, "master_type: cluster\nmaster_rebalance: 5\nmaster_latency: []\n")
		m.Within = away.Within()
		minions[id], ids = m.Start(), append(ids, id)
	}
	for _, id := range ids {
		eventually.Nil(t, soon, id+" is seen", func() error {
			if s := state(a.masters[0], id); s != "minions_pre" && s != "minions" {
				return errors.New(s)
			}
			return nil
		})
		a.masters[0].Accept(id)
	}
	answer := func(when string, masters ...*node) {
		t.Helper()
		for _, m := range masters {
			eventually.Nil(t, soon, "all answer to "+m.Name+" "+when, func() error { return m.PingOnly(brine, ids...) })
		}
	}
	heal := func(m *node) {
		for _, o := range but(a.masters, m) {
			net.Join(at[m], at[o])
		}
	}
	part := func(m *node) {
		for _, o := range but(a.masters, m) {
			net.Part(at[m], at[o])
		}
	}
	lost := func(m *node) { part(m); net.Part(at[m], away) }
	sent, decided := 0, 0
	// job publishes a job at a master, and waits until minions return it.
	job := func(when string, m *node, ids ...string) {
		t.Helper()
		sent++
		word := fmt.Sprintf("job%d", sent)
		out, errs, _ := m.Run(brine, "salt", "--async", "--expire=5m", "-L", joined(ids), "test.echo", word)
		jid := jidIn(out + errs)
		if jid == "" {
			t.Fatalf("%s: %s takes no job: %s%s", when, m.Name, out, errs)
		}
		eventually.Nil(t, soon, fmt.Sprintf("%s: %s has all returns", when, m.Name), func() error {
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			for _, id := range ids {
				if !containsAll(out, `"`+id+`"`, word) {
					return errors.New(out + errs)
				}
			}
			return nil
		})
	}
	equal := func(when string) {
		t.Helper()
		answer(when+", afterwards", a.masters...)
		r := a.equal(a.masters[0], 3, map[string]int{"key": len(ids) + decided, "job": sent, "return": sent, "minion": len(ids)})
		t.Logf("%s: afterwards all have the same: %v", when, r.Counts)
	}
	answer("at first", a.masters...)
	equal("at first")

	for _, f := range []struct {
		name     string
		do, undo func(m *node)
		// gone means that minions must leave the master, apart that the master can still be
		// commanded on its own.
		gone, apart bool
	}{
		{"killed", func(m *node) { m.Kill() }, func(m *node) { m.Launch() }, true, false},
		{"frozen", func(m *node) { m.Signal(syscall.SIGSTOP) }, func(m *node) { m.Signal(syscall.SIGCONT) }, true, false},
		{"cut off from all", lost, func(m *node) { heal(m); net.Join(at[m], away) }, true, false},
		{"cut off from the other masters", part, heal, false, true},
	} {
		held := map[*node][]string{}
		for id, m := range minions {
			held[a.named(uses(t, m, a.masters))] = append(held[a.named(uses(t, m, a.masters))], id)
		}
		victim := a.masters[0]
		for m, of := range held {
			if len(of) > len(held[victim]) {
				victim = m
			}
		}
		others := but(a.masters, victim)
		var elsewhere []string
		for _, id := range ids {
			if !slices.Contains(held[victim], id) {
				elsewhere = append(elsewhere, id)
			}
		}
		from := time.Now()
		f.do(victim)
		if len(elsewhere) > 0 {
			job(f.name, others[0], elsewhere...)
		}
		if f.gone {
			for _, id := range held[victim] {
				eventually.Nil(t, soon, id+" moves", func() error {
					if now, _ := mastersOf(minions[id]); len(now) != 1 || now[0] == victim.Host {
						return fmt.Errorf("at %q", now)
					}
					return nil
				})
				took, since := lastSwitch(minions[id])
				t.Logf("%s: %s had another master %.2f s after the fault; from noticing to receiving %.3f s", f.name, id, since.Sub(from).Seconds(), took)
			}
			job(f.name, others[1], ids...)
		} else if len(held[victim]) > 0 {
			job(f.name, victim, held[victim]...)
		}
		// A decision about a key is made meanwhile.
		decided++
		late := fmt.Sprintf("late%d", decided)
		n := daemontest.NewMinion(t, brine, late, []string{others[0].Host}, "")
		n.Within = away.Within()
		n.Start()
		eventually.Nil(t, soon, late+" is seen", func() error {
			if s := state(others[0], late); s != "minions_pre" {
				return errors.New(s)
			}
			return nil
		})
		others[0].Accept(late)
		took := eventually.Nil(t, soon, late+" is accepted on the other", func() error {
			if s := state(others[1], late); s != "minions" {
				return errors.New(s)
			}
			return nil
		})
		t.Logf("%s: a key accepted on one was accepted on the other after %v", f.name, took.Round(time.Millisecond))
		n.Kill()
		f.undo(victim)
		took = eventually.Nil(t, soon, late+" is accepted on the one that was unreachable", func() error {
			if s := state(victim, late); s != "minions" {
				return errors.New(s)
			}
			return nil
		})
		t.Logf("%s: on the one that was unreachable %v after its return", f.name, took.Round(time.Millisecond))
		equal(f.name)
	}

	// Two of three are lost, then all.
	for _, m := range a.masters[1:] {
		m.Kill()
	}
	answer("when two of three are lost", a.masters[0])
	job("two of three lost", a.masters[0], ids...)
	for _, m := range a.masters[1:] {
		m.Launch()
	}
	equal("two of three lost")
	for _, m := range a.masters {
		m.Kill()
	}
	for _, m := range a.masters {
		m.Launch()
	}
	equal("all restarted")
	for id, m := range minions {
		if !m.Alive() {
			t.Errorf("the process of %s has ended", id)
		}
	}
}

func joined(ids []string) string { return strings.Join(ids, ",") }

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

var switched = regexp.MustCompile(`switched to another master.* seconds=([0-9.e-]+)`)

// lastSwitch returns how long the last change of a minion's master took, from detecting the loss of
// the previous one, and since when the minion is connected to the present one.
func lastSwitch(minion *node) (seconds float64, since time.Time) {
	if all := switched.FindAllStringSubmatch(minion.Log(), -1); len(all) > 0 {
		seconds, _ = strconv.ParseFloat(all[len(all)-1][1], 64)
	}
	b, _ := os.ReadFile(minion.Path("var/cache/salt/minion/brine/masters.json"))
	var n struct {
		Masters []struct {
			State string
			Since time.Time
		}
	}
	_ = json.Unmarshal(b, &n)
	for _, m := range n.Masters {
		if m.State == "connected" {
			since = m.Since
		}
	}
	return seconds, since
}
