package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/host/freeport"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/fuzztest"
	"brine/test/tools"
)

var quiet = slog.New(slog.DiscardHandler)

func options(t *testing.T, text string) Options {
	t.Helper()
	v, err := yaml.Load([]byte(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	var o Options
	if err := o.SetValue(v); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOptions(t *testing.T) {
	if o := options(t, "false"); o.On {
		t.Errorf("%+v", o)
	}
	o := options(t, "true")
	if !o.On || o.Attempts != 3 || o.Pause != 5*time.Second || o.Port != 4520 || o.All || o.Mapping.Len() != 0 {
		t.Errorf("%+v", o)
	}
	o = options(t, "{attempts: 1, pause: 0, port: 99, match: all, mapping: {a: 1}}")
	if !o.On || o.Attempts != 1 || o.Pause != 0 || o.Port != 99 || !o.All || o.Mapping.Int("a") != 1 {
		t.Errorf("%+v", o)
	}
	var again Options
	if err := again.SetValue(o.Value()); err != nil || !value.Equal(again.Value(), o.Value()) || (Options{}).Value() != false {
		t.Errorf("%v, then %+v, %v", o.Value(), again, err)
	}
	for text, want := range map[string]string{
		"3": "expected True", "{ports: 1}": `"ports" is not known`, "{port: 0}": "a port", "{port: x}": "a port", "{match: some}": "any or all",
		"{attempts: 0}": "from 1", "{pause: -1}": "seconds", "{mapping: 3}": "a map",
	} {
		v, err := yaml.Load([]byte(text), "test")
		if err != nil {
			t.Fatal(err)
		}
		if err := new(Options).SetValue(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestFits has the cases of Salt's rule: any item, or all; an empty requirement
// always fits.
func TestFits(t *testing.T) {
	theirs := value.DictOf("a", int64(1), "b", "x")
	for _, c := range []struct {
		own      string
		any, all bool
	}{
		{"{}", true, true}, {"{a: 1}", true, true}, {"{a: 2}", false, false}, {"{a: 1, b: y}", true, false}, {"{a: 1, b: x}", true, true}, {"{c: 1}", false, false},
	} {
		for _, all := range []bool{false, true} {
			o := options(t, fmt.Sprintf("{match: any, mapping: %s}", c.own))
			o.All = all
			want := c.any
			if all {
				want = c.all
			}
			if got := o.fits(theirs); got != want {
				t.Errorf("%s, all %v: %v", c.own, all, got)
			}
		}
	}
}

func TestMessages(t *testing.T) {
	q := question(time.UnixMicro(1763772000123456))
	if string(q) != "__salt_master_service1763772000.123456" || !isQuestion(q) {
		t.Errorf("%q", q)
	}
	for _, bad := range []string{"", "__salt_master_service", "__salt_master_service:@:{}", "__salt_master_servicex", "x1.5"} {
		if isQuestion([]byte(bad)) {
			t.Errorf("%q is taken for a question", bad)
		}
	}
	f, mapping, err := parse([]byte(`__salt_master_service:@:{"mapping": {"a": 1}, "master": "192.0.2.7"}`))
	if err != nil || f.String() != "192.0.2.7" || mapping.Int("a") != 1 {
		t.Errorf("%v %v %v", f, mapping, err)
	}
	f, _, err = parse([]byte(`__salt_master_service:@:{"mapping": {}, "master": "m1.example.com", "ret_port": 99, "instance": "I"}`))
	if err != nil || f.String() != "m1.example.com:99" || f.instance != "I" {
		t.Errorf("%v %v", f, err)
	}
	for _, bad := range []string{
		"", "x", "__salt_master_service:E:Timestamp is too old", "__salt_master_service:@:", "__salt_master_service:@:[]", `__salt_master_service:@:{"master": 3}`,
		`__salt_master_service:@:{"master": ""}`, `__salt_master_service:@:{"master": "_salt._tcp.x"}`, `__salt_master_service:@:{"master": "a b"}`,
	} {
		if f, _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, f)
		}
	}
}

func TestEnter(t *testing.T) {
	var found []Found
	for _, f := range []Found{{"a", 0, ""}, {"a", 0, ""}, {"b", 1, "I"}, {"c", 1, "I"}, {"d", 1, "J"}, {"b", 1, "K"}} {
		found = enter(found, f)
	}
	if want := []Found{{"a", 0, ""}, {"b", 1, "I"}, {"d", 1, "J"}}; !slices.Equal(found, want) {
		t.Errorf("%v", found)
	}
}

// freePort returns a free UDP port.
func freePort(t *testing.T) int {
	t.Helper()
	ports, err := freeport.UDP(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}

func serve(t *testing.T, o Options, at string) {
	t.Helper()
	a, err := Listen(o, netip.MustParseAddrPort(at), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// loopback reaches all on this machine, and no other process.
var loopback = []netip.Addr{netip.MustParseAddr("127.255.255.255")}

// find searches until this many masters have answered, because a packet can be
// lost, and returns their names in order.
func find(t *testing.T, o Options, n int) []string {
	t.Helper()
	var names []string
	for range 20 {
		found, err := search(t.Context(), &o, loopback, quiet)
		if err != nil {
			t.Fatal(err)
		}
		names = nil
		for _, f := range found {
			names = append(names, f.String())
		}
		if len(names) >= n {
			break
		}
	}
	slices.Sort(names)
	return names
}

// TestSearch finds those of three masters on this machine that fit.
func TestSearch(t *testing.T) {
	port := freePort(t)
	with := func(mapping string) Options { return options(t, fmt.Sprintf("{port: %d, mapping: %s}", port, mapping)) }
	serve(t, with("{site: a}"), "127.0.0.2:4506")
	serve(t, with("{site: b, tier: 1}"), "127.0.0.3:99")
	serve(t, with("{site: b, tier: 2}"), "0.0.0.0:4506")
	for mapping, want := range map[string][]string{
		"{}": {"127.0.0.1:4506", "127.0.0.2:4506", "127.0.0.3:99"}, "{site: b}": {"127.0.0.1:4506", "127.0.0.3:99"}, "{tier: 1}": {"127.0.0.3:99"},
	} {
		if got := find(t, with(mapping), len(want)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", mapping, got, want)
		}
	}
}

func TestSearchEndsEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := options(t, fmt.Sprintf("{port: %d}", freePort(t)))
	if found, err := search(ctx, &o, loopback, quiet); err == nil || found != nil {
		t.Errorf("%v %v", found, err)
	}
}

// stock runs a Python program beside stock Salt's sources.
func stock(t *testing.T, program string) *exec.Cmd {
	t.Helper()
	src, python := tools.StockSalt(t)
	c := exec.Command(python, "-W", "ignore", "-c", program)
	c.Env = append(os.Environ(), "PYTHONPATH="+src)
	return c
}

func TestStockMinionFindsOurMaster(t *testing.T) {
	port := freePort(t)
	// It broadcasts to the networks of this machine, of which there may be none; so
	// it sends to this machine only.
	c := stock(t, fmt.Sprintf(`
import json, salt.utils.ssdp as s
c = s.SSDPDiscoveryClient(port=%d, timeout=2)
send = c._socket
class Here:
    def sendto(self, data, to): return send.sendto(data, ("127.255.255.255", to[1]))
    def recvfrom(self, n): return send.recvfrom(n)
c._socket = Here()
print(json.dumps(list(c.discover().values())))
`, port))
	serve(t, options(t, fmt.Sprintf("{port: %d, mapping: {site: a}}", port)), "127.0.0.2:4506")
	out, err := c.Output()
	if err != nil || !strings.Contains(string(out), `"mapping": {"site": "a"}, "master": "127.0.0.2"`) {
		t.Errorf("%s %v", out, err)
	}
}

func TestOurMinionFindsStockMaster(t *testing.T) {
	port := freePort(t)
	c := stock(t, fmt.Sprintf(`
import salt.utils.ssdp as s
s.SSDPDiscoveryServer.get_self_ip = staticmethod(lambda: "192.0.2.1")
s.SSDPDiscoveryServer(port=%d, listen_ip="0.0.0.0", answer={"mapping": {"site": "a"}}).run()
`, port))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	if got := find(t, options(t, fmt.Sprintf("{port: %d, mapping: {site: a}}", port)), 1); !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("%v", got)
	}
}

func FuzzParse(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add([]byte(`__salt_master_service:@:{"mapping": {}, "master": "192.0.2.7"}`))
	f.Add([]byte("__salt_master_service:E:x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if found, _, err := parse(b); err == nil && !isHost(found.Host) {
			t.Errorf("%q", found.Host)
		}
	})
}
