package control

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/call/fn"
	sched "brine/internal/call/schedule"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Scheduler manages the schedule of a minion.
type Scheduler interface {
	// Manage handles a request in the form of Salt's event manage_schedule:
	// func, name, schedule, persist and others. The answer has the resulting
	// schedule, and error if something failed.
	Manage(ctx context.Context, req *value.Dict) (*value.Dict, error)
	// Saved returns the jobs in the file of the saved schedule, and Save
	// replaces them there.
	Saved() (*value.Dict, error)
	Save(jobs *value.Dict) error
}

type schedule struct{ s Scheduler }

// Schedule returns the module schedule.
func Schedule(s Scheduler) fn.Module {
	m := schedule{s}
	return fn.Module{Name: "schedule", Doc: `Jobs that the minion runs by time.`, Funcs: []fn.Func{
		fn.Of("list", m.list, `Return the jobs of the schedule.`, fn.Example("salt '*' schedule.list")),
		fn.Of("is_enabled", m.isEnabled, `Return a job, or, without a name, whether the schedule is enabled.`,
			fn.Example("salt '*' schedule.is_enabled job1")),
		fn.Of("purge", m.purge, `Remove all jobs that are not in the pillar.`, fn.Example("salt '*' schedule.purge")),
		fn.Of("delete", m.delete, `Remove a job.`, fn.Example("salt '*' schedule.delete job1")),
		fn.Of("build_schedule_item", m.build, `Return the job that add would make of these arguments.`,
			fn.Example("salt '*' schedule.build_schedule_item job1 function=test.ping seconds=3600")),
		fn.Of("add", m.add, `Add a job, and save the schedule unless persist is false.
			Keywords: function, job_args, job_kwargs; when it runs: seconds, minutes, hours, days, when, cron or once (and once_fmt);
			splay, range, skip_during_range, until, after, run_on_start, maxrunning, jid_include, enabled, return_job, metadata.
			With offline=True only the file of the saved schedule is changed.`,
			fn.Example("salt '*' schedule.add job1 function=cmd.run job_args=\"['date']\" seconds=3600")),
		fn.Of("modify", m.modify, `Replace a job; keywords as for add.`, fn.Example("salt '*' schedule.modify job1 function=test.ping seconds=60")),
		fn.Of("run_job", m.runJob, `Run a job now.`, fn.Example("salt '*' schedule.run_job job1")),
		fn.Of("enable_job", m.turnJob("enable_job"), `Enable a job.`, fn.Example("salt '*' schedule.enable_job job1")),
		fn.Of("disable_job", m.turnJob("disable_job"), `Disable a job.`, fn.Example("salt '*' schedule.disable_job job1")),
		fn.Of("save", m.save, `Save the schedule for the next start of the minion.`, fn.Example("salt '*' schedule.save")),
		fn.Of("enable", m.turn("enable"), `Enable the schedule.`, fn.Example("salt '*' schedule.enable")),
		fn.Of("disable", m.turn("disable"), `Disable the schedule: no job runs.`, fn.Example("salt '*' schedule.disable")),
		fn.Of("reload", m.reload, `Take over the saved schedule.`, fn.Example("salt '*' schedule.reload")),
		fn.Of("move", m.move, `Give a job to other minions and remove it here.`, fn.Example("salt '*' schedule.move job1 'web*'")),
		fn.Of("copy", m.copy, `Give a job to other minions, too.`, fn.Example("salt '*' schedule.copy job1 'web*'")),
		fn.Of("postpone_job", m.postpone, `Run a job at another time instead of one at which it is due.`,
			fn.Example("salt '*' schedule.postpone_job job1 2026-11-22T10:00:00 2026-11-22T12:00:00")),
		fn.Of("skip_job", m.skip, `Leave a job out at a time at which it is due.`, fn.Example("salt '*' schedule.skip_job job1 2026-11-22T10:00:00")),
		fn.Of("show_next_fire_time", m.nextTime, `Return when a job is due.`, fn.Example("salt '*' schedule.show_next_fire_time job1")),
		fn.Of("job_status", m.status, `Return all that is known of a job.`, fn.Example("salt '*' schedule.job_status job1")),
	}}
}

