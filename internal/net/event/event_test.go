package event

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/metrics"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []any{MasterOptions{}, MinionOptions{}} {
		if _, err := field.Of(reflect.TypeOf(o)); err != nil {
			t.Error(err)
		}
	}
	var m MasterOptions
	must(t, field.Defaults(&m))
	if s := m.Sockets(); s.Pub != "/var/run/salt/master/master_event_pub.ipc" || s.Pull != "/var/run/salt/master/master_event_pull.ipc" ||
		s.Network != "unix" {
		t.Errorf("%+v", s)
	}
	m.IPCMode = "tcp"
	want := Sockets{Network: "tcp", Pub: "127.0.0.1:4512", Pull: "127.0.0.1:4513",
		Markers: []string{"/var/run/salt/master/publish_pull.ipc", "/var/run/salt/master/workers.ipc"}}
	if s := m.Sockets(); !reflect.DeepEqual(s, want) {
		t.Errorf("%+v", s)
	}
	var n MinionOptions
	must(t, field.Defaults(&n))
	s, err := n.Sockets("minion", "sha256")
	must(t, err)
	if s.Pub != "/var/run/salt/minion/minion_event_bbebec50e4_pub.ipc" || s.PubMode != 0o600 {
		t.Errorf("%+v", s)
	}
	if _, err := n.Sockets("minion", "rot13"); err == nil {
		t.Error("an unknown hash_type was taken")
	}
}

func TestStamp(t *testing.T) {
	zone := time.FixedZone("x", 3600)
	for want, at := range map[string]time.Time{
		"2026-11-21T04:07:33.427002": time.Date(2026, 11, 21, 5, 7, 33, 427002999, zone),
		"2026-11-21T04:07:33":        time.Date(2026, 11, 21, 4, 7, 33, 999, time.UTC),
		"2026-11-21T04:07:33.100000": time.Date(2026, 11, 21, 4, 7, 33, 100_000_000, time.UTC),
	} {
		if got := Stamp(at); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func tags(s *Subscription) string {
	var out []string
	for {
		select {
		case e := <-s.C:
			out = append(out, e.Tag)
		default:
			return strings.Join(out, " ")
		}
	}
}

func TestBus(t *testing.T) {
	b := NewBus(0)
	all := b.Subscribe(10)
	some := b.Subscribe(10, "salt/job/", "key")
	tiny := b.Subscribe(1)
	data := value.DictOf("a", 1)
	for _, tag := range []string{"salt/job/1", "salt/jobs", "key", "keys", "other"} {
		must(t, b.Fire(tag, data))
	}
	if got := tags(all); got != "salt/job/1 salt/jobs key keys other" {
		t.Error(got)
	}
	if got := tags(some); got != "salt/job/1 key keys" {
		t.Error(got)
	}
	if e := <-tiny.C; e.Tag != "salt/job/1" || tiny.Dropped() != 4 || all.Dropped() != 0 {
		t.Error(e.Tag, tiny.Dropped())
	} else if e.Data.Str("_stamp") == "" || e.Data.Int("a") != 1 {
		t.Error(value.Repr(e.Data))
	}
	if data.Has("_stamp") {
		t.Error("the firer's data was changed")
	}
	must(t, b.Fire("last", nil))
	all.Close()
	all.Close()
	must(t, b.Fire("after", nil))
	if e, ok := <-all.C; !ok || e.Tag != "last" {
		t.Error("what was queued is lost")
	}
	if _, ok := <-all.C; ok {
		t.Error("the queue is still open")
	}
	for _, bad := range []string{"", "a\n\nb", "\xff"} {
		if b.Fire(bad, nil) == nil {
			t.Errorf("%q was fired", bad)
		}
	}
}

func TestBusUnderFire(t *testing.T) {
	b := NewBus(0)
	const firers, events = 8, 500
	s := b.Subscribe(firers*events, "t/")
	var wg sync.WaitGroup
	for f := range firers {
		wg.Go(func() {
			for i := range events {
				must(t, b.Fire(fmt.Sprintf("t/%d", f), value.DictOf("n", i)))
			}
		})
		wg.Go(func() {
			for range events {
				b.Subscribe(1, "t/").Close()
			}
		})
	}
	wg.Wait()
	s.Close()
	next := map[string]int64{}
	n := 0
	for e := range s.C {
		if got := e.Data.Int("n"); got != next[e.Tag] {
			t.Fatalf("%s: %d, want %d", e.Tag, got, next[e.Tag])
		}
		next[e.Tag]++
		n++
	}
	if n != firers*events || s.Dropped() != 0 {
		t.Error(n, s.Dropped())
	}
}

func wire(t testing.TB, s string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	must(t, err)
	return b
}

func TestRecordedFrames(t *testing.T) {
	raw, err := os.ReadFile("testdata/events_ipc.json")
	must(t, err)
	var rec struct {
		Events []struct {
			WireB64 string `json:"wire_b64"`
			Tag     string
			Data    map[string]any
		}
	}
	must(t, json.Unmarshal(raw, &rec))
	var stream bytes.Buffer
	for _, r := range rec.Events {
		stream.Write(wire(t, r.WireB64))
	}
	fr := frameReader{r: &oneByte{&stream}}
	for _, r := range rec.Events {
		body, err := fr.next()
		must(t, err)
		e, err := parseBody(body)
		must(t, err)
		if e.Tag != r.Tag || e.Data.Len() != len(r.Data) || e.Data.Str("_stamp") != r.Data["_stamp"] {
			t.Errorf("%s %v, want %s", e.Tag, value.Repr(e.Data), r.Tag)
		}
		again, err := (&Event{Tag: e.Tag, Data: e.Data}).Body()
		must(t, err)
		if !bytes.Equal(appendFrame(nil, again), wire(t, r.WireB64)) {
			t.Errorf("%s: encoded otherwise than Salt does", e.Tag)
		}
	}
	if _, err := fr.next(); err != io.EOF {
		t.Error(err)
	}
	if len(rec.Events) < 10 {
		t.Error("only", len(rec.Events))
	}
}

type oneByte struct{ r io.Reader }

func (o *oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:1]) }

