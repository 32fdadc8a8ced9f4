package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

type statusRow struct {
	ID       string  `json:"id"`
	State    string  `json:"state"`
	Minions  int     `json:"minions"`
	Draining bool    `json:"draining"`
	Zone     string  `json:"zone"`
	Share    int     `json:"share"`
	Lag      int     `json:"lag"`
	Clock    float64 `json:"clock"`
	Version  string  `json:"version"`
	Brine    string  `json:"brine"`
	Differs  int     `json:"differs"`
}

func status(m *node) (rows []statusRow, code int, err error) {
	out, errs, code := m.Run(brine, "cluster", "status", "--out=json")
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		return nil, code, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	return rows, code, nil
}

// mastersOf returns the masters to which a minion's daemon is connected, and its standby masters.
func mastersOf(minion *node) (active, standby []string) {
	b, err := os.ReadFile(minion.Path("var/cache/salt/minion/brine/masters.json"))
	if err != nil {
		return nil, nil
	}
	var n struct {
		Masters []struct{ Master, State string }
	}
	if json.Unmarshal(b, &n) != nil {
		return nil, nil
	}
	for _, m := range n.Masters {
		host, _, _ := strings.Cut(m.Master, ":")
		switch m.State {
		case "connected":
			active = append(active, host)
		case "standby":
			standby = append(standby, host)
		}
	}
	return active, standby
}

// uses waits until a minion uses one of some masters, and another of them, or any, is on standby.
func uses(t *testing.T, minion *node, one []*node) (active string) {
	t.Helper()
	eventually.Nil(t, soon, fmt.Sprintf("%s uses one of %d masters and another stands by", minion.Name, len(one)), func() error {
		now, standby := mastersOf(minion)
		if len(now) != 1 || len(standby) == 0 || slices.Contains(standby, now[0]) ||
			!slices.ContainsFunc(one, func(m *node) bool { return m.Host == now[0] }) {
			return fmt.Errorf("at %q, standby %q", now, standby)
		}
		active = now[0]
		return nil
	})
	return active
}

func (a *apart) named(host string) *node {
	return a.masters[slices.IndexFunc(a.masters, func(m *node) bool { return m.Host == host })]
}

// TestMinionsLearnTheMasters: a minion configured with one master learns of all, and prefers those
// in its zone. It changes to another one when its master dies, even if the minion is restarted
// while its configured master is unreachable. It leaves a draining master, and uses one that joins.
func TestMinionsLearnTheMasters(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n")
	for i, m := range a.masters {
		m.Write("master", m.Read("master")+fmt.Sprintf("cluster_zone: %s\n", []string{"south", "north", "north"}[i]))
	}
	a.start()
	first, north := a.masters[0], a.masters[1:]
	m := daemontest.NewMinion(t, brine, "m0", []string{first.Host},
		"master_type: cluster\nmaster_zone: north\nmaster_rebalance: 3\nmaster_alive_interval: 3\n").Start()
	at := a.named(uses(t, m, north))
	other := north[0]
	if other == at {
		other = north[1]
	}
	eventually.Nil(t, soon, "it answers to all", func() error {
		for _, x := range a.masters {
			if err := x.PingAll(brine, "m0"); err != nil {
				return err
			}
		}
		return nil
	})
	// The status shows the minion's master.
	eventually.Nil(t, soon, "all are well", func() error {
		rows, code, err := status(first)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rows, func(r statusRow) bool { return r.ID == at.Name })
		if len(rows) != 3 || code != 0 || rows[i].Minions != 1 || rows[i].Zone != "north" || rows[i].Lag != 0 || rows[i].Version == "" {
			return fmt.Errorf("exit code %d: %+v", code, rows)
		}
		return nil
	})
	// The master drains.
	for _, bad := range [][]string{{"drain", "nobody"}, {"drain", "a/b"}, {"undrain", "nobody"}} {
		if out, errs, code := first.Run(brine, "cluster", bad...); code == 0 || !strings.Contains(out+errs, "there is no master") {
			t.Errorf("%q: %d %s%s", bad, code, out, errs)
		}
	}
	if out, errs, code := first.Run(brine, "cluster", "drain", at.Name); code != 0 {
		t.Fatal(out, errs)
	}
	uses(t, m, []*node{other})
	eventually.Nil(t, soon, "it is known that it drains", func() error {
		rows, _, err := status(other)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.Draining != (r.ID == at.Name) || r.ID == at.Name && r.Minions != 0 {
				return fmt.Errorf("%+v", rows)
			}
		}
		return nil
	})
	if out, errs, code := at.Run(brine, "cluster", "undrain"); code != 0 {
		t.Fatal(out, errs)
	}
	eventually.Nil(t, soon, "it does not drain any more", func() error {
		rows, _, err := status(first)
		if err == nil && slices.ContainsFunc(rows, func(r statusRow) bool { return r.Draining }) {
			err = fmt.Errorf("%+v", rows)
		}
		return err
	})
	// The minion's present master dies, and then the configured one; a new process of the minion
	// knows another.
	at = a.named(uses(t, m, a.masters))
	at.Kill()
	rest := slices.DeleteFunc(slices.Clone(a.masters), func(x *node) bool { return x == at })
	eventually.Nil(t, soon, "it uses another one", func() error { return rest[0].PingAll(brine, "m0") })
	eventually.Nil(t, soon, "the status says that one is unreachable", func() error {
		rows, code, err := status(rest[0])
		if err == nil && (code != 1 || len(rows) != 3) {
			err = fmt.Errorf("exit code %d: %+v", code, rows)
		}
		return err
	})
	at.Start()
	first.Kill()
	m.Signal(syscall.SIGTERM)
	m.Wait(30 * time.Second)
	m.Start()
	eventually.Nil(t, soon, "a new process knows the masters", func() error { return north[1].PingAll(brine, "m0") })
	if out, errs, code := m.Run(brine, "salt-call", "test.ping"); code != 0 || !strings.Contains(out, "True") {
		t.Errorf("salt-call: %d %s%s", code, out, errs)
	}
	first.Start()
	a.equal(first, 3, nil)
	// A fourth master joins, in the zone of this minion.
	late := a.add(daemontest.Host(), first.Host)
	late.Write("master", late.Read("master")+"cluster_zone: north\n")
	late.Start()
	for _, x := range north {
		if out, errs, code := first.Run(brine, "cluster", "drain", x.Name); code != 0 {
			t.Fatal(out, errs)
		}
	}
	uses(t, m, []*node{late})
	if _, errs, code := first.Run(brine, "cluster", "drain", late.Name); code != 0 {
		t.Fatal(errs)
	}
	if out, errs, code := first.Run(brine, "cluster", "drain"); code == 0 || !strings.Contains(out+errs, "no master would be left") {
		t.Errorf("the last one drains: %d %s%s", code, out, errs)
	}
	uses(t, m, []*node{first})
	// Once removed, it is no longer a master of this minion.
	if _, errs, code := first.Run(brine, "cluster", "undrain", north[0].Name); code != 0 {
		t.Fatal(errs)
	}
	uses(t, m, north[:1])
	if _, errs, code := first.Run(brine, "cluster", "remove", north[0].Name); code != 0 {
		t.Fatal(errs)
	}
	eventually.Nil(t, soon, "it is left", func() error {
		now, _ := mastersOf(m)
		if len(now) != 1 || now[0] == north[0].Host {
			return errors.New(fmt.Sprint(now))
		}
		return nil
	})
}

