package outbox

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/metrics"
	"brine/internal/py/value"
)

// openJournal opens a jobJournal. dying closes it as a kill does: it writes no further
// record, but the kernel has all earlier ones.
func openJournal(t *testing.T, path string, limit int64) (m *jobJournal, dying func()) {
	t.Helper()
	m = newJournal(limit, 0, slog.New(slog.DiscardHandler))
	m.open(path)
	if m.file == nil {
		t.Fatal("the journal was not opened")
	}
	dying = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.file != nil {
			m.file.Close()
			m.file = nil
		}
	}
	t.Cleanup(dying)
	return m, dying
}

// beginTest records the start of a job.
func (j *jobJournal) beginTest(jid string) {
	load := value.DictOf("jid", jid, "fun", "test.echo", "arg", value.ListOf("x"), "user", "root")
	if err := j.begin(jid, "test.echo", load, []string{"a", "b"}); err != nil {
		panic(err)
	}
}

func aReturn(jid, text string) *value.Dict {
	return value.DictOf("cmd", "_return", "jid", jid, "id", "w1", "return", text, "retcode", int64(0))
}

func jidN(n int) string { return fmt.Sprintf("20261121%012d", n) }

func jidsOf(loads []*value.Dict) string {
	var out []string
	for _, l := range loads {
		out = append(out, l.Str("jid")[17:])
	}
	return strings.Join(out, " ")
}

func TestMemorySurvivesAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	m, die := openJournal(t, path, 1<<20)
	for i := range 4 {
		m.beginTest(jidN(i))
	}
	m.started(jidN(3), 1)
	m.keep(aReturn(jidN(0), "taken by both"), []string{"a", "b"})
	m.keep(aReturn(jidN(1), "taken by a"), []string{"a", "b"})
	m.end(jidN(2))
	m.delivered(jidN(0), "a")
	m.delivered(jidN(0), "b")
	m.delivered(jidN(1), "a")
	die()

	m, _ = openJournal(t, path, 1<<20)
	for i := range 4 {
		if !m.knows(jidN(i)) {
			t.Errorf("job %d is forgotten", i)
		}
	}
	if m.knows(jidN(9)) {
		t.Error("a job is known that never was")
	}
	if got, _ := m.waiting("a", 10); len(got) != 0 {
		t.Errorf("for a: %s", jidsOf(got))
	}
	got, _ := m.waiting("b", 10)
	if jidsOf(got) != "001" || got[0].Str("return") != "taken by a" {
		t.Errorf("for b: %s", jidsOf(got))
	}
	if again, _ := m.waiting("b", 10); len(again) != 0 {
		t.Errorf("handed out twice: %s", jidsOf(again))
	}
	cut := m.interrupted()
	if jidsOf(cut) != "003" || cut[0].Str("user") != "root" || len(cut[0].List("processes")) != 1 || fmt.Sprint(value.OnlyTexts(cut[0].At("to"))) != "[a b]" {
		t.Errorf("interrupted: %v", value.Repr(value.ListOf(cut)))
	}
}

func TestMemoryIsBoundedAndTellsWhatItDrops(t *testing.T) {
	m, _ := openJournal(t, filepath.Join(t.TempDir(), "journal"), 10_000)
	big := strings.Repeat("x", 3000)
	for i := range 4 {
		m.keep(aReturn(jidN(i), big), []string{"a", "b"})
		if i == 1 {
			m.delivered(jidN(1), "a") // a has it, so dropping it loses nothing
		}
	}
	if d := m.givenUp(); len(d) != 0 {
		t.Errorf("given up although one that is safe made room: %v", d)
	}
	m.keep(aReturn(jidN(4), big), []string{"a"})
	if d := m.givenUp(); !slices.Equal(d, []string{jidN(0)}) {
		t.Errorf("given up: %v", d)
	}
	m.allWaiting()
	if got, _ := m.waiting("a", 10); jidsOf(got) != "002 003 004" {
		t.Errorf("left: %s", jidsOf(got))
	}
}

func TestMemoryIsRewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	m, die := openJournal(t, path, 64<<20)
	text := strings.Repeat("x", 100_000)
	m.keep(aReturn(jidN(0), "for a and b"), []string{"a", "b"})
	m.delivered(jidN(0), "a")
	m.keep(aReturn(jidN(1), "lent"), []string{"a"})
	m.delivered(jidN(1), "c") // c did not publish the job
	m.beginTest(jidN(2))
	for i := range 500 {
		m.keep(aReturn(jidN(10+i), text), []string{"a"})
		m.delivered(jidN(10+i), "a")
	}
	if size := m.file.Size(); size > 3*garbage {
		t.Errorf("the journal has %d bytes", size)
	}
	check := func(when string) {
		t.Helper()
		if got, _ := m.waiting("b", 10); jidsOf(got) != "000" || got[0].Str("return") != "for a and b" {
			t.Errorf("%s, for b: %s", when, jidsOf(got))
		}
		if got, _ := m.waiting("a", 10); jidsOf(got) != "001" {
			t.Errorf("%s, for a: %s", when, jidsOf(got))
		}
		if got := m.strays(time.Now().Add(time.Hour), time.Now(), 10); len(got) != 0 {
			t.Errorf("%s: what a master has is a stray", when)
		}
		if cut := m.interrupted(); jidsOf(cut) != "002" {
			t.Errorf("%s: interrupted: %v", when, jidsOf(cut))
		}
	}
	m.allWaiting()
	check("in the process")
	die()
	m, _ = openJournal(t, path, 64<<20)
	check("after a kill")
}