func TestRecordedPush(t *testing.T) {
	raw, err := os.ReadFile("testdata/event_push.json")
	must(t, err)
	var rec struct {
		WireB64 string `json:"wire_b64"`
	}
	must(t, json.Unmarshal(raw, &rec))
	body, err := (&Event{Tag: "my/tag", Data: value.DictOf("a", 1, "_stamp", "2024-01-02T03:04:05.000006")}).Body()
	must(t, err)
	if got := appendFrame(nil, body); !bytes.Equal(got, wire(t, rec.WireB64)) {
		t.Errorf("%q", got)
	}
}

func TestTrim(t *testing.T) {
	d := value.DictOf("small", "x", "n", 5, "big", strings.Repeat("y", 900), "list", value.ListOf(strings.Repeat("z", 300)),
		"deep", value.DictOf("inner", []byte(strings.Repeat("w", 600)), "keep", true), "_stamp", Stamp(time.Now()))
	for limit, want := range map[int]string{
		0:    "",
		5000: "",
		1000: "big deep.inner",
		500:  "big deep.inner list",
		1:    "big deep.inner list",
	} {
		b, err := encodeData(d, limit)
		must(t, err)
		v, err := msgpack.UnmarshalTyped(b)
		must(t, err)
		var got []string
		for _, k := range []string{"small", "n", "big", "deep", "list", "_stamp"} {
			x := v.(*value.Dict).At(k)
			if k == "deep" && x.(*value.Dict).At("inner") == Trimmed {
				got = append(got, "deep.inner")
			}
			if x == Trimmed {
				got = append(got, k)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("limit %d: trimmed %s, want %s", limit, s, want)
		}
	}
	if d.Str("big") == Trimmed || d.Dict("deep").At("inner") == Trimmed {
		t.Error("the event itself was changed")
	}
}

func FuzzFrames(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	raw, err := os.ReadFile("testdata/events_ipc.json")
	must(f, err)
	var rec struct {
		Events []struct {
			WireB64 string `json:"wire_b64"`
		}
	}
	must(f, json.Unmarshal(raw, &rec))
	for _, r := range rec.Events {
		f.Add(wire(f, r.WireB64))
	}
	f.Add([]byte("\x82\xa4head\x80\xa4body\xc6\x7f\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := frameReader{r: bytes.NewReader(b)}
		for {
			body, err := fr.next()
			if err != nil {
				return
			}
			e, err := parseBody(body)
			if err != nil {
				continue
			}
			if e.Tag == "" || e.Data == nil || len(fr.buf) > len(b) {
				t.Fatal("half an event")
			}
		}
	})
}

func BenchmarkFire(b *testing.B) {
	bus := NewBus(1 << 20)
	for range 5 {
		bus.Handle(func(*Event) {}, "salt/job/")
	}
	data := value.DictOf("cmd", "_return", "id", "web1", "success", true, "return", true, "retcode", 0, "jid", "20261121041024915335", "fun", "test.ping",
		"fun_args", value.ListOf(), "user", "root", "ts", 1795234225)
	b.ReportAllocs()
	for b.Loop() {
		bus.Fire("salt/job/20261121041024915335/ret/web1", data)
	}
}

func appendFrame(dst, body []byte) []byte {
	return append(append(dst, beginFrame(len(body))...), body...)
}

// TestMissedEventsAreCounted: what subscriptions and other programs miss is counted.
func TestMissedEventsAreCounted(t *testing.T) {
	b := NewBus(0)
	s := &Server{backlog: newBacklog(2, 1<<20)}
	page := func() string {
		var p metrics.Page
		Metrics(&p, b, s)
		return string(p.Bytes())
	}
	b.Subscribe(1)
	cur := s.backlog.open()
	for range 5 {
		must(t, b.Fire("x", nil))
		s.backlog.add([]byte("frame"), false)
	}
	s.backlog.take(cur, nil, 10, 1<<20)
	got := page()
	for _, want := range []string{"brine_events_total 5\n",
		"brine_events_dropped_total{reader=\"part\"} 4\n", "brine_events_dropped_total{reader=\"program\"} 3\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
