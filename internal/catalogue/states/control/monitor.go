package control

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("status", func() state.Module {
		return state.Module{Name: "status", Doc: `Watch the load and the programs of the machine.`, Funcs: []state.Func{
			state.Of("loadavg", loadavg, `Fail unless a load average is within limits.`),
			state.Of("process", process, `Fail unless a program runs.`),
		}}
	})
	units.Declare("disk", func() state.Module {
		return state.Module{Name: "disk", Doc: `Watch the space of the machine's disks.`, Funcs: []state.Func{
			state.Of("status", diskStatus, `Fail unless the space of a mount point or directory is within limits.`),
		}}
	})
	units.Declare("process", func() state.Module {
		return state.Module{Name: "process", Doc: `Programs that run.`, Funcs: []state.Func{
			state.Of("absent", processAbsent, `Have no program run whose command line matches a pattern.`),
		}}
	})
}

type loadArgs struct {
	Name    string `salt:"name" doc:"1-min, 5-min or 15-min"`
	Maximum any    `salt:"maximum" doc:"fail above it" default:"null"`
	Minimum any    `salt:"minimum" doc:"fail below it" default:"null"`
}

func loadavg(_ context.Context, e *state.Env, a loadArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, _ bool) state.Result {
		data := value.NewDict(0)
		end := func(r state.Result) state.Result { return withData(r, data.At(a.Name)) }
		v, err := e.Exec(ctx, "status.loadavg", nil)
		if err != nil {
			return failed("%v", err)
		}
		if d, ok := v.(*value.Dict); ok {
			data = d
		}
		if !data.Has(a.Name) {
			return withData(failed("Requested load average %s not available ", a.Name), value.NewDict(0))
		}
		least, hasLeast, err := limit("minimum", a.Minimum)
		if err != nil {
			return failed("%v", err)
		}
		most, hasMost, err := limit("maximum", a.Maximum)
		if err != nil {
			return failed("%v", err)
		}
		if hasLeast && hasMost && least >= most {
			return withData(failed("Min must be less than max"), value.NewDict(0))
		}
		load, err := strconv.ParseFloat(value.Str(data.At(a.Name)), 64)
		switch {
		case err != nil:
			return failed("%v", err)
		case hasLeast && load < least:
			return end(failed("Load avg is below minimum of %s at %s", value.Str(a.Minimum), value.Str(load)))
		case hasMost && load > most:
			return end(failed("Load avg above maximum of %s at %s", value.Str(a.Maximum), value.Str(load)))
		}
		return end(succeeded("Load avg in acceptable range"))
	})
}

// limit parses a limit, which may be a number or a string.
func limit(name string, v any) (n float64, given bool, err error) {
	if !value.Truth(v) {
		return 0, false, nil
	}
	if n, err = strconv.ParseFloat(strings.TrimSpace(value.Str(v)), 64); err != nil {
		return 0, false, fmt.Errorf("%s is %s, but must be a number", name, value.Repr(v))
	}
	return n, true, nil
}

// withData adds the observed data to the result, as Salt's monitoring states
// do.
func withData(r state.Result, data any) state.Result {
	r.Extra = value.DictOf("data", data)
	return r
}

type processArgs struct {
	Name string `salt:"name" doc:"part of the command line"`
}

func process(_ context.Context, e *state.Env, a processArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, _ bool) state.Result {
		pids, err := e.Exec(ctx, "status.pid", nil, a.Name)
		switch {
		case err != nil:
			return failed("%v", err)
		case !value.Truth(pids):
			return withData(failed("Process signature \"%s\" not found ", a.Name), value.NewDict(0))
		}
		return withData(succeeded("Process signature \"%s\" was found ", a.Name), pids)
	})
}

type absentArgs struct {
	Name   string `salt:"name" doc:"pattern of the command line"`
	User   any    `salt:"user" doc:"only programs of this user" default:"null"`
	Signal any    `salt:"signal" doc:"number of the signal; by default to end" default:"null"`
}

func processAbsent(_ context.Context, e *state.Env, a absentArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, test bool) state.Result {
		const none = "No matching processes running"
		if a.Name == "" {
			return failed("name is needed: an empty pattern would end every process of the machine")
		}
		if test {
			v, err := e.Exec(ctx, "ps.pgrep", value.DictOf("user", a.User), a.Name)
			if err != nil {
				return failed("%v", err)
			}
			if l, ok := v.(*value.List); ok && l.Len() > 0 {
				return undecided("%d processes will be killed", l.Len())
			}
			return undecided(none)
		}
		kw := value.DictOf("user", a.User, "full", true)
		if value.Truth(a.Signal) {
			kw.Set("signal", a.Signal)
		}
		v, err := e.Exec(ctx, "ps.pkill", kw, a.Name)
		if err != nil {
			return failed("%v", err)
		}
		killed, ok := v.(*value.Dict)
		if !ok {
			return succeeded(none)
		}
		pids, _ := killed.At("killed").(*value.List)
		r := succeeded("Killed %d processes", pids.Len())
		r.Changes = killed
		return r
	})
}

