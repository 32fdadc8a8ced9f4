package metrics

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"brine/internal/base/trace"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/gittest"
)

// collector is a collector of OpenTelemetry: it decodes requests by OTLP's own messages.
type collector struct {
	t  *testing.T
	mu sync.Mutex
	// spans are by service and name, such as salt-minion/salt.job.
	spans map[string][]*tracepb.Span
}

// hexOf returns an id. protojson reads ids as base64, and OTLP writes them as hexadecimal digits.
func hexOf(id []byte) string { return base64.StdEncoding.EncodeToString(id) }

func valueOf(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	var data tracepb.TracesData // the fields of ExportTraceServiceRequest
	if err == nil {
		err = protojson.Unmarshal(b, &data)
	}
	if err != nil || r.Method != "POST" || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
		c.t.Errorf("%s %s: %v: %.300s", r.Method, r.URL.Path, err, b)
		http.Error(w, "bad", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range data.ResourceSpans {
		service := ""
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans[service+"/"+s.Name] = append(c.spans[service+"/"+s.Name], s)
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, "{}")
}

// kinds are the services and names that had spans.
func (c *collector) kinds() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]bool{}
	for kind := range c.spans {
		out[kind] = true
	}
	return out
}

// of returns the spans of a job.
func (c *collector) of(kind, jid string) (found []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := trace.OfJob(jid)
	for _, s := range c.spans[kind] {
		if hexOf(s.TraceId) == hex.EncodeToString(id[:]) {
			found = append(found, s)
		}
	}
	return found
}

