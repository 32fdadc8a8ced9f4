package minion

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"brine/internal/fn"
	"brine/internal/salt"
	"brine/internal/value"
)

// schedule runs jobs by time, one instance for all masters. It knows the
// intervals (seconds, minutes, hours, days); entries that ask for more (when,
// cron, range, …) are refused with a warning rather than run at wrong times.
type schedule struct {
	m     *Minion
	tasks []*task
}

// task is one entry.
type task struct {
	name       string
	every      time.Duration
	splay      time.Duration
	onStart    bool
	maxRunning int64
	do         func(ctx context.Context)
	running    atomic.Int64
}

func newSchedule(o Options, m *Minion) (*schedule, error) {
	s := &schedule{m: m}
	s.internal(o)
	entries, ok := o.Schedule.(*value.Dict)
	if !ok && o.Schedule != nil {
		return nil, salt.Errorf(salt.Invalid, "schedule: expected a map of jobs, got %s", value.TypeName(o.Schedule))
	}
	for k, v := range entries.All() {
		name := value.Str(k)
		d, ok := v.(*value.Dict)
		if !ok {
			return nil, salt.Errorf(salt.Invalid, "schedule: %s: expected a map, got %s", name, value.TypeName(v))
		}
		t, err := s.parse(name, d)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "schedule: %s: %w", name, err)
		}
		if t != nil {
			s.tasks = append(s.tasks, t)
		}
	}
	return s, nil
}

// internal adds what the minion does of itself by time.
func (s *schedule) internal(o Options) {
	if n := o.PingInterval; n > 0 {
		s.tasks = append(s.tasks, &task{name: "ping", every: time.Duration(n) * time.Minute, maxRunning: 1,
			do: func(context.Context) { s.m.fire("minion_ping", "ping") }})
	}
	if n := o.GrainsRefreshEvery; n > 0 {
		s.tasks = append(s.tasks, &task{name: "grains", every: time.Duration(n) * time.Minute, maxRunning: 1,
			do: s.m.refreshChangedGrains})
	}
	if fs, ok := o.MineFunctions.(*value.Dict); ok && fs.Len() > 0 && o.MineEnabled && o.MineInterval > 0 {
		s.tasks = append(s.tasks, &task{name: "mine", every: time.Duration(o.MineInterval) * time.Minute, maxRunning: 1, onStart: true,
			do: func(ctx context.Context) { s.m.updateMine(ctx, fs) }})
	}
}

var units = []struct {
	name string
	unit time.Duration
}{{"seconds", time.Second}, {"minutes", time.Minute}, {"hours", time.Hour}, {"days", 24 * time.Hour}}

func (s *schedule) parse(name string, d *value.Dict) (*task, error) {
	if v, ok := d.Get("enabled"); ok && !value.Truth(v) {
		return nil, nil
	}
	fun := d.Str("function")
	if fun == "" {
		fun = d.Str("fun")
	}
	if fun == "" {
		return nil, fmt.Errorf("no function is named")
	}
	for _, k := range []string{"when", "cron", "once", "range", "skip_during_range", "until", "after"} {
		if d.Has(k) {
			s.m.log.Warn("a scheduled job is left out: it asks for something that is not supported yet", "job", name, "key", k)
			return nil, nil
		}
	}
	t := &task{name: name, onStart: true, maxRunning: 1}
	for _, u := range units {
		switch x := d.At(u.name).(type) {
		case int64:
			t.every += time.Duration(x) * u.unit
		case float64:
			t.every += time.Duration(x * float64(u.unit))
		case nil:
		default:
			return nil, fmt.Errorf("%s: expected a number, got %s", u.name, value.TypeName(x))
		}
	}
	if t.every < time.Second {
		return nil, fmt.Errorf("the interval must be at least one second; set seconds, minutes, hours or days")
	}
	if v, ok := d.Get("run_on_start"); ok {
		t.onStart = value.Truth(v)
	}
	if n := d.Int("maxrunning"); n > 0 {
		t.maxRunning = n
	}
	if n, ok := d.At("splay").(int64); ok {
		t.splay = time.Duration(n) * time.Second
	}
	t.do = func(ctx context.Context) { s.m.runScheduled(ctx, name, fun, d) }
	return t, nil
}

// run drives all tasks until ctx ends. They begin once a master is connected,
// as in Salt.
func (s *schedule) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.m.Ready():
	}
	for _, t := range s.tasks {
		s.m.background.Go(func() { t.loop(ctx, s.m) })
	}
	<-ctx.Done()
}

func (t *task) loop(ctx context.Context, m *Minion) {
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
		if t.running.Load() >= t.maxRunning {
			m.log.Debug("a scheduled job is still running; this turn is left out", "job", t.name)
			continue
		}
		t.running.Add(1)
		m.background.Go(func() {
			defer t.running.Add(-1)
			if t.splay > 0 && !sleep(ctx, rand.N(t.splay)) {
				return
			}
			t.do(m.run)
		})
	}
}

// runScheduled runs one scheduled job and returns it to the masters, each of
// which keeps its own job cache.
func (m *Minion) runScheduled(ctx context.Context, name, fun string, d *value.Dict) {
	args := append([]any(nil), d.List("args")...)
	if kw := d.Dict("kwargs"); kw.Len() > 0 {
		marked := kw.Clone()
		marked.Set("__kwarg__", true)
		args = append(args, marked)
	}
	jid := salt.NewJID(time.Now())
	load := value.DictOf("fun", fun, "arg", &value.List{Items: args}, "jid", jid, "tgt", m.cfg.ID, "schedule", name)
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
	m.jobs.finish(j, ret)
	if v, ok := d.Get("return_job"); ok && !value.Truth(v) {
		return
	}
	m.giveBack(ret, m.receivers(), true)
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
		c.out.put(value.DictOf("id", m.cfg.ID, "cmd", "_minion_event", "pretag", nil, "data", data, "tag", tag))
	}
}

// refreshChangedGrains gathers the grains and shows them to the masters if
// they have changed.
func (m *Minion) refreshChangedGrains(ctx context.Context) {
	old := m.Grains()
	m.RefreshGrains(ctx)
	if !value.Equal(old, m.Grains()) {
		if err := m.RefreshPillar(ctx); err != nil {
			m.log.Warn("cannot show changed grains to a master", "err", err)
		}
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
		c.out.put(value.DictOf("cmd", "_mine", "data", data, "id", m.cfg.ID, "clear", false))
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
