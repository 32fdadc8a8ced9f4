package metrics

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/test/eventually"
)

func TestPage(t *testing.T) {
	gauge := Family{Name: "b_now", Help: "What is.", Labels: []string{"a", "b"}}
	total := Family{Name: "a_total", Kind: Counter, Help: "What was."}
	took := Family{Name: "c_seconds", Kind: Duration, Help: "How long.", Labels: []string{"kind"}}
	var h Times
	h.Observe(time.Millisecond)
	h.Observe(40 * time.Millisecond)
	h.Observe(2 * time.Minute)
	var p Page
	p.Set(&gauge, 0.25, "x", "say \"hi\"\\\n\xff")
	p.Times(&took, &h, "k")
	p.Count(&total, 1_000_000)
	p.Set(&gauge, 3, "y", strings.Repeat("z", 500)) // after another family, and too long
	want := `# HELP a_total What was.
# TYPE a_total counter
a_total 1000000
# HELP b_now What is.
# TYPE b_now gauge
b_now{a="x",b="say \"hi\"\\\n?"} 0.25
b_now{a="y",b="` + strings.Repeat("z", maxLabel) + `"} 3
# HELP c_seconds How long.
# TYPE c_seconds histogram
c_seconds_bucket{kind="k",le="0.001"} 1
c_seconds_bucket{kind="k",le="0.0025"} 1
c_seconds_bucket{kind="k",le="0.005"} 1
c_seconds_bucket{kind="k",le="0.01"} 1
c_seconds_bucket{kind="k",le="0.025"} 1
c_seconds_bucket{kind="k",le="0.05"} 2
c_seconds_bucket{kind="k",le="0.1"} 2
c_seconds_bucket{kind="k",le="0.25"} 2
c_seconds_bucket{kind="k",le="0.5"} 2
c_seconds_bucket{kind="k",le="1"} 2
c_seconds_bucket{kind="k",le="2.5"} 2
c_seconds_bucket{kind="k",le="5"} 2
c_seconds_bucket{kind="k",le="10"} 2
c_seconds_bucket{kind="k",le="30"} 2
c_seconds_bucket{kind="k",le="60"} 2
c_seconds_bucket{kind="k",le="+Inf"} 3
c_seconds_sum{kind="k"} 120.041
c_seconds_count{kind="k"} 3
`
	if got := string(p.Bytes()); got != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
	if n := h.Longer(time.Second); n != 1 {
		t.Errorf("%d took longer than a second, want 1", n)
	}
	if n := h.Longer(10 * time.Millisecond); n != 2 {
		t.Errorf("%d took longer than 10 ms, want 2", n)
	}
}

// values returns the samples of a page.
func values(t *testing.T, page []byte) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for l := range strings.Lines(string(page)) {
		if strings.HasPrefix(l, "#") {
			continue
		}
		name, v, _ := strings.Cut(strings.TrimSpace(l), " ")
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		out[strings.SplitN(name, "{", 2)[0]] = n
	}
	return out
}

var sink []byte