// TestTraces: a collector gets the spans of a job from a master and two minions, joined by their
// ids: publication, job, states and return. While it is dead jobs run as before, spans are dropped
// and counted, and one line is logged; afterwards it gets spans again.
func TestTraces(t *testing.T) {
	t.Parallel()
	host, two, three, at := daemontest.Host(), daemontest.Host(), daemontest.Host(), daemontest.Host()
	dir := daemontest.ShortDir(t)
	gittest.Write(t, dir, map[string]string{"files/good.sls": "first:\n  test.succeed_without_changes\nsecond:\n  test.fail_without_changes\n"})
	c := &collector{t: t, spans: map[string][]*tracepb.Span{}}
	listen := func() *http.Server {
		l, err := net.Listen("tcp", at+":4318")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: c}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
		return s
	}
	server := listen()
	options := func(host string) string {
		return fmt.Sprintf("trace_endpoint: http://%s:4318\nmetrics_address: %s:%d\n", at, host, port)
	}
	m := daemontest.NewMaster(t, brine, "master", host, fmt.Sprintf("auto_accept: true\nfile_roots: {base: [%s/files]}\n%s", dir, options(host))).Start()
	w1 := daemontest.NewMinion(t, brine, "w1", []string{host}, options(two)).Start()
	daemontest.NewMinion(t, brine, "w2", []string{host}, options(three)).Start()
	pings(t, m, "w1", "w2")
	start := time.Now()
	publish := func(args ...string) string {
		t.Helper()
		out, errs, _ := m.Run(brine, "salt", append([]string{"--async"}, args...)...)
		for _, word := range strings.Fields(out + errs) {
			if len(word) == 20 {
				return word
			}
		}
		t.Fatal("no job: " + out + errs)
		return ""
	}
	jid := publish("*", "state.apply", "good")
	eventually.Nil(t, soon, "all spans arrive", func() error {
		for kind, n := range map[string]int{"salt-master/salt.publish": 1, "salt-minion/salt.job": 2, "salt-minion/salt.state": 4, "salt-master/salt.return": 2} {
			if got := c.of(kind, jid); len(got) != n {
				return fmt.Errorf("%d of %s", len(got), kind)
			}
		}
		return nil
	})
	root := c.of("salt-master/salt.publish", jid)[0]
	if len(root.ParentSpanId) != 0 || valueOf(root, "salt.function") != "state.apply" || valueOf(root, "salt.minions") != "2" ||
		valueOf(root, "salt.jid") != jid ||
		root.Kind != tracepb.Span_SPAN_KIND_PRODUCER || root.Status != nil {
		t.Errorf("publication: %v", root)
	}
	jobs := map[string]*tracepb.Span{}
	for _, s := range c.of("salt-minion/salt.job", jid) {
		jobs[valueOf(s, "salt.minion")] = s
		if hexOf(s.ParentSpanId) != hexOf(root.SpanId) || s.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || valueOf(s, "salt.retcode") != "2" {
			t.Errorf("job: %v", s)
		}
	}
	for _, kind := range []string{"salt-minion/salt.state", "salt-master/salt.return"} {
		for _, s := range c.of(kind, jid) {
			of := jobs[valueOf(s, "salt.minion")]
			if of == nil || hexOf(s.ParentSpanId) != hexOf(of.SpanId) {
				t.Fatalf("%s has no job of its minion: %v", kind, s)
			}
			if failed := valueOf(s, "salt.state.id") == "second"; failed != (s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR) {
				t.Errorf("%s: %v", kind, s)
			}
			begun, ended := time.Unix(0, int64(s.StartTimeUnixNano)), time.Unix(0, int64(s.EndTimeUnixNano))
			if begun.Before(start) || ended.Before(begun) || ended.After(time.Now()) || s.StartTimeUnixNano < of.StartTimeUnixNano {
				t.Errorf("%s: from %v to %v", kind, begun, ended)
			}
		}
	}

	// The collector is dead.
	server.Close()
	atMaster, atMinion := reader(host), reader(two)
	rows := []row{
		{`brine_trace_spans_dropped_total`, func() { pings(t, m, "w1", "w2") }, positive},
	}
	atMaster.change(t, rows)
	atMinion.change(t, rows)
	m.Logged("cannot send spans to the collector of traces; dropping them")
	if n := strings.Count(w1.Log(), "cannot send spans"); n != 1 {
		t.Errorf("a minion logs %d times that the collector is dead", n)
	}
	listen()
	eventually.Nil(t, soon, "the collector gets spans again", func() error {
		late := publish("w1", "test.ping")
		for from := time.Now(); time.Since(from) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
			if len(c.of("salt-minion/salt.job", late)) == 1 && len(c.of("salt-master/salt.return", late)) == 1 {
				return nil
			}
		}
		return errors.New("not yet")
	})
	for _, r := range []reader{atMaster, atMinion} {
		if p, err := r.page(); err != nil || p["brine_trace_spans_total"] == 0 {
			t.Errorf("spans sent: %v, %v", p["brine_trace_spans_total"], err)
		}
	}
}

