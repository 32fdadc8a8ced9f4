package lastrun

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// TestHistory stores runs of three days and reads them by day and by minion, in pages, also after a restart and an attempt to store them twice.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	h := OpenHistory(path)
	if days, err := h.Days(time.Time{}); err != nil || len(days) != 0 {
		t.Fatalf("nothing is stored: %v %v", days, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was created without a run")
	}
	s, _ := Open(filepath.Join(t.TempDir(), "runs"))
	s.Keep(h)
	first := time.Date(2026, 3, 1, 23, 59, 0, 0, time.UTC)
	none, diff := value.NewDict(0), value.DictOf("diff", "x")
	kinds := []*value.Dict{state(true, none, "", 10), state(true, diff, "", 20), state(false, none, "", 30), state(nil, diff, "", 40)}
	n := 0
	returned := func(id string, at time.Time, st *value.Dict) {
		n++
		jid := salt.FormatJID(at.Add(time.Duration(n) * time.Microsecond))
		args := value.ListOf("web,db", value.DictOf("__kwarg__", true, "test", st.At("result") == nil))
		ret := returned(st, state(true, none, "", 2.5))
		for range 2 { // the second time changes nothing
			s.Returned(id, jid, "state.apply", args, ret, at)
		}
	}
	for day := range 3 {
		for _, st := range kinds {
			returned("m", first.AddDate(0, 0, day), st)
		}
		returned("m2", first.AddDate(0, 0, day), kinds[0])
	}
	check := func() {
		t.Helper()
		days, err := h.Days(first.AddDate(0, 0, 1))
		want := "[{2026-03-02 1 1 1 2} {2026-03-03 1 1 1 2}]"
		if got := fmt.Sprint(days); err != nil || got != want {
			t.Errorf("days: %s %v, want %s", got, err, want)
		}
		var got []string
		pages := 0
		for q := (Query{Minion: "m", Limit: 5}); ; pages++ {
			rows, next, err := h.Runs(q)
			if err != nil || len(rows) > 5 {
				t.Fatal(len(rows), err)
			}
			for _, r := range rows {
				got = append(got, fmt.Sprint(DayOf(r.Time), " ", r.Outcome(), " ", r.MS, " ", r.OK, " ", strings.Join(r.Mods, ",")))
			}
			if q.After = next; next == "" {
				break
			}
		}
		if len(got) != 12 || pages != 2 || got[0] != "2026-03-03 drift 42.5 1 web,db" || got[1] != "2026-03-03 failed 32.5 1 web,db" ||
			got[11] != "2026-03-01 clean 12.5 2 web,db" {
			t.Errorf("%d pages: %q", pages, got)
		}
		rows, next, err := h.Runs(Query{Day: "2026-03-02", Outcome: Clean, Limit: 1})
		if err != nil || len(rows) != 1 || rows[0].Minion != "m" || next == "" {
			t.Errorf("the first of a day: %+v %q %v", rows, next, err)
		}
		rows, next, err = h.Runs(Query{Day: "2026-03-02", Outcome: Clean, Limit: 1, After: next})
		if err != nil || len(rows) != 1 || rows[0].Minion != "m2" || next != "" {
			t.Errorf("the second of a day: %+v %q %v", rows, next, err)
		}
	}
	check()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = OpenHistory(path)
	again, _ := Open(filepath.Join(t.TempDir(), "runs"))
	again.Keep(h)
	r := again
	for day := range 3 { // as read from the job store after a start, with other times
		at := first.AddDate(0, 0, day).Add(2 * time.Minute)
		r.Returned("m2", salt.FormatJID(first.AddDate(0, 0, day).Add(time.Duration(5*day+5)*time.Microsecond)), "state.apply", value.ListOf("web,db"),
			returnedOf(kinds[0]), at)
	}
	check()
	for _, bad := range []Query{{Day: "x"}, {Minion: "m", Outcome: "bad"}, {Minion: "m", After: "2026-03-02/1/a/m"}, {Day: "2026-03-02", After: "\x00"}} {
		if _, _, err := h.Runs(bad); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}

	// Old days go, and the oldest runs of too many.
	if err := h.Clean(0, first.AddDate(5, 0, 0)); err != nil {
		t.Fatal(err)
	}
	check()
	h.most = 7
	if err := h.Clean(48*time.Hour, first.AddDate(0, 0, 3)); err != nil {
		t.Fatal(err)
	}
	days, err := h.Days(time.Time{})
	_, count, oldest, _ := h.Usage()
	if fmt.Sprint(days) != "[{2026-03-02 1 1 1 2} {2026-03-03 1 1 1 2}]" || err != nil || count != 5 || DayOf(oldest) != "2026-03-02" {
		t.Errorf("after cleaning: %v %d %v %v", days, count, oldest, err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	// A damaged file is replaced.
	if err := os.WriteFile(path, []byte(strings.Repeat("damaged", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	h = OpenHistory(path)
	if _, err := h.Days(time.Time{}); err == nil {
		t.Error("a damaged file was read")
	}
	if days, err := h.Days(time.Time{}); err != nil || len(days) != 0 {
		t.Errorf("after a damaged file: %v %v", days, err)
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
}

func returnedOf(st *value.Dict) *value.Dict {
	return returned(st, state(true, value.NewDict(0), "", 2.5))
}

// TestHistoryOfOtherMasters takes runs with impossible values, as another master or program may have written them.
func TestHistoryOfOtherMasters(t *testing.T) {
	h := OpenHistory(filepath.Join(t.TempDir(), "history"))
	s, _ := Open(filepath.Join(t.TempDir(), "runs"))
	s.Keep(h)
	text := `{"Minions": {"m": {"Applied": {"JID": "20260301120000000000", "Fun": "state.apply", "Time": "9999-03-01T12:00:00Z",
		"OK": -5, "Failed": 9223372036854775807, "MS": -1}}, "../x": {"Applied": {"JID": "20260301120000000000"}}}}`
	if err := s.Learn([]byte(text)); err != nil {
		t.Fatal(err)
	}
	rows, _, err := h.Runs(Query{Minion: "m", Limit: 10})
	if err != nil || len(rows) != 1 || rows[0].OK != 0 || rows[0].Failed != maxSteps || rows[0].MS != 0 || rows[0].Time.Year() > 2200 {
		t.Errorf("%+v %v", rows, err)
	}
	if days, err := h.Days(time.Time{}); err != nil || len(days) != 1 || days[0].Failed != 1 {
		t.Errorf("%+v %v", days, err)
	}
}

// TestFlushedAtOnce: pages of the console and the master's clock write pending runs at the same time. Each is written once, and none is lost.
func TestFlushedAtOnce(t *testing.T) {
	h := OpenHistory(filepath.Join(t.TempDir(), "history"))
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const rounds, each = 40, 5
	n := 0
	for range rounds {
		for range each {
			n++
			h.add(fmt.Sprint("m", n), &Run{JID: salt.FormatJID(at.Add(time.Duration(n) * time.Microsecond)), Fun: "state.apply", Time: at, OK: 1})
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := h.Days(at); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			n++
			h.add(fmt.Sprint("m", n), &Run{JID: salt.FormatJID(at.Add(time.Duration(n) * time.Microsecond)), Fun: "state.apply", Time: at, OK: 1})
		})
		wg.Wait()
	}
	days, err := h.Days(at)
	if want := fmt.Sprintf("[{2026-03-01 0 0 0 %d}]", rounds*(each+1)); err != nil || fmt.Sprint(days) != want {
		t.Errorf("days: %v %v, want %s", days, err, want)
	}
}
