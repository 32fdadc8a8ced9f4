// Package crontabs implements the execution module and the state cron.
package crontabs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/cron"
	"brine/internal/py/value"
)

// Crontabs reads and changes the crontabs of a machine.
type Crontabs struct{ M *host.Machine }

// UserArgs are the arguments of Raw, List.
type UserArgs struct {
	User string `salt:"user" doc:"whose crontab"`
}

// Raw implements cron.raw_cron.
func (x Crontabs) Raw(ctx context.Context, _ *fn.Call, a UserArgs) (string, error) {
	text, err := cron.Raw(ctx, x.M, a.User)
	return text, failed(err)
}

// failed marks an error to be shown to users as it is.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return fn.Errorf("%w", err)
}

func shownJob(j cron.Job) *value.Dict {
	d := value.DictOf("minute", j.Minute, "hour", j.Hour, "daymonth", j.Day, "month", j.Month, "dayweek", j.Weekday)
	if j.Special != "" {
		d = value.DictOf("spec", j.Special)
	}
	d.Set("identifier", present(j.Identifier, j.HasIdentifier))
	d.Set("cmd", j.Cmd)
	d.Set("comment", present(j.Comment, j.HasComment))
	d.Set("commented", j.Disabled)
	return d
}

func present(s string, has bool) any {
	if !has {
		return nil
	}
	return s
}

// List implements cron.list_tab.
func (x Crontabs) List(ctx context.Context, _ *fn.Call, a UserArgs) (*value.Dict, error) {
	tab, err := cron.Read(ctx, x.M, a.User)
	if err != nil {
		return nil, failed(err)
	}
	jobs, special, env := &value.List{}, &value.List{}, &value.List{}
	for _, j := range tab.Jobs {
		jobs.Append(shownJob(j))
	}
	for _, j := range tab.Specials {
		special.Append(shownJob(j))
	}
	for _, v := range tab.Env {
		env.Append(value.DictOf("name", v.Name, "value", v.Value))
	}
	return value.DictOf("pre", value.Strings(tab.Above), "crons", jobs, "special", special, "env", env), nil
}

// EntryArgs are the arguments of Entry.
type EntryArgs struct {
	User       string `salt:"user" doc:"whose crontab"`
	Identifier any    `salt:"identifier" doc:"identifier of the job" default:"null"`
	Cmd        any    `salt:"cmd" doc:"command, unless there is an identifier" default:"null"`
}

// Entry implements cron.get_entry.
func (x Crontabs) Entry(ctx context.Context, _ *fn.Call, a EntryArgs) (any, error) {
	tab, err := cron.Read(ctx, x.M, a.User)
	if err != nil {
		return nil, failed(err)
	}
	for _, j := range append(tab.Jobs, tab.Specials...) {
		byID := value.Truth(a.Identifier)
		if byID && j.Identifier == value.Str(a.Identifier) || !byID && value.Truth(a.Cmd) && j.Cmd == value.Str(a.Cmd) {
			return shownJob(j), nil
		}
	}
	return false, nil
}

// change changes a user's crontab. It returns the error output of crontab(1)
// as the result, as Salt does.
func (x Crontabs) change(ctx context.Context, user string, do func(*cron.Tab) (string, error)) (string, error) {
	tab, err := cron.Read(ctx, x.M, user)
	if err != nil {
		return "", failed(err)
	}
	done, err := do(tab)
	if err != nil || done == cron.Present || done == cron.Absent {
		return done, failed(err)
	}
	if err := tab.Write(ctx, x.M, user); err != nil {
		return err.Error(), nil
	}
	return done, nil
}

