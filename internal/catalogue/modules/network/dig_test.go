package network

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/test/tools"
)

// zone has the records of the test's name server, by type and name.
var zone = map[uint16]map[string][]string{
	1:  {"www.example.test.": {"192.0.2.1", "192.0.2.2"}, "ns.example.test.": {"192.0.2.53"}, "mail.example.test.": {"192.0.2.25"}},
	2:  {"example.test.": {"ns.example.test."}},
	5:  {"alias.example.test.": {"www.example.test."}},
	12: {"1.2.0.192.in-addr.arpa.": {"www.example.test."}},
	15: {"example.test.": {"mail.example.test."}},
	16: {"example.test.": {"v=spf1 ip4:192.0.2.0/24 include:other.test -all"}, "other.test.": {"v=spf1 +ip6:2001:db8::1 include:example.test"},
		"words.test.": {"two words"}},
	28: {"www.example.test.": {"2001:db8::1"}},
}

// wire encodes a name for DNS.
func wire(name string) []byte {
	var b []byte
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0)
}

func reply(q []byte) []byte {
	end, labels := 12, []string{}
	for q[end] != 0 {
		labels = append(labels, string(q[end+1:end+1+int(q[end])]))
		end += 1 + int(q[end])
	}
	kind := binary.BigEndian.Uint16(q[end+1:])
	found := zone[kind][strings.ToLower(strings.Join(labels, "."))+"."]
	head := []byte{q[0], q[1], 0x85, 0x80, 0, 1, 0, byte(len(found)), 0, 0, 0, 0}
	out := append(head, q[12:end+5]...)
	for _, v := range found {
		var data []byte
		switch kind {
		case 1, 28:
			data = netip.MustParseAddr(v).AsSlice()
		case 15:
			data = append([]byte{0, 10}, wire(v)...)
		case 16:
			data = append([]byte{byte(len(v))}, v...)
		default:
			data = wire(v)
		}
		out = append(out, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 60, byte(len(data)>>8), byte(len(data)))
		out = append(out, data...)
	}
	return out
}

// TestDig queries a test name server with the real dig.
func TestDig(t *testing.T) {
	tools.Need(t, "bind9-dnsutils", "dig")
	if os.Geteuid() != 0 {
		t.Skip("port 53 is for root")
	}
	const server = "127.53.77.1"
	conn, err := net.ListenPacket("udp", server+":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 1024)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if _, err := conn.WriteTo(reply(buf[:n]), from); err != nil {
				return
			}
		}
	}()
	r := registry(t, Sources{Machine: &host.Machine{}})
	for _, c := range []struct {
		fun  string
		args []any
		want string
	}{
		{"A", []any{"www.example.test", server}, "['192.0.2.1', '192.0.2.2']"},
		{"a", []any{"none.example.test", server}, "[]"},
		{"AAAA", []any{"www.example.test", server}, "['2001:db8::1']"},
		{"CNAME", []any{"alias.example.test", server}, "'www.example.test.'"},
		{"PTR", []any{"192.0.2.1", server}, "['www.example.test.']"},
		{"TXT", []any{"words.test", server}, `['"two words"']`},
		{"NS", []any{"example.test", true, server}, "['192.0.2.53']"},
		{"ns", []any{"example.test", false, server}, "['ns.example.test.']"},
		{"MX", []any{"example.test", false, server}, "[['10', 'mail.example.test.']]"},
		{"mx", []any{"example.test", true, server}, "[['10', '192.0.2.25']]"},
		{"SPF", []any{"example.test", "TXT", server},
			"['192.0.2.0/24', '2001:db8::1', '192.0.2.0/24', '2001:db8::1', '192.0.2.0/24']"}, // the records name each other: ten queries
		{"A", []any{"www.example.test", "127.53.77.2"}, "[]"}, // no server listens there
		{"check_ip", []any{"192.0.2.1/33"}, "False"},
		{"check_ip", []any{"2001:db8::/64"}, "True"},
		{"check_ip", []any{"www.example.test"}, "False"},
		{"check_ip", []any{int64(7)}, "False"},
	} {
		v, err := r.Call(context.Background(), &fn.Call{Log: slog.New(slog.DiscardHandler)}, "dig."+c.fun, c.args, nil)
		if got := value.Repr(v); err != nil || got != c.want {
			t.Errorf("%s %v: %s, %v, want %s", c.fun, c.args, got, err, c.want)
		}
	}
	for _, bad := range []string{"-f/etc/passwd", "@127.0.0.1", "+trace"} {
		if v, err := r.Call(context.Background(), &fn.Call{Log: slog.New(slog.DiscardHandler)}, "dig.A", []any{bad}, nil); err == nil {
			t.Errorf("%s: %v", bad, v)
		}
	}
}
