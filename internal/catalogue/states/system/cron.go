package system

import (
	"context"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/crontabs"
	"brine/internal/catalogue/states/files"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	when := func(fn.Reader) (string, bool) {
		return "cron module could not be loaded", machine.Which("crontab") != ""
	}
	units.Declare("cron", func() state.Module {
		return state.Module{Name: "cron", When: when, Doc: `Keep jobs in crontabs.`, Funcs: []state.Func{
			state.Of("present", cronPresent, `Have a job in a crontab.`),
			state.Of("absent", cronAbsent, `Have no such job in a crontab.`),
			state.Of("file", cronFile, `Have a file as a crontab.`),
			state.Of("env_present", cronEnvPresent, `Have a variable in a crontab.`),
			state.Of("env_absent", cronEnvAbsent, `Have no such variable in a crontab.`),
		}}
	})
}

type cronArgs struct {
	Name       string `salt:"name" doc:"the command"`
	User       string `salt:"user" doc:"whose crontab" default:"root"`
	Minute     any    `salt:"minute" doc:"minutes, or random" default:"*"`
	Hour       any    `salt:"hour" doc:"hours, or random" default:"*"`
	Daymonth   any    `salt:"daymonth" doc:"days of the month, or random" default:"*"`
	Month      any    `salt:"month" doc:"months, or random" default:"*"`
	Dayweek    any    `salt:"dayweek" doc:"days of the week, or random" default:"*"`
	Comment    any    `salt:"comment" doc:"comment above the job" default:"null"`
	Commented  bool   `salt:"commented" doc:"keep the job, but commented out" default:"false"`
	Identifier any    `salt:"identifier" doc:"what tells the job from others; by default the command" default:"false"`
	Special    any    `salt:"special" doc:"a time such as @daily in place of the others" default:"null"`
}

// crontab accesses the crontabs of this machine.
func crontab() crontabs.Crontabs { return crontabs.Crontabs{M: machine} }

// identifier returns the identifier of a job: false stands for the command,
// and null for none.
func identifier(v any, cmd string) any {
	switch {
	case v == false:
		return cmd
	case v == nil:
		return nil
	}
	return value.Str(v)
}

// noIdentifier is the identifier of jobs without one.
const noIdentifier = "NO ID SET"

// matched reports whether a job has the command or identifier.
func matched(job *value.Dict, cmd string, id any) bool {
	have, want := noIdentifier, noIdentifier
	if value.Truth(job.At("identifier")) {
		have = job.Str("identifier")
	}
	if value.Truth(id) {
		want = value.Str(id)
	}
	same := job.At("cmd") == cmd
	if have == noIdentifier && want == noIdentifier {
		return same
	}
	return have == want || same && have == noIdentifier
}

// needsChange compares one field. "random" matches any fixed time.
func needsChange(have, want any) bool {
	if value.Equal(have, want) || want == nil {
		return false
	}
	return want != "random" || have == "*"
}

// status returns the status of a job: absent, present, or update if it
// differs.
func (a cronArgs) status(ctx context.Context, e *state.Env, id any) (string, error) {
	tab, err := crontab().List(ctx, e.Call, crontabs.UserArgs{User: a.User})
	if err != nil {
		return "", err
	}
	lower := func(v any) any { return strings.ToLower(value.Str(v)) }
	list, want := "crons", value.DictOf("minute", lower(a.Minute), "hour", lower(a.Hour), "daymonth", lower(a.Daymonth), "month", lower(a.Month), "dayweek",
		lower(a.Dayweek))
	if a.Special != nil {
		list, want = "special", value.DictOf("spec", a.Special)
	}
	want.Update(value.DictOf("identifier", id, "cmd", a.Name, "comment", a.Comment, "commented", a.Commented))
	for _, it := range tab.List(list) {
		job, _ := it.(*value.Dict)
		if !matched(job, a.Name, id) {
			continue
		}
		for k, v := range want.All() {
			if needsChange(job.At(k), v) {
				return "update", nil
			}
		}
		return "present", nil
	}
	return "absent", nil
}

// cronStep returns a plan that changes a crontab with do, which returns what
// it did in one word.
func cronStep(what, name, user, predicted string, do func(context.Context) (string, error)) state.Plan {
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: what + " " + name + " " + predicted},
		Do: func(ctx context.Context) (state.Change, error) {
			said, err := do(ctx)
			if err != nil {
				return state.Change{}, err
			}
			diff := value.DictOf(user, name)
			switch said {
			case "present":
				return state.Change{Comment: what + " " + name + " already present"}, nil
			case "absent":
				return state.Change{Comment: what + " " + name + " already absent"}, nil
			case "new":
				return state.Change{Diff: diff, Comment: what + " " + name + " added to " + user + "'s crontab"}, nil
			case "updated":
				return state.Change{Diff: diff, Comment: what + " " + name + " updated"}, nil
			case "removed":
				return state.Change{Diff: diff, Comment: what + " " + name + " removed from " + user + "'s crontab"}, nil
			}
			return state.Change{}, fn.Errorf("%s %s for user %s failed to commit with error \n%s", what, name, user, said)
		},
	}}}
}