// SetJobArgs are the arguments of SetJob.
type SetJobArgs struct {
	User       string `salt:"user" doc:"whose crontab"`
	Minute     any    `salt:"minute" doc:"minute, * for all, random for any one"`
	Hour       any    `salt:"hour" doc:"hour"`
	Day        any    `salt:"daymonth" doc:"day of the month"`
	Month      any    `salt:"month" doc:"month"`
	Weekday    any    `salt:"dayweek" doc:"day of the week"`
	Cmd        string `salt:"cmd" doc:"command"`
	Commented  bool   `salt:"commented" doc:"write the job as a comment, so that it does not run" default:"false"`
	Comment    any    `salt:"comment" doc:"comment before the job" default:"null"`
	Identifier any    `salt:"identifier" doc:"what the job is known by" default:"null"`
}

func optional(v any) (string, bool) {
	if v == nil || v == false || v == "" {
		return "", false
	}
	return value.Str(v), true
}

// SetJob implements cron.set_job.
func (x Crontabs) SetJob(ctx context.Context, _ *fn.Call, a SetJobArgs) (string, error) {
	lower := func(v any) string { return strings.ToLower(value.Str(v)) }
	j := cron.Job{Minute: lower(a.Minute), Hour: lower(a.Hour), Day: lower(a.Day), Month: lower(a.Month), Weekday: lower(a.Weekday), Cmd: a.Cmd,
		Disabled: a.Commented}
	j.Comment, j.HasComment = optional(a.Comment)
	j.Identifier, j.HasIdentifier = optional(a.Identifier)
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) {
		chance(t, &j)
		return t.Set(j)
	})
}

// chance replaces "random" and ranges such as "3:7" by numbers. It keeps the
// numbers of an existing job.
func chance(t *cron.Tab, j *cron.Job) {
	var old cron.Job
	for _, o := range t.Jobs {
		if o.Is(j.Cmd, j.Identifier) {
			old = o
			break
		}
	}
	for _, f := range []struct {
		at       *string
		old      string
		from, to int
	}{{&j.Minute, old.Minute, 0, 59}, {&j.Hour, old.Hour, 0, 23}, {&j.Month, old.Month, 1, 12}, {&j.Weekday, old.Weekday, 0, 6}, {&j.Day, old.Day, 1, 28}} {
		lo, hi, isRange := strings.Cut(*f.at, ":")
		from, err1 := strconv.Atoi(lo)
		to, err2 := strconv.Atoi(hi)
		switch {
		case *f.at == "random":
			from, to = f.from, f.to
		case isRange && err1 == nil && err2 == nil:
			from, to = min(from, to), max(from, to)
		default:
			continue
		}
		if n, err := strconv.Atoi(f.old); err == nil && n >= from && n <= to {
			*f.at = f.old
			continue
		}
		*f.at = strconv.Itoa(from + rand.IntN(to-from+1))
	}
}

// SetSpecialArgs are the arguments of SetSpecial.
type SetSpecialArgs struct {
	User       string `salt:"user" doc:"whose crontab"`
	Special    string `salt:"special" doc:"time such as @daily"`
	Cmd        string `salt:"cmd" doc:"command"`
	Commented  bool   `salt:"commented" doc:"write the job as a comment, so that it does not run" default:"false"`
	Comment    any    `salt:"comment" doc:"comment before the job" default:"null"`
	Identifier any    `salt:"identifier" doc:"what the job is known by" default:"null"`
}

// SetSpecial implements cron.set_special.
func (x Crontabs) SetSpecial(ctx context.Context, _ *fn.Call, a SetSpecialArgs) (string, error) {
	j := cron.Job{Special: a.Special, Cmd: a.Cmd, Disabled: a.Commented}
	j.Comment, j.HasComment = optional(a.Comment)
	j.Identifier, j.HasIdentifier = optional(a.Identifier)
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) { return t.Set(j) })
}

// RmJobArgs are the arguments of RmJob.
type RmJobArgs struct {
	User       string `salt:"user" doc:"whose crontab"`
	Cmd        string `salt:"cmd" doc:"command"`
	Minute     any    `salt:"minute" doc:"only a job of this minute" default:"null"`
	Hour       any    `salt:"hour" doc:"only a job of this hour" default:"null"`
	Day        any    `salt:"daymonth" doc:"only a job of this day of the month" default:"null"`
	Month      any    `salt:"month" doc:"only a job of this month" default:"null"`
	Weekday    any    `salt:"dayweek" doc:"only a job of this day of the week" default:"null"`
	Identifier any    `salt:"identifier" doc:"identifier of the job" default:"null"`
}

