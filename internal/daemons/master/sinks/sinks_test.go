package sinks

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/catalogue/runners"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/returner"
)

var discard = slog.New(slog.DiscardHandler)

// TestEventReturners: the file has the selected events in order, including those
// that were fired right before the master ends.
func TestEventReturners(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "events")
	bus := event.NewBus(0)
	all := NewEventReturners(EventReturnOptions{
		Returners: value.ListOf("rawfile_json", "nosuch", "local", ""), Queue: 100, Whitelist: value.ListOf("my/*"), Blacklist: value.ListOf("my/secret*"),
		RawFile: path,
	}, Config{}, bus, discard)
	if len(all) != 2 {
		t.Fatalf("%d returners, want rawfile_json and local", len(all))
	}
	k := all[0]
	events := bus.Subscribe(10)
	for _, tag := range []string{"my/1", "other", "my/secret/x", "my/2"} {
		bus.Fire(tag, value.DictOf("n", int64(1)))
	}
	k.drain(events)
	b, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if err != nil || len(lines) != 2 || !strings.Contains(lines[0], `"tag": "my/1"`) || !strings.Contains(lines[1], `"tag": "my/2"`) {
		t.Errorf("the file has %q, %v", b, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("its mode: %v, %v", st.Mode(), err)
	}
}

// failing is an event store that fails a number of times.
type failing struct{ left, kept int }

func (f *failing) KeepEvents(_ context.Context, events []*event.Event) error {
	if f.left--; f.left >= 0 {
		return errors.New("not now")
	}
	f.kept += len(events)
	return nil
}

// TestEventsThatCannotBeKept: the returner retries events that it could not store,
// and drops the oldest ones beyond the limit.
func TestEventsThatCannotBeKept(t *testing.T) {
	to := &failing{left: 1}
	k := &EventReturner{to: to, log: discard, most: 1}
	for range returnerMost + 5 {
		k.add(&event.Event{Tag: "x"})
	}
	if k.dropped != 5 {
		t.Errorf("%d are lost", k.dropped)
	}
	if err := k.flush(t.Context()); err == nil || len(k.waiting) != returnerMost {
		t.Errorf("%v, %d wait", err, len(k.waiting))
	}
	if err := k.flush(t.Context()); err != nil || to.kept != returnerMost || len(k.waiting) != 0 {
		t.Errorf("%v, %d are kept", err, to.kept)
	}
}

// TestFailingEventsAreLoggedOnce: events that cannot be stored are tried every second, and logged once,
// as is the end of the failure.
func TestFailingEventsAreLoggedOnce(t *testing.T) {
	var out strings.Builder
	to := &failing{left: 3}
	k := &EventReturner{to: to, log: slog.New(slog.NewTextHandler(&out, nil)), most: 1}
	for i := range 5 {
		k.add(&event.Event{Tag: "x"})
		if err := k.flush(t.Context()); (err != nil) != (i < 3) {
			t.Fatal(i, err)
		}
	}
	if failed, again := strings.Count(out.String(), "cannot store events"), strings.Count(out.String(), "stores events again"); failed != 1 || again != 1 {
		t.Errorf("%d failures and %d recoveries are logged:\n%s", failed, again, out.String())
	}
}

// server is a returner with some jobs.
type server struct {
	returner.Returner
	jobs   map[string]*value.Dict
	err    error
	closed int
}

func (s *server) Load(_ context.Context, jid string) (*value.Dict, error) { return s.jobs[jid], s.err }
func (s *server) Jobs(context.Context) (map[string]*value.Dict, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.jobs, nil
}
func (s *server) Close() error { s.closed++; return nil }
func (s *server) Returns(_ context.Context, jid string) (map[string]*value.Dict, error) {
	return map[string]*value.Dict{"web1": value.DictOf("return", "remote", "jid", jid), "web2": value.DictOf("return", "remote", "retcode", int64(0)),
		"../x": value.NewDict(0)}, s.err
}

