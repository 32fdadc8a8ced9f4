// Package trace sends spans of jobs to a collector of OpenTelemetry, by OTLP over HTTP as JSON.
//
// The ids of traces and spans are computed from the job id, so that the spans of masters and minions
// join without a field in their messages. Recording a span never waits: a span that does not fit
// into the queue is dropped and counted.
package trace

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/httpclient"
	"brine/internal/base/metrics"
	"brine/internal/base/salt"
)

// Options are the options of traces.
type Options struct {
	Endpoint string  `salt:"trace_endpoint" default:"" doc:"URL of a collector of OpenTelemetry (OTLP over HTTP) for spans of jobs; the path is /v1/traces if the URL has none; empty: off (Brine only)" change:"restart"`
	Ratio    float64 `salt:"trace_ratio" default:"1.0" doc:"part of the jobs that trace_endpoint gets, from 0 to 1; daemons with the same value choose the same jobs (Brine only)" change:"restart"`
}

// Check returns an error of kind Invalid for options that cannot be used.
func (o *Options) Check() error {
	if o.Endpoint != "" {
		if u, err := url.Parse(o.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return salt.Errorf(salt.Invalid, "option trace_endpoint: %q is not a URL such as http://127.0.0.1:4318", o.Endpoint)
		}
	}
	if !(o.Ratio >= 0 && o.Ratio <= 1) {
		return salt.Errorf(salt.Invalid, "option trace_ratio: %v is not a number from 0 to 1", o.Ratio)
	}
	return nil
}

// ID is the id of a trace.
type ID [16]byte

// SpanID is the id of a span, zero for none.
type SpanID [8]byte

// OfJob returns the id of a job's trace: the first half of the SHA-256 sum of "salt job " and the
// job id.
func OfJob(jid string) ID {
	sum := sha256.Sum256([]byte("salt job " + jid))
	return ID(sum[:16])
}

// spanOf returns the id of a span of a job by its name and what distinguishes it from others.
func spanOf(jid, name, which string) SpanID {
	sum := sha256.Sum256([]byte("salt span " + jid + "\x00" + name + "\x00" + which))
	return SpanID(sum[:8])
}

// Names of spans.
const (
	Run     = "salt.run"     // a master runs a runner, such as an orchestration
	Publish = "salt.publish" // a master accepts a job and sends it
	Job     = "salt.job"     // a minion runs a job
	State   = "salt.state"   // a minion runs a state of it
	Return  = "salt.return"  // a master stores a minion's return
)

// Kind is the kind of a span, with the numbers of OTLP.
type Kind int

// Kinds.
const (
	Internal Kind = 1
	Producer Kind = 4
	Consumer Kind = 5
)

// Span is a part of a job.
type Span struct {
	JID string
	// Trace is the job whose trace it is part of, "" for its own one.
	Trace string
	Name  string
	// Which distinguishes spans of one job and name, such as the minion's id.
	Which      string
	Kind       Kind
	Parent     SpanID
	Start, End time.Time
	// Attributes are pairs of names and values.
	Attributes []string
	// Failed marks the span as an error.
	Failed bool
}

// OfPublish returns the id of the span in which a master publishes a job: the root.
func OfPublish(jid string) SpanID { return spanOf(jid, Publish, "") }

// OfPublishBy returns the id of the span in which a master publishes a job that a run or a master
// above it has started.
func OfPublishBy(jid, master string) SpanID { return spanOf(jid, Publish, master) }

// OfRun returns the id of the span of a runner.
func OfRun(jid string) SpanID { return spanOf(jid, Run, "") }

// OfMinion returns the id of the span in which a minion runs a job.
func OfMinion(jid, minion string) SpanID { return spanOf(jid, Job, minion) }

const (
	maxQueued = 4096 // spans that wait
	maxBatch  = 512  // spans of a request
	maxText   = 256  // bytes of a value
	// linger is how long a span waits for others.
	linger = time.Second
	// sendTime bounds a request; closeTime is how long Close waits for the last ones.
	sendTime, closeTime = 10 * time.Second, 2 * time.Second
	// minPause and maxPause bound the pause after a failure, which doubles each time.
	minPause, maxPause = time.Second, time.Minute
)

// Tracer sends spans. A nil *Tracer does nothing.
type Tracer struct {
	url     string
	limit   uint64 // chosen are the traces whose first 8 bytes are not above it
	service string
	id      string
	client  *http.Client
	log     *slog.Logger
	queue   chan Span
	cancel  context.CancelFunc
	closing chan struct{}
	ended   chan struct{}
	once    sync.Once

	sent, dropped atomic.Int64
}

