package ha

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
	"brine/test/tools"
)

// alone runs a command in new namespaces after a script, which gets an argument.
func alone(t *testing.T, kind, script, arg string) []string {
	t.Helper()
	within := []string{"unshare", kind, "sh", "-c", `arg=$1; shift; ` + script + ` && exec "$@"`, "sh", arg}
	if out, err := exec.Command(within[0], append(within[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces here: %v: %s", err, out)
	}
	return within
}

func twoMasters(t *testing.T) (one, two *daemontest.Node) {
	t.Helper()
	one = daemontest.NewMaster(t, daemontest.Brine, "m1", daemontest.Host(), "auto_accept: True\n").Start()
	waitKeys(t, one)
	two = daemontest.NewMaster(t, daemontest.Brine, "m2", daemontest.Host(), "auto_accept: True\n")
	shareKeys(t, one, two)
	return one, two.Start()
}

func answers(t *testing.T, m *daemontest.Node, what string) {
	t.Helper()
	eventually.Nil(t, within, "it answers to "+m.Name+" "+what, func() error { return m.PingAll(daemontest.Brine, "w1") })
}

// TestMastersOfAService: the daemon finds its masters through a service record of a real name
// server, in the order of their priority, at their ports.
func TestMastersOfAService(t *testing.T) {
	t.Parallel()
	one, two := twoMasters(t)
	server := daemontest.Host()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+server+"\noptions timeout:5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	namespace := alone(t, "-m", "mount --bind $arg /etc/resolv.conf", conf)
	// The better one comes last in the answer.
	serve(t, server, map[string]service{"b.example.com.": {two.Host, 20}, "a.example.com.": {one.Host, 10}})
	w := daemontest.NewMinion(t, daemontest.Brine, "w1", []string{"_salt._tcp.example.com"}, "master_type: failover\nstandby_jobs: False\n")
	// The ports come from the service record.
	w.Write("minion", strings.Replace(w.Read("minion"), fmt.Sprintf("master_port: %d", daemontest.RetPort), "master_port: 1", 1))
	w.Within = namespace
	w.Start()
	answers(t, one, "by its priority")
	w.Logged("signed in to a standby master master=b.example.com")
	// A job from before that sign-in was queued, and still runs.
	eventually.Nil(t, within, "the other one does not command it", func() error {
		if two.PingAll(daemontest.Brine, "w1") == nil {
			return errors.New("it does")
		}
		return nil
	})
	one.Kill()
	answers(t, two, "when the first is unreachable")
}

type service struct {
	addr     string
	priority uint16
}

// serve answers questions for the hosts of a service and for their addresses.
func serve(t *testing.T, at string, hosts map[string]service) {
	t.Helper()
	c, err := net.ListenPacket("udp", at+":53")
	if err != nil {
		t.Skipf("no name server here: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if a := answer(buf[:n], hosts); a != nil {
				c.WriteTo(a, from)
			}
		}
	}()
}

func answer(q []byte, hosts map[string]service) []byte {
	const (
		header  = 12
		a, srv  = 1, 33
		pointer = 0xc0
	)
	name, end := "", header
	for end < len(q) && q[end] != 0 {
		next := end + int(q[end]) + 1
		if next >= len(q) {
			return nil
		}
		name += strings.ToLower(string(q[end+1:next])) + "."
		end = next
	}
	if end+5 > len(q) {
		return nil
	}
	kind := binary.BigEndian.Uint16(q[end+1:])
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[header:end+5]...)
	add := func(data []byte) {
		out[7]++
		out = append(out, pointer, header, 0, byte(kind), 0, 1, 0, 0, 0, 60, 0, byte(len(data)))
		out = append(out, data...)
	}
	switch {
	case kind == srv && name == "_salt._tcp.example.com.":
		for host, s := range hosts {
			data := binary.BigEndian.AppendUint16(nil, s.priority)
			data = binary.BigEndian.AppendUint16(data, 1)
			data = binary.BigEndian.AppendUint16(data, daemontest.RetPort)
			for _, label := range strings.Split(host, ".") {
				data = append(append(data, byte(len(label))), label...)
			}
			add(data)
		}
	case kind == a && hosts[name].addr != "":
		add(net.ParseIP(hosts[name].addr).To4())
	}
	return out
}

