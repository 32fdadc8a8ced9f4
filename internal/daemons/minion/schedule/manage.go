package schedule

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"brine/internal/call/fn"
	sched "brine/internal/call/schedule"
	"brine/internal/daemons/minion/conffile"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// TagManage is the event on the minion's own bus by which other programs change the
// schedule: {func, name, …}, as Salt's functions send it.
const TagManage = "manage_schedule"

// scheduleAnswer returns the tag of the event that answers a request with this
// func.
func scheduleAnswer(fun string) string {
	word := map[string]string{
		"list": "list_complete", "add": "add_complete", "delete": "delete_complete", "modify": "modify_complete",
		"enable_job": "enabled_job_complete", "disable_job": "disabled_job_complete", "run_job": "run_job_complete",
		"enable": "enabled_complete", "disable": "disabled_complete", "reload": "reload_complete", "save_schedule": "saved",
		"postpone_job": "postpone_job_complete", "skip_job": "skip_job_complete",
		"get_next_fire_time": "next_fire_time_complete", "job_status": "job_status_complete",
	}[fun]
	if word == "" {
		return ""
	}
	return "/salt/minion/minion_schedule_" + word
}

// silent are the requests that Salt's daemons do not answer. Requests are handled in order,
// so the answer to a later request shows that these were handled.
var silent = map[string]bool{"modify": true, "run_job": true, "reload": true}

// ByEvent handles a request of another program.
func (s *Schedule) ByEvent(e *event.Event) {
	s.requests.Add(func() { s.manage(e.Data) })
}

// manage handles a request. It returns the answer, and fires it as an event: complete, the
// current schedule, and error if something failed.
func (s *Schedule) manage(req *value.Dict) *value.Dict {
	var in wire.ManageSchedule
	wire.View(req, &in)
	answer := s.managed(&in)
	if tag := scheduleAnswer(in.Func); tag != "" {
		s.cfg.Report(tag, answer)
	}
	return answer
}

func (s *Schedule) managed(req *wire.ManageSchedule) *value.Dict {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.Changed()
	answer := value.DictOf("complete", true)
	err := s.do(req, answer)
	if err == nil && req.Persist {
		err = s.save()
	}
	if err != nil {
		s.cfg.Log.Error("cannot change the schedule as requested", "func", req.Func, "job", req.Name, "err", err)
		answer.Set("error", err.Error())
	}
	if !answer.Has("schedule") {
		answer.Set("schedule", s.merged(""))
	}
	return answer
}

// do handles one request; s.mu is held. For jobs of the pillar, which cannot be changed
// here, it returns an error; Salt only logs one.
func (s *Schedule) do(req *wire.ManageSchedule, answer *value.Dict) error {
	fun, name, now := req.Func, req.Name, time.Now()
	switch fun {
	case "list":
		s.load(now)
		answer.Set("schedule", s.merged(req.Where))
	case "add":
		added, _ := req.Schedule.(*value.Dict)
		for k, v := range added.All() {
			if s.shared.Has(k) {
				return fmt.Errorf("job %s is in the pillar", value.Str(k))
			}
			s.set(k, v)
		}
	case "modify":
		if !s.own.Has(name) && s.shared.Has(name) {
			return fmt.Errorf("job %s is in the pillar", name)
		}
		s.set(name, req.Schedule)
	case "delete":
		own := s.own.Clone()
		if !own.Delete(name) && s.shared.Has(name) {
			return fmt.Errorf("job %s is in the pillar", name)
		}
		s.own = own
	case "enable_job", "disable_job":
		return s.change(name, func(d *value.Dict) { d.Set("enabled", fun == "enable_job") })
	case "enable", "disable":
		s.set("enabled", fun == "enable")
	case "postpone_job", "skip_job":
		return s.change(name, func(d *value.Dict) {
			appendTime(d, "skip_explicit", req.Time, req)
			if fun == "postpone_job" {
				appendTime(d, "run_explicit", req.NewTime, req)
			}
		})
	case "save_schedule":
		return s.save()
	case "reload":
		d, _ := req.Schedule.(*value.Dict)
		if in, ok := d.At("schedule").(*value.Dict); ok {
			d = in
		}
		own := s.own.Clone()
		own.Update(d)
		s.own = own
	case "run_job":
		s.load(now)
		e := s.jobs[name]
		if e == nil || e.err != nil {
			return fmt.Errorf("job %s cannot be run", name)
		}
		s.begin(e, sched.Verdict{}, now)
	case "get_next_fire_time":
		s.load(now)
		answer.Set("next_fire_time", nil)
		if e := s.jobs[name]; e != nil && !e.due.IsZero() {
			answer.Set("next_fire_time", sched.Format(e.due, sched.DefaultFormat))
		}
	case "job_status":
		s.load(now)
		answer.Set("data", s.status(name, cmp.Or(req.TimeFmt, sched.DefaultFormat)))
	default:
		return fmt.Errorf("%.40q is not known", fun)
	}
	return nil
}

