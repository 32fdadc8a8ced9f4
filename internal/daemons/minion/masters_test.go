package minion

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"brine/internal/base/field"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/roles"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/value"
)

// newMinion makes a minion that is not run.
func newMinion(t testing.TB, change func(*Config)) (*Minion, error) {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	cfg := Config{ID: "w1", PKIDir: filepath.Join(dir, "pki"), CacheDir: filepath.Join(dir, "cache"), Opts: value.NewDict(0),
		Transport: zeromq.New(log), CollectGrains: func(context.Context) *value.Dict { return value.NewDict(0) }}
	for _, o := range []any{&cfg.Options, &cfg.Handshake, &cfg.Events} {
		if err := field.Defaults(o); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Events.SockDir = ""
	change(&cfg)
	return New(t.Context(), cfg, log)
}

func names(m *Minion) (out []string) {
	for _, c := range m.masters() {
		out = append(out, c.addr.Text)
	}
	return out
}

func TestOrderOfMasters(t *testing.T) {
	list := Masters{"a", "b:1", "[::1]:2", "::2"}
	orders := map[string]bool{}
	for _, c := range []struct {
		name  string
		set   func(*Options)
		want  []string // nil for any order
		first string
	}{
		{name: "hot", set: func(*Options) {}, want: list},
		{name: "failover", set: func(o *Options) { o.MasterType = "failover" }, want: list},
		// The crc32 of "w1" is 0x7079fdf4, which is 1 modulo 3.
		{name: "distributed", set: func(o *Options) { o.MasterType = "distributed"; o.Master = o.Master[:3] }, want: []string{"b:1", "[::1]:2", "a"}},
		{name: "random", set: func(o *Options) { o.RandomMaster = true }},
		{name: "random failback", set: func(o *Options) { o.MasterShuffle, o.Failback, o.MasterType = true, true, "failover" }, first: "a"},
	} {
		m, err := newMinion(t, func(cfg *Config) { cfg.Options.Master = slices.Clone(list); c.set(&cfg.Options) })
		if err != nil {
			t.Fatal(c.name, err)
		}
		for range 20 {
			got, err := m.nameMasters(t.Context())
			if err != nil {
				t.Fatal(c.name, err)
			}
			if c.want != nil {
				if !slices.Equal(got, c.want) {
					t.Errorf("%s: %v, want %v", c.name, got, c.want)
				}
				break
			}
			orders[c.name+strings.Join(got, ",")] = true
			if c.first != "" && got[0] != c.first {
				t.Errorf("%s: %v does not begin with %s", c.name, got, c.first)
			}
		}
	}
	if len(orders) < 6 {
		t.Errorf("hardly any chance in the order: %v", orders)
	}
}

// TestShuffleWithoutEffect: a minion says so when its options make no order.
func TestShuffleWithoutEffect(t *testing.T) {
	for n, warns := range map[int]bool{2: true, 3: false} {
		var said strings.Builder
		m, err := newMinion(t, func(cfg *Config) {
			cfg.Options.Master = Masters{"a", "b", "c"}[:n]
			cfg.Options.MasterShuffle, cfg.Options.Failback, cfg.Options.MasterType = true, true, "failover"
		})
		if err != nil {
			t.Fatal(err)
		}
		m.log = slog.New(slog.NewTextHandler(&said, nil))
		if _, err := m.nameMasters(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(said.String(), "master_shuffle does nothing"); got != warns {
			t.Errorf("%d masters: %s", n, &said)
		}
	}
}

func TestMasterFromFunction(t *testing.T) {
	m, err := newMinion(t, func(cfg *Config) { cfg.Options.MasterType, cfg.Options.Master = "func", Masters{"test.version"} })
	if err != nil || len(m.masters()) != 1 || !strings.HasPrefix(m.masters()[0].addr.Host, "3007") {
		t.Fatalf("%v, %v", m, err)
	}
	if r, _ := m.masters()[0].role.get(); r != roles.Active {
		t.Errorf("its role is %v", r)
	}
	for fun, text := range map[string]string{"no.such": "no.such", "test.ping": "expected the name of a master"} {
		if _, err := newMinion(t, func(cfg *Config) { cfg.Options.MasterType, cfg.Options.Master = "func", Masters{fun} }); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", fun, err)
		}
	}
	if _, err := newMinion(t, func(cfg *Config) { cfg.Options.MasterType = "nonsense" }); err == nil {
		t.Error("an unknown master_type is taken")
	}
}

// TestService looks masters up as a DNS service: by priority, listed with
// others, and again later if the name server was away.
func TestService(t *testing.T) {
	var down atomic.Bool
	r := nameServer(t, &down)
	change := func(cfg *Config) {
		cfg.Resolver = r
		cfg.Options.Master, cfg.Options.MasterType = Masters{"_salt._tcp.example.com", "last"}, "failover"
	}
	m, err := newMinion(t, change)
	if want := []string{"m7.example.com:4516", "m8.example.com:4526", "last"}; err != nil || !slices.Equal(names(m), want) {
		t.Errorf("%v, %v, want %v", names(m), err, want)
	}
	down.Store(true)
	if m, err = newMinion(t, change); err != nil || !slices.Equal(names(m), []string{"_salt._tcp.example.com", "last"}) {
		t.Fatalf("without a name server: %v, %v", names(m), err)
	}
	if _, err := m.masters()[0].addr.Resolve(t.Context(), r); err == nil {
		t.Error("resolved by nobody")
	}
	down.Store(false)
	got, err := m.masters()[0].addr.Resolve(t.Context(), r)
	if want := []address.Endpoint{{Host: "127.0.0.7", Port: 4516}, {Host: "127.0.0.8", Port: 4526}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("later: %v, %v", got, err)
	}
}

// nameServer is a DNS server that knows one service. While it is down it says
// that it failed.
func nameServer(t *testing.T, down *atomic.Bool) *net.Resolver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			c.WriteTo(dnsAnswer(buf[:n], down.Load()), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", c.LocalAddr().String())
	}}
}

// dnsAnswer answers a question for a service with two hosts, the better one
// last, and one for the address of mN with 127.0.0.N.
func dnsAnswer(q []byte, fail bool) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	question, kind := q[12:end+5], q[end+2]
	head := []byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}
	var answers []byte
	add := func(data []byte) {
		head[7]++
		answers = append(answers, 0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, byte(len(data)))
		answers = append(answers, data...)
	}
	switch {
	case fail:
		head[3] = 0x82
	case kind == 33:
		add([]byte{0, 20, 0, 1, 4526 >> 8, 4526 & 0xff, 2, 'm', '8', 7, 'e', 'x', 'a', 'm', 'p', 'l', 'e', 3, 'c', 'o', 'm', 0})
		add([]byte{0, 10, 0, 1, 4516 >> 8, 4516 & 0xff, 2, 'm', '7', 7, 'e', 'x', 'a', 'm', 'p', 'l', 'e', 3, 'c', 'o', 'm', 0})
	case kind == 1:
		add([]byte{127, 0, 0, q[14] - '0'})
	}
	return append(append(head, question...), answers...)
}
