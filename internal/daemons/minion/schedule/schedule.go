// Package schedule runs the scheduled jobs of a minion: those of the option
// schedule, which functions can change, those of the pillar, and the daemon's own
// tasks. Package call/schedule computes when a job is due.
package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"brine/internal/base/liveness"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	sched "brine/internal/call/schedule"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/py/value"
)

// Options are the options of the minion that this package uses.
type Options struct {
	ScheduleBeforeConnect bool `salt:"scheduler_before_connect" default:"false" doc:"let the schedule begin before a master is connected" change:"restart"`
	Schedule              any  `salt:"schedule" default:"{}" doc:"jobs that run by time" change:"restart"`
}

// Config is the configuration of a Schedule.
type Config struct {
	Options Options
	// Masterless means that the configuration has no master, so Ready is never closed.
	Masterless bool
	// Opts are all options, for conf_file and default_include.
	Opts *value.Dict
	// Tasks are the periodic tasks of the minion itself.
	Tasks []Task
	// Ready is closed once a master is connected.
	Ready <-chan struct{}
	// Grains returns the grains.
	Grains func() *value.Dict
	// Pillar returns the pillar of the first connected master, or nil.
	Pillar func() *value.Dict
	// Nearest returns the name of the function that was probably meant by the name of one that does not exist, or "".
	// It may wait for a program.
	Nearest func(fun string) string
	// Job runs one scheduled job and returns when it has ended.
	Job func(name, fun string, def *value.Dict)
	// Go runs a function in the background.
	Go func(func())
	// Report fires an event on the minion's own bus.
	Report func(tag string, data *value.Dict)
	Log    *slog.Logger
}

// Schedule runs scheduled jobs, in one instance for all masters: those of the option
// schedule, which functions can change, and those in the pillar of the first connected
// master.
type Schedule struct {
	cfg   Config
	wake  wait.Wakeup // the option or the pillar has changed
	turns liveness.Steps

	mu      sync.Mutex
	own     *value.Dict // jobs of the option, as changed by functions
	shared  *value.Dict // jobs of the pillar
	env     *value.Dict // other values that the definitions of jobs refer to
	globals sched.Globals
	jobs    map[string]*scheduled
	told    map[string]string // errors of jobs that Check has logged

	requests localbus.InOrder
}

// scheduled is a scheduled job and its state.
type scheduled struct {
	def  *value.Dict
	job  *sched.Job
	err  error
	next time.Time // when it is due, without splay; zero: never
	due  time.Time // next plus its splay
	// again is when it runs additionally because a skipped range ends.
	again   time.Time
	last    time.Time
	skipped time.Time
	reason  string
	running int
}

// Task is a periodic task of the minion itself.
type Task struct {
	// Every is the interval; the first run is after it, or at once with OnStart.
	Every   time.Duration
	OnStart bool
	Do      func(ctx context.Context)
}

// New returns a schedule that runs nothing before Run.
func New(c Config) (*Schedule, error) {
	s := &Schedule{cfg: c, wake: wait.NewWakeup(), own: value.NewDict(0), jobs: map[string]*scheduled{}, requests: localbus.InOrder{Go: c.Go}}
	entries, ok := c.Options.Schedule.(*value.Dict)
	if !ok && c.Options.Schedule != nil {
		return nil, salt.Errorf(salt.Invalid, "schedule: expected a map of jobs, got %s", value.TypeName(c.Options.Schedule))
	}
	if ok {
		s.own = entries.Clone()
	}
	return s, nil
}

// Check logs the jobs of the option that cannot run, whatever the pillar and the grains are. Run logs
// others when it loads them.
func (s *Schedule) Check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	globals := sched.ParseGlobals(s.own)
	s.told = map[string]string{}
	for k, v := range s.own.All() {
		name := value.Str(k)
		if sched.IsGlobal(name) {
			continue
		}
		if e := parse(name, v, globals, sched.AnyTime(v)); e.err != nil {
			s.logInvalid(name, e.err)
			s.told[name] = e.err.Error()
		}
	}
}

func (s *Schedule) logInvalid(name string, err error) {
	s.cfg.Log.Error("ignoring invalid scheduled job", "job", name, "err", err)
}

// parse reads the definition of a job.
func parse(name string, v any, globals sched.Globals, names *value.Dict) *scheduled {
	def, ok := v.(*value.Dict)
	if !ok {
		def = value.NewDict(0)
	}
	e := &scheduled{def: def}
	e.job, e.err = sched.Parse(name, def, globals, names)
	if !ok {
		e.err = fmt.Errorf("expected a map, got %s", value.TypeName(v))
	}
	if e.err == nil && e.job.Fun == "" {
		e.err = errors.New("no function is named")
	}
	return e
}

// Run runs all jobs and tasks until ctx ends. It starts once a master is
// connected, as in Salt, unless scheduler_before_connect says otherwise or
// there is no master.
func (s *Schedule) Run(ctx context.Context) {
	if !s.cfg.Options.ScheduleBeforeConnect && !s.cfg.Masterless {
		select {
		case <-ctx.Done():
			return
		case <-s.cfg.Ready:
		}
	}
	for _, t := range s.cfg.Tasks {
		s.cfg.Go(func() { t.loop(ctx) })
	}
	for ctx.Err() == nil {
		s.cfg.Grains() // the first ones may wait for another machine, which is no reason to restart
		end := s.turns.Begin()
		pause := s.turn(time.Now())
		end()
		wait.Until(ctx, s.wake.C(), pause)
	}
}

// CheckLive returns an error if the loop that starts scheduled jobs hangs.
func (s *Schedule) CheckLive() error { return s.turns.Check("the schedule", liveness.StepTime) }

