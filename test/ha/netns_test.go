//go:build linux

package ha

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"brine/test/daemontest"
)

// network is some machines, each in a network namespace of its own, around a
// router that can swallow packets between two of them without a word to
// anybody. The namespaces live as long as the processes that hold them, and so
// no longer than the test.
type network struct {
	t      *testing.T
	router int // process in the router's namespace
}

// newNetwork makes the router. Where that is not possible the test is skipped.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces can be made by root only")
	}
	for _, p := range []string{"ip", "nsenter", "sleep"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no network namespaces without the program %s: %v", p, err)
		}
	}
	n := &network{t: t}
	var err error
	if n.router, err = n.namespace(); err != nil {
		t.Skipf("network namespaces cannot be made here: %v", err)
	}
	for _, try := range []func() error{
		func() error {
			return n.in(n.router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
		},
		func() error {
			return n.in(n.router, "ip", "rule", "add", "from", "192.0.2.1", "to", "192.0.2.2", "type", "blackhole")
		},
	} {
		if err := try(); err != nil {
			t.Skipf("no routing in network namespaces here: %v", err)
		}
	}
	return n
}

// namespace makes a namespace and returns the process that holds it.
func (n *network) namespace() (int, error) {
	c := exec.Command("sleep", "3600")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := c.Start(); err != nil {
		return 0, err
	}
	n.t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c.Process.Pid, n.in(c.Process.Pid, "ip", "link", "set", "lo", "up")
}

// enter is the command that runs another one in a namespace.
func enter(holder int) []string {
	return []string{"nsenter", "--target", strconv.Itoa(holder), "--net"}
}

func (n *network) in(holder int, args ...string) error {
	args = append(enter(holder), args...)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (n *network) must(holder int, command string) {
	n.t.Helper()
	if err := n.in(holder, strings.Fields(command)...); err != nil {
		n.t.Fatal(err)
	}
}

// machine is one of them.
type machine struct {
	n      *network
	holder int
	addr   string
	link   string // the router's end
}

// machine adds number i to the network.
func (n *network) machine(i int) *machine {
	n.t.Helper()
	holder, err := n.namespace()
	if err != nil {
		n.t.Skipf("network namespaces cannot be made here: %v", err)
	}
	m := &machine{n: n, holder: holder, addr: fmt.Sprintf("10.77.%d.2", i), link: fmt.Sprintf("to%d", i)}
	if err := n.in(n.router, "ip", "link", "add", m.link, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(holder)); err != nil {
		n.t.Skipf("network namespaces cannot be joined here: %v", err)
	}
	n.must(n.router, fmt.Sprintf("ip addr add 10.77.%d.1/24 dev %s", i, m.link))
	n.must(n.router, "ip link set "+m.link+" up")
	n.must(holder, "ip addr add "+m.addr+"/24 dev eth0")
	n.must(holder, "ip link set eth0 up")
	n.must(holder, fmt.Sprintf("ip route add default via 10.77.%d.1", i))
	return m
}

// swallow has the router drop all packets from one machine to another.
func (n *network) swallow(from, to *machine) {
	n.must(n.router, "ip rule add from "+from.addr+" to "+to.addr+" type blackhole")
}

func (n *network) pass(from, to *machine) {
	n.must(n.router, "ip rule del from "+from.addr+" to "+to.addr+" type blackhole")
}

// TestNetworkFaults puts real networks between two masters and two minions, one
// that uses both and one that uses one at a time, and has packets of one master
// lost in each way there is. The minion of one master moves to the other one;
// the minion of both goes on with the other one; neither process ends; and when
// the network is good again the master commands the hot minion again.
func TestNetworkFaults(t *testing.T) {
	for _, tr := range []string{"zeromq", "tcp", "ws"} {
		t.Run(tr, func(t *testing.T) {
			t.Parallel()
			testNetworkFaults(t, "transport: "+tr+"\n")
		})
	}
}

func testNetworkFaults(t *testing.T, more string) {
	net := newNetwork(t)
	away := net.machine(9) // of the minions
	s := &setup{t: t}
	at := map[*site]*machine{}
	for i := range 2 {
		where := net.machine(i + 1)
		m := daemontest.NewMaster(t, daemontest.Brine, fmt.Sprintf("m%d", i+1), where.addr, "auto_accept: True\n"+more)
		m.Within = enter(where.holder)
		if i > 0 {
			waitKeys(t, s.sites[0].Node)
			shareKeys(t, s.sites[0].Node, m)
		}
		m.Start()
		x := &site{Node: m, front: &front{host: where.addr}, heard: listen(t, m)}
		s.sites, at[x] = append(s.sites, x), where
	}
	minion := func(id, more string) *daemontest.Node {
		w := daemontest.NewMinion(t, daemontest.Brine, id, s.hosts(), more)
		w.Within = enter(away.holder)
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
		daemontest.Eventually(t, within, id+" answers "+x.Name, func() error { return answers(x, id) })
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
			func(x *site) { net.swallow(away, at[x]); net.swallow(at[x], away) },
			func(x *site) { net.pass(away, at[x]); net.pass(at[x], away) }},
		{"lost on the way to the master",
			func(x *site) { net.swallow(away, at[x]) }, func(x *site) { net.pass(away, at[x]) }},
		{"lost on the way to the minion",
			func(x *site) { net.swallow(at[x], away) }, func(x *site) { net.pass(at[x], away) }},
		{"half-open: the machine has lost its power, and is back without the connections",
			func(x *site) {
				net.swallow(away, at[x])
				net.swallow(at[x], away)
				x.Kill()
			},
			func(x *site) {
				x.Start()
				x.heard = listen(t, x.Node)
				net.pass(away, at[x])
				net.pass(at[x], away)
			}},
		{"half-open: it is back before anybody noticed",
			func(x *site) {
				net.swallow(away, at[x])
				net.swallow(at[x], away)
				x.Kill()
				net.pass(away, at[x])
				net.pass(at[x], away)
			},
			func(x *site) { x.Start(); x.heard = listen(t, x.Node) }},
		{"cable pulled",
			func(x *site) { net.must(net.router, "ip link set "+at[x].link+" down") },
			func(x *site) { net.must(net.router, "ip link set "+at[x].link+" up") }},
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