// TestHistory: the own store takes precedence over a server, which adds missing
// jobs. While the server fails, only the own store is used.
func TestHistory(t *testing.T) {
	const here, there, odd = "20260101000000000001", "20260101000000000002", "bad"
	store, err := job.Open(t.TempDir(), job.Options{}, discard)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Put(&job.Whole{Job: job.Job{JID: here, Load: value.DictOf("fun", "own"), Minions: []string{"web1"}},
		Returns: map[string]*value.Dict{"web1": value.DictOf("return", "own")}}); err != nil {
		t.Fatal(err)
	}
	s := &server{jobs: map[string]*value.Dict{
		here: value.DictOf("fun", "remote"), there: value.DictOf("fun", "remote", "Minions", value.ListOf("web9")), odd: value.NewDict(0),
	}}
	cfg := Config{Ctx: t.Context}
	h := NewReader(cfg, store, discard).Beside(s)
	if l, err := h.Load(here); err != nil || l.Str("fun") != "own" {
		t.Errorf("load: %s, %v", value.Repr(l), err)
	}
	if l, err := h.Load(there); err != nil || l.Str("fun") != "remote" {
		t.Errorf("load: %s, %v", value.Repr(l), err)
	}
	if ids, err := h.Minions(there); err != nil || len(ids) != 1 || ids[0] != "web9" {
		t.Errorf("minions: %v, %v", ids, err)
	}
	rets, err := h.Returns(here)
	if err != nil || len(rets) != 2 || rets["web1"].Str("return") != "own" || rets["web2"].Str("return") != "remote" || rets["web2"].Has("jid") {
		t.Errorf("returns: %v, %v", rets, err)
	}
	for _, c := range []struct {
		f    job.Filter
		want []string
	}{{job.Filter{}, []string{there, here}}, {job.Filter{Oldest: true}, []string{here, there}}, {job.Filter{Limit: 1}, []string{there}},
		{job.Filter{Before: there}, []string{here}}} {
		var got []string
		list, err := h.List(c.f)
		for _, j := range list {
			got = append(got, j.JID)
		}
		if err != nil || strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("%+v: %v, %v, want %v", c.f, got, err, c.want)
		}
	}
	s.err = errors.New("unreachable")
	if list, err := h.List(job.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("while the server fails: %d jobs, %v", len(list), err)
	}
	once := &history{sinks: NewReader(cfg, nil, discard), remote: s, away: func() bool { return false }, once: true}
	if _, err := once.Load(there); err == nil || s.closed != 1 {
		t.Errorf("without an own store: %v, closed %d times", err, s.closed)
	}
}

// TestNamedReturners: a query may name the own store or a returner.
func TestNamedReturners(t *testing.T) {
	none := NewReader(Config{Ctx: t.Context}, nil, discard)
	if jobs, err := none.JobsOf(LocalJobs); err != nil || jobs == nil {
		t.Errorf("the own store of a master without jobs: %v, %v", jobs, err)
	}
	if _, err := none.JobsOf("nosuch"); err == nil {
		t.Error("an unknown returner is no error")
	}
	var own runners.Jobs = NoJobs{}
	if got := NewReader(Config{}, own, discard).History(); got != own {
		t.Errorf("without servers the history is %v", got)
	}
	var closed *Jobs
	closed.Close()
}

// TestStockFiles: loads and returns are in the files that stock programs read, but
// only while the options are on.
func TestStockFiles(t *testing.T) {
	dir := t.TempDir()
	cache, err := job.NewLocalCache(dir, "sha256")
	if err != nil {
		t.Fatal(err)
	}
	on := true
	f := NewStockFiles(cache, func() bool { return on }, func() bool { return on }, discard)
	const jid, off = "20260101000000000001", "20260101000000000002"
	f.PutLoad(value.DictOf("fun", "test.ping", "jid", jid, "tgt", "*"), jid, []string{"web1"})
	f.PutReturn(jid, "web1", value.DictOf("return", true))
	f.PutReturn("20260101000000000003nocache", "web1", value.DictOf("return", true))
	on = false
	f.PutLoad(value.DictOf("fun", "test.ping", "jid", off, "tgt", "*"), off, nil)
	f.PutReturn(off, "web1", value.DictOf("return", true))
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	f.Run(ctx) // writes the queue, and returns
	files := map[string]int{}
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[d.Name()]++
		}
		return err
	})
	if files[".load.p"] != 1 || files["return.p"] != 1 || f.waiting.Load() != 0 {
		t.Errorf("files %v, %d bytes wait", files, f.waiting.Load())
	}
}
