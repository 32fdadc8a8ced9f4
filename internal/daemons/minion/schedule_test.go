package minion

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
)

// idleSchedule is that of a minion without a master that does not run, so that a
// test is its clock.
func idleSchedule(t *testing.T, jobs *value.Dict) *schedule {
	t.Helper()
	m, err := newMinion(t, func(cfg *Config) {
		cfg.Options.Master, cfg.Options.MasterType = nil, typeDisable
		cfg.Options.Schedule = jobs
		cfg.Opts.Set("conf_file", filepath.Join(t.TempDir(), "minion"))
	})
	if err != nil {
		t.Fatal(err)
	}
	return m.schedule
}

// ran waits for what was started, and returns the job's last run.
func (s *schedule) ran(name string) time.Time {
	s.m.background.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.jobs[name]; e != nil {
		return e.last
	}
	return time.Time{}
}

func (s *schedule) reasonOf(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[name].reason
}

func TestScheduleTurns(t *testing.T) {
	job := func(kv ...any) *value.Dict { return value.DictOf(append([]any{"function", "test.ping"}, kv...)...) }
	begin := time.Date(2026, 11, 22, 10, 0, 0, 0, time.Local)
	s := idleSchedule(t, value.DictOf(
		"each", job("seconds", 10),
		"start", job("hours", 1, "run_on_start", true),
		"once", job("once", "2026-11-22T10:00:15"),
		"cron", job("cron", "1 10 * * *"),
		"off", job("seconds", 10, "enabled", false),
		"late", job("seconds", 10, "splay", value.DictOf("start", 5, "end", 5)),
		"quiet", job("seconds", 10, "skip_during_range", value.DictOf("start", "10am", "end", "10:00:30am"), "run_after_skip_range", true),
		"broken", job("cron", "x"),
	))
	last := map[string]time.Time{}
	// what runs, by the second after the beginning
	want := map[int]string{
		0: "start", 10: "each", 15: "late once", 20: "each", 30: "each", 31: "quiet", 40: "each quiet", 50: "each quiet", 60: "cron each quiet",
		// "late" is due 10 s after it ran, and then waits for another 5.
	}
	names := []string{"broken", "cron", "each", "late", "off", "once", "quiet", "start"}
	for sec := range 61 {
		now := begin.Add(time.Duration(sec) * time.Second)
		if pause := s.turn(now); pause <= 0 || pause > clockCheck {
			t.Fatalf("at %d it wants to sleep %v", sec, pause)
		}
		var ran []string
		for _, n := range names {
			if at := s.ran(n); !at.Equal(last[n]) {
				last[n] = at
				if n != "late" || sec == 15 {
					ran = append(ran, n)
				}
			}
		}
		if got := strings.Join(ran, " "); got != want[sec] {
			t.Errorf("second %d: ran %q, want %q", sec, got, want[sec])
		}
	}
	if at := last["late"]; !at.Equal(begin.Add(60 * time.Second)) {
		t.Errorf("the delayed job ran last at %v", at)
	}
	for name, reason := range map[string]string{"off": "disabled", "quiet": "", "each": ""} {
		if got := s.reasonOf(name); got != reason {
			t.Errorf("%s was left out because of %q, want %q", name, got, reason)
		}
	}
}

func TestScheduleIsManaged(t *testing.T) {
	s := idleSchedule(t, value.DictOf("old", value.DictOf("function", "test.ping", "hours", 1, "_seconds", 3600)))
	ask := func(kv ...any) *value.Dict { return s.manage(value.DictOf(kv...)) }
	if d := ask("func", "add", "name", "new", "schedule", value.DictOf("new", value.DictOf("function", "test.ping", "minutes", 1)), "persist", true); !d.Dict("schedule").Dict("new").Bool("enabled") {
		t.Errorf("add: %s", value.Repr(d))
	}
	path, err := s.file()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(b), "  new:\n") || strings.Contains(string(b), "_seconds") {
		t.Errorf("saved: %v %s", err, b)
	}
	ask("func", "disable_job", "name", "new")
	if d := ask("func", "run_job", "name", "new"); d.Has("error") || s.ran("new").IsZero() {
		t.Errorf("a disabled job is run by hand: %s", value.Repr(d))
	}
	if d := ask("func", "postpone_job", "name", "old", "time", "2099-01-01T00:00:00", "new_time", "2099-01-01T01:00:00"); d.Dict("schedule").Dict("old").At("run_explicit") == nil {
		t.Errorf("postpone: %s", value.Repr(d))
	}
	if d := ask("func", "get_next_fire_time", "name", "old"); d.Str("next_fire_time") == "" {
		t.Errorf("next time: %s", value.Repr(d))
	}
	s.turn(time.Now())
	if d := ask("func", "disable").Dict("schedule"); d.Bool("enabled") || !d.Has("enabled") {
		t.Errorf("disable: %s", value.Repr(d))
	}
	before := s.ran("old")
	s.turn(time.Now().Add(2 * time.Hour))
	if at := s.ran("old"); !at.Equal(before) || s.reasonOf("old") != "disabled" {
		t.Error("a job runs while the schedule is disabled")
	}
	for _, fun := range []string{"delete", "nonsense", "run_job", "enable_job"} {
		d := ask("func", fun, "name", "nobody")
		if d.Has("error") != (fun == "nonsense" || fun == "run_job") {
			t.Errorf("%s of nobody: %s", fun, value.Repr(d))
		}
	}
	if d := ask("func", "delete", "name", "old"); d.Dict("schedule").Has("old") {
		t.Error("delete does not")
	}
}
