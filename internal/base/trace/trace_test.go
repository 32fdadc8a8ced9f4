package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/salt"
)

func jidOf(i int) string { return fmt.Sprintf("20260101120000%06d", i) }

var discard = slog.New(slog.DiscardHandler)

// TestRatio: daemons with one ratio choose the same jobs, and about that part of them.
func TestRatio(t *testing.T) {
	count := func(ratio float64) (n int) {
		a, b := New(Options{"http://127.0.0.1:1", ratio}, "a", "a", discard), New(Options{"http://127.0.0.1:1", ratio}, "b", "b", discard)
		defer a.Close()
		defer b.Close()
		for i := range 1000 {
			if a.Wants(jidOf(i)) != b.Wants(jidOf(i)) {
				t.Errorf("two daemons differ about %s", jidOf(i))
			}
			if a.Wants(jidOf(i)) {
				n++
			}
		}
		return n
	}
	if none, some, all := count(0), count(0.25), count(1); none != 0 || some < 200 || some > 300 || all != 1000 {
		t.Errorf("of 1000 jobs: %d with 0, %d with 0.25, %d with 1", none, some, all)
	}
	var off *Tracer
	off.Add(Span{JID: jidOf(1)})
	off.Metrics(nil)
	off.Close()
	if off.Wants(jidOf(1)) || New(Options{Ratio: 1}, "a", "a", discard) != nil {
		t.Error("without an endpoint there is a tracer")
	}
}

// TestIDs: the id of a trace is the one that docs/traces.md computes.
func TestIDs(t *testing.T) {
	sum := sha256.Sum256([]byte("salt job 20260101120000000000"))
	if id := OfJob("20260101120000000000"); hex.EncodeToString(id[:]) != hex.EncodeToString(sum[:])[:32] {
		t.Errorf("%x", id)
	}
	if OfMinion("1", "a") == OfMinion("1", "b") || OfMinion("1", "a") == OfMinion("2", "a") || OfPublish("1") == OfMinion("1", "") {
		t.Error("different spans have one id")
	}
}

// TestHangingCollector: spans never wait for a collector that does not answer. Those beyond the
// queue are dropped and counted, values are cut, and Close ends.
func TestHangingCollector(t *testing.T) {
	hang, got := make(chan struct{}), make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		select {
		case got <- b:
		default:
		}
		<-hang
	}))
	defer server.Close()
	defer close(hang)
	tr := New(Options{server.URL, 1}, "salt-master", "m", discard)
	const n = 3 * maxQueued
	for i := range n {
		tr.Add(Span{JID: jidOf(i), Name: Publish, Start: time.Now(), Attributes: []string{"x", strings.Repeat("y", 10*maxText)}})
	}
	if d := tr.dropped.Load(); d < n-maxQueued-maxBatch || d > n-maxQueued {
		t.Errorf("%d of %d spans are dropped", d, n)
	}
	var sent struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct {
					Start, End string
					Attributes []struct{ Value struct{ StringValue string } }
				}
			}
		}
	}
	if err := json.Unmarshal(<-got, &sent); err != nil {
		t.Fatal(err)
	}
	spans := sent.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) > maxBatch || len(spans[0].Attributes) != 2 || len(spans[0].Attributes[1].Value.StringValue) != maxText {
		t.Errorf("%d spans, the first one is %+v", len(spans), spans[0])
	}
	tr.Close()
	tr.Add(Span{JID: jidOf(1)}) // has no effect
	tr.Close()
}

// TestRefusingCollector: an error of the collector is logged once, with its answer, and the spans
// count as dropped.
func TestRefusingCollector(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no such tenant", http.StatusForbidden)
	}))
	defer server.Close()
	var log strings.Builder
	tr := New(Options{server.URL + "/own/path", 1}, "salt-master", "m", slog.New(slog.NewTextHandler(&log, nil)))
	if tr.url != server.URL+"/own/path" {
		t.Error(tr.url)
	}
	tr.Add(Span{JID: jidOf(1), Name: Publish})
	tr.Close()
	if tr.dropped.Load() != 1 || tr.sent.Load() != 0 || asked.Load() != 1 || strings.Count(log.String(), "\n") != 1 ||
		!strings.Contains(log.String(), "no such tenant") {
		t.Errorf("dropped %d, sent %d, asked %d times: %s", tr.dropped.Load(), tr.sent.Load(), asked.Load(), &log)
	}
}

// TestOptions: what cannot be used is refused at the start.
func TestOptions(t *testing.T) {
	for _, o := range []Options{{"127.0.0.1:4318", 1}, {"ftp://x", 1}, {"http://", 1}, {"http://x", 1.5}, {"http://x", -1}} {
		if err := o.Check(); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []Options{{"", 1}, {"http://127.0.0.1:4318", 0}, {"https://collector.example.com/otlp/v1/traces", 0.5}} {
		if err := o.Check(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