// New returns a tracer that sends until Close; nil without an endpoint. service is the program, id
// that of the master or minion.
func New(o Options, service, id string, log *slog.Logger) *Tracer {
	u, err := url.Parse(o.Endpoint)
	if o.Endpoint == "" || err != nil {
		return nil
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	limit := uint64(math.MaxUint64)
	if o.Ratio < 1 {
		limit = uint64(o.Ratio * (1 << 63) * 2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tracer{
		url: u.String(), limit: limit, service: service, id: id, log: log, queue: make(chan Span, maxQueued), cancel: cancel,
		closing: make(chan struct{}), ended: make(chan struct{}),
		client: httpclient.New(httpclient.Options{DialTimeout: sendTime, Timeout: sendTime, StayHere: true, MaxIdle: 1, IdleTimeout: time.Minute}),
	}
	go t.run(ctx)
	return t
}

// Wants reports whether spans of a job are sent.
func (t *Tracer) Wants(jid string) bool {
	if t == nil || t.limit == 0 || !salt.ValidJID(jid) {
		return false
	}
	id := OfJob(jid)
	return binary.BigEndian.Uint64(id[:]) <= t.limit
}

// Add queues a span, or drops it if too many wait.
func (t *Tracer) Add(s Span) {
	if !t.Wants(s.root()) {
		return
	}
	for i, v := range s.Attributes {
		s.Attributes[i] = v[:min(len(v), maxText)]
	}
	select {
	case t.queue <- s:
	default:
		t.dropped.Add(1)
	}
}

// Close sends what is queued, within a short time.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	t.once.Do(func() { close(t.closing) })
	select {
	case <-t.ended:
	case <-time.After(closeTime):
	}
	t.cancel()
	<-t.ended
	t.client.CloseIdleConnections()
}

func (t *Tracer) run(ctx context.Context) {
	defer close(t.ended)
	var pause time.Duration
	for {
		batch, more := t.next()
		if len(batch) > 0 {
			err := t.send(ctx, batch)
			switch {
			case err == nil:
				if pause > 0 {
					t.log.Info("the collector of traces takes spans again", "url", t.url, "dropped", t.dropped.Load())
				}
				t.sent.Add(int64(len(batch)))
				pause = 0
			default:
				t.dropped.Add(int64(len(batch)))
				if pause == 0 || pause == maxPause {
					t.log.Warn("cannot send spans to the collector of traces; dropping them", "url", t.url, "dropped", t.dropped.Load(), "err", err)
				}
				pause = min(max(minPause, 2*pause), maxPause)
			}
		}
		if !more {
			return
		}
		if pause > 0 {
			select {
			case <-t.closing:
			case <-time.After(pause):
			}
		}
	}
}

// next waits for spans and returns a batch, and whether more may come.
func (t *Tracer) next() (batch []Span, more bool) {
	var full <-chan time.Time
	for len(batch) < maxBatch {
		select {
		case s := <-t.queue:
			batch = append(batch, s)
			if full == nil {
				full = time.After(linger)
			}
		case <-full:
			return batch, true
		case <-t.closing:
			for len(batch) < maxBatch && len(t.queue) > 0 {
				batch = append(batch, <-t.queue)
			}
			return batch, len(batch) == maxBatch
		}
	}
	return batch, true
}

func (t *Tracer) send(ctx context.Context, batch []Span) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(t.encode(batch)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answers %s: %.200q", resp.Status, text)
	}
	return nil
}

// Families returns the metrics of a tracer.
func Families() []*metrics.Family { return []*metrics.Family{&spansSent, &spansDropped} }

var (
	spansSent    = metrics.Family{Name: "brine_trace_spans_total", Kind: metrics.Counter, Help: "Spans that the collector of traces has taken."}
	spansDropped = metrics.Family{Name: "brine_trace_spans_dropped_total", Kind: metrics.Counter,
		Help: "Spans that were dropped, because the collector of traces is unreachable, refuses them or is too slow."}
)

// Metrics writes the metrics; none if traces are off.
func (t *Tracer) Metrics(p *metrics.Page) {
	if t != nil {
		p.Count(&spansSent, t.sent.Load())
		p.Count(&spansDropped, t.dropped.Load())
	}
}

// root is the job id from which the id of the trace is computed.
func (s *Span) root() string { return cmp.Or(s.Trace, s.JID) }

func (s *Span) ids() (trace, span, parent string) {
	id, own := OfJob(s.root()), spanOf(s.JID, s.Name, s.Which)
	if s.Parent != (SpanID{}) {
		parent = hex.EncodeToString(s.Parent[:])
	}
	return hex.EncodeToString(id[:]), hex.EncodeToString(own[:]), parent
}

// end returns the end of the span: not before its start, since clocks may be set back.
func (s *Span) end() time.Time {
	if s.End.Before(s.Start) {
		return s.Start
	}
	return s.End
}

// name returns a value for service.instance.id.
func (t *Tracer) name() string { return cmp.Or(t.id, "unknown") }
