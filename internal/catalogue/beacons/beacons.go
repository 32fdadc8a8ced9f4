// Package beacons examines the machine periodically and returns events: Salt's
// beacons, with their names and settings. It has no clock; the minion calls it.
package beacons

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/registry"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/mount"
	"brine/internal/host/process"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

// Look is one check: the settings, the beacon's data from earlier checks, and the
// functions of the minion.
type Look struct {
	Config Config
	Memory *value.Dict
	Call   *fn.Call
	Now    time.Time
	// Held is what the beacon keeps open between checks. The caller closes it when
	// the beacon ends, is reconfigured or is paused.
	Held *io.Closer
}

// Config is the settings of a beacon: a list of maps, or one map.
type Config struct{ List []*value.Dict }

// ParseConfig reads settings.
func ParseConfig(v any) (Config, error) {
	var c Config
	switch x := v.(type) {
	case nil:
	case *value.Dict:
		c.List = []*value.Dict{x}
	case *value.List:
		for _, it := range x.Items {
			d, ok := it.(*value.Dict)
			if !ok {
				return c, fmt.Errorf("expected a list of maps, got a %s in it", value.TypeName(it))
			}
			c.List = append(c.List, d)
		}
	default:
		return c, fmt.Errorf("expected a list of maps, got a %s", value.TypeName(v))
	}
	return c, nil
}

// Get returns a setting, or nil.
func (c Config) Get(key string) any {
	for _, d := range c.List {
		if v, ok := d.Get(key); ok {
			return v
		}
	}
	return nil
}

// Flag returns a boolean setting.
func (c Config) Flag(key string, otherwise bool) bool {
	if v := c.Get(key); v != nil {
		return value.Truth(v)
	}
	return otherwise
}

// common lists the settings of all beacons.
const common = " interval enabled disable_during_state_run beacon_module run_once "

// Own returns the settings that are specific to this beacon.
func (c Config) Own() map[string]any {
	all := map[string]any{}
	c.own(func(key string, v any) { all[key] = v })
	return all
}

// own calls fn with the settings that are specific to this beacon.
func (c Config) own(each func(key string, v any)) {
	for _, d := range c.List {
		for k, v := range d.All() {
			if key := value.Str(k); !strings.Contains(common, " "+key+" ") && !strings.HasPrefix(key, "_") {
				each(key, v)
			}
		}
	}
}

// Beacon is one kind of beacon.
type Beacon struct {
	Name string
	// Doc describes the beacon and its settings. Example is YAML of settings.
	Doc, Example string
	// Settings are the names of its settings, "*" if each name is one: of a file system, for example.
	Settings string
	// Validate returns an error for invalid settings.
	Validate func(Config) error
	// Look returns the data of the events to be sent; the key tag becomes the end
	// of the event's tag.
	Look func(context.Context, Look) ([]*value.Dict, error)
}

// SettingNames returns the names of the settings of the beacon and of all beacons; ok is false if
// each name is a setting, or for a beacon that is not there.
func (b Beacon) SettingNames() (names []string, ok bool) {
	if b.Look == nil || b.Settings == "*" {
		return nil, false
	}
	return strings.Fields(b.Settings + common), true
}

// kinds are functions that create the beacons of a machine.
var kinds = registry.New[func(machine) Beacon]("beacon")

// Names returns the names of all beacons, sorted.
func Names() []string { return kinds.Names() }

// All returns the kinds by name.
func All(m *host.Machine) map[string]Beacon {
	out := map[string]Beacon{}
	for _, name := range kinds.Names() {
		build, _ := kinds.Lookup(name)
		k := build(machine{m})
		k.Name = name
		out[name] = k
	}
	return out
}

type machine struct{ m *host.Machine }

func valid(Config) error { return nil }

// needs returns a validation that requires a map of settings under a key.
func needs(key string) func(Config) error {
	return func(c Config) error {
		if _, ok := c.Get(key).(*value.Dict); !ok {
			return fmt.Errorf("it requires %s, a map", key)
		}
		return nil
	}
}

// percentage reads 63, 63.5 or "63%".
func percentage(v any) (float64, error) {
	s := strings.TrimSuffix(strings.TrimSpace(value.Str(v)), "%")
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a percentage", value.Str(v))
	}
	return f, nil
}

func needsPercent(c Config) error {
	_, err := percentage(c.Get("percent"))
	return err
}

func number(v any) float64 {
	f, _ := strconv.ParseFloat(value.Str(v), 64)
	return f
}

func validLoad(c Config) error {
	av, ok := c.Get("averages").(*value.Dict)
	if !ok {
		return fmt.Errorf("it requires averages, a map")
	}
	for k, v := range av.All() {
		l, ok := v.(*value.List)
		if name := value.Str(k); name != "1m" && name != "5m" && name != "15m" || !ok || l.Len() != 2 {
			return fmt.Errorf("averages: expected 1m, 5m or 15m with the lowest and the highest normal value")
		}
	}
	return nil
}