// TestProcess changes each metric of the process.
func TestProcess(t *testing.T) {
	read := func() map[string]float64 {
		var p Page
		process(&p, "test")
		return values(t, p.Bytes())
	}
	grow := func(name string, act func()) {
		t.Helper()
		before := read()[name]
		act()
		if after := read()[name]; after <= before {
			t.Errorf("%s is %v before and %v after", name, before, after)
		}
	}
	end := make(chan struct{})
	defer close(end)
	grow("go_goroutines", func() {
		for range 50 {
			go func() { <-end }()
		}
	})
	grow("process_open_fds", func() {
		for range 20 {
			f, err := os.Open("/dev/null")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
		}
	})
	memory := func() {
		sink = make([]byte, 64<<20)
		for i := 0; i < len(sink); i += 4096 {
			sink[i] = 1
		}
	}
	for _, name := range []string{"process_resident_memory_bytes", "go_memstats_heap_alloc_bytes", "go_memstats_sys_bytes"} {
		sink = nil
		runtime.GC()
		before := read()[name]
		memory()
		if after := read()[name]; after <= before && name != "go_memstats_sys_bytes" {
			t.Errorf("%s is %v before and %v after", name, before, after)
		} else if after < float64(len(sink)) {
			t.Errorf("%s is %v with %d bytes in use", name, after, len(sink))
		}
	}
	sink = nil
	grow("process_cpu_seconds_total", func() {
		var use syscall.Rusage
		for n := read()["process_cpu_seconds_total"] + 0.05; time.Duration(use.Utime.Nano()+use.Stime.Nano()).Seconds() < n; {
			syscall.Getrusage(syscall.RUSAGE_SELF, &use)
		}
	})
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	lower := old
	lower.Cur--
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	if got := read()["process_max_fds"]; got != float64(lower.Cur) {
		t.Errorf("process_max_fds is %v, want %d", got, lower.Cur)
	}
	// These two do not change during a process.
	if at := read()["process_start_time_seconds"]; at > float64(time.Now().Unix()+2) || at < float64(time.Now().Add(-time.Hour).Unix()) {
		t.Errorf("process_start_time_seconds is %v, now is %d", at, time.Now().Unix())
	}
	var p Page
	process(&p, "test")
	want := `brine_build_info{version="` + salt.Version + `",goversion="` + runtime.Version() + `",program="test"} 1` + "\n"
	if !strings.Contains(string(p.Bytes()), want) {
		t.Errorf("no %s in\n%s", want, p.Bytes())
	}
	got := p.Families()
	for _, f := range ProcessFamilies() {
		found := false
		for _, g := range got {
			found = found || f == g
		}
		if !found {
			t.Errorf("%s is not written", f.Name)
		}
	}
	if len(got) != len(ProcessFamilies()) {
		t.Errorf("%d families are written, %d declared", len(got), len(ProcessFamilies()))
	}
}

func TestCheck(t *testing.T) {
	for addr, want := range map[string]string{
		"": "", ":9175": "127.0.0.1:9175", "127.0.0.1:9175": "127.0.0.1:9175", "[::1]:1": "[::1]:1", "0.0.0.0:80": "0.0.0.0:80",
		"web1.example.com:9175": "web1.example.com:9175",
		"9175":                  "?", "127.0.0.1": "?", "127.0.0.1:http": "?", "127.0.0.1:": "?", "::1:9175": "?", "127.0.0.1:70000": "?", "127.0.0.1:-1": "?",
	} {
		got, err := listenAddress("metrics_address", addr)
		if err != nil {
			got = "?"
			if salt.KindOf(err) != salt.Invalid || !strings.Contains(err.Error(), "metrics_address") {
				t.Errorf("%q: %v", addr, err)
			}
		}
		if got != want {
			t.Errorf("%q is bound as %q, want %q", addr, got, want)
		}
	}
}

// daemon is a Daemon whose health a test sets.
type daemon struct {
	live, ready atomic.Pointer[error]
	pages       atomic.Int64
	hang        chan struct{}
	checks      atomic.Int64
}

var pages = Family{Name: "test_pages_total", Kind: Counter, Help: "Pages."}

func (d *daemon) Metrics(p *Page) { p.Count(&pages, d.pages.Add(1)) }
func (d *daemon) CheckLive(context.Context) error {
	if e := d.live.Load(); e != nil {
		return *e
	}
	return nil
}
func (d *daemon) CheckReady(context.Context) error {
	d.checks.Add(1)
	if d.hang != nil {
		<-d.hang
	}
	if e := d.ready.Load(); e != nil {
		return *e
	}
	return nil
}