// TestMasterOfAFunction: the daemon uses the master that a function names. If it names none, the
// daemon exits with the reason.
func TestMasterOfAFunction(t *testing.T) {
	t.Parallel()
	m := daemontest.NewMaster(t, daemontest.Brine, "m1", daemontest.Host(), "auto_accept: True\n").Start()
	w := daemontest.NewMinion(t, daemontest.Brine, "w1", []string{"network.get_hostname"}, "master_type: func\n")
	w.Within = alone(t, "-u", "hostname $arg", m.Host)
	w.Start()
	answers(t, m, "that a function has named")
	bad := daemontest.NewMinion(t, daemontest.Brine, "w2", []string{"test.ping"}, "master_type: func\n").Launch()
	if code := bad.Wait(within); code == 0 || !strings.Contains(bad.Log(), "test.ping: expected the name of a master") {
		t.Errorf("a function that names none: %d %s", code, bad.Log())
	}
}

// TestSourceAddresses: the daemon connects from the configured address, interface and ports, also
// after the master was unreachable.
func TestSourceAddresses(t *testing.T) {
	tools.Need(t, "iproute2", "ss")
	for _, tr := range []string{"zeromq", "tcp", "ws"} {
		t.Run(tr, func(t *testing.T) {
			t.Parallel()
			network := netns.New(t)
			here, away := network.Machine(1), network.Machine(9)
			const extra = "10.77.9.77"
			for _, line := range []string{"ip link add other0 type veth peer name other1", "ip addr add " + extra + "/32 dev other0", "ip link set other0 up",
				"ip link set other1 up"} {
				if out, err := exec.Command("nsenter", append(away.Within()[1:], strings.Fields(line)...)...).CombinedOutput(); err != nil {
					t.Fatal(line, err, string(out))
				}
			}
			m := daemontest.NewMaster(t, daemontest.Brine, "m1", here.Addr, "auto_accept: True\ntransport: "+tr+"\n")
			m.Within = here.Within()
			m.Start()
			const retPort, publishPort = 31506, 31505
			for _, c := range []struct {
				options string
				addr    string
				ports   bool
			}{
				{"", away.Addr, false},
				{"source_address: " + extra + "\n", extra, false},
				{"source_interface_name: other0\nsource_address: " + away.Addr + "\n", extra, false},
				{fmt.Sprintf("source_address: %s\nsource_ret_port: %d\nsource_publish_port: %d\n", extra, retPort, publishPort), extra, true},
			} {
				w := daemontest.NewMinion(t, daemontest.Brine, "w1", []string{here.Addr}, "transport: "+tr+"\n"+c.options)
				w.Within = away.Within()
				w.Start()
				for _, when := range []string{"", "when the master was unreachable"} {
					if when != "" {
						m.Kill()
						m.Start()
					}
					answers(t, m, c.options+when)
					// The master's ends of the connections.
					args := append(here.Within()[1:], "ss", "-Htn", "state", "established", "sport", "=", fmt.Sprintf(":%d", daemontest.RetPort), "or",
						"sport", "=", fmt.Sprintf(":%d", daemontest.PublishPort))
					eventually.Nil(t, within, "it is connected as it was told: "+c.options+when, func() error {
						out, err := exec.Command("nsenter", args...).Output()
						if err != nil {
							return err
						}
						return connectedFrom(string(out), c.addr, c.ports,
							map[string]int{fmt.Sprint(daemontest.RetPort): retPort, fmt.Sprint(daemontest.PublishPort): publishPort})
					})
				}
				w.Kill()
				// The minion's key is a new one each time.
				m.Run(daemontest.Brine, "salt-key", "-y", "-d", "w1")
			}
		})
	}
}

// connectedFrom checks the output of ss: there must be connections to all ports of a master, all
// from one address, and from certain ports if ports is set.
func connectedFrom(out, addr string, ports bool, from map[string]int) error {
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		_, port, _ := net.SplitHostPort(f[2])
		host, remote, _ := net.SplitHostPort(f[3])
		host = strings.TrimPrefix(host, "::ffff:")
		if host != addr || ports && remote != fmt.Sprint(from[port]) {
			return errors.New(line)
		}
		seen[port] = true
	}
	if len(seen) != len(from) {
		return fmt.Errorf("connections: %q", out)
	}
	return nil
}
