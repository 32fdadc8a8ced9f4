package system

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

type crontab struct{ m *host.Machine }

func init() { units.Register("cron", cronModule) }

func cronModule(m *host.Machine) fn.Module {
	x := crontab{m}
	when := func(fn.Reader) (string, bool) {
		if m.Which("crontab") == "" {
			return "Cannot load cron module: crontab command not found", false
		}
		return "", true
	}
	return fn.Module{Name: "cron", When: when, Doc: `Jobs that cron runs.`, Funcs: []fn.Func{
		fn.Of("raw_cron", x.raw, `Return the text of a user's crontab.`, fn.Example("salt '*' cron.raw_cron root")),
		fn.Of("list_tab", x.list, `Return what a user's crontab holds.`, fn.Example("salt '*' cron.list_tab root")),
		fn.Of("ls", x.list, `Same as cron.list_tab.`, fn.Example("salt '*' cron.ls root")),
		fn.Of("get_entry", x.entry, `Return a job by its identifier or command, or false.`, fn.Example("salt '*' cron.get_entry root identifier=task1")),
		fn.Of("set_job", x.setJob, `Set a job: new, updated or present.`, fn.Example("salt '*' cron.set_job root '*' '*' '*' '*' 1 /usr/local/weekly")),
		fn.Of("set_special", x.setSpecial, `Set a job with a time such as @daily: new, updated or present.`,
			fn.Example("salt '*' cron.set_special root @hourly 'echo foobar'")),
		fn.Of("rm_job", x.rmJob, `Remove a job: removed or absent.`, fn.Example("salt '*' cron.rm_job root /usr/local/weekly")),
		fn.Of("rm", x.rmJob, `Same as cron.rm_job.`, fn.Example("salt '*' cron.rm root /usr/bin/test_cron")),
		fn.Of("rm_special", x.rmSpecial, `Remove a job with a time such as @daily: removed or absent.`,
			fn.Example("salt '*' cron.rm_special root /usr/bin/foo")),
		fn.Of("set_env", x.setEnv, `Set a variable of the environment: new, updated or present.`,
			fn.Example("salt '*' cron.set_env root MAILTO user@example.com")),
		fn.Of("rm_env", x.rmEnv, `Remove a variable of the environment: removed or absent.`, fn.Example("salt '*' cron.rm_env root MAILTO")),
		fn.Of("write_cron_file", x.write, `Replace a user's crontab by a file, and say whether that worked.`,
			fn.Example("salt '*' cron.write_cron_file root /tmp/new_cron")),
		fn.Of("write_cron_file_verbose", x.writeVerbose, `Replace a user's crontab by a file, and return what crontab says.`,
			fn.Example("salt '*' cron.write_cron_file_verbose root /tmp/new_cron")),
	}}
}

type cronUserArgs struct {
	User string `salt:"user" doc:"whose crontab"`
}

func (x crontab) raw(ctx context.Context, _ *fn.Call, a cronUserArgs) (string, error) {
	text, err := cron.Raw(ctx, x.m, a.User)
	return text, failed(err)
}

// failed makes an error one that users are to see as it is.
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

