package schedule

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/daemons/minion/localbus"
	"brine/internal/py/value"
)

// idle is a schedule that does not run, so that a test determines the time. Its jobs end at
// once.
type idle struct {
	*Schedule
	background sync.WaitGroup
}

func idleSchedule(t *testing.T, jobs *value.Dict) *idle {
	t.Helper()
	i := &idle{}
	s, err := New(Config{
		Options: Options{Schedule: jobs}, Masterless: true, Opts: value.DictOf("conf_file", filepath.Join(t.TempDir(), "minion")),
		Grains: func() *value.Dict { return value.NewDict(0) }, Pillar: func() *value.Dict { return nil },
		Job: func(string, string, *value.Dict) {}, Go: i.background.Go, Report: func(string, *value.Dict) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	i.Schedule = s
	return i
}

// ran waits for the started jobs, and returns the job's last run.
func (s *idle) ran(name string) time.Time {
	s.background.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.jobs[name]; e != nil {
		return e.last
	}
	return time.Time{}
}

func (s *idle) reasonOf(name string) string {
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
	// started jobs, by seconds after the beginning
	want := map[int]string{
		0: "start", 10: "each", 15: "late once", 20: "each", 30: "each", 31: "quiet", 40: "each quiet", 50: "each quiet", 60: "cron each quiet",
		// late is due 10 s after its last run, and then waits for a splay of 5 s.
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
	if d := ask("func", "add", "name", "new", "schedule", value.DictOf("new", value.DictOf("function", "test.ping", "minutes", 1)), "persist",
		true); !d.Dict("schedule").Dict("new").Bool("enabled") {
		t.Errorf("add: %s", value.Repr(d))
	}
	path, err := s.path()
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
	if d := ask("func", "postpone_job", "name", "old", "time", "2099-01-01T00:00:00", "new_time",
		"2099-01-01T01:00:00"); d.Dict("schedule").Dict("old").At("run_explicit") == nil {
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
		d := ask("func", fun, "name", "none")
		if d.Has("error") != (fun == "nonsense" || fun == "run_job") {
			t.Errorf("%s of none: %s", fun, value.Repr(d))
		}
	}
	if d := ask("func", "delete", "name", "old"); d.Dict("schedule").Has("old") {
		t.Error("delete does not")
	}
}

func TestPillarAndOption(t *testing.T) {
	pillar := value.DictOf("schedule", value.DictOf(
		"shared", value.DictOf("function", "test.ping", "seconds", 10),
		"both", value.DictOf("function", "test.pillar", "seconds", 10)))
	s := idleSchedule(t, value.DictOf("both", value.DictOf("function", "test.option", "seconds", 10)))
	var mu sync.Mutex
	var ran []string
	var wg sync.WaitGroup
	s.cfg.Go, s.cfg.Pillar = wg.Go, func() *value.Dict { return pillar }
	s.cfg.Job = func(_, fun string, _ *value.Dict) { mu.Lock(); ran = append(ran, fun); mu.Unlock() }
	begin := time.Now()
	s.turn(begin)
	s.turn(begin.Add(11 * time.Second))
	wg.Wait()
	slices.Sort(ran)
	if !slices.Equal(ran, []string{"test.option", "test.ping"}) {
		t.Errorf("ran %v", ran)
	}
	for _, fun := range []string{"add", "modify", "delete", "enable_job"} {
		d := s.manage(value.DictOf("func", fun, "name", "shared", "schedule", value.DictOf("shared", value.NewDict(0))))
		if d.Str("error") != "job shared is in the pillar" {
			t.Errorf("%s: %s", fun, value.Repr(d))
		}
	}
	if d := s.manage(value.DictOf("func", "list", "where", "pillar")).Dict("schedule"); !d.Has("shared") || d.Len() != 2 {
		t.Errorf("of the pillar: %s", value.Repr(d))
	}
	if d := s.manage(value.DictOf("func", "job_status", "name", "shared")).Dict("data"); d.Str("_next_fire_time") == "" || d.Int("_seconds") != 10 {
		t.Errorf("status: %s", value.Repr(d))
	}
	pillar = value.NewDict(0)
	s.turn(begin.Add(12 * time.Second))
	if s.jobs["shared"] != nil {
		t.Error("a job that the pillar has no more is still there")
	}
}

func TestMaxRunning(t *testing.T) {
	s := idleSchedule(t, value.DictOf("slow", value.DictOf("function", "test.sleep", "seconds", 1, "maxrunning", 1)))
	var background []func()
	s.cfg.Go = func(f func()) { background = append(background, f) }
	begin := time.Now()
	for sec := range 4 {
		s.turn(begin.Add(time.Duration(sec) * time.Second))
	}
	if len(background) != 1 || s.reasonOf("slow") != "maxrunning" {
		t.Errorf("%d run, left out because of %q", len(background), s.reasonOf("slow"))
	}
	background[0]()
	s.turn(begin.Add(10 * time.Second))
	if len(background) != 2 {
		t.Error("it does not run again")
	}
}

func TestTasksBeginWhenAMasterIsConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := idleSchedule(t, nil)
		ready := make(chan struct{})
		var wg sync.WaitGroup
		var soon, late atomic.Int32
		s.cfg.Masterless, s.cfg.Ready, s.cfg.Go = false, ready, wg.Go
		s.cfg.Tasks = []Task{{Every: time.Minute, OnStart: true, Do: func(context.Context) { soon.Add(1) }},
			{Every: time.Minute, Do: func(context.Context) { late.Add(1) }}}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { s.Run(ctx) })
		time.Sleep(time.Hour)
		if soon.Load() != 0 {
			t.Error("a task ran without a master")
		}
		close(ready)
		time.Sleep(150 * time.Second)
		if soon.Load() != 3 || late.Load() != 2 {
			t.Errorf("in 150 s %d and %d runs", soon.Load(), late.Load())
		}
		cancel()
		wg.Wait()
	})
}

