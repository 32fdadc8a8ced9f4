package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/host/netif"
	"brine/internal/py/value"
)

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules(Sources{})) }

const signatures, table = "testdata/signatures.json", "testdata/jobs.json"

func TestSignatures(t *testing.T) {
	all := Modules(Sources{})
	at := slices.IndexFunc(all, func(m fn.Module) bool { return m.Name == "ipset" })
	stocktest.Signatures(t, ipsetTable, []fn.Module{all[at]}, nil)
	stocktest.Signatures(t, signatures, slices.Delete(all, at, at+1), nil)
}

// ipsetTable was recorded with ipset installed, without which Salt lacks the module.
const ipsetTable = "testdata/ipset.json"

func TestLikeSalt(t *testing.T) {
	stocktest.Compare(t, table, registry(t, live()), func() *fn.Call { return &fn.Call{} })
}

func TestRecordingIsTrue(t *testing.T) {
	stocktest.Verify(t, signatures)
	stocktest.Verify(t, table)
	if (&host.Machine{}).Which("ipset") != "" {
		stocktest.Verify(t, ipsetTable)
	}
}

func live() Sources {
	return Sources{Machine: &host.Machine{}, Interfaces: netif.Interfaces, DNS: &net.Resolver{PreferGo: true}}
}

func registry(t *testing.T, s Sources) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(nil, Modules(s)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fixture(t *testing.T) (Sources, *[]string) {
	t.Helper()
	m := &host.Machine{Root: t.TempDir()}
	for path, text := range map[string]string{
		"/sbin/ip": "", "/bin/ping": "", "/bin/ss": "", "/sbin/arp": "", "/usr/bin/dig": "", "/usr/bin/traceroute": "", "/sbin/ethtool": "",
		"/etc/hosts": "127.0.0.1 localhost\n192.0.2.2 web.example.org web\n", "/proc/sys/kernel/hostname": "web\n",
		"/proc/net/tcp": "  sl  local_address rem_address   st\n   0: 0100007F:0016 00000000:0000 0A 0\n   1: 020200C0:0016 0500000A:C001 01 0\n",
		"/proc/net/tcp6": "  sl\n   0: 0000000000000000FFFF0000020200C0:0050 0000000000000000FFFF00000500000A:1F90 01 0\n   1: " +
			"B80D0120000000000000000001000000:0050 B80D0120000000000000000002000000:1F90 01\n broken\n   2: xx:1 yy:2 01\n",
	} {
		if err := os.MkdirAll(filepath.Dir(m.Path(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.Path(path), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	answers := map[string]string{
		"ip -4 route show table main": "default via 192.0.2.1 dev eth0 proto dhcp\n10.0.0.0/8 via 192.0.2.9 dev eth0\n192.0.2.0/24 dev eth0 scope " +
			"link\nunreachable 10.9.0.0/16",
		"ip -6 route show table all": "default via fe80::1 dev eth0 metric 1024\nlocal ::1 dev lo\nfd00::/64 dev eth0 proto kernel",
		"ip route get 10.0.0.1":      "10.0.0.1 via 192.0.2.9 dev eth0 src 192.0.2.2 uid 0\n    cache",
		"ping -W 2 -c 4 example.org": "4 packets transmitted",
		"ss -tulpnea": "Netid State Recv-Q Send-Q Local Peer\ntcp LISTEN 0 9 *:22 *:* users:((\"sshd\",pid=1,fd=3)) ino:7 sk:1 <->\n" +
			"udp UNCONN 0 0 *:68 *:* uid:5 ino:8 sk:2",
		"arp -an": "? (192.0.2.1) at 02:fc:00:00:00:05 [ether] on eth0\n? (192.0.2.7) at <incomplete> on eth0\n",
		"ip neigh show": "192.0.2.1 dev eth0 lladdr 02:fc:00:00:00:05 REACHABLE\n192.0.2.7 dev eth0 FAILED\nfe80::1 dev eth0 lladdr " +
			"02:fc:00:00:00:09 router STALE",
		"dig example.org":        "; <<>> DiG\n",
		"traceroute --version":   "Modern traceroute for Linux, version 2.1.2",
		"traceroute example.org": "traceroute to example.org (1.2.3.4), 30 hops max\n 1  gw (192.0.2.1)  0.031 ms  0.012 ms  0.009 ms\n 2  * * *\n 3  what",
		"ethtool -g eth0":        "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\t0\nCurrent hardware settings:\nRX:\t\t256\n",
	}
	var calls []string
	m.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		call := strings.Join(append([]string{filepath.Base(path)}, args...), " ")
		calls = append(calls, call)
		out, ok := answers[call]
		if !ok {
			return "", 2, nil
		}
		return out, 0, nil
	}
	addr := func(p string, secondary bool, scope string) netif.Addr {
		a := netif.Addr{Prefix: netip.MustParsePrefix(p), Label: "eth0", Scope: scope, Secondary: secondary}
		if a.Prefix.Addr().Is4() && scope == "global" {
			a.Broadcast = netif.Last(a.Prefix)
		}
		return a
	}
	list := []netif.Interface{
		{Name: "lo", Up: true, Hardware: "00:00:00:00:00:00", Addrs: []netif.Addr{addr("127.0.0.1/8", false, "host"), addr("::1/128", false, "host")}},
		{Name: "eth0", Up: true, Hardware: "02:fc:00:00:00:01",
			Addrs: []netif.Addr{addr("192.0.2.2/24", false, "global"), addr("192.0.2.3/24", true, "global"), addr("fd00::2/64", false, "global")}},
		{Name: "eth1", Parent: "if7", Addrs: []netif.Addr{addr("8.8.4.4/30", false, "link")}},
		{Name: "tun0"},
	}
	return Sources{Machine: m, Interfaces: func() ([]netif.Interface, error) { return list, nil }}, &calls
}

func TestFixture(t *testing.T) {
	s, _ := fixture(t)
	r := registry(t, s)
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"interfaces", nil, "{'lo': {'up': True, 'hwaddr': '00:00:00:00:00:00', 'inet': [{'address': '127.0.0.1', 'netmask': '255.0.0.0', " +
			"'broadcast': None, 'label': 'eth0'}], 'inet6': [{'address': '::1', 'prefixlen': '128', 'scope': 'host'}]}, " +
			"'eth0': {'up': True, 'hwaddr': '02:fc:00:00:00:01', 'inet': [{'address': '192.0.2.2', 'netmask': '255.255.255.0', 'broadcast': " +
			"'192.0.2.255', 'label': 'eth0'}], " +
			"'secondary': [{'type': 'inet', 'address': '192.0.2.3', 'netmask': '255.255.255.0', 'broadcast': '192.0.2.255', 'label': 'eth0'}], " +
			"'inet6': [{'address': 'fd00::2', 'prefixlen': '64', 'scope': 'global'}]}, " +
			"'eth1': {'up': False, 'parent': 'if7', 'inet': [{'address': '8.8.4.4', 'netmask': '255.255.255.252', 'broadcast': None, 'label': " +
			"'eth0'}]}, 'tun0': {'up': False}}"},
		{"interface", []any{"eth1"}, "[{'address': '8.8.4.4', 'netmask': '255.255.255.252', 'broadcast': None, 'label': 'eth0'}]"},
		{"interface", []any{"tun0"}, "''"},
		{"interface_ip", []any{"eth0"}, "'192.0.2.2'"},
		{"interface_ip", []any{"tun0"}, "''"},
		{"interface_ip", []any{"x"}, `'Interface "x" not in available interfaces: "lo", "eth0", "eth1", "tun0"'`},
		{"hw_addr", []any{"eth0"}, "'02:fc:00:00:00:01'"},
		{"hwaddr", []any{"tun0"}, "''"},
		{"ip_addrs", nil, "['8.8.4.4', '192.0.2.2', '192.0.2.3']"},
		{"ipaddrs", []any{"lo", true}, "['127.0.0.1']"},
		{"ip_addrs", []any{"eth*,x", "cidr=192.0.2.0/24"}, "['192.0.2.2', '192.0.2.3']"},
		{"ip_addrs", []any{"type=public"}, "['8.8.4.4']"},
		{"ip_addrs", []any{"type=private"}, "['192.0.2.2', '192.0.2.3']"},
		{"ip_addrs", []any{"cidr=nonsense"}, "[]"},
		{"ip_addrs6", nil, "['fd00::2']"},
		{"subnets", nil, "['8.8.4.4/30', '192.0.2.0/24']"},
		{"subnets", []any{"eth1"}, "['8.8.4.4/30']"},
		{"subnets6", nil, "['fd00::/64']"},
		{"ip_networks", []any{"eth0"}, "['192.0.2.0/24']"},
		{"ip_networks", []any{"lo", true, true},
			"{'127.0.0.0/8': {'address': '127.0.0.0', 'netmask': '255.0.0.0', 'num_addresses': 16777216, 'prefixlen': 8}}"},
		{"ip_networks6", []any{"verbose=true"},
			"{'fd00::/64': {'address': 'fd00::', 'netmask': 'ffff:ffff:ffff:ffff::', 'num_addresses': 18446744073709551616, 'prefixlen': 64}}"},
		{"in_subnet", []any{"192.0.2.0/24"}, "True"},
		{"in_subnet", []any{"127.0.0.0/8"}, "False"},
		{"ifacestartswith", []any{"8.8"}, "['eth0']"},
		{"get_hostname", nil, "'web'"},
		{"get_fqdn", nil, "'web.example.org'"},
		{"fqdns", nil, "{'fqdns': ['web.example.org']}"},
		{"active_tcp", nil, "{0: {'local_addr': '192.0.2.2', 'local_port': 22, 'remote_addr': '10.0.0.5', 'remote_port': 49153}, 1: {'local_addr': " +
			"'192.0.2.2', 'local_port': 80, 'remote_addr': '10.0.0.5', 'remote_port': 8080}, " +
			"2: {'local_addr': '2001:db8::1', 'local_port': 80, 'remote_addr': '2001:db8::2', 'remote_port': 8080}}"},
		{"routes", []any{"inet"},
			"[{'addr_family': 'inet', 'destination': '0.0.0.0', 'gateway': '192.0.2.1', 'netmask': '0.0.0.0', 'flags': 'UG', 'interface': 'eth0'}, " +
				"{'addr_family': 'inet', 'destination': '10.0.0.0', 'gateway': '0.0.0.0', 'netmask': '255.0.0.0', 'flags': 'U', 'interface': 'eth0'}, " +
				"{'addr_family': 'inet', 'destination': '192.0.2.0', 'gateway': '0.0.0.0', 'netmask': '255.255.255.0', 'flags': 'U', 'interface': 'eth0'}]"},
		{"routes", []any{"inet6"},
			"[{'addr_family': 'inet6', 'destination': '::/0', 'gateway': 'fe80::1', 'netmask': '', 'flags': 'UG', 'interface': 'eth0'}, " +
				"{'addr_family': 'inet6', 'destination': '::1/128', 'gateway': '::', 'netmask': '', 'flags': 'U', 'interface': 'lo'}, " +
				"{'addr_family': 'inet6', 'destination': 'fd00::/64', 'gateway': '::', 'netmask': '', 'flags': 'U', 'interface': 'eth0'}]"},
		{"default_route", []any{"inet"},
			"[{'addr_family': 'inet', 'destination': '0.0.0.0', 'gateway': '192.0.2.1', 'netmask': '0.0.0.0', 'flags': 'UG', 'interface': 'eth0'}]"},
		{"get_route", []any{"10.0.0.1"}, "{'destination': '10.0.0.1', 'gateway': '192.0.2.9', 'interface': 'eth0', 'source': '192.0.2.2'}"},
		{"get_route", []any{"10.0.0.2"}, "'ERROR: there is no route to 10.0.0.2: '"},
		{"netstat", nil, "[{'proto': 'tcp', 'recv-q': '0', 'send-q': '9', 'local-address': '*:22', 'remote-address': '*:*', 'state': 'LISTEN', " +
			"'user': '0', 'inode': '7', 'program': 'sshd'}, " +
			"{'proto': 'udp', 'recv-q': '0', 'send-q': '0', 'local-address': '*:68', 'remote-address': '*:*', 'user': '5', 'inode': '8', 'program': ''}]"},
		{"arp", nil, "{'02:fc:00:00:00:05': '192.0.2.1', '<incomplete>': '192.0.2.7'}"},
		{"ip_neighs", nil, "{'02:fc:00:00:00:05': '192.0.2.1'}"},
		{"ip_neighs6", nil, "{'02:fc:00:00:00:09': 'fe80::1'}"},
		{"dig", []any{"-example.org;"}, "'; <<>> DiG'"},
		{"traceroute", []any{"example.org"},
			"[{'count': 1, 'hostname': 'gw', 'ip': '192.0.2.1', 'ms1': 0.031, 'ms2': 0.012, 'ms3': 0.009}, {'count': 2, 'hostname': '*'}, {}]"},
		{"get_bufsize", []any{"eth0"}, "{'result': True, 'rx-max': 4096, 'rx-mini-max': 0, 'rx': 256}"},
		{"get_bufsize", []any{"eth9"}, "{'result': False, 'comment': ''}"},
		{"get_bufsize", []any{"-x"}, `'ERROR executing \'network.get_bufsize\': "-x" is no name of an interface'`},
		{"mod_bufsize", []any{"eth0", "rx-mini=3", "rx=512"}, "{'result': True, 'comment': 'rx 512 rx-mini 3'}"},
		{"mod_bufsize", []any{"eth0", 1, 2}, "{'result': False, 'comment': 'Unknown arguments: 1 2'}"},
		{"mod_bufsize", []any{"eth0"}, "{'result': False, 'comment': 'Requires rx=<val> tx==<val> rx-mini=<val> and/or rx-jumbo=<val>'}"},
		{"ping", []any{"example.org", 2}, "'4 packets transmitted'"},
		{"ping", []any{"example.com", "return_boolean=true"}, "False"},
	} {
		if got := value.Repr(r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "network." + c.fun, Arg: c.arg}).Return); got != c.want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, got, c.want)
		}
	}
}