func cronPresent(ctx context.Context, e *state.Env, a cronArgs) (state.Plan, error) {
	a.Name = strings.TrimSpace(a.Name)
	id := identifier(a.Identifier, a.Name)
	status, err := a.status(ctx, e, id)
	if err != nil || status == "present" {
		return state.Plan{Comment: "Cron " + a.Name + " already present"}, err
	}
	predicted := map[string]string{"absent": "is set to be added", "update": "is set to be updated"}[status]
	return cronStep("Cron", a.Name, a.User, predicted, func(ctx context.Context) (string, error) {
		if a.Special != nil {
			return crontab().SetSpecial(ctx, e.Call, crontabs.SetSpecialArgs{User: a.User, Special: value.Str(a.Special), Cmd: a.Name, Commented: a.Commented,
				Comment: a.Comment, Identifier: id})
		}
		return crontab().SetJob(ctx, e.Call, crontabs.SetJobArgs{User: a.User, Minute: a.Minute, Hour: a.Hour, Day: a.Daymonth, Month: a.Month,
			Weekday: a.Dayweek, Cmd: a.Name, Commented: a.Commented, Comment: a.Comment, Identifier: id})
	}), nil
}

type cronAbsentArgs struct {
	Name       string    `salt:"name" doc:"the command"`
	User       string    `salt:"user" doc:"whose crontab" default:"root"`
	Identifier any       `salt:"identifier" doc:"what tells the job from others; by default the command" default:"false"`
	Special    any       `salt:"special" doc:"its time such as @daily" default:"null"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

func cronAbsent(ctx context.Context, e *state.Env, a cronAbsentArgs) (state.Plan, error) {
	a.Name = strings.TrimSpace(a.Name)
	id := identifier(a.Identifier, a.Name)
	tab, err := crontab().List(ctx, e.Call, crontabs.UserArgs{User: a.User})
	if err != nil {
		return state.Plan{}, err
	}
	list := "crons"
	if a.Special != nil {
		list = "special"
	}
	there := false
	for _, it := range tab.List(list) {
		job, _ := it.(*value.Dict)
		there = there || matched(job, a.Name, id) && (a.Special == nil || job.At("spec") == a.Special)
	}
	if !there {
		return state.Plan{Comment: "Cron " + a.Name + " already absent",
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "Cron " + a.Name + " is absent"}}, nil
	}
	return cronStep("Cron", a.Name, a.User, "is set to be removed", func(ctx context.Context) (string, error) {
		if a.Special != nil {
			return crontab().RmSpecial(ctx, e.Call, crontabs.RmSpecialArgs{User: a.User, Cmd: a.Name, Special: a.Special, Identifier: id})
		}
		return crontab().RmJob(ctx, e.Call, crontabs.RmJobArgs{User: a.User, Cmd: a.Name, Identifier: id})
	}), nil
}

type cronEnvArgs struct {
	Name  string `salt:"name" doc:"name of the variable"`
	Value any    `salt:"value" doc:"its value" default:"null"`
	User  string `salt:"user" doc:"whose crontab" default:"root"`
}

// cronEnv returns the value of a variable in a crontab.
func cronEnv(ctx context.Context, e *state.Env, user, name string) (v string, ok bool, err error) {
	tab, err := crontab().List(ctx, e.Call, crontabs.UserArgs{User: user})
	for _, it := range tab.List("env") {
		if d, _ := it.(*value.Dict); d.At("name") == name {
			return d.Str("value"), true, err
		}
	}
	return "", false, err
}

func cronEnvPresent(ctx context.Context, e *state.Env, a cronEnvArgs) (state.Plan, error) {
	now, ok, err := cronEnv(ctx, e, a.User, a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	predicted, want := "is set to be added", ""
	if a.Value != nil {
		want = value.Str(a.Value)
	}
	if ok {
		if now == want {
			return state.Plan{Comment: "Cron env " + a.Name + " already present"}, nil
		}
		predicted = "is set to be updated"
	}
	return cronStep("Cron env", a.Name, a.User, predicted, func(ctx context.Context) (string, error) {
		return crontab().SetEnv(ctx, e.Call, crontabs.SetEnvArgs{User: a.User, Name: a.Name, Value: a.Value})
	}), nil
}

type cronEnvAbsentArgs struct {
	Name string `salt:"name" doc:"name of the variable"`
	User string `salt:"user" doc:"whose crontab" default:"root"`
}

func cronEnvAbsent(ctx context.Context, e *state.Env, a cronEnvAbsentArgs) (state.Plan, error) {
	a.Name = strings.TrimSpace(a.Name)
	_, ok, err := cronEnv(ctx, e, a.User, a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	if !ok {
		return state.Plan{Comment: "Cron env " + a.Name + " already absent",
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "Cron env " + a.Name + " is absent"}}, nil
	}
	return cronStep("Cron env", a.Name, a.User, "is set to be removed", func(ctx context.Context) (string, error) {
		return crontab().RmEnv(ctx, e.Call, crontabs.RmEnvArgs{User: a.User, Name: a.Name})
	}), nil
}

type cronFileArgs struct {
	Name           string    `salt:"name" doc:"where the file comes from, as the source of file.managed"`
	SourceHash     any       `salt:"source_hash" doc:"hash of the source, or a file of hashes" default:""`
	SourceHashName any       `salt:"source_hash_name" doc:"name of the source in a file of hashes" default:"null"`
	User           string    `salt:"user" doc:"whose crontab" default:"root"`
	Template       any       `salt:"template" doc:"template engine that makes the content" default:"null"`
	Context        any       `salt:"context" doc:"variables of the template" default:"null"`
	Replace        bool      `salt:"replace" doc:"replace a crontab that is there" default:"true"`
	Defaults       any       `salt:"defaults" doc:"variables of the template that context can override" default:"null"`
	Backup         any       `salt:"backup" ignored:"crontab(1) replaces the table" default:""`
	Kwargs         fn.Kwargs `salt:"kwargs"`
}

// cronFile manages a copy of the crontab with file.managed, and then installs
// it as the crontab.
func cronFile(ctx context.Context, e *state.Env, a cronFileArgs) (state.Plan, error) {
	user, ok := account.ByName(ctx, &host.Machine{}, a.User)
	if !ok {
		return state.Plan{}, fn.Errorf("Could not identify group for user %s", a.User)
	}
	now, err := crontab().Raw(ctx, e.Call, crontabs.UserArgs{User: a.User})
	if err != nil {
		return state.Plan{}, err
	}
	if !a.Replace && now != "" {
		return state.Plan{Comment: "User " + a.User + " already has a crontab. No changes made"}, nil
	}
	var plan state.Plan
	err = a.with(now, func(path string) (err error) {
		plan, err = a.managed(ctx, e, path)
		return err
	})
	if err != nil || len(plan.Steps) == 0 {
		return state.Plan{Comment: "Crontab for user " + a.User + " is in the correct state"}, err
	}
	diff := value.NewDict(1)
	for _, s := range plan.Steps {
		diff.Update(s.Change.Diff)
	}
	predicted := "The following values are set to be changed:\n"
	for k, v := range diff.All() {
		predicted += value.Str(k) + ": " + value.Str(v) + "\n"
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: predicted},
		Do: func(ctx context.Context) (c state.Change, err error) {
			err = a.with(now, func(path string) error {
				c, err = a.install(ctx, e, path)
				if c.Diff != nil && user.UID != os.Geteuid() { // Salt changes the owner of its file
					group, _ := account.GroupName(&host.Machine{}, user.GID)
					c.Diff.Update(value.DictOf("user", a.User, "group", group))
				}
				return err
			})
			return c, err
		},
	}}}, nil
}

// with calls do with the path of a file that contains the crontab.
func (a cronFileArgs) with(now string, do func(path string) error) error {
	f, err := os.CreateTemp("", "crontab")
	if err != nil {
		return fn.Errorf("cannot make a file for the crontab: %w", err)
	}
	defer os.Remove(f.Name())
	if now == "" || !strings.HasSuffix(now, "\n") {
		now += "\n"
	}
	_, err = f.WriteString(now)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fn.Errorf("cannot write a file for the crontab: %w", err)
	}
	return do(f.Name())
}

// managed returns the plan of file.managed for the file.
func (a cronFileArgs) managed(ctx context.Context, e *state.Env, path string) (state.Plan, error) {
	kw := a.Kwargs.Clone()
	for k, v := range map[string]any{"name": path, "source": a.Name, "source_hash": a.SourceHash, "source_hash_name": a.SourceHashName,
		"template": a.Template, "context": a.Context, "defaults": a.Defaults, "mode": "0600"} {
		kw.Set(k, v)
	}
	for _, f := range files.Module("file", &host.Machine{}).Funcs {
		if f.Name() == "managed" {
			return f.Plan(ctx, e, kw)
		}
	}
	return state.Plan{}, nil
}

func (a cronFileArgs) install(ctx context.Context, e *state.Env, path string) (state.Change, error) {
	plan, err := a.managed(ctx, e, path)
	if err != nil {
		return state.Change{}, err
	}
	diff := value.NewDict(1)
	for _, s := range plan.Steps {
		c, err := s.Do(ctx)
		if err != nil {
			return state.Change{}, fn.Errorf("Unable to manage file: %w", err)
		}
		diff.Update(c.Diff)
	}
	said, err := crontab().WriteVerbose(ctx, e.Call, crontabs.FileArgs{User: a.User, Path: path})
	if err != nil {
		return state.Change{}, err
	}
	if !value.Equal(said.At("retcode"), int64(0)) {
		return state.Change{}, fn.Errorf("Unable to update user %s crontab %s. Error: %s", a.User, path, said.Str("stderr"))
	}
	return state.Change{Diff: diff, Comment: "Crontab for user " + a.User + " was updated"}, nil
}