type diskArgs struct {
	Name     string `salt:"name" doc:"mount point or directory"`
	Maximum  any    `salt:"maximum" doc:"fail above it" default:"null"`
	Minimum  any    `salt:"minimum" doc:"fail below it" default:"null"`
	Absolute bool   `salt:"absolute" doc:"the limits are kilobytes, not percents" default:"false"`
	Free     bool   `salt:"free" doc:"the limits are for free space, not for what is used" default:"false"`
}

// spaceLimit parses a limit with its unit. Percentages are whole numbers up to
// 100.
func (a diskArgs) spaceLimit(name string, v any) (n int64, fault string) {
	text, unit := value.Str(v), "%"
	if a.Absolute {
		unit = "KB"
	}
	n, err := strconv.ParseInt(strings.TrimSpace(strings.Trim(text, " "+unit)), 10, 64)
	if f, ok := v.(float64); ok {
		n, err = int64(f), nil
	}
	switch {
	case err != nil:
		return 0, name + " must be an integer "
	case !a.Absolute && (n < 0 || n > 100):
		return n, name + " must be in the range [0, 100] "
	}
	return n, ""
}

func diskStatus(_ context.Context, e *state.Env, a diskArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, _ bool) state.Result {
		var most, least *int64
		faults := ""
		for _, l := range []struct {
			name string
			v    any
			to   **int64
		}{{"maximum", a.Maximum, &most}, {"minimum", a.Minimum, &least}} {
			if l.v == nil {
				continue
			}
			n, fault := a.spaceLimit(l.name, l.v)
			*l.to, faults = &n, faults+fault
		}
		if least != nil && most != nil && *least >= *most {
			faults += "minimum must be less than maximum "
		}
		if faults != "" {
			return withData(failed("%s", faults), value.NewDict(0))
		}
		v, err := e.Exec(ctx, "disk.usage", nil)
		if err != nil {
			return failed("%v", err)
		}
		mounts, _ := v.(*value.Dict)
		if mount := mounts.Dict(a.Name); mount != nil {
			used, available := a.ofMount(mount)
			return withData(a.judged(used, available, false, least, most), mount)
		}
		return a.ofDirectory(ctx, e, least, most)
	})
}

// ofMount returns the used and available space of a mount point, in kilobytes
// or percent.
func (a diskArgs) ofMount(mount *value.Dict) (used, available float64) {
	number := func(key string) float64 {
		n, _ := strconv.ParseFloat(strings.Trim(value.Str(mount.At(key)), "%"), 64)
		return n
	}
	if a.Absolute {
		return number("used"), number("available")
	}
	return number("capacity"), 100 - number("capacity")
}

// ofDirectory checks the file system of a directory.
func (a diskArgs) ofDirectory(ctx context.Context, e *state.Env, least, most *int64) state.Result {
	if st, err := os.Stat(a.Name); err != nil || !st.IsDir() {
		return withData(failed("Disk mount %s not present. Directory %s does not exist or is not a directory", a.Name, a.Name), value.NewDict(0))
	}
	v, err := e.Exec(ctx, "status.diskusage", nil, a.Name)
	if err != nil {
		return failed("%v", err)
	}
	data, _ := v.(*value.Dict)
	total, available := float64(data.Dict(a.Name).Int("total")), float64(data.Dict(a.Name).Int("available"))
	used := total - available
	if !a.Absolute {
		if total == 0 {
			used, available = 0, 0
		} else {
			used, available = tenths(used/total*100), tenths(available/total*100)
		}
	}
	return withData(a.judged(used, available, !a.Absolute && total != 0, least, most), data)
}

// tenths rounds to one decimal place.
func tenths(f float64) float64 { return math.RoundToEven(f*10) / 10 }

// judged compares with the limits. Rounded numbers are shown with a decimal
// point.
func (a diskArgs) judged(used, available float64, rounded bool, least, most *int64) state.Result {
	what, n, unit := "used", used, "%"
	if a.Free {
		what, n = "available", available
	}
	if a.Absolute {
		unit = "KB"
	}
	shown := strconv.FormatFloat(n, 'f', -1, 64)
	if rounded {
		shown = value.Str(n)
	}
	switch {
	case least != nil && n < float64(*least):
		return failed("Disk %s space is below minimum of %d %s at %s %s", what, *least, unit, shown, unit)
	case most != nil && n > float64(*most):
		return failed("Disk %s space is above maximum of %d %s at %s %s", what, *most, unit, shown, unit)
	}
	return succeeded("Disk used space in acceptable range")
}
