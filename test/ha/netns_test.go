package ha

import (
	"fmt"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
)

// TestNetworkFaults uses real networks between two masters and two minions: one uses both masters,
// the other one at a time. Packets of one master are lost in each possible way. The minion of one
// master moves to the other one, the minion of both continues with the other one, and neither
// process ends. When the network works again the first master commands the hot minion again.
func TestNetworkFaults(t *testing.T) {
	for _, tr := range []string{"zeromq", "tcp", "ws"} {
		t.Run(tr, func(t *testing.T) {
			t.Parallel()
			testNetworkFaults(t, "transport: "+tr+"\n")
		})
	}
}

func testNetworkFaults(t *testing.T, more string) {
	net := netns.New(t)
	away := net.Machine(9) // network of the minions
	s := &setup{t: t}
	at := map[*site]*netns.Machine{}
	for i := range 2 {
		where := net.Machine(i + 1)
		m := daemontest.NewMaster(t, daemontest.Brine, fmt.Sprintf("m%d", i+1), where.Addr, "auto_accept: True\n"+more)
		m.Within = where.Within()
		if i > 0 {
			waitKeys(t, s.sites[0].Node)
			shareKeys(t, s.sites[0].Node, m)
		}
		m.Start()
		x := &site{Node: m, front: &front{host: where.Addr}, heard: listen(t, m)}
		s.sites, at[x] = append(s.sites, x), where
	}
	minion := func(id, more string) *daemontest.Node {
		w := daemontest.NewMinion(t, daemontest.Brine, id, s.hosts(), more)
		w.Within = away.Within()
		return w.Start()
	}
	s.minion = minion("w1", "master_type: failover\n"+more)
	hot := minion("hot", more)
	answers := func(x *site, id string) error {
		rets, err := x.SaltJSON(daemontest.Brine, id, "test.ping")
		if err == nil && rets[id] != true {
			err = fmt.Errorf("no answer: %v", rets)
		}
		return err
	}
	await := func(x *site, id string) {
		t.Helper()
		eventually.Nil(t, within, id+" answers "+x.Name, func() error { return answers(x, id) })
	}
	for _, x := range s.sites {
		await(x, "hot")
	}
	now := 0
	for _, f := range []struct {
		name     string
		do, undo func(x *site)
	}{
		{"lost both ways",
			func(x *site) { net.Swallow(away, at[x]); net.Swallow(at[x], away) },
			func(x *site) { net.Pass(away, at[x]); net.Pass(at[x], away) }},
		{"lost on the way to the master",
			func(x *site) { net.Swallow(away, at[x]) }, func(x *site) { net.Pass(away, at[x]) }},
		{"lost on the way to the minion",
			func(x *site) { net.Swallow(at[x], away) }, func(x *site) { net.Pass(at[x], away) }},
		{"half-open: the machine has lost its power, and is back without the connections",
			func(x *site) {
				net.Swallow(away, at[x])
				net.Swallow(at[x], away)
				x.Kill()
			},
			func(x *site) {
				x.Start()
				x.heard = listen(t, x.Node)
				net.Pass(away, at[x])
				net.Pass(at[x], away)
			}},
		{"half-open: it is back before any client noticed",
			func(x *site) {
				net.Swallow(away, at[x])
				net.Swallow(at[x], away)
				x.Kill()
				net.Pass(away, at[x])
				net.Pass(at[x], away)
			},
			func(x *site) { x.Start(); x.heard = listen(t, x.Node) }},
		{"cable pulled",
			func(x *site) { at[x].Pull() },
			func(x *site) { at[x].Plug() }},
	} {
		here, other := s.sites[now], s.sites[1-now]
		await(here, "w1")
		s.standsBy(now, 1-now)
		_, before := other.heard.last(changedTag)
		f.do(here)
		if err := answers(other, "hot"); err != nil {
			t.Errorf("%s: a ping of the living master was lost: %v", f.name, err)
		}
		data, took := s.moved(1-now, before)
		await(other, "w1")
		t.Logf("%s: on the next master %.2f s after that ping; reason %q", f.name, took.Seconds(), data.Str("reason"))
		s.alive()
		if !hot.Alive() {
			t.Fatalf("%s: the hot minion's process has ended", f.name)
		}
		f.undo(here)
		await(here, "hot")
		now = 1 - now
	}
}