func init() {
	kinds.Register("load", func(b machine) Beacon {
		return Beacon{
			Settings: "averages onchangeonly emitatstartup",
			Doc: "Report the load average when one of its three values leaves its limits. Each entry of averages is the lowest and the " +
				"highest normal value. With onchangeonly only crossings of a limit are reported; emitatstartup (true) reports the first " +
				"value.",
			Example:  "- averages:\n    1m: [0.0, 2.0]\n    5m: [0.0, 1.5]\n    15m: [0.1, 1.0]\n- onchangeonly: true\n",
			Validate: validLoad, Look: b.load,
		}
	})
}

func (b machine) load(_ context.Context, l Look) ([]*value.Dict, error) {
	raw, err := os.ReadFile(b.m.Path("/proc/loadavg"))
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(raw))
	if len(f) < 3 {
		return nil, fmt.Errorf("/proc/loadavg is malformed")
	}
	names := []string{"1m", "5m", "15m"}
	now := value.NewDict(3)
	for i, k := range names {
		now.Set(k, number(f[i]))
	}
	last := l.Memory.Dict("last")
	changes := l.Config.Flag("onchangeonly", false)
	l.Memory.Set("last", now)
	if changes && last.Len() == 0 {
		if !l.Config.Flag("emitatstartup", true) {
			return nil, nil
		}
		last = now
	}
	limits, _ := l.Config.Get("averages").(*value.Dict)
	for _, k := range names {
		limit := limits.List(k)
		if len(limit) != 2 {
			continue
		}
		lo, hi, v := number(limit[0]), number(limit[1]), number(now.At(k))
		before := number(last.At(k))
		if changes && (v > hi && before < hi || v < lo && before > lo) || !changes && (v < lo || v > hi) {
			return []*value.Dict{now.Clone()}, nil
		}
	}
	return nil, nil
}

func init() {
	kinds.Register("memusage", func(b machine) Beacon {
		return Beacon{
			Settings: "percent",
			Doc:      "Report the usage of memory when it reaches a percentage.",
			Example:  "- percent: 90%\n",
			Validate: needsPercent, Look: b.percent("memusage", "ps.virtual_memory"),
		}
	})
}

func init() {
	kinds.Register("swapusage", func(b machine) Beacon {
		return Beacon{
			Settings: "percent",
			Doc:      "Report the usage of swap space when it reaches a percentage.",
			Example:  "- percent: 50%\n",
			Validate: needsPercent, Look: b.percent("swapusage", "ps.swap_memory"),
		}
	})
}

// percent returns a beacon that reports the usage of memory when it reaches a
// percentage.
func (machine) percent(name, fun string) func(context.Context, Look) ([]*value.Dict, error) {
	return func(ctx context.Context, l Look) ([]*value.Dict, error) {
		limit, err := percentage(l.Config.Get("percent"))
		if err != nil {
			return nil, err
		}
		v, err := l.Call.Funcs.Call(ctx, l.Call, fun, nil, nil)
		if err != nil {
			return nil, err
		}
		d, _ := v.(*value.Dict)
		if used := number(d.At("percent")); used >= limit {
			return []*value.Dict{value.DictOf(name, used)}, nil
		}
		return nil, nil
	}
}

func (machine) validDisk(c Config) (err error) {
	c.own(func(key string, v any) {
		if _, e := percentage(v); e != nil {
			err = fmt.Errorf("%s: %w", key, e)
		} else if _, e := diskPattern(key); e != nil {
			err = fmt.Errorf("%s: %w", key, e)
		}
	})
	return err
}

func diskPattern(key string) (*pyre.Regexp, error) {
	if !strings.HasSuffix(key, "$") {
		key += "$"
	}
	return pyre.Compile(key, 0)
}

func init() {
	kinds.Register("diskusage", func(b machine) Beacon {
		return Beacon{
			Settings: "*",
			Doc:      "Report file systems whose usage reaches a percentage. Each name is a regular expression for mount points.",
			Example:  "- /: 80%\n- '^/srv/.*$': 95%\n",
			Validate: b.validDisk, Look: b.disk,
		}
	})
}

// disk reports file systems whose usage reaches a percentage. Their names are
// regular expressions for mount points.
func (b machine) disk(ctx context.Context, l Look) (out []*value.Dict, err error) {
	mounted, err := mount.Active(b.m)
	if err != nil {
		return nil, err
	}
	l.Config.own(func(key string, v any) {
		re, e1 := diskPattern(key)
		limit, e2 := percentage(v)
		if e1 != nil || e2 != nil {
			return
		}
		for _, m := range mounted {
			if hit, e := re.Match(m.Name); e != nil || hit == nil {
				continue
			}
			v, e := l.Call.Funcs.Call(ctx, l.Call, "ps.disk_usage", []any{m.Name}, nil)
			d, _ := v.(*value.Dict)
			if used := number(d.At("percent")); e == nil && used >= limit {
				out = append(out, value.DictOf("diskusage", used, "mount", m.Name))
			}
		}
	})
	return out, nil
}