// serve runs a server for a daemon and returns its URL.
func serve(t *testing.T, d Daemon) string {
	t.Helper()
	s, err := New("127.0.0.1:0", "test", d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return "http://" + s.Addr(ctx).String()
}

func get(t *testing.T, url, host string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	rep, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer rep.Body.Close()
	b, _ := io.ReadAll(rep.Body)
	return rep.StatusCode, string(b)
}

func TestServer(t *testing.T) {
	d := &daemon{}
	url := serve(t, d)
	code, body := get(t, url+"/metrics", "")
	if code != 200 || !strings.Contains(body, "\ntest_pages_total 1\n") || !strings.Contains(body, "\ngo_goroutines ") {
		t.Errorf("/metrics: %d %s", code, body)
	}
	for range 20 { // cached, or recomputed after some seconds
		get(t, url+"/metrics", "")
	}
	if n := d.pages.Load(); n > 15 {
		t.Errorf("%d pages for 21 requests", n)
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := get(t, url+path, ""); code != 200 || body != "ok\n" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	failed := errors.New("the disk is full")
	d.ready.Store(&failed)
	eventually.True(t, "not ready", func() bool {
		code, body := get(t, url+"/readyz", "")
		return code == 503 && body == "the disk is full\n"
	})
	if code, _ := get(t, url+"/livez", ""); code != 200 {
		t.Errorf("a daemon that is not ready does not live: %d", code)
	}
	d.ready.Store(nil)
	eventually.True(t, "ready again", func() bool { code, _ := get(t, url+"/readyz", ""); return code == 200 })

	// A request from a web page of another host, in a browser on this machine.
	if code, _ := get(t, url+"/metrics", "evil.example:9175"); code != 403 {
		t.Errorf("a request for another host got %d", code)
	}
	for _, host := range []string{"localhost:9175", "[::1]:9175", "127.0.0.1"} {
		if code, _ := get(t, url+"/metrics", host); code != 200 {
			t.Errorf("a request for %s got %d", host, code)
		}
	}
	if code, _ := get(t, url+"/debug/pprof/", ""); code != 404 {
		t.Errorf("another path got %d", code)
	}
	if rep, err := http.Post(url+"/metrics", "text/plain", strings.NewReader("x")); err != nil || rep.StatusCode != 405 {
		t.Errorf("a POST: %v %v", rep, err)
	}
}

// TestHangingCheck checks that a hanging health check returns no success, and is not
// started again and again.
func TestHangingCheck(t *testing.T) {
	d := &daemon{hang: make(chan struct{})}
	c := cached{limit: 10 * time.Millisecond}
	ask := func() answer { c.at = time.Time{}; return c.check(d.CheckReady) }
	for range 5 {
		if a := ask(); a.status != 503 || !strings.Contains(string(a.body), "no answer within") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := d.checks.Load(); n != 1 {
		t.Errorf("%d checks hang", n)
	}
	close(d.hang)
	eventually.True(t, "the check ends", func() bool { return ask().status == 200 })
}

// TestAddressInUse checks that a daemon serves its metrics when another process frees the
// address.
func TestAddressInUse(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	s, err := New(lis.Addr().String(), "test", &daemon{}, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.pause = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	lis.Close()
	if s.Addr(ctx) == nil {
		t.Fatal("not bound")
	}
	if code, _ := get(t, "http://"+s.Addr(ctx).String()+"/livez", ""); code != 200 {
		t.Errorf("/livez: %d", code)
	}
}

// TestManyReaders checks that connections beyond the limit are closed, and that others
// work.
func TestManyReaders(t *testing.T) {
	url := serve(t, &daemon{})
	addr := strings.TrimPrefix(url, "http://")
	var idle []net.Conn
	for range maxReaders + 20 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	closed := 0
	for _, c := range idle[maxReaders:] {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			closed++
		}
	}
	if closed != 20 {
		t.Errorf("%d of 20 connections beyond the limit are closed", closed)
	}
	for _, c := range idle {
		c.Close()
	}
	eventually.Nil(t, time.Minute, "a reader is served", func() error {
		rep, err := http.Get(url + "/livez")
		if err == nil {
			rep.Body.Close()
		}
		return err
	})
}

func TestTLS(t *testing.T) {
	var p Page
	p.TLS("ssl", nil)
	p.TLS("ssl", &tls.Config{})
	p.Certificate("none", time.Time{})
	if len(p.Families()) != 0 {
		t.Errorf("without a certificate: %s", p.Bytes())
	}
	p.Certificate("x", time.Unix(2_000_000_000, 0))
	if !strings.Contains(string(p.Bytes()), `brine_certificate_expiry_timestamp_seconds{certificate="x"} 2000000000`) {
		t.Errorf("%s", p.Bytes())
	}
}
