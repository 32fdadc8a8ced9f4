package master

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/steady"
	"brine/internal/base/wait"
	"brine/internal/py/value"
	"brine/test/eventually"
)

func testLimit() *ratelimit.Log {
	return ratelimit.NewLog(slog.New(slog.DiscardHandler), 1, time.Minute)
}

// TestSignInsSurviveARestart: a master that is killed right after sign-ins
// republishes no job to these minions, but does to others. Sign-ins at another
// master that shares the directory count as well.
func TestSignInsSurviveARestart(t *testing.T) {
	masters := t.TempDir()
	dirs := map[string]string{}
	for _, id := range []string{"m1", "m2"} {
		dirs[id] = filepath.Join(masters, id)
		if err := os.Mkdir(dirs[id], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	start := func(master string, q *queue) *reconnects {
		w := &reconnects{}
		if err := w.keep(dirs[master], func(id string) bool { return len(q.mute([]string{id})) > 0 }, testLimit()); err != nil {
			t.Fatal(err)
		}
		return w
	}
	published := time.Now()
	before := newQueue(time.Now)
	before.missed("brines", 0, 1)
	one, two := start("m1", before), start("m2", before)
	one.signedIn("early", published.Add(-time.Second))
	one.signedIn("restarted", published.Add(time.Second))
	one.signedIn("with space", published.Add(time.Second))
	one.signedIn("brines", published.Add(time.Second))
	two.signedIn("elsewhere", published.Add(time.Second))
	// No flush and no Close: the process is killed. The last line is incomplete.
	f, err := os.OpenFile(filepath.Join(dirs["m1"], signInsName), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d ear", published.Add(time.Second).UnixMilli())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	after := newQueue(time.Now)
	minions := []string{"early", "restarted", "with space", "elsewhere", "never", "ear"}
	after.add(value.DictOf("fun", "test.ping"), "1", minions, nil, published.Add(time.Hour))
	for _, master := range []string{"m1", "m2", "m1"} {
		w := start(master, after)
		for id, want := range map[string]bool{"early": false, "restarted": true, "with space": true, "elsewhere": true, "never": false, "ear": false,
			"brines": false} {
			if got := w.since(id, published); got != want {
				t.Errorf("%s after its restart: %s signed in after the publication: %v", master, id, got)
			}
		}
		got := after.unheard(againFor, againJobs, 100, w.since)
		if len(got) != 3 || got["early"] == nil || got["never"] == nil || got["ear"] == nil {
			t.Errorf("%s would publish again to %v", master, got)
		}
		w.signedIn("other", published) // writes the whole file
	}
}

// TestSignInsWithAClockAhead: a master that starts with a clock days ahead still
// knows who signed in before, and does not publish their jobs again when its
// clock is right later.
func TestSignInsWithAClockAhead(t *testing.T) {
	const days = 72 * time.Hour
	dir, record := filepath.Join(t.TempDir(), "m1"), filepath.Join(t.TempDir(), "clock")
	setRecord := func(at time.Time) {
		t.Helper()
		if err := os.WriteFile(record, []byte(at.UTC().Format(time.RFC3339)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		steady.Resume(record)
	}
	right := time.Now().Add(-days) // the clock of the test is the one that is ahead
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	line := signInLine(nil, "w", right.Add(-10*time.Second))
	if err := os.WriteFile(filepath.Join(dir, signInsName), line, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { setRecord(time.Now()) })
	setRecord(right)
	w := &reconnects{}
	if err := w.keep(dir, func(string) bool { return true }, testLimit()); err != nil {
		t.Fatal(err)
	}
	w.signedIn("other", time.Now())
	w.signedIn("third", time.Now())
	for when, w := range map[string]*reconnects{"at once": w, "after another start": {}} {
		if err := w.keep(dir, func(string) bool { return true }, testLimit()); err != nil {
			t.Fatal(err)
		}
		if !w.since("w", right.Add(-time.Minute)) {
			t.Errorf("%s: the sign-in is forgotten", when)
		}
	}
}

// TestSignInsOfALargeFleet: the file stays small, and recording continues after
// an error.
func TestSignInsOfALargeFleet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m1")
	w := &reconnects{}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.keep(dir, func(string) bool { return true }, testLimit()); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for range 3 {
		for i := range signInLines / 2 {
			w.signedIn(fmt.Sprintf("minion%05d", i), now)
		}
	}
	read := func() int {
		got, err := readSignIns(filepath.Dir(dir), now.Add(-time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	if n := read(); n != signInLines/2 {
		t.Errorf("%d minions are recorded", n)
	}
	b, err := os.ReadFile(filepath.Join(dir, signInsName))
	if err != nil || len(b) > 2*signInLines*len("1234567890123 minion12345\n") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	w.kept.file.Close() // writing fails
	w.signedIn("lost", now)
	w.signedIn("next", now)
	if n := read(); n != signInLines/2+2 {
		t.Errorf("%d minions are recorded after an error", n)
	}
}

// TestFailedFlushOfSignIns: a failed flush is never repeated on the same file,
// because the second one would succeed without the data.
func TestFailedFlushOfSignIns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w := &reconnects{}
	if err := w.keep(dir, func(string) bool { return true }, testLimit()); err != nil {
		t.Fatal(err)
	}
	flushed := wait.NewWakeup()
	w.kept.sync = func(*os.File) error { flushed.Wake(); return errors.New("input/output error") }
	go w.kept.run(t.Context())
	now := time.Now()
	w.signedIn("a", now)
	w.kept.mu.Lock()
	old := w.kept.file
	w.kept.mu.Unlock()
	w.signedIn("b", now)
	<-flushed.C()
	replaced := func() bool {
		w.kept.mu.Lock()
		defer w.kept.mu.Unlock()
		return w.kept.file != old
	}
	for deadline := time.Now().Add(time.Minute); !replaced() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	got, err := readSignIns(filepath.Dir(dir), now.Add(-time.Second))
	if err != nil || len(got) != 2 || !replaced() {
		t.Errorf("%v %v", got, err)
	}
}

// TestSignInsOnABadDisk: while the file cannot be written, not every sign-in tries
// to, and none is missing afterwards.
func TestSignInsOnABadDisk(t *testing.T) {
	const signIns = 500
	dir := filepath.Join(t.TempDir(), "m1")
	w := &reconnects{}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.keep(dir, func(string) bool { return true }, testLimit()); err != nil {
		t.Fatal(err)
	}
	whole, recent := 0, w.kept.recent
	w.kept.recent = func() map[string]time.Time { whole++; return recent() }
	w.kept.pause = time.Hour
	now := time.Now()
	w.signedIn("before", now)
	w.kept.file.Close() // writing fails, as if the directory were gone
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	whole = 0
	for i := range signIns {
		w.signedIn(fmt.Sprint("minion", i), now)
	}
	if whole != 1 {
		t.Errorf("%d sign-ins tried to write the whole file %d times", signIns, whole)
	}
	w.kept.mu.Lock()
	w.kept.pause, w.kept.retry = time.Millisecond, time.Now()
	w.kept.mu.Unlock()
	go w.kept.run(t.Context())
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, time.Minute, "all sign-ins are recorded without another one", func() error {
		if got, err := readSignIns(filepath.Dir(dir), now.Add(-time.Second)); err != nil || len(got) != signIns+1 {
			return fmt.Errorf("%d sign-ins, %v", len(got), err)
		}
		return nil
	})
}
