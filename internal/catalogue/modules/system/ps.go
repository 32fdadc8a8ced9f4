package system

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/counters"
	fs "brine/internal/host/disk"
	"brine/internal/host/process"
	"brine/internal/py/value"
)

type ps struct{ m *host.Machine }

func init() { units.Register("ps", psModule) }

func psModule(m *host.Machine) fn.Module {
	p := ps{m}
	return fn.Module{Name: "ps", Doc: `Processes, and how they use the machine.`, Funcs: slices.Concat([]fn.Func{
		fn.Of("get_pid_list", p.pids, `Return the ids of all processes.`, fn.Example("salt '*' ps.get_pid_list")),
		fn.Of("top", p.top, `Return the processes that use the processors most.`, fn.Example("salt '*' ps.top num_processes=3 interval=1")),
		fn.Of("pgrep", p.pgrep, `Return the ids of the processes whose name or command holds a text.`, fn.Example("salt '*' ps.pgrep httpd")),
		fn.Of("pkill", p.pkill, `Signal the processes whose name or command holds a text.`, fn.Example("salt '*' ps.pkill httpd signal=9 user=www-data")),
		fn.Of("kill_pid", p.killPID, `Signal a process.`, fn.Example("salt '*' ps.kill_pid 2000 signal=9")),
		fn.Of("psaux", p.psaux, `Return the lines of ps(1) that a regular expression matches.`, fn.Example("salt '*' ps.psaux www-data.+apache2")),
		fn.Of("cpu_percent", p.cpuPercent, `Return how busy the processors are.`, fn.Example("salt '*' ps.cpu_percent")),
		fn.Of("cpu_times", p.cpuTimes, `Return the seconds that the processors spent on what since boot.`, fn.Example("salt '*' ps.cpu_times per_cpu=true")),
		fn.Of("virtual_memory", p.virtualMemory, `Return how the memory is used, in bytes.`, fn.Example("salt '*' ps.virtual_memory")),
		fn.Of("swap_memory", p.swapMemory, `Return how the swap space is used, in bytes.`, fn.Example("salt '*' ps.swap_memory")),
		fn.Of("total_physical_memory", p.totalMemory, `Return the size of the memory in bytes.`, fn.Example("salt '*' ps.total_physical_memory")),
		fn.Of("num_cpus", p.numCPUs, `Return the number of processors.`, fn.Example("salt '*' ps.num_cpus")),
		fn.Of("boot_time", p.bootTime, `Return when the machine was started, in seconds since 1970 or in a format of strftime.`,
			fn.Example("salt '*' ps.boot_time")),
		fn.Of("disk_usage", p.diskUsage, `Return how full the file system of a path is, in bytes.`, fn.Example("salt '*' ps.disk_usage /home")),
		fn.Of("network_io_counters", p.netCounters, `Return what went over the network since boot.`,
			fn.Example("salt '*' ps.network_io_counters interface=eth0")),
	}, p.details())}
}

func (p ps) pids(context.Context, *fn.Call, none) ([]int, error) { return process.PIDs(p.m), nil }

type topArgs struct {
	Count    int     `salt:"num_processes" doc:"how many processes" default:"5"`
	Interval float64 `salt:"interval" doc:"seconds to look for" default:"3"`
}

// states maps the kernel's letters to psutil's words.
var states = map[string]string{"R": "running", "S": "sleeping", "D": "disk-sleep", "T": "stopped", "t": "tracing-stop", "Z": "zombie", "X": "dead",
	"x": "dead", "K": "wake-kill", "W": "waking", "I": "idle", "P": "parked"}