// RmJob implements cron.rm_job.
func (x Crontabs) RmJob(ctx context.Context, _ *fn.Call, a RmJobArgs) (string, error) {
	id, _ := optional(a.Identifier)
	spare := func(j cron.Job) bool {
		for _, f := range [][2]any{{a.Minute, j.Minute}, {a.Hour, j.Hour}, {a.Day, j.Day}, {a.Month, j.Month}, {a.Weekday, j.Weekday}} {
			random := strings.EqualFold(fmt.Sprint(f[0]), "random") && f[1] != "*"
			if f[0] != nil && value.Str(f[0]) != f[1] && !random {
				return true
			}
		}
		return false
	}
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) { return t.Remove(a.Cmd, id, false, spare), nil })
}

// RmSpecialArgs are the arguments of RmSpecial.
type RmSpecialArgs struct {
	User       string `salt:"user" doc:"whose crontab"`
	Cmd        string `salt:"cmd" doc:"command"`
	Special    any    `salt:"special" doc:"only a job of this time" default:"null"`
	Identifier any    `salt:"identifier" doc:"identifier of the job" default:"null"`
}

// RmSpecial implements cron.rm_special.
func (x Crontabs) RmSpecial(ctx context.Context, _ *fn.Call, a RmSpecialArgs) (string, error) {
	id, _ := optional(a.Identifier)
	spare := func(j cron.Job) bool { return a.Special != nil && j.Special != value.Str(a.Special) }
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) { return t.Remove(a.Cmd, id, true, spare), nil })
}

// SetEnvArgs are the arguments of SetEnv.
type SetEnvArgs struct {
	User  string `salt:"user" doc:"whose crontab"`
	Name  string `salt:"name" doc:"name of the variable"`
	Value any    `salt:"value" doc:"its value" default:"null"`
}

// SetEnv implements cron.set_env.
func (x Crontabs) SetEnv(ctx context.Context, _ *fn.Call, a SetEnvArgs) (string, error) {
	v := ""
	if a.Value != nil {
		v = value.Str(a.Value)
	}
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) { return t.SetEnv(a.Name, v) })
}

// RmEnvArgs are the arguments of RmEnv.
type RmEnvArgs struct {
	User string `salt:"user" doc:"whose crontab"`
	Name string `salt:"name" doc:"name of the variable"`
}

// RmEnv implements cron.rm_env.
func (x Crontabs) RmEnv(ctx context.Context, _ *fn.Call, a RmEnvArgs) (string, error) {
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) { return t.RemoveEnv(a.Name), nil })
}

// FileArgs are the arguments of Write, WriteVerbose.
type FileArgs struct {
	User string `salt:"user" doc:"whose crontab"`
	Path string `salt:"path" doc:"file with the new crontab"`
}

func (x Crontabs) load(ctx context.Context, a FileArgs) (string, error) {
	b, err := x.M.ReadFile(a.Path)
	if err != nil {
		return "", failed(err)
	}
	if err := cron.WriteRaw(ctx, x.M, a.User, string(b)); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// Write implements cron.write_cron_file.
func (x Crontabs) Write(ctx context.Context, _ *fn.Call, a FileArgs) (bool, error) {
	said, err := x.load(ctx, a)
	return said == "" && err == nil, err
}

// WriteVerbose implements cron.write_cron_file_verbose.
func (x Crontabs) WriteVerbose(ctx context.Context, _ *fn.Call, a FileArgs) (*value.Dict, error) {
	said, err := x.load(ctx, a)
	code := 0
	if said != "" {
		code = 1
	}
	return value.DictOf("pid", os.Getpid(), "retcode", code, "stdout", "", "stderr", said), err
}
