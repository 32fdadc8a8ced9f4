package minion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	sched "brine/internal/call/schedule"
	"brine/internal/py/value"
)

// schedule runs jobs by time, one instance for all masters: those of the
// option schedule, which functions can change, and those of the pillar of the
// first master that is connected.
type schedule struct {
	m     *Minion
	tasks []*task       // of the minion itself
	wake  chan struct{} // something has changed

	mu      sync.Mutex
	own     *value.Dict // the option, as it is now
	shared  *value.Dict // of the pillar
	env     *value.Dict // what else jobs are read by
	globals sched.Globals
	jobs    map[string]*scheduled

	requests inOrder
}

// scheduled is a job of the schedule and what became of it.
type scheduled struct {
	def  *value.Dict
	job  *sched.Job
	err  error
	next time.Time // when it is due, zero for never
	due  time.Time // that and its splay
	// again is when it is to run once more because a range was over.
	again   time.Time
	last    time.Time
	skipped time.Time
	reason  string
	running int
}

// task is something that the minion does of itself by time.
type task struct {
	name    string
	every   time.Duration
	onStart bool
	do      func(ctx context.Context)
}

func newSchedule(o Options, m *Minion) (*schedule, error) {
	s := &schedule{m: m, wake: make(chan struct{}, 1), own: value.NewDict(0), jobs: map[string]*scheduled{}, requests: inOrder{m: m}}
	s.internal(o)
	entries, ok := o.Schedule.(*value.Dict)
	if !ok && o.Schedule != nil {
		return nil, salt.Errorf(salt.Invalid, "schedule: expected a map of jobs, got %s", value.TypeName(o.Schedule))
	}
	if ok {
		s.own = entries.Clone()
	}
	return s, nil
}

// internal adds what the minion does of itself by time.
func (s *schedule) internal(o Options) {
	if n := o.PingInterval; n > 0 {
		s.tasks = append(s.tasks, &task{name: "ping", every: time.Duration(n) * time.Minute,
			do: func(context.Context) { s.m.fire("minion_ping", "ping") }})
	}
	if n := o.GrainsRefreshEvery; n > 0 {
		s.tasks = append(s.tasks, &task{name: "grains", every: time.Duration(n) * time.Minute,
			do: func(context.Context) { _ = s.m.bus.Fire(tagRefreshGrains, value.NewDict(0)) }})
	}
	if fs, ok := o.MineFunctions.(*value.Dict); ok && fs.Len() > 0 && o.MineEnabled && o.MineInterval > 0 {
		s.tasks = append(s.tasks, &task{name: "mine", every: time.Duration(o.MineInterval) * time.Minute, onStart: true,
			do: func(ctx context.Context) { s.m.updateMine(ctx, fs) }})
	}
}

// run drives all tasks until ctx ends. They begin once a master is connected,
// as in Salt, unless scheduler_before_connect says otherwise or there is none.
func (s *schedule) run(ctx context.Context) {
	o := &s.m.cfg.Options
	if !o.ScheduleBeforeConnect && o.MasterType != typeDisable {
		select {
		case <-ctx.Done():
			return
		case <-s.m.Ready():
		}
	}
	for _, t := range s.tasks {
		s.m.background.Go(func() { t.loop(ctx) })
	}
	for {
		pause := s.turn(time.Now())
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// changed has the schedule looked at again: a pillar is new.
func (s *schedule) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// clockCheck bounds how long the schedule sleeps while a job waits for a time
// of the clock, which may be set.
const clockCheck = 10 * time.Second

// turn starts what is due and returns after what time it is to be called again.
func (s *schedule) turn(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load(now)
	wait := time.Hour
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
			// An interval begins when the last one ended; a late job is not
			// made up for more than once.
			e.plan(now)
			s.start(e, due, now)
		}
		for _, at := range []time.Time{e.due, e.again} {
			if !at.IsZero() {
				wait = min(wait, at.Sub(now))
			}
		}
		wait = min(wait, clockCheck)
	}
	return max(wait, time.Millisecond)
}

// plan sets when a job is due after t.
func (e *scheduled) plan(t time.Time) {
	if e.next = e.job.Next(t); e.next.IsZero() {
		e.due = time.Time{}
		return
	}
	e.due = e.next.Add(e.job.Splay())
}

