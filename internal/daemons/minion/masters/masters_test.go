package masters

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/daemons/minion/address"
	"brine/internal/py/value"
)

func newFinder(names ...string) *Finder {
	return &Finder{Options: &Options{Master: names, MasterType: TypeStr, MasterPort: 4506}, ID: "w1", Log: slog.New(slog.DiscardHandler)}
}

func TestOrderOfMasters(t *testing.T) {
	list := Names{"a", "b:1", "[::1]:2", "::2"}
	orders := map[string]bool{}
	for _, c := range []struct {
		name  string
		set   func(*Finder)
		want  []string // nil for any order
		first string
	}{
		{name: "hot", set: func(*Finder) {}, want: list},
		{name: "failover", set: func(m *Finder) { m.Options.MasterType = "failover" }, want: list},
		// The crc32 of "w1" is 0x7079fdf4, which is 1 modulo 3.
		{name: "distributed", set: func(m *Finder) { m.Options.MasterType = "distributed"; m.Options.Master = m.Options.Master[:3] },
			want: []string{"b:1", "[::1]:2", "a"}},
		{name: "random", set: func(m *Finder) { m.Options.RandomMaster = true }},
		{name: "random failback", set: func(m *Finder) { m.Options.MasterShuffle, m.Failback, m.Options.MasterType = true, true, "failover" }, first: "a"},
	} {
		m := newFinder(slices.Clone(list)...)
		c.set(m)
		for range 20 {
			got, err := m.Names(t.Context())
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

// TestShuffleWithoutEffect: a minion warns when its options have no effect on
// the order.
func TestShuffleWithoutEffect(t *testing.T) {
	for n, warns := range map[int]bool{2: true, 3: false} {
		var said strings.Builder
		m := newFinder(Names{"a", "b", "c"}[:n]...)
		m.Options.MasterShuffle, m.Failback, m.Options.MasterType = true, true, "failover"
		m.Log = slog.New(slog.NewTextHandler(&said, nil))
		if _, err := m.Names(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(said.String(), "master_shuffle has no effect"); got != warns {
			t.Errorf("%d masters: %s", n, &said)
		}
	}
}

// TestService looks masters up as a DNS service: hosts by priority, a service listed with
// other names, and a later look-up if the name server was unreachable.
func TestService(t *testing.T) {
	var down atomic.Bool
	r := nameServer(t, &down)
	m := newFinder("_salt._tcp.example.com", "last")
	m.Resolver, m.Options.MasterType = r, TypeFailover
	got, err := m.Names(t.Context())
	if want := []string{"m7.example.com:4516", "m8.example.com:4526", "last"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	down.Store(true)
	if got, err = m.Names(t.Context()); err != nil || !slices.Equal(got, []string{"_salt._tcp.example.com", "last"}) {
		t.Fatalf("without a name server: %v, %v", got, err)
	}
	found, err := m.Addresses(got)
	if err != nil || len(found) != 2 {
		t.Fatal(found, err)
	}
	if _, err := found[0].Resolve(t.Context(), r); err == nil {
		t.Error("resolved without a name server")
	}
	down.Store(false)
	ends, err := found[0].Resolve(t.Context(), r)
	if want := []address.Endpoint{{Host: "127.0.0.7", Port: 4516}, {Host: "127.0.0.8", Port: 4526}}; err != nil || !slices.Equal(ends, want) {
		t.Errorf("later: %v, %v", ends, err)
	}
}

// nameServer is a DNS server with one service. While it is down it answers with
// an error.
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

// dnsAnswer answers a query for the service with two hosts, the preferred one last, and a
// query for the address of mN with 127.0.0.N.
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

func TestMastersOfAFunction(t *testing.T) {
	m := newFinder("my.function")
	m.Options.MasterType = TypeFunc
	var o fn.Outcome
	m.Call = func(_ context.Context, j fn.Job) fn.Outcome {
		if j.Fun != "my.function" {
			t.Errorf("called %s", j.Fun)
		}
		return o
	}
	o.Return = value.ListOf("a", "b")
	if got, err := m.Names(t.Context()); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, o = range []fn.Outcome{{Err: errors.New("no")}, {Return: int64(1)}, {Return: nil}, {Return: value.ListOf("")}} {
		if got, err := m.Names(t.Context()); err == nil {
			t.Errorf("%+v: %v", o, got)
		}
	}
	m.Options.Master = Names{"a", "b"}
	if _, err := m.Names(t.Context()); err == nil {
		t.Error("two functions are taken")
	}
}

func TestAddresses(t *testing.T) {
	m := newFinder()
	got, err := m.Addresses(Names{"a", "b:1", "a:4506", "x:0", "[::1]:2", "y:z"})
	var hosts []string
	for _, a := range got {
		hosts = append(hosts, a.Endpoint().String())
	}
	if !slices.Equal(hosts, []string{"a:4506", "b:1", "[::1]:2"}) || err == nil || !strings.Contains(err.Error(), "x:0") ||
		!strings.Contains(err.Error(), "y:z") {
		t.Errorf("%v, %v", hosts, err)
	}
}

func TestSearches(t *testing.T) {
	m := newFinder("salt")
	if m.Searches() {
		t.Error("it searches although discovery is off")
	}
	m.Options.Discovery.On = true
	m.InUse = func() []string { return []string{"10.0.0.1:4506"} }
	if got, err := m.Names(t.Context()); err != nil || !slices.Equal(got, []string{"10.0.0.1:4506"}) {
		t.Errorf("those in use: %v, %v", got, err)
	}
	if found, err := m.Addresses(m.Options.Master); err != nil || found[0].Search == nil {
		t.Errorf("%v, %v", found, err)
	}
	m.Options.Master = Names{"other"}
	if m.Searches() {
		t.Error("it searches although a master is named")
	}
}

func TestTypes(t *testing.T) {
	for _, c := range []struct {
		word            string
		bad, one, learn bool
	}{
		{TypeStr, false, false, false}, {TypeFailover, false, true, false}, {TypeDistributed, false, true, false},
		{TypeCluster, false, true, true}, {TypeFunc, false, false, false}, {"hot", true, false, false},
	} {
		o := Options{Master: Names{"a"}, MasterType: c.word}
		if err := o.CheckType(); (err != nil) != c.bad || o.OneAtATime() != c.one || o.Learns() != c.learn {
			t.Errorf("%s: %v, %v, %v", c.word, err, o.OneAtATime(), o.Learns())
		}
	}
	if o := (Options{MasterType: TypeStr}); o.CheckType() == nil {
		t.Error("no master is named, and that is taken")
	}
	o := Options{Master: Names{"a"}, MasterType: TypeDisable}
	if err := o.CheckType(); err != nil || len(o.Master) != 0 || !o.Masterless() {
		t.Errorf("disable: %v, %v", err, o.Master)
	}
}