func TestStraysAndForgottenMasters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	m, _ := openJournal(t, path, 1<<20)
	m.keep(aReturn(jidN(0), ""), []string{"a"})
	m.keep(aReturn(jidN(1), ""), []string{"old"})
	now := time.Now().Add(10 * time.Second)
	if got := m.strays(now.Add(-time.Minute), now, 10); len(got) != 0 {
		t.Errorf("strays too soon: %v", got)
	}
	if got := m.strays(now, now, 10); len(got) != 2 || !slices.Equal(got[0].own, []string{"a"}) {
		t.Errorf("strays: %v", got)
	}
	if got := m.strays(now, now, 10); len(got) != 0 {
		t.Errorf("lent twice at once: %v", got)
	}
	if got := m.strays(now, now.Add(again), 10); len(got) != 2 {
		t.Errorf("not lent again: %v", got)
	}
	m.delivered(jidN(1), "b")
	m.forgetMasters([]string{"a", "b"}, false, now)
	if m.parcels[jidN(1)] != nil || m.parcels[jidN(0)] == nil {
		t.Errorf("what is left: %v", m.parcels)
	}
	if d := m.givenUp(); len(d) != 0 {
		t.Errorf("given up: %v", d)
	}
	m.keep(aReturn(jidN(2), ""), []string{"old"})
	m.forgetMasters([]string{"a", "b"}, true, now)
	if d := m.givenUp(); !slices.Equal(d, []string{jidN(2)}) {
		t.Errorf("given up: %v", d)
	}
}

func TestQueueSpillsIntoTheMemory(t *testing.T) {
	m, _ := openJournal(t, filepath.Join(t.TempDir(), "journal"), 1<<20)
	o := newQueue(nil, &Options{ReturnQueue: 3}, slog.New(slog.DiscardHandler))
	o.addr, o.journal = "a", m
	for i := range 10 {
		ret := aReturn(jidN(i), "")
		m.keep(ret, []string{"a"})
		o.Put(ret)
	}
	var sent []*value.Dict
	for len(sent) < 20 {
		o.refill()
		next, _ := o.next(time.Now())
		if next == nil {
			break
		}
		o.done(next)
		m.delivered(next.head.JID, "a")
		sent = append(sent, next.load)
	}
	if got := jidsOf(sent); got != "007 008 009 000 001 002 003 004 005 006" {
		t.Errorf("sent: %s", got)
	}
	if len(m.parcels) != 0 || m.live != 0 {
		t.Errorf("%d are left with %d bytes", len(m.parcels), m.live)
	}
}

// TestQueueIndexIsBounded: a return that waits for long does not make the index store all
// returns delivered after it.
func TestQueueIndexIsBounded(t *testing.T) {
	m, _ := openJournal(t, filepath.Join(t.TempDir(), "journal"), 1<<20)
	m.keep(aReturn(jidN(0), ""), []string{"away"})
	for i := 1; i <= 200; i++ {
		m.keep(aReturn(jidN(i), ""), []string{"a"})
		m.delivered(jidN(i), "a")
	}
	if n := len(m.queue); n > 100 {
		t.Errorf("%d entries for one return that waits", n)
	}
	if got, _ := m.waiting("away", 10); len(got) != 0 {
		t.Errorf("queued twice: %s", jidsOf(got))
	}
	m.allWaiting()
	if got, _ := m.waiting("away", 10); jidsOf(got) != "000" {
		t.Errorf("the one that waits: %q", jidsOf(got))
	}
}

func BenchmarkRemember(b *testing.B) {
	m := newJournal(1<<28, 0, slog.New(slog.DiscardHandler))
	m.open(filepath.Join(b.TempDir(), "journal"))
	defer m.close()
	ret := value.DictOf("cmd", "_return", "id", "w1", "success", true, "return", true, "retcode", int64(0), "fun", "test.ping")
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		jid := jidN(n)
		m.beginTest(jid)
		ret.Set("jid", jid)
		m.keep(ret, []string{"a"})
		m.delivered(jid, "a")
	}
}

// TestFailingJournal: a metric reports that returns cannot be written to disk.
func TestFailingJournal(t *testing.T) {
	dir := t.TempDir()
	o := New(Config{Options: Options{Outbox: true, OutboxSize: 1 << 20}, ID: "w1", Dir: dir, Log: slog.New(slog.DiscardHandler)})
	page := func() string {
		var p metrics.Page
		o.Metrics(&p)
		return string(p.Bytes())
	}
	o.Recall(nil)
	if got := page(); !strings.Contains(got, "brine_minion_outbox_failing 0\n") {
		t.Errorf("with a journal:\n%s", got)
	}
	o.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o = New(Config{Options: Options{Outbox: true, OutboxSize: 1 << 20}, ID: "w1", Dir: file, Log: slog.New(slog.DiscardHandler)})
	o.Recall(nil)
	if got := page(); !strings.Contains(got, "brine_minion_outbox_failing 1\n") {
		t.Errorf("without a journal:\n%s", got)
	}
}