// TestWeights: a minion uses the master with by far the highest weight, regardless of the names,
// and another one when that weight becomes zero.
func TestWeights(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n")
	heavy := a.masters[1]
	set := func(m *node, weight int) {
		text, _, _ := strings.Cut(m.Read("master"), "cluster_weight")
		m.Write("master", text+fmt.Sprintf("cluster_weight: %d\n", weight))
	}
	for _, m := range a.masters {
		set(m, 1)
	}
	set(heavy, 10_000)
	a.start()
	m := daemontest.NewMinion(t, brine, "m0", []string{a.masters[0].Host}, "master_type: cluster\nmaster_rebalance: 3\nmaster_latency: []\n").Start()
	uses(t, m, []*node{heavy})
	heavy.Signal(syscall.SIGTERM)
	heavy.Wait(30 * time.Second)
	set(heavy, 1)
	next := a.masters[2]
	next.Signal(syscall.SIGTERM)
	next.Wait(30 * time.Second)
	set(next, 10_000)
	heavy.Start()
	next.Start()
	uses(t, m, []*node{next})
	eventually.Nil(t, soon, "the status says so", func() error {
		rows, _, err := status(a.masters[0])
		if err != nil {
			return err
		}
		for _, r := range rows {
			if want := map[bool]int{false: 1, true: 10_000}[r.ID == next.Name]; r.Share != want {
				return fmt.Errorf("%+v", rows)
			}
		}
		return nil
	})
}

// far returns an address at which a master is reached with a delay in both directions.
func far(t *testing.T, m *node, late time.Duration) (host string) {
	t.Helper()
	host = daemontest.Host()
	for _, to := range []string{m.Publications(), m.Requests()} {
		_, port, _ := net.SplitHostPort(to)
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					up, err := net.Dial("tcp", to)
					if err != nil {
						return
					}
					defer up.Close()
					go func() { lag(up, c, late); c.Close() }()
					lag(c, up, late)
				}()
			}
		}()
	}
	return host
}

// lag copies data with a delay.
func lag(to io.Writer, from io.Reader, late time.Duration) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		time.Sleep(late)
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// TestSlowMaster: a minion leaves a slow master for a fast one although the weights prefer the slow
// one. It uses the slow one again when no other is running.
func TestSlowMaster(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "auto_accept: true\n")
	near, slow := a.masters[0], a.masters[1]
	host := far(t, slow, 700*time.Millisecond)
	near.Write("master", near.Read("master")+"cluster_weight: 1\n")
	slow.Write("master", slow.Read("master")+"cluster_weight: 10000\ncluster_minion_address: "+host+"\n")
	a.start()
	m := daemontest.NewMinion(t, brine, "m0", []string{near.Host}, "master_type: cluster\nmaster_rebalance: 3\nmaster_latency: [600]\n").Start()
	eventually.Nil(t, soon, "it is known to be slow", func() error {
		for line := range strings.Lines(m.Log()) {
			if strings.Contains(line, "measured the response time of the master") && strings.Contains(line, host) && strings.Contains(line, "class=1") {
				return nil
			}
		}
		now, standby := mastersOf(m)
		return fmt.Errorf("at %q, standby %q", now, standby)
	})
	uses(t, m, []*node{near})
	near.Kill()
	eventually.Nil(t, soon, "it uses the slow one", func() error {
		if now, _ := mastersOf(m); len(now) != 1 || now[0] != host {
			return fmt.Errorf("at %q", now)
		}
		return nil
	})
}