// TestRoutesOfNetstat reads the output of netstat where ip is missing.
func TestRoutesOfNetstat(t *testing.T) {
	s, _ := fixture(t)
	if err := s.Machine.WriteFile("/bin/netstat", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Machine.Chmod("/bin/netstat", 0o755); err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{
		"inet": "Kernel IP routing table\nDestination Gateway Genmask Flags MSS Window irtt Iface\n0.0.0.0 192.0.2.1 0.0.0.0 UG 0 0 0 eth0\n10.0.0.0 " +
			"192.0.2.9 255.0.0.0 UG 0 0 0 eth1",
		"inet6": "Kernel IPv6 routing table\nDestination Next Hop Flag Met Ref Use If\nfd00::/64 :: U 256 1 0 eth0\n::/0 fd00::1 UG 1024 2 0 eth0\n" +
			"::/0 :: !n -1 1 0 lo\n::1/128 :: Un 0 412345 lo",
	}
	s.Machine.Exec = func(_ context.Context, _ string, args ...string) (string, int, error) {
		return answers[args[1]], 0, nil
	}
	r := registry(t, s)
	for fun, want := range map[string]string{
		"network.routes": "[{'addr_family': 'inet', 'destination': '0.0.0.0', 'gateway': '192.0.2.1', 'netmask': '0.0.0.0', 'flags': 'UG', " +
			"'interface': 'eth0'}, " +
			"{'addr_family': 'inet', 'destination': '10.0.0.0', 'gateway': '192.0.2.9', 'netmask': '255.0.0.0', 'flags': 'UG', 'interface': 'eth1'}, " +
			"{'addr_family': 'inet6', 'destination': 'fd00::/64', 'gateway': '::', 'netmask': '', 'flags': 'U', 'interface': 'eth0'}, " +
			"{'addr_family': 'inet6', 'destination': '::/0', 'gateway': 'fd00::1', 'netmask': '', 'flags': 'UG', 'interface': 'eth0'}, " +
			"{'addr_family': 'inet6', 'destination': '::/0', 'gateway': '::', 'netmask': '', 'flags': '!n', 'interface': 'lo'}, " +
			"{'addr_family': 'inet6', 'destination': '::1/128', 'gateway': '::', 'netmask': '', 'flags': 'Un', 'interface': 'lo'}]",
		"network.default_route": "[{'addr_family': 'inet', 'destination': '0.0.0.0', 'gateway': '192.0.2.1', 'netmask': '0.0.0.0', 'flags': 'UG', " +
			"'interface': 'eth0'}, " +
			"{'addr_family': 'inet6', 'destination': '::/0', 'gateway': 'fd00::1', 'netmask': '', 'flags': 'UG', 'interface': 'eth0'}, " +
			"{'addr_family': 'inet6', 'destination': '::/0', 'gateway': '::', 'netmask': '', 'flags': '!n', 'interface': 'lo'}]",
	} {
		if got := value.Repr(r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: fun}).Return); got != want {
			t.Errorf("%s: got  %s\nwant %s", fun, got, want)
		}
	}
}

