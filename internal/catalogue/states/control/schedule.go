package control

import (
	"context"
	"fmt"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("schedule", func() state.Module {
		return state.Module{Name: "schedule", Doc: `Jobs that the minion runs by time.`, Funcs: []state.Func{
			state.Of("present", jobPresent, `Have a job in the schedule. Keywords are those of the function schedule.add.`),
			state.Of("absent", jobAbsent, `Have no job of a name in the schedule.`),
			state.Of("enabled", jobTurned("enable_job", "Enabled job %s from schedule"), `Have a job of the schedule enabled.`),
			state.Of("disabled", jobTurned("disable_job", "Disabled job %s from schedule"), `Have a job of the schedule disabled.`),
		}}
	})
}

type jobArgs struct {
	Name   string    `salt:"name" doc:"name of the job"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// keywords returns the keywords for a call of the module schedule.
func (a jobArgs) keywords(test bool) *value.Dict {
	kw := a.Kwargs.Clone()
	if test {
		kw.Set("test", true)
	}
	return kw
}

// scheduled returns the jobs of the schedule by name.
func scheduled(ctx context.Context, e *state.Env, a jobArgs) (*value.Dict, error) {
	v, err := e.Exec(ctx, "schedule.list", value.DictOf("show_all", true, "return_yaml", false, "offline", a.Kwargs.Bool("offline")))
	if err != nil {
		return nil, err
	}
	jobs, _ := v.(*value.Dict)
	return jobs, nil
}

// order calls a function of the modules schedule or beacons, whose answer has
// result, comment and changes.
func order(ctx context.Context, e *state.Env, function string, kw *value.Dict, args ...any) (*value.Dict, error) {
	v, err := e.Exec(ctx, function, kw, args...)
	if err != nil {
		return nil, err
	}
	answer, ok := v.(*value.Dict)
	if !ok {
		return nil, fn.Errorf("%s answered %s", function, value.Repr(v))
	}
	return answer, nil
}

func jobPresent(_ context.Context, e *state.Env, a jobArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, test bool) state.Result {
		jobs, err := scheduled(ctx, e, a)
		if err != nil {
			return failed("%v", err)
		}
		function, done := "schedule.add", fmt.Sprintf("Adding new job %s to schedule", a.Name)
		now, there := jobs.Get(a.Name)
		if there {
			function, done = "schedule.modify", fmt.Sprintf("Modifying job %s in schedule", a.Name)
			v, err := e.Exec(ctx, "schedule.build_schedule_item", a.keywords(false), a.Name)
			if err != nil {
				return failed("%v", err)
			}
			if job, ok := v.(*value.Dict); ok {
				if good, ok := job.Get("result"); ok && !value.Truth(good) {
					return failed("%s", told(job))
				}
				if !job.Has("enabled") {
					job.Set("enabled", true)
				}
			}
			if value.Equal(v, now) {
				return succeeded("Job %s in correct state", a.Name)
			}
		}
		answer, err := order(ctx, e, function, a.keywords(test), a.Name)
		if err != nil {
			return failed("%v", err)
		}
		if !value.Truth(answer.At("result")) {
			return failed("%s", told(answer))
		}
		if test {
			r := succeeded("%s", told(answer)) // as in Salt, a test succeeds even if it would change the job
			if r.Changes = answer.Dict("changes"); !there {
				r.Changes = value.DictOf(a.Name, "added")
			}
			return r
		}
		r := succeeded("%s", done)
		r.Changes = answer.Dict("changes")
		return r
	})
}

func jobAbsent(_ context.Context, e *state.Env, a jobArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, test bool) state.Result {
		return a.whatIs(ctx, e, test, "schedule.delete", fmt.Sprintf("Removed job %s from schedule", a.Name), true)
	})
}

func jobTurned(function, done string) func(context.Context, *state.Env, jobArgs) (state.Plan, error) {
	return func(_ context.Context, e *state.Env, a jobArgs) (state.Plan, error) {
		return whole(func(ctx context.Context, test bool) state.Result {
			return a.whatIs(ctx, e, test, "schedule."+function, fmt.Sprintf(done, a.Name), false)
		})
	}
}

// whatIs calls a function for a job if it is in the schedule.
func (a jobArgs) whatIs(ctx context.Context, e *state.Env, test bool, function, done string, changes bool) state.Result {
	jobs, err := scheduled(ctx, e, a)
	if err != nil {
		return failed("%v", err)
	}
	if !jobs.Has(a.Name) {
		return succeeded("Job %s not present in schedule", a.Name)
	}
	answer, err := order(ctx, e, function, a.keywords(test), a.Name)
	switch {
	case err != nil:
		return failed("%v", err)
	case !value.Truth(answer.At("result")):
		return failed("%s", told(answer))
	case test:
		return succeeded("%s", told(answer))
	}
	r := succeeded("%s", done)
	if changes {
		r.Changes = answer.Dict("changes")
	}
	return r
}