func (p ps) top(ctx context.Context, _ *fn.Call, a topArgs) (*value.List, error) {
	type key struct {
		pid     int
		started time.Time
	}
	before := map[key]time.Duration{}
	for _, pr := range process.All(p.m) {
		before[key{pr.PID, pr.Started}] = pr.User + pr.System
	}
	if err := pause(ctx, a.Interval); err != nil {
		return nil, err
	}
	type used struct {
		process.Process
		spent time.Duration
	}
	var after []used
	for _, pr := range process.All(p.m) {
		if start, ok := before[key{pr.PID, pr.Started}]; ok {
			after = append(after, used{pr, pr.User + pr.System - start})
		}
	}
	slices.SortStableFunc(after, func(x, y used) int { return int(y.spent - x.spent) })
	owners, out := process.NewOwners(p.m), &value.List{}
	for _, u := range after[:min(len(after), max(0, a.Count))] {
		var cmd any = value.Strings(u.Command)
		if len(u.Command) == 0 {
			cmd = u.Name
		}
		d, ok := process.Detail(p.m, u.PID)
		if !ok {
			continue // the process has ended
		}
		mem := d.Memory
		out.Append(value.DictOf("cmd", cmd, "user", owners.Name(u.UID), "status", states[u.State], "pid", u.PID, "create_time", created(u.Process),
			"cpu", value.DictOf("user", u.User.Seconds(), "system", u.System.Seconds(), "children_user", d.ChildUser.Seconds(), "children_system",
				d.ChildSystem.Seconds(), "iowait", d.Waited.Seconds()),
			"mem", value.DictOf("rss", mem.RSS, "vms", mem.Virtual, "shared", mem.Shared, "text", mem.Text, "lib", mem.Lib, "data", mem.Data, "dirty",
				mem.Dirty)))
	}
	return out, nil
}

// pause waits for some seconds, or until the job ends.
func pause(ctx context.Context, seconds float64) error {
	if !(seconds >= 0 && seconds <= 3600) {
		return fn.Invalidf("the interval is a number of seconds up to 3600, not %v", seconds)
	}
	if !wait.Sleep(ctx, time.Duration(seconds*float64(time.Second))) {
		return context.Cause(ctx)
	}
	return nil
}

type pgrepArgs struct {
	Pattern string `salt:"pattern" doc:"text that the name holds"`
	User    any    `salt:"user" doc:"name of the user who runs the process" default:"null"`
	Full    bool   `salt:"full" doc:"look in the whole command instead of the name" default:"false"`
	Regexp  bool   `salt:"pattern_is_regex" doc:"pattern is a regular expression" default:"false"`
}

func (p ps) find(a pgrepArgs) ([]int, error) {
	match := func(s string) bool { return strings.Contains(s, a.Pattern) }
	if a.Regexp {
		re, err := compile(a.Pattern)
		if err != nil {
			return nil, err
		}
		match = re.MatchString
	}
	owners := process.NewOwners(p.m)
	var pids []int
	for _, pr := range process.All(p.m) {
		text := pr.Name
		if a.Full {
			text = strings.Join(pr.Command, " ")
		}
		if match(text) && (a.User == nil || value.Str(a.User) == owners.Name(pr.UID)) {
			pids = append(pids, pr.PID)
		}
	}
	return pids, nil
}

func (p ps) pgrep(_ context.Context, _ *fn.Call, a pgrepArgs) (any, error) {
	pids, err := p.find(a)
	if err != nil || len(pids) == 0 {
		return nil, err
	}
	return value.From(pids), nil
}

type pkillArgs struct {
	Pattern string `salt:"pattern" doc:"text that the name holds"`
	User    any    `salt:"user" doc:"name of the user who runs the process" default:"null"`
	Signal  int    `salt:"signal" doc:"number of the signal" default:"15"`
	Full    bool   `salt:"full" doc:"look in the whole command instead of the name" default:"false"`
}

func (p ps) pkill(_ context.Context, c *fn.Call, a pkillArgs) (any, error) {
	if a.Pattern == "" {
		return nil, fn.Invalidf("an empty pattern means every process; name the ones to signal")
	}
	pids, err := p.find(pgrepArgs{Pattern: a.Pattern, User: a.User, Full: a.Full})
	if err != nil {
		return nil, err
	}
	var killed []int
	for _, pid := range pids {
		ok, err := process.Signal(p.m, pid, syscall.Signal(a.Signal))
		if err != nil {
			c.Log.Error("cannot signal a process", "err", err)
		} else if ok {
			killed = append(killed, pid)
		}
	}
	if len(killed) == 0 {
		return nil, nil
	}
	return value.DictOf("killed", value.From(killed)), nil
}

