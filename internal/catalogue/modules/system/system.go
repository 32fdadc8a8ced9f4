package system

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/timezone"
	"brine/internal/py/value"
)

type power struct{ m *host.Machine }

func init() { units.Register("system", systemModule) }

func systemModule(m *host.Machine) fn.Module {
	p := power{m}
	return fn.Module{Name: "system", Doc: `Restart the machine or switch it off; its time and its name.`, Funcs: []fn.Func{
		fn.Of("halt", p.now("halt"), `Stop the machine.`, fn.Example("salt '*' system.halt")),
		fn.Of("poweroff", p.now("poweroff"), `Switch the machine off.`, fn.Example("salt '*' system.poweroff")),
		fn.Of("reboot", p.at("-r"), `Restart the machine.`, fn.Example("salt '*' system.reboot")),
		fn.Of("shutdown", p.at("-h"), `Switch the machine off, at some time.`, fn.Example("salt '*' system.shutdown 5")),
		fn.Of("init", p.init, `Change the runlevel.`, fn.Example("salt '*' system.init 3")),
		fn.Of("get_system_time", p.clock("%I:%M:%S %p"), `Return the time.`, fn.Example("salt '*' system.get_system_time")),
		fn.Of("get_system_date", p.clock("%a %m/%d/%Y"), `Return the date.`, fn.Example("salt '*' system.get_system_date")),
		fn.Of("get_system_date_time", p.clock("%Y-%m-%d %H:%M:%S"), `Return the date and the time.`,
			fn.Example("salt '*' system.get_system_date_time '-0500'")),
		fn.Of("set_system_time", p.setTime, `Set the time, given as 15:30, 15:30:05 or 3:30 PM.`, fn.Example("salt '*' system.set_system_time '11:20'")),
		fn.Of("set_system_date", p.setDate, `Set the date, given as 2018-09-28 or 09-28-2018.`, fn.Example("salt '*' system.set_system_date '03-28-13'")),
		fn.Of("set_system_date_time", p.setDateTime, `Set some parts of the date and the time.`,
			fn.Example("salt '*' system.set_system_date_time 2015 5 12 11 37 53 '-0500'")),
		fn.Of("has_settable_hwclock", p.hasClock, `Say whether the machine has a hardware clock that can be set.`,
			fn.Example("salt '*' system.has_settable_hwclock")),
		fn.Of("get_computer_name", p.computerName, `Return the host name.`, fn.Example("salt '*' system.get_computer_name")),
		fn.Of("set_computer_name", p.setComputerName, `Set the host name, as network.mod_hostname does.`,
			fn.Example("salt '*' system.set_computer_name web1.example.org")),
		fn.Of("set_computer_desc", p.setComputerDesc, `Set the description of the machine in /etc/machine-info.`,
			fn.Example("salt '*' system.set_computer_desc 'the web server'")),
		fn.Of("get_computer_desc", p.computerDesc, `Return the description of the machine in /etc/machine-info, or false.`,
			fn.Example("salt '*' system.get_computer_desc")),
	}}
}

// run returns the output of a program even if it fails, as Salt does.
func (p power) run(ctx context.Context, c *fn.Call, program string, args ...string) (string, error) {
	c.Log.Warn("job changes the state of the whole machine", "program", program, "args", args, "jid", c.JID)
	out, err := p.m.Do(ctx, program, args...)
	if err != nil {
		return "", fn.Errorf("cannot run %s: %w", program, err)
	}
	if out.Exit != 0 {
		c.SetRetcode(out.Exit)
	}
	return strings.TrimSpace(out.Stdout + "\n" + out.Stderr), nil
}

func (p power) now(program string) func(context.Context, *fn.Call, none) (string, error) {
	return func(ctx context.Context, c *fn.Call, _ none) (string, error) { return p.run(ctx, c, program) }
}

type atArgs struct {
	At any `salt:"at_time" doc:"time as hh:mm, or minutes from now; now if null" default:"null"`
}

// when matches a time for shutdown(8).
var when = regexp.MustCompile(`^(now|\+?[0-9]{1,6}|[0-9]{1,2}:[0-9]{2})$`)