func TestBadSchedule(t *testing.T) {
	if _, err := New(Config{Options: Options{Schedule: "x"}}); err == nil {
		t.Error("a schedule that is a string is taken")
	}
}

// TestFunctions uses the schedule like the execution module in the daemon.
func TestFunctions(t *testing.T) {
	f := Functions{Schedule: idleSchedule(t, value.NewDict(0)).Schedule, Bus: localbus.New(localbus.Config{})}
	if d, err := f.Saved(); err != nil || d.Len() != 0 {
		t.Errorf("nothing was saved: %v, %v", d, err)
	}
	jobs := value.DictOf("j", value.DictOf("function", "test.ping"))
	if err := f.Save(jobs); err != nil {
		t.Fatal(err)
	}
	if d, err := f.Saved(); err != nil || !value.Equal(d, jobs) {
		t.Errorf("saved: %v, %v", d, err)
	}
	if d, err := f.Manage(t.Context(), value.DictOf("func", "add", "schedule", jobs)); err != nil || !d.Dict("schedule").Has("j") {
		t.Errorf("add: %v, %v", d, err)
	}
	path, err := f.Schedule.path()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("a: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Saved(); err == nil {
		t.Error("a malformed file is read")
	}
	f.Schedule.cfg.Opts = value.NewDict(0)
	if err := f.Save(jobs); err == nil {
		t.Error("saved nowhere")
	}
}

// TestMisspeltFunction: a job whose function is similar to one that exists is reported when it is loaded, once.
func TestMisspeltFunction(t *testing.T) {
	var out bytes.Buffer
	s := idleSchedule(t, value.DictOf("typo", value.DictOf("function", "test.pign", "hours", 1), "fine", value.DictOf("function", "test.ping", "hours", 1)))
	s.cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	s.cfg.Nearest = func(fun string) string { return map[string]string{"test.pign": "test.ping"}[fun] }
	for range 2 {
		s.turn(time.Date(2026, 11, 22, 10, 0, 0, 0, time.Local))
		s.background.Wait()
	}
	text := out.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "did you mean test.ping?") || !strings.Contains(text, "job=typo fun=test.pign") {
		t.Errorf("logged %q", text)
	}
}