type killArgs struct {
	PID    int `salt:"pid" doc:"id of the process"`
	Signal int `salt:"signal" doc:"number of the signal" default:"15"`
}

func (p ps) killPID(_ context.Context, _ *fn.Call, a killArgs) (bool, error) {
	ok, err := process.Signal(p.m, a.PID, syscall.Signal(a.Signal))
	if err != nil {
		return false, fn.Errorf("%w", err)
	}
	return ok, nil
}

type psauxArgs struct {
	Name any `salt:"name" doc:"regular expression"`
}

func (p ps) psaux(ctx context.Context, _ *fn.Call, a psauxArgs) (*value.List, error) {
	name := value.Str(a.Name)
	re, err := compile(name)
	if err != nil {
		return nil, err
	}
	out, err := run(ctx, p.m, "ps", "aux")
	if err != nil {
		return nil, err
	}
	lines := &value.List{}
	for line := range strings.SplitSeq(out, "\n") {
		if re.MatchString(line) && !(strings.Contains(line, "salt") && strings.Contains(line, "ps.psaux")) {
			lines.Append(line)
		}
	}
	return value.ListOf(name, lines, strconv.Itoa(lines.Len())+" occurrence(s)."), nil
}

// timeNames names the columns in /proc/stat.
var timeNames = []string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"}

// ticks is the number of the kernel's time units in a second.
const ticks = 100

// times returns the processor times in seconds, in total or for each
// processor.
func (p ps) times(each bool) [][]float64 {
	var out [][]float64
	for _, l := range counters.Lines(p.m, "/proc/stat") {
		if !strings.HasPrefix(l.Name, "cpu") || (l.Name != "cpu") != each {
			continue
		}
		row := make([]float64, len(timeNames))
		for i := range min(len(row), len(l.Values)) {
			n, _ := strconv.ParseFloat(l.Values[i], 64)
			row[i] = n / ticks
		}
		out = append(out, row)
	}
	return out
}

type perCPUArgs struct {
	PerCPU bool `salt:"per_cpu" doc:"return a list of each processor" default:"false"`
}

func (p ps) cpuTimes(_ context.Context, _ *fn.Call, a perCPUArgs) (any, error) {
	out := &value.List{}
	for _, row := range p.times(a.PerCPU) {
		d := value.NewDict(len(row))
		for i, v := range row {
			d.Set(timeNames[i], v)
		}
		out.Append(d)
	}
	if a.PerCPU {
		return out, nil
	}
	if out.Len() == 0 {
		return nil, fn.Errorf("the kernel does not show its processors in /proc/stat")
	}
	return out.Items[0], nil
}

type percentCPUArgs struct {
	Interval float64 `salt:"interval" doc:"seconds to look for" default:"0.1"`
	PerCPU   bool    `salt:"per_cpu" doc:"return a list of each processor" default:"false"`
}

func (p ps) cpuPercent(ctx context.Context, _ *fn.Call, a percentCPUArgs) (any, error) {
	before := p.times(a.PerCPU)
	if err := pause(ctx, a.Interval); err != nil {
		return nil, err
	}
	out := &value.List{}
	for i, row := range p.times(a.PerCPU) {
		if i < len(before) {
			out.Append(busy(before[i], row))
		}
	}
	if a.PerCPU {
		return out, nil
	}
	if out.Len() == 0 {
		return nil, fn.Errorf("the kernel does not show its processors in /proc/stat")
	}
	return out.Items[0], nil
}

// busy returns the busy share of the time between two samples, in percent with
// one digit. Guest time is part of user and nice.
func busy(before, after []float64) float64 {
	const idle, iowait, guest = 3, 4, 8
	var all, idly float64
	for i := range after[:guest] {
		d := max(0, after[i]-before[i])
		all += d
		if i == idle || i == iowait {
			idly += d
		}
	}
	if all == 0 {
		return 0
	}
	return math.Round((all-idly)/all*1000) / 10
}