// Changed makes Run load the schedule again. Call it when the pillar has changed.
func (s *Schedule) Changed() {
	s.wake.Wake()
}

// clockCheck bounds the sleep of the schedule while there are jobs, because the clock may
// be set.
const clockCheck = 10 * time.Second

// turn starts the due jobs, and returns after which time it must be called again.
func (s *Schedule) turn(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load(now)
	pause := time.Hour
	for _, e := range s.jobs {
		if e.err != nil || e.next.IsZero() && e.again.IsZero() {
			continue
		}
		if !e.again.IsZero() && !e.again.After(now) {
			again := e.again
			e.again = time.Time{}
			s.start(e, again, now)
		}
		if !e.next.IsZero() && !e.due.After(now) {
			due := e.next
			// Plan from now, not from the due time: after a delay the job runs once, not
			// once for each missed interval.
			e.plan(now)
			s.start(e, due, now)
		}
		for _, at := range []time.Time{e.due, e.again} {
			if !at.IsZero() {
				pause = min(pause, at.Sub(now))
			}
		}
		pause = min(pause, clockCheck)
	}
	return max(pause, time.Millisecond)
}

// plan sets when a job is due after t.
func (e *scheduled) plan(t time.Time) {
	if e.next = e.job.Next(t); e.next.IsZero() {
		e.due = time.Time{}
		return
	}
	e.due = e.next.Add(e.job.Splay())
}

// load applies the current option and pillar. Jobs that have not changed keep their times.
// s.mu is held.
func (s *Schedule) load(now time.Time) {
	s.shared = value.NewDict(0)
	names := value.NewDict(0)
	if g, ok := s.cfg.Grains().At("whens").(*value.Dict); ok {
		names.Update(g)
	}
	if p := s.cfg.Pillar(); p != nil {
		if d, ok := p.At("schedule").(*value.Dict); ok {
			s.shared = d
		}
		if d, ok := p.At("whens").(*value.Dict); ok {
			names.Update(d)
		}
	}
	all := s.merged("")
	s.globals = sched.ParseGlobals(all)
	env := value.DictOf("names", names, "splay", all.At("splay"), "skip_during_range", all.At("skip_during_range"))
	fresh := !value.Equal(env, s.env)
	s.env = env
	there := map[string]bool{}
	for k, v := range all.All() {
		name := value.Str(k)
		if sched.IsGlobal(name) {
			continue
		}
		there[name] = true
		e := parse(name, v, s.globals, names)
		old := s.jobs[name]
		if old != nil && !fresh && value.Equal(old.def, e.def) {
			continue
		}
		if e.err != nil {
			if s.told[name] != e.err.Error() {
				s.logInvalid(name, e.err)
			}
			delete(s.told, name)
		} else {
			e.plan(now)
			if old == nil && e.job.OnStart {
				e.next, e.due = now, now
			}
			s.warnMisspelt(name, e.job.Fun)
		}
		if old != nil {
			e.last, e.running = old.last, old.running
			old.running = 0
		}
		s.jobs[name] = e
	}
	for name := range s.jobs {
		if !there[name] {
			delete(s.jobs, name)
		}
	}
}

// warnMisspelt logs a job whose function is misspelt, before its first run.
func (s *Schedule) warnMisspelt(name, fun string) {
	if s.cfg.Nearest == nil {
		return
	}
	s.cfg.Go(func() {
		if near := s.cfg.Nearest(fun); near != "" {
			s.cfg.Log.Warn("scheduled job names a function that does not exist; did you mean "+near+"?", "job", name, "fun", fun)
		}
	})
}

// merged returns the schedule of the option (where is "opts"), of the pillar ("pillar"), or
// of both, where the option overrides the pillar.
func (s *Schedule) merged(where string) *value.Dict {
	all := value.NewDict(0)
	if where != "opts" {
		all.Update(s.shared)
	}
	if where != "pillar" {
		all.Update(s.own)
	}
	return all
}

// start runs a due job unless it must be skipped; s.mu is held.
func (s *Schedule) start(e *scheduled, due, now time.Time) {
	v, err := e.job.Judge(s.globals, due, now)
	if err != nil {
		e.err = err
		s.cfg.Log.Error("ignoring invalid scheduled job", "job", e.job.Name, "err", err)
		return
	}
	if v.Again.After(now) {
		e.again = v.Again
	}
	s.begin(e, v, now)
}

func (s *Schedule) begin(e *scheduled, v sched.Verdict, now time.Time) {
	if v.Skip == "" && e.job.MaxRunning > 0 && e.running >= e.job.MaxRunning {
		v.Skip = "maxrunning"
	}
	if v.Skip != "" {
		e.skipped, e.reason = now, v.Skip
		s.cfg.Log.Debug("skipping this run of a scheduled job", "job", e.job.Name, "reason", v.Skip)
		return
	}
	fun := cmp.Or(v.Fun, e.job.Fun)
	e.last, e.skipped, e.reason = now, time.Time{}, ""
	e.running++
	s.cfg.Go(func() {
		s.cfg.Job(e.job.Name, fun, e.def)
		s.mu.Lock()
		defer s.mu.Unlock()
		// If the definition has changed meanwhile, the new entry has the count.
		if now := s.jobs[e.job.Name]; now != nil && now != e && now.running > 0 {
			now.running--
		} else {
			e.running--
		}
	})
}

func (t Task) loop(ctx context.Context) {
	first := t.Every
	if t.OnStart {
		first = 0
	}
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(t.Every)
		t.Do(ctx)
	}
}