// TestOldTraceroute parses the output of a traceroute other than Linux's.
func TestOldTraceroute(t *testing.T) {
	want := "{'count': '1', 'hostname': 'gw', 'ip': '(192.0.2.1)', 'ms1': 'ms', 'ms2': 'ms', 'ms3': 'ms', 'ping1': '0.1', 'ping2': '0.2', 'ping3': '0.3'}"
	if got := value.Repr(oldHop(" 1  gw (192.0.2.1)  0.1 ms  0.2 ms  0.3 ms")); got != want {
		t.Errorf("%s", got)
	}
	for text, want := range map[string]bool{"Modern traceroute for Linux, version 2.0.19, Dec 10 2012": true, "version 2.0.9": false, "version 2.1.0": true,
		"Version 1.4a12": false, "BusyBox": false} {
		if modern(text) != want {
			t.Errorf("%q is not modern: %v", text, want)
		}
	}
}

func TestMissingProgram(t *testing.T) {
	r := registry(t, Sources{Machine: &host.Machine{Root: t.TempDir()}})
	for _, c := range [][]string{{"network.dig", "x"}, {"network.traceroute", "x"}, {"network.arp"}} {
		var arg []any
		for _, a := range c[1:] {
			arg = append(arg, a)
		}
		want := "Command required for '" + c[0] + "' not found: The '" + strings.TrimPrefix(c[0], "network.") + "' binary was not found in $PATH."
		if o := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: c[0], Arg: arg}); o.Return != want || o.Success {
			t.Errorf("%+v", o)
		}
	}
}