func (p ps) virtualMemory(context.Context, *fn.Call, none) (*value.Dict, error) {
	mem := counters.Memory(p.m)
	total, available := mem["MemTotal"], mem["MemAvailable"]
	cached := mem["Cached"] + mem["SReclaimable"]
	used := total - mem["MemFree"] - cached - mem["Buffers"]
	if used < 0 {
		used = total - mem["MemFree"]
	}
	return value.DictOf("total", total, "available", available, "percent", share(total-available, total), "used", used, "free", mem["MemFree"],
		"active", mem["Active"], "inactive", mem["Inactive"], "buffers", mem["Buffers"], "cached", cached, "shared", mem["Shmem"], "slab", mem["Slab"]), nil
}

// share returns part/whole in percent with one digit.
func share(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return math.Round(float64(part)/float64(whole)*1000) / 10
}

func (p ps) swapMemory(context.Context, *fn.Call, none) (*value.Dict, error) {
	mem, paged := counters.Memory(p.m), map[string]int64{}
	for _, l := range counters.Lines(p.m, "/proc/vmstat") {
		if (l.Name == "pswpin" || l.Name == "pswpout") && len(l.Values) > 0 {
			n, _ := strconv.ParseInt(l.Values[0], 10, 64)
			paged[l.Name] = n * 4096 // psutil always assumes pages of 4 KiB
		}
	}
	total, free := mem["SwapTotal"], mem["SwapFree"]
	return value.DictOf("total", total, "used", total-free, "free", free, "percent", share(total-free, total), "sin", paged["pswpin"], "sout",
		paged["pswpout"]), nil
}

func (p ps) totalMemory(context.Context, *fn.Call, none) (int64, error) {
	return counters.Memory(p.m)["MemTotal"], nil
}

func (p ps) numCPUs(context.Context, *fn.Call, none) (int, error) {
	return counters.Processors(p.m), nil
}

type bootArgs struct {
	Format any `salt:"time_format" doc:"format of strftime" default:"null"`
}

func (p ps) bootTime(_ context.Context, _ *fn.Call, a bootArgs) (any, error) {
	at, ok := counters.Booted(p.m)
	if !ok {
		return nil, fn.Errorf("the kernel does not show when it was started in /proc/stat")
	}
	if value.Truth(a.Format) {
		return strftime(value.Str(a.Format), at), nil
	}
	return at.Unix(), nil
}

type pathArgs struct {
	Path string `salt:"path" doc:"a path in the file system"`
}

func (p ps) diskUsage(_ context.Context, _ *fn.Call, a pathArgs) (*value.Dict, error) {
	s, err := fs.SpaceAt(p.m, a.Path)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	used := s.Total - s.Free
	return value.DictOf("total", s.Total, "used", used, "free", s.Available, "percent", share(used, used+s.Available)), nil
}

// ioKeys maps the returned counters to their columns in the kernel's list.
var ioKeys = map[string]int{"bytes_sent": 8, "bytes_recv": 0, "packets_sent": 9, "packets_recv": 1, "errin": 2, "errout": 10, "dropin": 3, "dropout": 11}

type ioArgs struct {
	Interface any `salt:"interface" doc:"name of the only interface to count" default:"null"`
}

func (p ps) netCounters(_ context.Context, _ *fn.Call, a ioArgs) (any, error) {
	sums, found := map[string]int64{}, false
	for _, dev := range counters.NetDevices(p.m) {
		if value.Truth(a.Interface) && value.Str(a.Interface) != dev.Name {
			continue
		}
		found = true
		for key, at := range ioKeys {
			n, _ := strconv.ParseInt(dev.Values[at], 10, 64)
			sums[key] += n
		}
	}
	if !found {
		return false, nil
	}
	d := value.NewDict(len(sums))
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		d.Set(key, sums[key])
	}
	return d, nil
}