// load takes over what option and pillar say now; jobs that are as they were
// keep their times. s.mu is held.
func (s *schedule) load(now time.Time) {
	s.shared = value.NewDict(0)
	names := value.NewDict(0)
	if g, ok := s.m.Grains().At("whens").(*value.Dict); ok {
		names.Update(g)
	}
	if c := s.m.anyConnection(); c != nil {
		p := c.pillar.Load()
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
		def, ok := v.(*value.Dict)
		if !ok {
			def = value.NewDict(0)
		}
		old := s.jobs[name]
		if old != nil && !fresh && value.Equal(old.def, def) {
			continue
		}
		e := &scheduled{def: def}
		e.job, e.err = sched.Parse(name, def, s.globals, names)
		if !ok {
			e.err = fmt.Errorf("expected a map, got %s", value.TypeName(v))
		}
		if e.err == nil && e.job.Fun == "" {
			e.err = errors.New("no function is named")
		}
		if e.err != nil {
			s.m.log.Error("a scheduled job is left out", "job", name, "err", e.err)
		} else {
			e.plan(now)
			if old == nil && e.job.OnStart {
				e.next, e.due = now, now
			}
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

// merged is the schedule: of the option ("opts"), the pillar ("pillar"), or
// both, where the option wins.
func (s *schedule) merged(where string) *value.Dict {
	all := value.NewDict(0)
	if where != "opts" {
		all.Update(s.shared)
	}
	if where != "pillar" {
		all.Update(s.own)
	}
	return all
}

// start runs a job that was due, unless something is against it; s.mu is held.
func (s *schedule) start(e *scheduled, due, now time.Time) {
	v, err := e.job.Judge(s.globals, due, now)
	if err != nil {
		e.err = err
		s.m.log.Error("a scheduled job is left out", "job", e.job.Name, "err", err)
		return
	}
	if v.Again.After(now) {
		e.again = v.Again
	}
	s.begin(e, v, now)
}

func (s *schedule) begin(e *scheduled, v sched.Verdict, now time.Time) {
	if v.Skip == "" && e.job.MaxRunning > 0 && e.running >= e.job.MaxRunning {
		v.Skip = "maxrunning"
	}
	if v.Skip != "" {
		e.skipped, e.reason = now, v.Skip
		s.m.log.Debug("a scheduled job is left out this time", "job", e.job.Name, "reason", v.Skip)
		return
	}
	fun := cmp.Or(v.Fun, e.job.Fun)
	e.last, e.skipped, e.reason = now, time.Time{}, ""
	e.running++
	s.m.background.Go(func() {
		s.m.runScheduled(s.m.run, e.job.Name, fun, e.def)
		s.mu.Lock()
		defer s.mu.Unlock()
		// Its definition may be another one by now.
		if now := s.jobs[e.job.Name]; now != nil && now != e && now.running > 0 {
			now.running--
		} else {
			e.running--
		}
	})
}

func (t *task) loop(ctx context.Context) {
	first := t.every
	if t.onStart {
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
		timer.Reset(t.every)
		t.do(ctx)
	}
}

// runScheduled runs one scheduled job and returns it to the masters, each of
// which keeps its own job cache.
func (m *Minion) runScheduled(ctx context.Context, name, fun string, d *value.Dict) {
	if value.Truth(d.At("dry_run")) {
		return
	}
	args := append([]any(nil), d.List("args")...)
	if kw := d.Dict("kwargs"); kw.Len() > 0 {
		marked := kw.Clone()
		marked.Set("__kwarg__", true)
		args = append(args, marked)
	}
	jid := salt.NewJID(time.Now())
	load := value.DictOf("fun", fun, "arg", &value.List{Items: args}, "jid", jid, "tgt", m.cfg.ID, "schedule", name)
	if names := append(value.Texts(d.At("returner")), value.Texts(m.cfg.Returners.Scheduled)...); len(names) > 0 {
		load.Set("ret", strings.Join(names, ","))
		for key, of := range map[string]string{"ret_config": "return_config", "ret_kwargs": "return_kwargs"} {
			if v, ok := d.Get(of); ok {
				load.Set(key, v)
			}
		}
	}
	j, _ := m.jobs.admit(load, nil, time.Now())
	if j == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := m.newCall(m.anyConnection(), jid)
	o := m.funcs.Run(ctx, c, fn.Job{Fun: fun, Arg: args, Pub: load, Blackout: true})
	ret := m.returnLoad(j, o)
	ret.Set("schedule", name)
	if meta, ok := d.At("metadata").(*value.Dict); ok {
		now := time.Now()
		_, offset := now.Zone()
		meta = meta.Clone()
		meta.Set("_TOS", -offset)
		meta.Set("_TS", now.Format(time.ANSIC))
		meta.Set("_TT", now.UTC().Format("2006 January 02 Mon 15 01"))
		ret.Set("metadata", meta)
	}
	m.returners.send(j, ret)
	m.jobs.finish(j, ret)
	if v, ok := d.Get("return_job"); ok && !value.Truth(v) {
		return
	}
	m.outbox.GiveBack(ret, queues(m.receivers()), true)
}

// anyConnection returns a connection that has a pillar, or nil.
func (m *Minion) anyConnection() *connection {
	for _, c := range m.receivers() {
		if c.pillar.Load() != nil {
			return c
		}
	}
	return nil
}

// fire sends an event to all masters.
func (m *Minion) fire(tag string, data any) {
	for _, c := range m.receivers() {
		c.out.Put(value.DictOf("id", m.cfg.ID, "cmd", "_minion_event", "pretag", nil, "data", data, "tag", tag))
	}
}

// updateMine runs the mine functions and sends their results to all masters.
func (m *Minion) updateMine(ctx context.Context, funcs *value.Dict) {
	data := value.NewDict(funcs.Len())
	for k, v := range funcs.All() {
		alias := value.Str(k)
		fun, args := mineCall(alias, v)
		o := m.funcs.Run(ctx, m.newCall(m.anyConnection(), ""), fn.Job{Fun: fun, Arg: args})
		if o.Err != nil {
			m.log.Warn("a mine function failed", "fun", fun, "err", o.Err)
			continue
		}
		data.Set(alias, o.Return)
	}
	if data.Len() == 0 {
		return
	}
	for _, c := range m.receivers() {
		c.out.Put(value.DictOf("cmd", "_mine", "data", data, "id", m.cfg.ID, "clear", false))
	}
}

// mineCall reads one entry of mine_functions: a list of arguments, a map of
// keywords, or an alias with mine_function.
func mineCall(alias string, v any) (fun string, args []any) {
	fun = alias
	kw := value.NewDict(0)
	switch x := v.(type) {
	case *value.Dict:
		kw.Update(x)
	case *value.List:
		for _, it := range x.Items {
			if d, ok := it.(*value.Dict); ok {
				kw.Update(d)
			} else {
				args = append(args, it)
			}
		}
	}
	if f := kw.Str("mine_function"); f != "" {
		fun = f
		kw.Delete("mine_function")
	}
	if kw.Len() > 0 {
		kw.Set("__kwarg__", true)
		args = append(args, kw)
	}
	return fun, args
}
