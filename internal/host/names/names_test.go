package names

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"

	"brine/internal/host"
)

const hosts = `
127.0.0.1 localhost
127.0.1.1	web.example.com web  # ours
::1 localhost ip6-localhost
192.0.2.7 db1 db1.example.com
192.0.2.8 DB1
::ffff:192.0.2.9 mapped
::1 six
fe80::1%eth0 link
# 192.0.2.9 commented
junk name
192.0.2.10
`

// dns answers from maps. For unknown names it blocks until ctx ends.
type dns struct {
	cname map[string]string
	ip    map[string][]netip.Addr
	ptr   map[string][]string
	asked atomic.Int32
}

func answer[V any](ctx context.Context, d *dns, m map[string]V, key string) (V, error) {
	d.asked.Add(1)
	if v, ok := m[key]; ok {
		return v, nil
	}
	<-ctx.Done()
	var none V
	return none, errors.New("no answer")
}

func (d *dns) LookupCNAME(ctx context.Context, host string) (string, error) {
	return answer(ctx, d, d.cname, host)
}

func (d *dns) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return answer(ctx, d, d.ip, network+" "+host)
}

func (d *dns) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	return answer(ctx, d, d.ptr, addr)
}

func finder(t *testing.T, r Resolver) *Finder {
	t.Helper()
	m := &host.Machine{Root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(m.Root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.Path("/etc/hosts"), []byte(hosts), 0o644); err != nil {
		t.Fatal(err)
	}
	return New(m, r)
}

func addrs(text ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range text {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestHostsFile(t *testing.T) {
	f := finder(t, nil)
	ctx := t.Context()
	for name, want := range map[string]string{"web": "web.example.com", "WEB": "web.example.com", "db1.example.com": "db1", "unknown": "unknown", "": "",
		"commented": "commented"} {
		if got := f.Canonical(ctx, name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"web": "web.example.com", "db1": "db1.example.com", "unknown": "unknown", "": ""} {
		if got := f.Full(ctx, name); got != want {
			t.Errorf("the full name of %q is %q, want %q", name, got, want)
		}
	}
	for _, c := range []struct {
		name string
		v4   bool
		want []netip.Addr
	}{
		{"localhost", true, addrs("127.0.0.1")}, {"localhost", false, addrs("::1")},
		{"db1", true, addrs("192.0.2.7", "192.0.2.8")}, {"db1", false, nil},
		{"mapped", true, addrs("192.0.2.9")}, {"mapped", false, addrs("::ffff:192.0.2.9")},
		{"six", true, addrs("127.0.0.1")}, {"link", false, addrs("fe80::1")}, {"unknown", true, nil}, {"", true, nil},
	} {
		if got := f.Addresses(ctx, c.name, c.v4); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q has %v, want %v", c.name, got, c.want)
		}
	}
	got := f.Reverse(ctx, addrs("192.0.2.7", "127.0.1.1", "192.0.2.99", "fe80::1", "192.0.2.7"))
	if want := []string{"db1.example.com", "link", "web.example.com"}; !reflect.DeepEqual(got, want) {
		t.Errorf("reverse %v, want %v", got, want)
	}
}

func TestDNS(t *testing.T) {
	d := &dns{
		cname: map[string]string{"api": "api.example.net.", "self": "."},
		ip:    map[string][]netip.Addr{"ip4 api": addrs("198.51.100.2", "::ffff:198.51.100.2", "198.51.100.1"), "ip6 api": addrs("2001:db8::1")},
		ptr:   map[string][]string{"198.51.100.1": {"short", "long.example.net."}, "198.51.100.2": {"only."}},
	}
	f := finder(t, d)
	ctx := t.Context()
	if got := f.Canonical(ctx, "api"); got != "api.example.net" {
		t.Errorf("canonical %q", got)
	}
	if got := f.Canonical(ctx, "self"); got != "self" {
		t.Errorf("canonical %q", got)
	}
	if got := f.Addresses(ctx, "api", true); !reflect.DeepEqual(got, addrs("198.51.100.2", "198.51.100.1")) {
		t.Errorf("IPv4 %v", got)
	}
	if got := f.Addresses(ctx, "api", false); !reflect.DeepEqual(got, addrs("2001:db8::1")) {
		t.Errorf("IPv6 %v", got)
	}
	if got := f.Reverse(ctx, addrs("198.51.100.1", "198.51.100.2")); !reflect.DeepEqual(got, []string{"long.example.net", "only"}) {
		t.Errorf("reverse %v", got)
	}
	before := d.asked.Load()
	f.Canonical(ctx, "web")
	f.Addresses(ctx, "web", true)
	f.Reverse(ctx, addrs("127.0.1.1"))
	if d.asked.Load() != before {
		t.Error("DNS is queried for names of the hosts file")
	}
}

// TestEnd uses a DNS that never answers: lookups end with the context, and
// return known names.
func TestEnd(t *testing.T) {
	f := finder(t, &dns{ptr: map[string][]string{"198.51.100.1": {"a.example."}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	many := addrs("127.0.1.1")
	for i := range 100 {
		many = append(many, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
	}
	if got := f.Reverse(ctx, many); !reflect.DeepEqual(got, []string{"web.example.com"}) {
		t.Errorf("reverse %v", got)
	}
	if got := f.Canonical(ctx, "slow"); got != "slow" {
		t.Errorf("canonical %q", got)
	}
	if got := f.Addresses(ctx, "slow", true); got != nil {
		t.Errorf("addresses %v", got)
	}
}
