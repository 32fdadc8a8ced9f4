// Package netns runs the daemons of a test on simulated machines with real networks between them,
// which drop packets when the test requests it. It needs root.
package netns

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"brine/test/tools"
)

// Network is a set of machines, each in its own network namespace, around a router that can
// silently drop packets between two of them. The namespaces exist as long as the processes that
// hold them, which end with the test.
type Network struct {
	t      testing.TB
	router int // process in the router's namespace
}

// New creates the router. It skips the test if that is not possible.
func New(t testing.TB) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces can be made by root only")
	}
	tools.Need(t, "iproute2", "ip")
	tools.Need(t, "util-linux", "nsenter")
	n := &Network{t: t}
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

// namespace creates a namespace and returns the id of the process that holds it.
func (n *Network) namespace() (int, error) {
	c := exec.Command("sleep", "3600")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return 0, err
	}
	n.t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c.Process.Pid, n.in(c.Process.Pid, "ip", "link", "set", "lo", "up")
}

// enter returns the command that runs another one in a namespace.
func enter(holder int) []string {
	return []string{"nsenter", "--target", strconv.Itoa(holder), "--net"}
}

func (n *Network) in(holder int, args ...string) error {
	args = append(enter(holder), args...)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (n *Network) must(holder int, command string) {
	n.t.Helper()
	if err := n.in(holder, strings.Fields(command)...); err != nil {
		n.t.Fatal(err)
	}
}

// Machine is a machine of the network.
type Machine struct {
	n      *Network
	holder int
	// Addr is its address.
	Addr string
	link string // the router's end
}

// Machine adds number i to the network.
func (n *Network) Machine(i int) *Machine {
	n.t.Helper()
	holder, err := n.namespace()
	if err != nil {
		n.t.Skipf("network namespaces cannot be made here: %v", err)
	}
	m := &Machine{n: n, holder: holder, Addr: fmt.Sprintf("10.77.%d.2", i), link: fmt.Sprintf("to%d", i)}
	if err := n.in(n.router, "ip", "link", "add", m.link, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(holder)); err != nil {
		n.t.Skipf("network namespaces cannot be joined here: %v", err)
	}
	n.must(n.router, fmt.Sprintf("ip addr add 10.77.%d.1/24 dev %s", i, m.link))
	n.must(n.router, "ip link set "+m.link+" up")
	n.must(holder, "ip addr add "+m.Addr+"/24 dev eth0")
	n.must(holder, "ip link set eth0 up")
	n.must(holder, fmt.Sprintf("ip route add default via 10.77.%d.1", i))
	return m
}

// Swallow makes the router drop all packets from one machine to another.
func (n *Network) Swallow(from, to *Machine) {
	n.must(n.router, "ip rule add from "+from.Addr+" to "+to.Addr+" type blackhole")
}

// Pass undoes Swallow.
func (n *Network) Pass(from, to *Machine) {
	n.must(n.router, "ip rule del from "+from.Addr+" to "+to.Addr+" type blackhole")
}

// Within returns the command that runs another one on the machine.
func (m *Machine) Within() []string { return enter(m.holder) }

// Pull disconnects the machine's cable.
func (m *Machine) Pull() { m.n.must(m.n.router, "ip link set "+m.link+" down") }

// Plug undoes Pull.
func (m *Machine) Plug() { m.n.must(m.n.router, "ip link set "+m.link+" up") }

// Part makes the router drop all packets between two machines.
func (n *Network) Part(a, b *Machine) { n.Swallow(a, b); n.Swallow(b, a) }

// Join undoes Part.
func (n *Network) Join(a, b *Machine) { n.Pass(a, b); n.Pass(b, a) }