func (p power) at(option string) func(context.Context, *fn.Call, atArgs) (string, error) {
	return func(ctx context.Context, c *fn.Call, a atArgs) (string, error) {
		at := "now"
		if value.Truth(a.At) {
			at = value.Str(a.At)
		}
		if !when.MatchString(at) {
			return "", fn.Invalidf("at_time is hh:mm, a number of minutes or now, not %s", value.Repr(a.At))
		}
		return p.run(ctx, c, "shutdown", option, at)
	}
}

type initArgs struct {
	Runlevel any `salt:"runlevel" doc:"the runlevel, 0 to 6 or s"`
}

var runlevel = regexp.MustCompile(`^[0-6sSqQuU]$`)

func (p power) init(ctx context.Context, c *fn.Call, a initArgs) (string, error) {
	level := value.Str(a.Runlevel)
	if !runlevel.MatchString(level) {
		return "", fn.Invalidf("a runlevel is 0 to 6, s, q or u, not %s", value.Repr(a.Runlevel))
	}
	return p.run(ctx, c, "init", level)
}

type offsetArgs struct {
	Offset any `salt:"utc_offset" doc:"offset from UTC such as +0130; that of the machine if null" default:"null"`
}

// clockNow returns the time at a UTC offset, or in the machine's time zone.
func (p power) clockNow(offset any) (time.Time, error) {
	if offset == nil {
		return timezone.Now(p.m), nil
	}
	text := value.Str(offset)
	if t, err := time.Parse("-0700", text); err == nil {
		_, seconds := t.Zone()
		return time.Now().In(time.FixedZone("", seconds)), nil
	}
	if t, err := time.Parse("1504", text); err == nil {
		return time.Now().In(time.FixedZone("", t.Hour()*3600+t.Minute()*60)), nil
	}
	return time.Time{}, fn.Invalidf("Invalid UTC offset")
}

func (p power) clock(format string) func(context.Context, *fn.Call, offsetArgs) (string, error) {
	return func(_ context.Context, _ *fn.Call, a offsetArgs) (string, error) {
		t, err := p.clockNow(a.Offset)
		return strftime(format, t), err
	}
}

type setTimeArgs struct {
	Newtime string `salt:"newtime" doc:"the time"`
	Offset  any    `salt:"utc_offset" doc:"offset from UTC that the time is meant in" default:"null"`
}