// set replaces one entry in a copy, because others may be reading the old map.
func (s *Schedule) set(key, v any) {
	own := s.own.Clone()
	if d, ok := v.(*value.Dict); ok && !sched.IsGlobal(value.Str(key)) && !d.Has("enabled") {
		d = d.Clone()
		d.Set("enabled", true)
		v = d
	}
	own.Set(key, v)
	s.own = own
}

func (s *Schedule) change(name string, fn func(*value.Dict)) error {
	d, ok := s.own.At(name).(*value.Dict)
	switch {
	case !ok && s.shared.Has(name):
		return fmt.Errorf("job %s is in the pillar", name)
	case !ok:
		return nil
	}
	d = d.Clone()
	fn(d)
	s.set(name, d)
	return nil
}

func appendTime(d *value.Dict, key string, at any, req *wire.ManageSchedule) {
	list := slices.Clone(d.List(key))
	list = append(list, value.DictOf("time", at, "time_fmt", cmp.Or(req.TimeFmt, sched.DefaultFormat)))
	d.Set(key, &value.List{Items: list})
}

// status returns the complete state of a job, in Salt's form.
func (s *Schedule) status(name, format string) *value.Dict {
	e := s.jobs[name]
	if e == nil {
		return value.NewDict(0)
	}
	d := e.def.Clone()
	when := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return sched.Format(t, format)
	}
	d.Set("_next_fire_time", when(e.due))
	d.Set("_splay", nil)
	if e.err != nil {
		d.Set("_error", e.err.Error())
		return d
	}
	d.Set("name", e.job.Name)
	if e.due.After(e.next) {
		d.Set("_splay", when(e.due))
	}
	if e.job.Every > 0 {
		d.Set("_seconds", e.job.Seconds())
	}
	d.Set("_next_scheduled_fire_time", when(e.next))
	if !e.last.IsZero() {
		d.Set("_last_run", when(e.last))
	}
	if e.reason != "" {
		d.Set("_skip_reason", e.reason)
		d.Set("_skipped", true)
		d.Set("_skipped_time", when(e.skipped))
	}
	return d
}

// path returns the file of the saved schedule.
func (s *Schedule) path() (string, error) {
	return conffile.Path(s.cfg.Opts, "_schedule.conf", "a schedule")
}

// save writes the schedule, without the jobs of the pillar, to a file that the next start
// reads.
func (s *Schedule) save() error {
	path, err := s.path()
	if err != nil {
		return err
	}
	clean := value.NewDict(s.own.Len())
	for k, v := range s.own.All() {
		if d, ok := v.(*value.Dict); ok {
			d = d.Clone()
			for _, key := range d.Keys() {
				if strings.HasPrefix(value.Str(key), "_") {
					d.Delete(key)
				}
			}
			v = d
		}
		clean.Set(k, v)
	}
	return conffile.Write(path, "schedule", clean)
}

// Functions gives functions access to the schedule of this process or, in salt-call, of the
// daemon.
type Functions struct {
	Schedule *Schedule
	Bus      *localbus.Bus
}

// Manage implements control.Scheduler.
func (t Functions) Manage(ctx context.Context, req *value.Dict) (*value.Dict, error) {
	if !t.Bus.Outside() {
		return t.Schedule.manage(req), nil
	}
	var in wire.ManageSchedule
	wire.View(req, &in)
	fun := in.Func
	if silent[fun] {
		list := value.DictOf("func", "list", "where", nil)
		return t.Bus.Ask(ctx, TagManage, []*value.Dict{req, list}, scheduleAnswer(fun), scheduleAnswer("list"))
	}
	return t.Bus.Ask(ctx, TagManage, []*value.Dict{req}, scheduleAnswer(fun))
}

// Saved implements control.Scheduler.
func (t Functions) Saved() (*value.Dict, error) {
	path, err := t.Schedule.path()
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return value.NewDict(0), nil
	}
	if err != nil {
		return nil, err
	}
	v, err := yaml.Load(b, path)
	if err != nil {
		return nil, fn.Errorf("the saved schedule is malformed: %w", err)
	}
	d, _ := v.(*value.Dict)
	return d.Dict("schedule"), nil
}

// Save implements control.Scheduler.
func (t Functions) Save(jobs *value.Dict) error {
	path, err := t.Schedule.path()
	if err != nil {
		return err
	}
	return conffile.Write(path, "schedule", jobs)
}