// TestTracesOfSyndics: a job of a master of masters is one trace, with the publication of the master
// below and the spans of its minions; so is an orchestration, with its jobs and runners.
func TestTracesOfSyndics(t *testing.T) {
	t.Parallel()
	above, below, at := daemontest.Host(), daemontest.Host(), daemontest.Host()
	dir := daemontest.ShortDir(t)
	gittest.Write(t, dir, map[string]string{"files/good.sls": "first:\n  test.succeed_without_changes\n",
		"files/orch.sls": "one:\n  salt.function:\n    - name: test.ping\n    - tgt: '*'\ntwo:\n  salt.runner:\n    - name: salt.execute\n" +
			"    - arg: ['*', state.apply, [good]]\n"})
	c := &collector{t: t, spans: map[string][]*tracepb.Span{}}
	l, err := net.Listen("tcp", at+":4318")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: c}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	options := fmt.Sprintf("auto_accept: true\ntrace_endpoint: http://%s:4318\nfile_roots: {base: [%s/files]}\n", at, dir)
	top := daemontest.NewMaster(t, brine, "above", above, options+"order_masters: true\nsyndic_wait: 2\n").Start()
	low := daemontest.NewMaster(t, brine, "below", below, options).Start()
	daemontest.NewMinion(t, brine, "w1", []string{below}, fmt.Sprintf("trace_endpoint: http://%s:4318\n", at)).Start()
	daemontest.NewSyndic(brine, low, "", above).Start()
	pings(t, top, "w1")

	// find waits for the spans of a trace, and returns them by service, name, function and master.
	find := func(root string, want ...string) map[string]*tracepb.Span {
		t.Helper()
		found := map[string]*tracepb.Span{}
		eventually.Nil(t, soon, "the spans of "+root, func() error {
			clear(found)
			for kind := range c.kinds() {
				for _, s := range c.of(kind, root) {
					name := strings.TrimSpace(s.Name + " " + valueOf(s, "salt.function") + " " + valueOf(s, "salt.master"))
					if other := found[name]; other != nil && hexOf(other.SpanId) == hexOf(s.SpanId) {
						t.Errorf("two spans %s have one id", name)
					}
					found[name] = s
				}
			}
			for _, name := range want {
				if found[name] == nil {
					return fmt.Errorf("there is no %q: %v", name, slices.Sorted(maps.Keys(found)))
				}
			}
			return nil
		})
		return found
	}
	child := func(all map[string]*tracepb.Span, name, parent string) {
		t.Helper()
		if s, p := all[name], all[parent]; hexOf(s.ParentSpanId) != hexOf(p.SpanId) {
			t.Errorf("the parent of %q is not %q: %v", name, parent, s)
		}
	}
	out, errs, _ := top.Run(brine, "salt", "--async", "w1", "test.ping")
	words := strings.Fields(out + errs)
	jid := words[len(words)-1]
	all := find(jid, "salt.publish test.ping above", "salt.publish test.ping below", "salt.job test.ping", "salt.return test.ping below",
		"salt.return test.ping above")
	if len(all["salt.publish test.ping above"].ParentSpanId) != 0 {
		t.Errorf("the publication above has a parent: %v", all["salt.publish test.ping above"])
	}
	child(all, "salt.publish test.ping below", "salt.publish test.ping above")
	child(all, "salt.job test.ping", "salt.publish test.ping below")
	child(all, "salt.return test.ping below", "salt.job test.ping")
	child(all, "salt.return test.ping above", "salt.job test.ping")

	if out, errs, code := top.Run(brine, "salt-run", "state.orchestrate", "orch"); code != 0 {
		t.Fatalf("the orchestration: %s%s", out, errs)
	}
	var run string
	eventually.True(t, "the span of the orchestration", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans["salt-master/salt.run"] {
			if valueOf(s, "salt.function") == "state.orchestrate" {
				run = valueOf(s, "salt.jid")
			}
		}
		return run != ""
	})
	all = find(run, "salt.run state.orchestrate above", "salt.publish test.ping above", "salt.publish test.ping below", "salt.job test.ping",
		"salt.run salt.execute above", "salt.publish state.apply above", "salt.publish state.apply below", "salt.job state.apply", "salt.state",
		"salt.return test.ping above", "salt.return state.apply above", "salt.return state.apply below")
	if len(all["salt.run state.orchestrate above"].ParentSpanId) != 0 {
		t.Errorf("the orchestration has a parent: %v", all["salt.run state.orchestrate above"])
	}
	child(all, "salt.publish test.ping above", "salt.run state.orchestrate above")
	child(all, "salt.publish test.ping below", "salt.publish test.ping above")
	child(all, "salt.job test.ping", "salt.publish test.ping below")
	child(all, "salt.run salt.execute above", "salt.run state.orchestrate above")
	child(all, "salt.publish state.apply above", "salt.run salt.execute above")
	child(all, "salt.job state.apply", "salt.publish state.apply below")
	child(all, "salt.state", "salt.job state.apply")
	child(all, "salt.return state.apply above", "salt.job state.apply")
}