func parseAny(text string, layouts ...string) (time.Time, bool) {
	for _, l := range layouts {
		if t, err := time.Parse(l, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

func (p power) setTime(ctx context.Context, c *fn.Call, a setTimeArgs) (bool, error) {
	t, ok := parseAny(a.Newtime, "3:04:05 PM", "3:04 PM", "15:04:05", "15:04")
	if !ok {
		return false, nil
	}
	return p.setDateTime(ctx, c, setArgs{Hours: t.Hour(), Minutes: t.Minute(), Seconds: t.Second(), Offset: a.Offset})
}

type setDateArgs struct {
	Newdate string `salt:"newdate" doc:"the date"`
	Offset  any    `salt:"utc_offset" doc:"offset from UTC that the date is meant in" default:"null"`
}

func (p power) setDate(ctx context.Context, c *fn.Call, a setDateArgs) (bool, error) {
	t, ok := parseAny(a.Newdate, "2006-1-2", "1-2-2006", "1-2-06", "1/2/2006", "1/2/06", "2006/1/2")
	if !ok {
		return false, fn.Invalidf("Invalid date format")
	}
	return p.setDateTime(ctx, c, setArgs{Years: t.Year(), Months: int(t.Month()), Days: t.Day(), Offset: a.Offset})
}

type setArgs struct {
	Years   any `salt:"years" doc:"the year; as it is if null, and so on" default:"null"`
	Months  any `salt:"months" doc:"the month" default:"null"`
	Days    any `salt:"days" doc:"the day" default:"null"`
	Hours   any `salt:"hours" doc:"the hour" default:"null"`
	Minutes any `salt:"minutes" doc:"the minute" default:"null"`
	Seconds any `salt:"seconds" doc:"the second" default:"null"`
	Offset  any `salt:"utc_offset" doc:"offset from UTC that the time is meant in" default:"null"`
}

func (p power) setDateTime(ctx context.Context, c *fn.Call, a setArgs) (bool, error) {
	now, err := p.clockNow(a.Offset)
	if err != nil {
		return false, err
	}
	parts := []int{now.Year(), int(now.Month()), now.Day(), now.Hour(), now.Minute(), now.Second()}
	for i, v := range []any{a.Years, a.Months, a.Days, a.Hours, a.Minutes, a.Seconds} {
		if v == nil {
			continue
		}
		if parts[i], err = strconv.Atoi(value.Str(value.From(v))); err != nil {
			return false, fn.Invalidf("%s is no whole number", value.Repr(v))
		}
	}
	t := time.Date(parts[0], time.Month(parts[1]), parts[2], parts[3], parts[4], parts[5], 0, now.Location())
	if t.Year() != parts[0] || int(t.Month()) != parts[1] || t.Day() != parts[2] || t.Hour() != parts[3] || t.Minute() != parts[4] || t.Second() != parts[5] {
		return false, fn.Invalidf("there is no such time: %d-%d-%d %d:%d:%d", parts[0], parts[1], parts[2], parts[3], parts[4], parts[5])
	}
	c.Log.Warn("job sets the system clock", "to", t, "jid", c.JID)
	if _, err := run(ctx, p.m, "date", "-u", "-s", fmt.Sprintf("@%d", t.Unix())); err != nil {
		return false, err
	}
	if ok, _ := p.hasClock(ctx, c, none{}); ok {
		if _, err := run(ctx, p.m, "hwclock", "--systohc"); err != nil {
			c.Log.Warn("cannot set the hardware clock", "err", err)
		}
	}
	return true, nil
}

func (p power) hasClock(ctx context.Context, _ *fn.Call, _ none) (bool, error) {
	out, err := p.m.Do(ctx, "hwclock", "--test", "--systohc")
	return err == nil && out.Exit == 0, nil
}

func (p power) computerName(context.Context, *fn.Call, none) (string, error) {
	return p.m.Uname().Node, nil
}

func (p power) computerDesc(context.Context, *fn.Call, none) (any, error) {
	for _, line := range p.m.Lines("/etc/machine-info") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_HOSTNAME="); ok {
			if len(v) > 1 && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0] {
				v = v[1 : len(v)-1]
			}
			return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n", `\t`, "\t").Replace(v), nil
		}
	}
	return false, nil
}

type computerArgs struct {
	Hostname string `salt:"hostname" doc:"the new name"`
}

func (power) setComputerName(ctx context.Context, c *fn.Call, a computerArgs) (any, error) {
	return c.Funcs.Call(ctx, c, "network.mod_hostname", []any{a.Hostname}, nil)
}

type descArgs struct {
	Desc string `salt:"desc" doc:"the description"`
}

func (p power) setComputerDesc(ctx context.Context, _ *fn.Call, a descArgs) (bool, error) {
	if p.m.IsDir("/run/systemd/system") && p.m.Which("hostnamectl") != "" {
		out, err := p.m.Do(ctx, "hostnamectl", "set-hostname", "--pretty", "--", a.Desc)
		if err != nil {
			return false, fn.Errorf("cannot run hostnamectl: %w", err)
		}
		return out.Exit == 0, nil
	}
	text := `PRETTY_HOSTNAME="` + strings.NewReplacer(`"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(a.Desc) + `"`
	lines, found := p.m.Lines("/etc/machine-info"), false
	for i, line := range lines {
		if !found && strings.HasPrefix(strings.TrimSpace(line), "PRETTY_HOSTNAME=") {
			lines[i], found = text, true
		}
	}
	if !found {
		lines = append(lines, text)
	}
	if err := p.m.WriteFile("/etc/machine-info", []byte(strings.Join(lines, "\n")+"\n")); err != nil {
		return false, fn.Errorf("cannot write the description: %w", err)
	}
	return true, nil
}