func TestWake(t *testing.T) {
	l, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := registry(t, live())
	port := l.LocalAddr().(*net.UDPAddr).Port
	for _, mac := range []string{"08-00-27-13-69-77", "080027136977", "08:00:27:13:69:77"} {
		if o := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "network.wol", Arg: []any{mac, "127.0.0.1", port}}); o.Return != true {
			t.Fatalf("%+v", o)
		}
		if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 200)
		n, _, err := l.ReadFrom(b)
		if want := strings.Repeat("\xff", 6) + strings.Repeat("\x08\x00\x27\x13\x69\x77", 16); err != nil || string(b[:n]) != want {
			t.Errorf("%s: got %x, %v", mac, b[:n], err)
		}
	}
	for _, mac := range []string{"", "x", "08002713697", "08:00:27:13:69:7g", "08-00-27-13-69-77-00"} {
		if o := r.Run(t.Context(), &fn.Call{},
			fn.Job{Fun: "network.wol", Arg: []any{mac, "127.0.0.1", port}}); o.Return != "ERROR executing 'network.wol': Invalid MAC address" {
			t.Errorf("%q: %+v", mac, o)
		}
	}
}

func TestSetHostname(t *testing.T) {
	for _, c := range []struct {
		family, program, status string
		want                    []string
		hosts, file, text       string
	}{
		{"Debian", "hostname", "", []string{"hostname new.example.org"}, "192.0.2.2\t\tnew.example.org web\n", "/etc/hostname", "new.example.org\n"},
		{"RedHat", "hostnamectl", " Static hostname: web\n", []string{"hostnamectl status", "hostnamectl set-hostname new.example.org"},
			"192.0.2.2\t\tweb.example.org new.example.org\n", "/etc/sysconfig/network", "NETWORKING=yes\nHOSTNAME=\"new.example.org\"\n"},
	} {
		s, calls := fixture(t)
		for path, text := range map[string]string{"/bin/" + c.program: "", "/etc/sysconfig/network": "NETWORKING=yes\nHOSTNAME=\"web\"\n"} {
			if err := s.Machine.WriteFile(path, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Machine.Chmod("/bin/"+c.program, 0o755); err != nil {
			t.Fatal(err)
		}
		s.Machine.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
			*calls = append(*calls, strings.Join(append([]string{filepath.Base(path)}, args...), " "))
			return c.status, 0, nil
		}
		r := registry(t, s)
		call := &fn.Call{Grains: fn.Tree{Dict: value.DictOf("os_family", c.family)}}
		if o := r.Run(t.Context(), call, fn.Job{Fun: "network.mod_hostname", Arg: []any{"new.example.org"}}); o.Return != true {
			t.Errorf("%+v", o)
		}
		if hosts := s.Machine.Text("/etc/hosts"); hosts != "127.0.0.1 localhost\n"+c.hosts || s.Machine.Text(c.file) != c.text ||
			strings.Join(*calls, "|") != strings.Join(c.want, "|") {
			t.Errorf("%s: %q, %q, ran %q", c.family, hosts, s.Machine.Text(c.file), *calls)
		}
		*calls = nil
		if o := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "network.mod_hostname", Arg: []any{nil}}); o.Return != false {
			t.Errorf("%+v", o)
		}
		if o := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "network.mod_hostname", Arg: []any{"-x"}}); o.Success || len(*calls) > 0 {
			t.Errorf("%+v, ran %q", o, *calls)
		}
	}
}