func (x crontab) list(ctx context.Context, _ *fn.Call, a cronUserArgs) (*value.Dict, error) {
	tab, err := cron.Read(ctx, x.m, a.User)
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

type cronEntryArgs struct {
	User       string `salt:"user" doc:"whose crontab"`
	Identifier any    `salt:"identifier" doc:"identifier of the job" default:"null"`
	Cmd        any    `salt:"cmd" doc:"command, unless there is an identifier" default:"null"`
}

func (x crontab) entry(ctx context.Context, _ *fn.Call, a cronEntryArgs) (any, error) {
	tab, err := cron.Read(ctx, x.m, a.User)
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

// change changes a user's crontab. What crontab(1) complains about is the
// result, as in Salt.
func (x crontab) change(ctx context.Context, user string, do func(*cron.Tab) (string, error)) (string, error) {
	tab, err := cron.Read(ctx, x.m, user)
	if err != nil {
		return "", failed(err)
	}
	done, err := do(tab)
	if err != nil || done == cron.Present || done == cron.Absent {
		return done, failed(err)
	}
	if err := tab.Write(ctx, x.m, user); err != nil {
		return err.Error(), nil
	}
	return done, nil
}

type setJobArgs struct {
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

func (x crontab) setJob(ctx context.Context, _ *fn.Call, a setJobArgs) (string, error) {
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

// chance puts numbers in the place of "random" and of ranges "3:7", those of
// the job that is there, if any.
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

type setSpecialArgs struct {
	User       string `salt:"user" doc:"whose crontab"`
	Special    string `salt:"special" doc:"time such as @daily"`
	Cmd        string `salt:"cmd" doc:"command"`
	Commented  bool   `salt:"commented" doc:"write the job as a comment, so that it does not run" default:"false"`
	Comment    any    `salt:"comment" doc:"comment before the job" default:"null"`
	Identifier any    `salt:"identifier" doc:"what the job is known by" default:"null"`
}

func (x crontab) setSpecial(ctx context.Context, _ *fn.Call, a setSpecialArgs) (string, error) {
	j := cron.Job{Special: a.Special, Cmd: a.Cmd, Disabled: a.Commented}
	j.Comment, j.HasComment = optional(a.Comment)
	j.Identifier, j.HasIdentifier = optional(a.Identifier)
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) { return t.Set(j) })
}

type rmJobArgs struct {
	User       string `salt:"user" doc:"whose crontab"`
	Cmd        string `salt:"cmd" doc:"command"`
	Minute     any    `salt:"minute" doc:"only a job of this minute" default:"null"`
	Hour       any    `salt:"hour" doc:"only a job of this hour" default:"null"`
	Day        any    `salt:"daymonth" doc:"only a job of this day of the month" default:"null"`
	Month      any    `salt:"month" doc:"only a job of this month" default:"null"`
	Weekday    any    `salt:"dayweek" doc:"only a job of this day of the week" default:"null"`
	Identifier any    `salt:"identifier" doc:"identifier of the job" default:"null"`
}

func (x crontab) rmJob(ctx context.Context, _ *fn.Call, a rmJobArgs) (string, error) {
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

type rmSpecialArgs struct {
	User       string `salt:"user" doc:"whose crontab"`
	Cmd        string `salt:"cmd" doc:"command"`
	Special    any    `salt:"special" doc:"only a job of this time" default:"null"`
	Identifier any    `salt:"identifier" doc:"identifier of the job" default:"null"`
}

func (x crontab) rmSpecial(ctx context.Context, _ *fn.Call, a rmSpecialArgs) (string, error) {
	id, _ := optional(a.Identifier)
	spare := func(j cron.Job) bool { return a.Special != nil && j.Special != value.Str(a.Special) }
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) { return t.Remove(a.Cmd, id, true, spare), nil })
}

type setEnvArgs struct {
	User  string `salt:"user" doc:"whose crontab"`
	Name  string `salt:"name" doc:"name of the variable"`
	Value any    `salt:"value" doc:"its value" default:"null"`
}

func (x crontab) setEnv(ctx context.Context, _ *fn.Call, a setEnvArgs) (string, error) {
	v := ""
	if a.Value != nil {
		v = value.Str(a.Value)
	}
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) { return t.SetEnv(a.Name, v) })
}

type rmEnvArgs struct {
	User string `salt:"user" doc:"whose crontab"`
	Name string `salt:"name" doc:"name of the variable"`
}

func (x crontab) rmEnv(ctx context.Context, _ *fn.Call, a rmEnvArgs) (string, error) {
	return x.change(ctx, a.User, func(t *cron.Tab) (string, error) { return t.RemoveEnv(a.Name), nil })
}

type cronFileArgs struct {
	User string `salt:"user" doc:"whose crontab"`
	Path string `salt:"path" doc:"file with the new crontab"`
}

func (x crontab) load(ctx context.Context, a cronFileArgs) (string, error) {
	b, err := x.m.ReadFile(a.Path)
	if err != nil {
		return "", failed(err)
	}
	if err := cron.WriteRaw(ctx, x.m, a.User, string(b)); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

func (x crontab) write(ctx context.Context, _ *fn.Call, a cronFileArgs) (bool, error) {
	said, err := x.load(ctx, a)
	return said == "" && err == nil, err
}

func (x crontab) writeVerbose(ctx context.Context, _ *fn.Call, a cronFileArgs) (*value.Dict, error) {
	said, err := x.load(ctx, a)
	code := 0
	if said != "" {
		code = 1
	}
	return value.DictOf("pid", os.Getpid(), "retcode", code, "stdout", "", "stderr", said), err
}