func init() {
	kinds.Register("ps", func(b machine) Beacon {
		return Beacon{
			Settings: "processes",
			Doc: "Report processes by their names: running or stopped is the status to report; with another value a missing process is " +
				"reported.",
			Example:  "- processes:\n    sshd: stopped\n    backup: running\n",
			Validate: needs("processes"), Look: b.ps,
		}
	})
}

func (b machine) ps(_ context.Context, l Look) (out []*value.Dict, err error) {
	there := map[string]bool{}
	for _, p := range process.All(b.m) {
		there[p.Name] = true
	}
	want, _ := l.Config.Get("processes").(*value.Dict)
	for k, v := range want.All() {
		switch name := value.Str(k); {
		case v == "running" && there[name]:
			out = append(out, value.DictOf(name, "Running"))
		case v == "stopped" && !there[name]:
			out = append(out, value.DictOf(name, "Stopped"))
		case v != "running" && v != "stopped" && !there[name]:
			out = append(out, value.DictOf(name, false))
		}
	}
	return out, nil
}

func init() {
	kinds.Register("service", func(_ machine) Beacon {
		return Beacon{
			Settings: "services",
			Doc: "Report the status of services. Settings of each: onchangeonly, emitatstartup (true), delay in seconds, and " +
				"uncleanshutdown, a pid file whose presence is reported for a stopped service.",
			Example:  "- services:\n    nginx:\n      onchangeonly: true\n      delay: 30\n      uncleanshutdown: /run/nginx.pid\n",
			Validate: needs("services"), Look: service,
		}
	})
}

func service(ctx context.Context, l Look) (out []*value.Dict, err error) {
	services, _ := l.Config.Get("services").(*value.Dict)
	for k, v := range services.All() {
		name := value.Str(k)
		set, _ := v.(*value.Dict)
		running, err := l.Call.Funcs.Call(ctx, l.Call, "service.status", []any{name}, nil)
		if err != nil {
			return out, err
		}
		state := value.DictOf("running", running)
		if pid := set.Str("uncleanshutdown"); pid != "" && !value.Truth(running) {
			_, err := os.Stat(pid)
			state.Set("uncleanshutdown", err == nil)
		}
		tell := value.DictOf("service_name", name, "tag", name, name, state)
		if !value.Truth(set.At("onchangeonly")) {
			out = append(out, tell)
			continue
		}
		out = append(out, changed(l, name, set, state, tell)...)
	}
	return out, nil
}

// changed reports a service whose state has differed from the last reported one
// for delay seconds.
func changed(l Look, name string, set, state, tell *value.Dict) []*value.Dict {
	last, seen := l.Memory.At(name).(*value.Dict)
	news := !seen || value.Truth(last.At("running")) != value.Truth(state.At("running"))
	delay := time.Duration(number(set.At("delay")) * float64(time.Second))
	switch {
	case news:
		last = value.DictOf("running", state.At("running"))
		if v, ok := set.Get("emitatstartup"); seen || !ok || value.Truth(v) {
			last.Set("since", l.Now.UnixNano())
		}
		l.Memory.Set(name, last)
		fallthrough
	case last.Has("since"):
		since, ok := last.At("since").(int64)
		if ok && l.Now.Sub(time.Unix(0, since)) >= delay {
			last.Delete("since")
			return []*value.Dict{tell}
		}
	}
	return nil
}

func init() {
	kinds.Register("status", func(_ machine) Beacon {
		return Beacon{
			Settings: "*",
			Doc: "Report values of the module status, by default loadavg, cpustats, meminfo, vmstats and time. Each name is a function, " +
				"with a list of the entries to report, or all.",
			Example:  "- time: [all]\n- loadavg: [1-min, 15-min]\n",
			Validate: valid, Look: status,
		}
	})
}

func status(ctx context.Context, l Look) ([]*value.Dict, error) {
	ret := value.NewDict(0)
	look := func(fun string, items any) {
		v, err := l.Call.Funcs.Call(ctx, l.Call, "status."+fun, nil, nil)
		if err != nil {
			ret.Set(fun, value.NewDict(0))
			return
		}
		part := value.NewDict(0)
		for _, item := range value.Texts(items) {
			if item == "all" {
				ret.Set(fun, v)
				return
			}
			switch x := v.(type) {
			case *value.Dict:
				if w, ok := x.Get(item); ok {
					part.Set(item, w)
					continue
				}
			case *value.List:
				if i, err := strconv.Atoi(item); err == nil && i >= 0 && i < x.Len() {
					part.Set(item, x.Items[i])
					continue
				}
			}
			ret.Set(fun, fmt.Sprintf("Status beacon is incorrectly configured: %s", value.Repr(item)))
			return
		}
		ret.Set(fun, part)
	}
	some := false
	l.Config.own(func(key string, v any) { some = true; look(key, v) })
	if !some {
		for _, fun := range []string{"loadavg", "cpustats", "meminfo", "vmstats", "time"} {
			look(fun, "all")
		}
	}
	return []*value.Dict{value.DictOf("tag", l.Now.UTC().Format("2006-01-02T15:04:05.000000"), "data", ret)}, nil
}