func TestNoOptionsForPing(t *testing.T) {
	s, calls := fixture(t)
	r := registry(t, s)
	for host, want := range map[string]string{"-f": "ping -c 4 f", "a; reboot": "ping -c 4 areboot", "$(x)": "ping -c 4 x"} {
		*calls = nil
		r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "network.ping", Arg: []any{host}})
		if len(*calls) != 1 || (*calls)[0] != want {
			t.Errorf("%q: ran %q", host, *calls)
		}
	}
	*calls = nil
	for _, arg := range [][]any{{""}, {"--"}, {"x", "-f"}} {
		if o := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "network.ping", Arg: arg}); o.Success || len(*calls) != 0 {
			t.Errorf("%v: %+v, ran %q", arg, o, *calls)
		}
	}
}

func TestConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	r := registry(t, live())
	connect := func(arg ...any) *value.Dict {
		return r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "network.connect", Arg: arg}).Return.(*value.Dict)
	}
	if d := connect("127.0.0.1", port, "timeout=3"); !d.Bool("result") || d.Str("comment") != "Successfully connected to 127.0.0.1 (127.0.0.1) on tcp port "+
		strconv.Itoa(port) {
		t.Errorf("%v", value.Repr(d))
	}
	l.Close()
	if d := connect("127.0.0.1", port); d.Bool("result") || !strings.HasPrefix(d.Str("comment"), "Unable to connect to 127.0.0.1 (127.0.0.1) on tcp port ") {
		t.Errorf("%v", value.Repr(d))
	}
	if d := connect("no-such-host.invalid", 1, "timeout=2"); d.Bool("result") || !strings.HasPrefix(d.Str("comment"), "Unable to ") {
		t.Errorf("%v", value.Repr(d))
	}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	go func() {
		b := make([]byte, 100)
		if n, from, err := u.ReadFrom(b); err == nil {
			_, _ = u.WriteTo(b[:n], from)
		}
	}()
	if d := connect("127.0.0.1", u.LocalAddr().(*net.UDPAddr).Port, "proto=udp"); !d.Bool("result") {
		t.Errorf("%v", value.Repr(d))
	}
}