// scheduleKeys are the parts of a job that schedule.list shows.
const scheduleKeys = " name maxrunning function splay range when once once_fmt returner jid_include args kwargs _seconds seconds minutes hours days enabled" +
	" return_job metadata cron until after return_config return_kwargs run_on_start skip_during_range run_after_skip_range "

// entries returns the unprocessed jobs: of the option ("opts"), of the pillar
// ("pillar"), of both (""), or of the saved file.
func (m schedule) entries(ctx context.Context, where string, offline bool) (*value.Dict, error) {
	if offline {
		d, err := m.s.Saved()
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	req := value.DictOf("func", "list", "where", nil)
	if where != "" {
		req.Set("where", where)
	}
	answer, err := m.s.Manage(ctx, req)
	if err != nil {
		return nil, err
	}
	return answer.Dict("schedule"), nil
}

// shown returns entries in the form that schedule.list shows.
func (m schedule) shown(ctx context.Context, where string, all, disabled, offline bool) (*value.Dict, error) {
	raw, err := m.entries(ctx, where, offline)
	if err != nil {
		return nil, err
	}
	out := value.NewDict(raw.Len())
	for k, v := range raw.All() {
		name := value.Str(k)
		d, ok := v.(*value.Dict)
		if sched.IsGlobal(name) || !ok {
			out.Set(k, v)
			continue
		}
		if strings.HasPrefix(name, "__") && !all {
			continue
		}
		job := value.DictOf("name", name)
		for key, val := range d.All() {
			switch word := value.Str(key); {
			case val == nil || word == "_seconds" || !strings.Contains(scheduleKeys, " "+word+" "):
			case val == "true" || val == "false":
				job.Set(key, val == "true")
			default:
				job.Set(key, val)
			}
		}
		if !job.Has("enabled") {
			job.Set("enabled", true)
		}
		if disabled || job.Bool("enabled") {
			out.Set(k, job)
		}
	}
	return out, nil
}

type scheduleListArgs struct {
	All      bool `salt:"show_all" doc:"also those of the minion itself" default:"false"`
	Disabled bool `salt:"show_disabled" doc:"also those that are disabled" default:"true"`
	Where    any  `salt:"where" doc:"only those of the pillar (pillar) or of the minion's options (opts)" default:"null"`
	YAML     bool `salt:"return_yaml" doc:"as a text of YAML" default:"true"`
	Offline  bool `salt:"offline" doc:"those that were saved" default:"false"`
}

func (m schedule) list(ctx context.Context, _ *fn.Call, a scheduleListArgs) (any, error) {
	where, _ := a.Where.(string)
	jobs, err := m.shown(ctx, where, a.All, a.Disabled, a.Offline)
	if err != nil || !a.YAML {
		return jobs, err
	}
	saved, err := m.s.Saved()
	if err != nil {
		saved = nil // treat an unreadable file as empty
	}
	for k, v := range jobs.All() {
		if d, ok := v.(*value.Dict); ok {
			d.Set("saved", saved.Has(k))
		}
	}
	return yaml.Dump(value.DictOf("schedule", jobs)), nil
}

type scheduleEnabledArgs struct {
	Name any `salt:"name" doc:"name of the job" default:"null"`
}

func (m schedule) isEnabled(ctx context.Context, _ *fn.Call, a scheduleEnabledArgs) (any, error) {
	jobs, err := m.shown(ctx, "", false, true, false)
	if err != nil {
		return nil, err
	}
	if a.Name == nil {
		if v, ok := jobs.Get("enabled"); ok {
			return v, nil
		}
		return true, nil
	}
	if d, ok := jobs.Get(value.Str(a.Name)); ok {
		return d, nil
	}
	return value.NewDict(0), nil
}

func scheduleResult(ok bool, comment any, changes ...any) *value.Dict {
	return value.DictOf("comment", comment, "result", ok, "changes", value.DictOf(changes...))
}

type scheduleKwArgs struct {
	Kw fn.Kwargs `salt:"kwargs"`
}

// persist reports whether a change is to be saved.
func persist(kw fn.Kwargs) bool {
	v, ok := kw.Get("persist")
	return !ok || value.Truth(v)
}

func (m schedule) purge(ctx context.Context, _ *fn.Call, a scheduleKwArgs) (any, error) {
	offline := a.Kw.Bool("offline")
	jobs, err := m.shown(ctx, "", true, true, offline)
	if err != nil {
		return nil, err
	}
	comment, changes := &value.List{}, value.NewDict(0)
	left := jobs.Clone()
	for k := range jobs.All() {
		name := value.Str(k)
		switch {
		case sched.IsGlobal(name) || strings.HasPrefix(name, "__"):
			continue
		case a.Kw.Bool("test"):
			comment.Append(fmt.Sprintf("Job: %s would be deleted from schedule.", name))
			continue
		case offline:
			left.Delete(k)
		default:
			answer, err := m.s.Manage(ctx, value.DictOf("name", name, "func", "delete", "persist", persist(a.Kw)))
			if err != nil {
				return nil, err
			}
			if answer.Dict("schedule").Has(k) {
				comment.Append(fmt.Sprintf("Failed to delete job %s from schedule.", name))
				continue
			}
		}
		changes.Set(k, "removed")
		comment.Append(fmt.Sprintf("Deleted job: %s from schedule.", name))
	}
	if offline && !a.Kw.Bool("test") {
		if err := m.s.Save(left); err != nil {
			return nil, err
		}
	}
	return value.DictOf("comment", comment, "changes", changes, "result", true), nil
}

type scheduleJobArgs struct {
	Name any       `salt:"name" doc:"name of the job"`
	Kw   fn.Kwargs `salt:"kwargs"`
}

func (m schedule) delete(ctx context.Context, _ *fn.Call, a scheduleJobArgs) (any, error) {
	name := value.Str(a.Name)
	if a.Kw.Bool("test") {
		return scheduleResult(true, fmt.Sprintf("Job: %s would be deleted from schedule.", name)), nil
	}
	offline := a.Kw.Bool("offline")
	jobs, err := m.entries(ctx, "", offline)
	if err != nil {
		return nil, err
	}
	if !jobs.Has(name) {
		return scheduleResult(false, fmt.Sprintf("Job %s does not exist.", name)), nil
	}
	if offline {
		jobs = jobs.Clone()
		jobs.Delete(name)
		if err := m.s.Save(jobs); err != nil {
			return nil, err
		}
		return scheduleResult(true, fmt.Sprintf("Deleted Job %s from schedule.", name), name, "removed"), nil
	}
	answer, err := m.s.Manage(ctx, value.DictOf("name", name, "func", "delete", "persist", persist(a.Kw)))
	if err != nil {
		return nil, err
	}
	if answer.Dict("schedule").Has(name) {
		return scheduleResult(false, fmt.Sprintf("Failed to delete job %s from schedule.", name)), nil
	}
	return scheduleResult(true, fmt.Sprintf("Deleted Job %s from schedule.", name), name, "removed"), nil
}

// makeJob converts the keywords of add to a job. why, if not nil, is the answer
// for invalid keywords.
func makeJob(name string, kw *value.Dict) (job, why *value.Dict) {
	wrong := func(text string) (*value.Dict, *value.Dict) {
		return nil, value.DictOf("comment", text, "result", false)
	}
	if name == "" {
		return wrong("Job name is required.")
	}
	job = value.DictOf("function", kw.At("function"))
	copied := func(keys ...string) {
		for _, k := range keys {
			if v, ok := kw.Get(k); ok {
				job.Set(k, v)
			}
		}
	}
	copied("seconds", "minutes", "hours", "days", "return_job", "metadata")
	if v, ok := kw.Get("job_args"); ok {
		if _, ok := v.(*value.List); !ok {
			return wrong("job_args is not a list. please correct and try again.")
		}
		job.Set("args", v)
	}
	if v, ok := kw.Get("job_kwargs"); ok {
		if _, ok := v.(*value.Dict); !ok {
			return wrong("job_kwargs is not a dict. please correct and try again.")
		}
		job.Set("kwargs", v)
	}
	job.Set("maxrunning", int64(1))
	job.Set("name", name)
	job.Set("enabled", true)
	job.Set("jid_include", true)
	copied("maxrunning", "enabled", "jid_include", "splay")
	if v, ok := kw.Get("when"); ok {
		for _, s := range value.Texts(v) {
			if _, err := sched.ParseMoment(s); err != nil {
				return wrong(fmt.Sprintf(`Schedule item %s for "when" in invalid.`, s))
			}
		}
	}
	copied("range", "when", "once", "once_fmt", "cron", "returner", "after", "return_config", "return_kwargs", "until", "run_on_start",
		"skip_during_range", "run_after_skip_range")
	if _, err := sched.Parse(name, job, sched.Globals{Enabled: true}, nil); err != nil {
		return wrong(fmt.Sprintf("Job %s cannot be scheduled: %v.", name, err))
	}
	return job, nil
}

// conflict reports keywords that exclude each other. interval says that one of them is an
// interval.
func conflict(kw *value.Dict) (why string, interval bool) {
	for _, k := range []string{"seconds", "minutes", "hours", "days"} {
		if kw.Has(k) && (kw.Has("when") || kw.Has("cron")) {
			return `Unable to use "seconds", "minutes", "hours", or "days" with "when" or "cron" options.`, true
		}
	}
	if kw.Has("when") && kw.Has("cron") {
		return `Unable to use "when" and "cron" options together.  Ignoring.`, false
	}
	return "", false
}

func needFunction(kw *value.Dict) error {
	if kw.Str("function") == "" {
		return fn.Invalidf("the keyword function is missing: it names the function that the job runs")
	}
	return nil
}

func (m schedule) build(_ context.Context, _ *fn.Call, a scheduleJobArgs) (any, error) {
	kw := a.Kw.Clean()
	if err := needFunction(kw); err != nil {
		return nil, err
	}
	if why, _ := conflict(kw); why != "" {
		return value.DictOf("comment", why, "result", false), nil
	}
	job, why := makeJob(value.Str(a.Name), kw)
	if why != nil {
		return why, nil
	}
	return job, nil
}

func (m schedule) add(ctx context.Context, _ *fn.Call, a scheduleJobArgs) (any, error) {
	name, kw := value.Str(a.Name), a.Kw.Clean()
	offline := kw.Bool("offline")
	jobs, err := m.entries(ctx, "", offline)
	if err != nil {
		return nil, err
	}
	if jobs.Has(name) {
		return scheduleResult(false, fmt.Sprintf("Job %s already exists in schedule.", name)), nil
	}
	if why, interval := conflict(kw); why != "" {
		if interval {
			why = "Error: " + why
		}
		return scheduleResult(false, why), nil
	}
	if err := needFunction(kw); err != nil {
		return nil, err
	}
	job, why := makeJob(name, kw)
	switch {
	case why != nil:
		return why, nil
	case kw.Bool("test"):
		return scheduleResult(true, fmt.Sprintf("Job: %s would be added to schedule.", name)), nil
	case offline:
		jobs = jobs.Clone()
		jobs.Set(name, job)
		if err := m.s.Save(jobs); err != nil {
			return nil, err
		}
		return scheduleResult(true, fmt.Sprintf("Added job: %s to schedule.", name), name, "added"), nil
	}
	answer, err := m.s.Manage(ctx, value.DictOf("name", name, "schedule", value.DictOf(name, job), "func", "add", "persist", persist(a.Kw)))
	if err != nil {
		return nil, err
	}
	if !answer.Dict("schedule").Has(name) {
		return scheduleResult(false, fmt.Sprintf("Failed to add job %s to schedule.", name)), nil
	}
	return scheduleResult(true, fmt.Sprintf("Added job: %s to schedule.", name), name, "added"), nil
}

func (m schedule) modify(ctx context.Context, _ *fn.Call, a scheduleJobArgs) (any, error) {
	name, kw := value.Str(a.Name), a.Kw.Clean()
	if why, interval := conflict(kw); why != "" {
		if interval {
			why = `Error: Unable to use "seconds", "minutes", "hours", or "days" with "when" option.`
		}
		return scheduleResult(false, why), nil
	}
	offline := kw.Bool("offline")
	jobs, err := m.shown(ctx, "", true, true, offline)
	if err != nil {
		return nil, err
	}
	old, ok := jobs.At(name).(*value.Dict)
	if !ok {
		return scheduleResult(false, fmt.Sprintf("Job %s does not exist in schedule.", name)), nil
	}
	if !kw.Has("function") {
		kw.Set("function", old.At("function"))
	}
	job, why := makeJob(name, kw)
	if why != nil {
		return why, nil
	}
	if value.Equal(job, old) {
		return scheduleResult(true, fmt.Sprintf("Job %s in correct state", name)), nil
	}
	changes := []any{name, value.DictOf("old", old, "new", job)}
	switch {
	case kw.Bool("test"):
		return scheduleResult(true, fmt.Sprintf("Job: %s would be modified in schedule.", name), changes...), nil
	case offline:
		merged := old.Clone()
		merged.Update(job)
		jobs.Set(name, merged)
		err = m.s.Save(jobs)
	default:
		var answer *value.Dict
		answer, err = m.s.Manage(ctx, value.DictOf("name", name, "schedule", job, "func", "modify", "persist", persist(a.Kw)))
		if err == nil && answer.Str("error") != "" {
			return scheduleResult(false, fmt.Sprintf("Failed to modify job %s in schedule.", name), changes...), nil
		}
	}
	if err != nil {
		return nil, err
	}
	return scheduleResult(true, fmt.Sprintf("Modified job: %s in schedule.", name), changes...), nil
}

type scheduleRunArgs struct {
	Name  any  `salt:"name" doc:"name of the job"`
	Force bool `salt:"force" doc:"also if it is disabled" default:"false"`
}

func (m schedule) runJob(ctx context.Context, _ *fn.Call, a scheduleRunArgs) (any, error) {
	name := value.Str(a.Name)
	ret := func(ok bool, comment string) (any, error) { return value.DictOf("comment", comment, "result", ok), nil }
	jobs, err := m.shown(ctx, "", true, true, false)
	if err != nil {
		return nil, err
	}
	job, ok := jobs.At(name).(*value.Dict)
	switch {
	case !ok:
		return ret(false, fmt.Sprintf("Job %s does not exist.", name))
	case !job.Bool("enabled") && !a.Force:
		return ret(true, fmt.Sprintf("Job %s is disabled.", name))
	}
	answer, err := m.s.Manage(ctx, value.DictOf("name", name, "func", "run_job"))
	if err != nil {
		return nil, err
	}
	if answer.Str("error") != "" {
		return ret(false, fmt.Sprintf("Failed to run job %s on minion.", name))
	}
	return ret(true, fmt.Sprintf("Scheduling Job %s on minion.", name))
}

// turnJob returns the function enable_job or disable_job.
func (m schedule) turnJob(fun string) func(context.Context, *fn.Call, scheduleJobArgs) (any, error) {
	word, past, on := "enable", "enabled", true
	if fun == "disable_job" {
		word, past, on = "disable", "disabled", false
	}
	return func(ctx context.Context, _ *fn.Call, a scheduleJobArgs) (any, error) {
		name := value.Str(a.Name)
		if a.Kw.Bool("test") {
			return scheduleResult(true, fmt.Sprintf("Job: %s would be %s in schedule.", name, past)), nil
		}
		jobs, err := m.entries(ctx, "", false)
		if err != nil {
			return nil, err
		}
		if !jobs.Has(name) {
			return scheduleResult(false, fmt.Sprintf("Job %s does not exist.", name)), nil
		}
		answer, err := m.s.Manage(ctx, value.DictOf("name", name, "func", fun, "persist", persist(a.Kw)))
		if err != nil {
			return nil, err
		}
		job := answer.Dict("schedule").Dict(name)
		if v, ok := job.Get("enabled"); answer.Str("error") != "" || ok && value.Truth(v) != on {
			return scheduleResult(false, fmt.Sprintf("Failed to %s job %s in schedule.", word, name)), nil
		}
		return scheduleResult(true, fmt.Sprintf("%s Job %s in schedule.", title(past), name), name, past), nil
	}
}

// turn returns the function enable or disable, for the whole schedule.
func (m schedule) turn(fun string) func(context.Context, *fn.Call, scheduleKwArgs) (any, error) {
	past := fun + "d"
	return func(ctx context.Context, _ *fn.Call, a scheduleKwArgs) (any, error) {
		if a.Kw.Bool("test") {
			return scheduleResult(true, fmt.Sprintf("Schedule would be %s.", past)), nil
		}
		answer, err := m.s.Manage(ctx, value.DictOf("func", fun, "persist", persist(a.Kw)))
		if err != nil {
			return nil, err
		}
		if answer.Dict("schedule").Bool("enabled") != (fun == "enable") {
			return scheduleResult(false, fmt.Sprintf("Failed to %s schedule on minion.", fun)), nil
		}
		return scheduleResult(true, fmt.Sprintf("%s schedule on minion.", title(past)), "schedule", past), nil
	}
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func (m schedule) save(ctx context.Context, _ *fn.Call, a scheduleKwArgs) (any, error) {
	if a.Kw.Bool("test") {
		return value.DictOf("comment", "Schedule would be saved.", "result", true), nil
	}
	answer, err := m.s.Manage(ctx, value.DictOf("func", "save_schedule"))
	if err != nil {
		return nil, err
	}
	if answer.Str("error") != "" {
		return value.DictOf("comment", "Failed to save schedule.", "result", false), nil
	}
	return value.DictOf("comment", "Schedule (non-pillar items) saved.", "result", true), nil
}

// reload loads the saved schedule. Salt's version reads a file that it never
// writes.
func (m schedule) reload(ctx context.Context, _ *fn.Call, _ none) (any, error) {
	saved, err := m.s.Saved()
	if err != nil || saved.Len() == 0 {
		text := "Failed to reload schedule on minion.  Saved file is empty or invalid."
		return value.DictOf("comment", value.ListOf(text), "result", false), nil
	}
	if _, err := m.s.Manage(ctx, value.DictOf("func", "reload", "schedule", value.DictOf("schedule", saved))); err != nil {
		return nil, err
	}
	return value.DictOf("comment", value.ListOf("Reloaded schedule on minion from _schedule.conf."), "result", true), nil
}

type schedulePostponeArgs struct {
	Name any       `salt:"name" doc:"name of the job"`
	From any       `salt:"current_time" doc:"when it is due"`
	To   any       `salt:"new_time" doc:"when it is to run"`
	Kw   fn.Kwargs `salt:"kwargs"`
}

type scheduleSkipArgs struct {
	Name any       `salt:"name" doc:"name of the job"`
	At   any       `salt:"current_time" doc:"when it is due"`
	Kw   fn.Kwargs `salt:"kwargs"`
}

func (m schedule) postpone(ctx context.Context, c *fn.Call, a schedulePostponeArgs) (any, error) {
	return m.move1(ctx, c, "postpone_job", value.Str(a.Name), a.Kw, "time", a.From, "new_time", a.To)
}

func (m schedule) skip(ctx context.Context, c *fn.Call, a scheduleSkipArgs) (any, error) {
	return m.move1(ctx, c, "skip_job", value.Str(a.Name), a.Kw, "time", a.At)
}

// move1 postpones or skips one run.
func (m schedule) move1(ctx context.Context, c *fn.Call, fun, name string, kw fn.Kwargs, times ...any) (any, error) {
	ret := func(ok bool, comment string) (any, error) { return value.DictOf("comment", comment, "result", ok), nil }
	format := kw.Str("time_fmt")
	if format == "" {
		format = sched.DefaultFormat
	}
	for i := 1; i < len(times); i += 2 {
		if _, err := sched.ParseFormat(value.Str(times[i]), format); err != nil {
			return ret(false, "Date string could not be parsed.")
		}
	}
	word, test := "postpone", "postponed"
	done := "Postponed Job %s in schedule."
	if fun == "skip_job" {
		word, test, done = "skip", "skipped", "Added Skip Job %s in schedule."
	}
	if value.Truth(c.Config.Get("test")) {
		return ret(true, fmt.Sprintf("Job: %s would be %s in schedule.", name, test))
	}
	jobs, err := m.entries(ctx, "", false)
	if err != nil {
		return nil, err
	}
	if !jobs.Has(name) {
		return ret(false, fmt.Sprintf("Job %s does not exist.", name))
	}
	req := value.DictOf(times...)
	req.Update(value.DictOf("name", name, "func", fun, "time_fmt", format))
	answer, err := m.s.Manage(ctx, req)
	if err != nil {
		return nil, err
	}
	job := answer.Dict("schedule").Dict(name)
	if v, ok := job.Get("enabled"); answer.Str("error") != "" || ok && !value.Truth(v) {
		return ret(false, fmt.Sprintf("Failed to %s job %s in schedule.", word, name))
	}
	return ret(true, fmt.Sprintf(done, name))
}

func (m schedule) nextTime(ctx context.Context, _ *fn.Call, a scheduleJobArgs) (any, error) {
	answer, err := m.s.Manage(ctx, value.DictOf("name", value.Str(a.Name), "func", "get_next_fire_time"))
	if err != nil {
		return nil, err
	}
	return value.DictOf("result", true, "next_fire_time", answer.At("next_fire_time")), nil
}

type scheduleStatusArgs struct {
	Name   any    `salt:"name" doc:"name of the job"`
	Format string `salt:"time_fmt" doc:"format of times" default:"%Y-%m-%dT%H:%M:%S"`
}

func (m schedule) status(ctx context.Context, _ *fn.Call, a scheduleStatusArgs) (any, error) {
	answer, err := m.s.Manage(ctx, value.DictOf("name", value.Str(a.Name), "func", "job_status", "fire_event", true, "time_fmt", a.Format))
	if err != nil {
		return nil, err
	}
	return answer.Dict("data"), nil
}

type scheduleMoveArgs struct {
	Name   any       `salt:"name" doc:"name of the job"`
	Target any       `salt:"target" doc:"glob of minions"`
	Kw     fn.Kwargs `salt:"kwargs"`
}

func (m schedule) move(ctx context.Context, c *fn.Call, a scheduleMoveArgs) (any, error) {
	return m.give(ctx, c, a, "move", "Moved Job %s from schedule.")
}

func (m schedule) copy(ctx context.Context, c *fn.Call, a scheduleMoveArgs) (any, error) {
	return m.give(ctx, c, a, "copy", "Copied Job %s from schedule to minion(s).")
}

// give adds a job to the schedules of other minions; the master must allow it
// (peer).
func (m schedule) give(ctx context.Context, c *fn.Call, a scheduleMoveArgs, word, done string) (any, error) {
	name := value.Str(a.Name)
	ret := value.DictOf("comment", &value.List{}, "result", true)
	if a.Kw.Bool("test") {
		past := map[string]string{"move": "moved", "copy": "copied"}[word]
		ret.Set("comment", fmt.Sprintf("Job: %s would be %s from schedule.", name, past))
		return ret, nil
	}
	jobs, err := m.shown(ctx, "", true, true, false)
	if err != nil {
		return nil, err
	}
	job, ok := jobs.At(name).(*value.Dict)
	if !ok {
		return value.DictOf("comment", fmt.Sprintf("Job %s does not exist.", name), "result", false), nil
	}
	// Two keys of a job have other names as keywords of add.
	arg := []any{name}
	for k, v := range job.All() {
		switch key := value.Str(k); key {
		case "name":
			continue
		case "args", "kwargs":
			arg = append(arg, "job_"+key+"="+value.Repr(v))
		default:
			arg = append(arg, key+"="+value.Str(v))
		}
	}
	v, err := c.Funcs.Call(ctx, c, "publish.publish", []any{value.Str(a.Target), "schedule.add", &value.List{Items: arg}}, nil)
	if err != nil {
		return nil, err
	}
	answers, _ := v.(*value.Dict)
	var minions, failed []string
	for k, v := range answers.All() {
		minions = append(minions, value.Str(k))
		if d, ok := v.(*value.Dict); !value.Truth(v) || ok && !d.Bool("result") {
			failed = append(failed, value.Str(k))
		}
	}
	switch {
	case len(minions) == 0:
		ret.Set("comment", "no servers answered the published schedule.add command")
		return ret, nil
	case len(failed) > 0:
		ret.Set("comment", "the following minions return False")
		ret.Set("minions", value.Strings(failed))
		return ret, nil
	}
	if word == "move" {
		if _, err := m.delete(ctx, c, scheduleJobArgs{Name: name, Kw: fn.Kwargs{Dict: value.NewDict(0)}}); err != nil {
			return nil, err
		}
	}
	ret.Set("comment", fmt.Sprintf(done, name))
	ret.Set("minions", value.Strings(minions))
	return ret, nil
}
