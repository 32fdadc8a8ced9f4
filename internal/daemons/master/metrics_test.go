package master

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/liveness"
	"brine/internal/base/metrics"
	"brine/internal/net/transport"
	"brine/internal/net/transport/zeromq"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/test/eventually"
)

// crowd is a publisher with many subscribers.
type crowd struct {
	transport.Publisher
	peers []transport.Peer
}

func (c *crowd) Peers() []transport.Peer { return c.peers }

// crowded returns a master with n accepted minions, which all subscribe with a claimed id.
func crowded(t testing.TB, n int) *Master {
	t.Helper()
	dir, err := os.MkdirTemp("", "brm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := Config{ID: "one", PKIDir: filepath.Join(dir, "pki"), CacheDir: filepath.Join(dir, "cache"), User: "root", Opts: value.NewDict(0)}
	for _, p := range []any{&cfg.Options, &cfg.Channel, &cfg.Publish, &cfg.Keys, &cfg.Cache, &cfg.Jobs, &cfg.Events} {
		if err := field.Defaults(p); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Events.SockDir = filepath.Join(dir, "sock")
	cfg.Listen = []Listen{{Transport: zeromq.New(discard), Publish: "127.0.0.1:0", Request: "127.0.0.1:0"}}
	m, err := New(cfg, discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.release)
	c := &crowd{Publisher: m.publishers[0]}
	for i := range n {
		id := fmt.Sprintf("minion%05d.example.com", i)
		c.peers = append(c.peers, transport.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i)), Port: 1024 + i}, Claimed: id})
		if err := os.WriteFile(filepath.Join(cfg.PKIDir, "minions", id), []byte("key\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.publishers[0], m.presence.publishers = c, []transport.Publisher{c}
	for i := range 2 * maxFunctions {
		m.functions.published(&order{Publish: wire.Publish{Fun: fmt.Sprintf("module.function%d", i)}}, n)
	}
	return m
}

// stale expires the short-lived caches of the master.
func stale(t testing.TB, m *Master) {
	m.presence.at = time.Time{}
	for _, dir := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied"} {
		now := time.Now()
		if err := os.Chtimes(filepath.Join(m.cfg.PKIDir, dir), now, now); err != nil {
			t.Fatal(err)
		}
	}
}

func cpuTime() time.Duration {
	var use syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &use)
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkScrape measures the metrics page of a master with 5,000 minions and expired caches.
func BenchmarkScrape(b *testing.B) {
	m := crowded(b, 5000)
	s, err := metrics.New(":9175", "salt-master", m, discard)
	if err != nil {
		b.Fatal(err)
	}
	before, size := cpuTime(), 0
	for b.Loop() {
		b.StopTimer()
		stale(b, m)
		b.StartTimer()
		size = len(s.Page())
	}
	b.ReportMetric(float64((cpuTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(size), "bytes")
}

// TestBoundedLabels: whatever minions return and however many functions operators use,
// the number of series is bounded, and no label has an id.
func TestBoundedLabels(t *testing.T) {
	m := crowded(t, 20)
	page := func() string {
		var p metrics.Page
		m.Metrics(&p)
		return string(p.Bytes())
	}
	before := strings.Count(page(), "\n")
	for i := range 5000 {
		m.functions.returned(&wire.Return{Fun: fmt.Sprintf("invented.function%d", i), Success: true})
		m.functions.returned(&wire.Return{Fun: "state.apply", FunArgs: value.ListOf(fmt.Sprintf("invented%d", i)), Success: true})
		m.functions.returned(&wire.Return{Fun: strings.Repeat("x", 1<<10), Schedule: "s", Success: true})
		m.functions.published(&order{Publish: wire.Publish{Fun: fmt.Sprintf("site.function%d", i)}}, 1)
		m.signIns.count(fmt.Sprintf("act%d", i))
	}
	got := page()
	if after := strings.Count(got, "\n"); after != before {
		t.Errorf("%d lines before, %d after", before, after)
	}
	if strings.Contains(got, "invented") || strings.Contains(got, "minion0") {
		t.Error("a label has what a minion has chosen")
	}
	if want := "salt_function_responses_total{function=\"other\",state=\"\",success=\"true\"} 10000\n"; !strings.Contains(got, want) {
		t.Errorf("no %q", want)
	}
	if want := "brine_master_minions{state=\"connected\"} 20\n"; !strings.Contains(got, want) {
		t.Errorf("no %q", want)
	}
}

// TestAskItself: a master asks each of its request servers, which answers while the master runs.
func TestAskItself(t *testing.T) {
	m := crowded(t, 0)
	if len(m.asks) != 1 {
		t.Fatalf("%d questions", len(m.asks))
	}
	ask := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return m.asks[0].Ask(ctx)
	}
	if err := ask(200 * time.Millisecond); err == nil {
		t.Error("a master that does not run answers")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	eventually.Nil(t, time.Minute, "the master answers", func() error { return ask(time.Minute) })
	eventually.Nil(t, time.Minute, "the master lives", func() error { return m.CheckLive(t.Context()) })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestHangingMaster: a master whose periodic work hangs fails the liveness check, and one that
// is not running is not ready.
func TestHangingMaster(t *testing.T) {
	m := crowded(t, 1)
	m.asks = nil // nothing serves
	ctx := context.Background()
	if err := m.CheckLive(ctx); err != nil {
		t.Errorf("before the first turn: %v", err)
	}
	if err := m.CheckReady(ctx); err == nil || !strings.Contains(err.Error(), "starting or stopping") {
		t.Errorf("before it runs: %v", err)
	}
	m.serving.Store(true)
	if err := m.CheckReady(ctx); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	m.beat.Beat()
	limit := liveness.StepTime
	liveness.StepTime = 0
	if err := m.CheckLive(ctx); err == nil || !strings.Contains(err.Error(), "has hung since") {
		t.Errorf("while its work hangs: %v", err)
	}
	liveness.StepTime = limit
	if err := m.CheckLive(ctx); err != nil {
		t.Errorf("while it works: %v", err)
	}
	if err := m.jobs.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckReady(ctx); err == nil || !strings.Contains(err.Error(), "cannot store jobs") {
		t.Errorf("without a job store: %v", err)
	}
}