func TestKernelRefuses(t *testing.T) {
	r := registry(t, Sources{Machine: &host.Machine{Root: t.TempDir()},
		Interfaces: func() ([]netif.Interface, error) { return nil, errors.New("the kernel refuses") }})
	for _, fun := range []string{"interfaces", "ip_addrs", "subnets", "ip_networks", "fqdns"} {
		if o := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "network." + fun}); o.Return != "ERROR: the kernel refuses" {
			t.Errorf("%s: %+v", fun, o)
		}
	}
}

// TestLikeSaltHere compares what Salt and Brine read from this machine.
func TestLikeSaltHere(t *testing.T) {
	list, err := netif.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	jobs := [][]any{{"network.interfaces"}, {"network.ip_addrs"}, {"network.ip_addrs6"}, {"network.ip_addrs", "include_loopback=True"}, {"network.subnets"},
		{"network.subnets6"},
		{"network.ip_networks"}, {"network.ip_networks6", "verbose=True"}, {"network.in_subnet", "127.0.0.0/8"}, {"network.get_hostname"},
		{"network.get_fqdn"}, {"network.routes"}, {"network.default_route"}, {"network.get_bufsize", "lo"}, {"network.get_route", "127.0.0.1"},
		{"network.ifacestartswith", "1"}, {"network.hw_addr", "no-such"}}
	for _, f := range list {
		jobs = append(jobs, []any{"network.interface", f.Name}, []any{"network.interface_ip", f.Name}, []any{"network.hw_addr", f.Name},
			[]any{"network.subnets", f.Name})
	}
	recorded := stocktest.Ask(t, nil, jobs...)
	r := registry(t, live())
	for i, j := range recorded {
		if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: j.Str("fun"), Arg: jobs[i][1:]}); !value.Equal(got.Return, j.At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got.Return), value.Repr(j.At("return")))
		}
	}
}
