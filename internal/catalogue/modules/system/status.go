package system

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/counters"
	fs "brine/internal/host/disk"
	"brine/internal/host/names"
	"brine/internal/host/netif"
	"brine/internal/host/process"
	"brine/internal/py/value"
)

type status struct{ m *host.Machine }

func init() { units.Register("status", statusModule) }

func statusModule(m *host.Machine) fn.Module {
	s := status{m}
	return fn.Module{Name: "status", Doc: `What the machine does at the moment.`, Funcs: []fn.Func{
		fn.Of("uptime", s.uptime, `Return since when the machine is up.`, fn.Example("salt '*' status.uptime")),
		fn.Of("loadavg", s.loadavg, `Return the load averages.`, fn.Example("salt '*' status.loadavg")),
		fn.Of("cpustats", s.cpustats, `Return what the processors did since boot.`, fn.Example("salt '*' status.cpustats")),
		fn.Of("cpuinfo", s.cpuinfo, `Return what the kernel says of the last processor.`, fn.Example("salt '*' status.cpuinfo")),
		fn.Of("meminfo", s.meminfo, `Return how the memory is used.`, fn.Example("salt '*' status.meminfo")),
		fn.Of("vmstats", s.vmstats, `Return the counters of virtual memory.`, fn.Example("salt '*' status.vmstats")),
		fn.Of("diskstats", s.diskstats, `Return what the disks did since boot.`, fn.Example("salt '*' status.diskstats")),
		fn.Of("diskusage", s.diskusage, `Return the size of file systems in bytes, by path or by a pattern of their type.`,
			fn.Example("salt '*' status.diskusage / 'ext?'")),
		fn.Of("nproc", s.nproc, `Return the number of processors.`, fn.Example("salt '*' status.nproc")),
		fn.Of("netstats", s.netstats, `Return the counters of the network protocols.`, fn.Example("salt '*' status.netstats")),
		fn.Of("netdev", s.netdev, `Return the counters of the network interfaces.`, fn.Example("salt '*' status.netdev")),
		fn.Of("w", s.w, `Return who is logged in.`, fn.Example("salt '*' status.w")),
		fn.Of("procs", s.procs, `Return all processes.`, fn.Example("salt '*' status.procs")),
		fn.Of("pid", s.pid, `Return the ids of the processes whose line in ps(1) a regular expression matches.`, fn.Example("salt '*' status.pid sshd")),
		fn.Of("version", s.version, `Return the version of the kernel.`, fn.Example("salt '*' status.version")),
		fn.Of("time", s.time, `Return the time.`, fn.Example("salt '*' status.time '%s'")),
		fn.Of("custom", s.custom, `Return what the options named status.FUNCTION.custom ask for.
			The option status.cpustats.custom with the list [cpu, ctxt] chooses these of status.cpustats.`, fn.Example("salt '*' status.custom")),
		fn.Of("master", s.master, `Say whether the minion has a connection to a master, null if there is no such host.`,
			fn.Example("salt '*' status.master")),
		fn.Of("all_status", s.all, `Return all of this at once.`, fn.Example("salt '*' status.all_status")),
	}}
}

func (s status) uptime(ctx context.Context, _ *fn.Call, _ none) (*value.Dict, error) {
	up, ok := counters.Uptime(s.m)
	if !ok {
		return nil, fn.Errorf("File /proc/uptime was not found.")
	}
	seconds := int64(up / time.Second)
	since := time.Now().UTC().Add(-time.Duration(seconds) * time.Second)
	rest := seconds % 86400
	d := value.DictOf("seconds", seconds, "since_iso", since.Format("2006-01-02T15:04:05.000000"), "since_t", since.Unix(),
		"days", seconds/86400, "time", fmt.Sprintf("%d:%d", rest/3600, rest%3600/60))
	if s.m.Which("who") != "" {
		out, _, err := s.m.Run(ctx, "who", "-s")
		if err == nil {
			d.Set("users", int64(strings.Count(out, "\n")+1)) // as in Salt, 1 if no user is logged in
		}
	}
	return d, nil
}

func (s status) loadavg(context.Context, *fn.Call, none) (*value.Dict, error) {
	one, five, fifteen, ok := counters.Load(s.m)
	if !ok {
		return nil, fn.Errorf("the kernel does not show its load in /proc/loadavg")
	}
	return value.DictOf("1-min", one, "5-min", five, "15-min", fifteen), nil
}

func (s status) cpustats(context.Context, *fn.Call, none) (*value.Dict, error) {
	d := value.NewDict(8)
	for _, l := range counters.Lines(s.m, "/proc/stat") {
		switch {
		case len(l.Values) == 0:
		case l.Name == "cpu" && len(l.Values) >= 8:
			one := value.NewDict(8)
			for i, key := range []string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"} {
				one.Set(key, number(l.Values[i]))
			}
			d.Set(l.Name, one)
		case l.Name == "intr":
			d.Set(l.Name, value.DictOf("total", number(l.Values[0]), "irqs", numbers(l.Values[1:])))
		case l.Name == "softirq":
			d.Set(l.Name, value.DictOf("total", number(l.Values[0]), "softirqs", numbers(l.Values[1:])))
		default:
			d.Set(l.Name, number(l.Values[0]))
		}
	}
	return d, nil
}

func (s status) cpuinfo(context.Context, *fn.Call, none) (*value.Dict, error) {
	d := value.NewDict(24)
	for _, line := range s.m.Lines("/proc/cpuinfo") {
		f := strings.Split(line, ":")
		if len(f) < 2 {
			continue
		}
		if key := strings.TrimSpace(f[0]); key == "flags" {
			d.Set(key, value.Strings(strings.Fields(f[1])))
		} else {
			d.Set(key, strings.TrimSpace(f[1]))
		}
	}
	return d, nil
}

func (s status) meminfo(context.Context, *fn.Call, none) (*value.Dict, error) {
	d := value.NewDict(48)
	for _, l := range counters.Lines(s.m, "/proc/meminfo") {
		if len(l.Values) == 0 {
			continue
		}
		one := value.DictOf("value", l.Values[0])
		if len(l.Values) > 1 {
			one.Set("unit", l.Values[1])
		}
		d.Set(l.Name, one)
	}
	return d, nil
}

func (s status) vmstats(context.Context, *fn.Call, none) (*value.Dict, error) {
	d := value.NewDict(128)
	for _, l := range counters.Lines(s.m, "/proc/vmstat") {
		if len(l.Values) > 0 {
			d.Set(l.Name, number(l.Values[0]))
		}
	}
	return d, nil
}

var diskKeys = []string{"major", "minor", "device", "reads_issued", "reads_merged", "sectors_read", "ms_spent_reading", "writes_completed", "writes_merged",
	"sectors_written", "ms_spent_writing", "io_in_progress", "ms_spent_in_io", "weighted_ms_spent_in_io"}

func (s status) diskstats(context.Context, *fn.Call, none) (*value.Dict, error) {
	d := value.NewDict(8)
	for _, line := range s.m.Lines("/proc/diskstats") {
		f := strings.Fields(line)
		if len(f) < len(diskKeys) {
			continue
		}
		one := value.NewDict(len(diskKeys))
		for i, key := range diskKeys {
			one.Set(key, number(f[i]))
		}
		d.Set(f[2], one)
	}
	return d, nil
}

type argsOnly struct {
	Args fn.Args `salt:"args"`
}

func (s status) diskusage(_ context.Context, c *fn.Call, a argsOnly) (*value.Dict, error) {
	var paths []string
	var types []target.Glob
	for _, arg := range a.Args {
		if text := value.Str(arg); strings.HasPrefix(text, "/") {
			paths = append(paths, text)
		} else {
			types = append(types, target.ParseGlob(text))
		}
	}
	if len(a.Args) == 0 {
		types = []target.Glob{target.ParseGlob("*")}
	}
	for _, mount := range fs.Mounts(s.m) {
		for _, t := range types {
			if t.Match(mount.Type) {
				paths = append(paths, mount.Path)
				break
			}
		}
	}
	d := value.NewDict(len(paths))
	for _, path := range paths {
		space, err := fs.SpaceAt(s.m, path)
		if err != nil {
			c.Log.Warn("skipping a file system", "err", err)
			continue
		}
		d.Set(path, value.DictOf("available", space.Available, "total", space.Total))
	}
	return d, nil
}

func (s status) nproc(context.Context, *fn.Call, none) (int, error) {
	return counters.Processors(s.m), nil
}

func (s status) netstats(context.Context, *fn.Call, none) (*value.Dict, error) {
	d := value.NewDict(4)
	for _, t := range counters.NetTables(s.m) {
		one := value.NewDict(len(t.Names))
		for i, name := range t.Names {
			one.Set(name, number(t.Values[i]))
		}
		d.Set(t.Name, one)
	}
	return d, nil
}

var netKeys = []string{"rx_bytes", "rx_packets", "rx_errs", "rx_drop", "rx_fifo", "rx_frame", "rx_compressed", "rx_multicast",
	"tx_bytes", "tx_packets", "tx_errs", "tx_drop", "tx_fifo", "tx_colls", "tx_carrier", "tx_compressed"}

func (s status) netdev(context.Context, *fn.Call, none) (*value.Dict, error) {
	d := value.NewDict(4)
	for _, dev := range counters.NetDevices(s.m) {
		one := value.DictOf("iface", dev.Name)
		for i, key := range netKeys {
			one.Set(key, number(dev.Values[i]))
		}
		d.Set(dev.Name, one)
	}
	return d, nil
}

func (s status) w(ctx context.Context, _ *fn.Call, _ none) (*value.List, error) {
	out, err := run(ctx, s.m, "w", "-fh")
	l := &value.List{}
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		l.Append(value.DictOf("idle", f[3], "jcpu", f[4], "login", f[2], "pcpu", f[5], "tty", f[1], "user", f[0], "what", strings.Join(f[6:], " ")))
	}
	return l, err
}

func (s status) procs(context.Context, *fn.Call, none) (*value.Dict, error) {
	owners, d := process.NewOwners(s.m), value.NewDict(256)
	for _, p := range process.All(s.m) {
		d.Set(strconv.Itoa(p.PID), value.DictOf("user", owners.Name(p.UID), "cmd", p.Shown()))
	}
	return d, nil
}

type pidArgs struct {
	Sig string `salt:"sig" doc:"regular expression"`
}

func (s status) pid(_ context.Context, _ *fn.Call, a pidArgs) (string, error) {
	re, err := compile(a.Sig)
	if err != nil {
		return "", err
	}
	var pids []string
	for _, pid := range process.Matching(s.m, re.MatchString) {
		pids = append(pids, strconv.Itoa(pid))
	}
	return strings.Join(pids, "\n"), nil
}

func compile(expr string) (*regexp.Regexp, error) {
	re, err := target.CompileRegexp(".*?(?:" + expr + ")")
	if err != nil {
		return nil, fn.Invalidf("%q is no regular expression: %w", expr, err)
	}
	return re, nil
}

func (s status) version(context.Context, *fn.Call, none) (string, error) {
	return strings.TrimSpace(s.m.Text("/proc/version")), nil
}

type timeArgs struct {
	Format string `salt:"format" doc:"format of strftime" default:"%A, %d. %B %Y %I:%M%p"`
}

func (status) time(_ context.Context, _ *fn.Call, a timeArgs) (string, error) {
	return strftime(a.Format, time.Now()), nil
}

func (s status) custom(ctx context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	conf, err := c.Funcs.Call(ctx, c, "config.dot_vals", []any{"status"}, nil)
	if err != nil {
		return nil, err
	}
	found := value.NewDict(0)
	options, _ := conf.(*value.Dict)
	for k, v := range options.All() {
		key := value.Str(k)
		names, ok := v.(*value.List)
		fun := key[:strings.LastIndexByte(key, '.')]
		if !ok || fun == "status.custom" || !strings.Contains(fun, ".") {
			continue
		}
		ret, err := c.Funcs.Call(ctx, c, fun, nil, nil)
		if err != nil {
			c.Log.Warn("function named by an option failed; leaving it out", "option", key, "err", err)
			continue
		}
		all, _ := ret.(*value.Dict)
		for _, name := range names.Items {
			one, ok := all.Get(name)
			if !ok {
				c.Log.Warn("ignoring an item of an option: its function does not return it", "option", key, "name", value.Str(name))
				one = "UNKNOWN"
			}
			found.Set(name, one)
		}
	}
	return found, nil
}

type masterArgs struct {
	Master    any  `salt:"master" doc:"name or address of the master" default:"null"`
	Connected bool `salt:"connected" ignored:"a minion looks after its connections itself" default:"true"`
}

func (s status) master(ctx context.Context, c *fn.Call, a masterArgs) (any, error) {
	if !value.Truth(a.Master) {
		return nil, nil
	}
	port := uint64(4505)
	if n, err := strconv.ParseUint(value.Str(c.Config.Get("publish_port")), 10, 16); err == nil {
		port = n
	}
	var addrs []netip.Addr
	if addr, err := netip.ParseAddr(value.Str(a.Master)); err == nil {
		addrs = []netip.Addr{addr}
	} else {
		finder := names.New(s.m, net.DefaultResolver)
		for _, v4 := range []bool{true, false} {
			addrs = append(addrs, finder.Addresses(ctx, value.Str(a.Master), v4)...)
		}
	}
	if len(addrs) == 0 {
		return nil, nil
	}
	return slices.ContainsFunc(netif.Established(s.m), func(conn netif.Connection) bool {
		return uint64(conn.Remote.Port()) == port && slices.Contains(addrs, conn.Remote.Addr())
	}), nil
}

func (s status) all(ctx context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	d := value.NewDict(12)
	for _, part := range []struct {
		name string
		f    func(context.Context, *fn.Call, none) (*value.Dict, error)
	}{
		{"cpuinfo", s.cpuinfo}, {"cpustats", s.cpustats}, {"diskstats", s.diskstats}, {"loadavg", s.loadavg}, {"meminfo", s.meminfo},
		{"netdev", s.netdev}, {"netstats", s.netstats}, {"uptime", s.uptime}, {"vmstats", s.vmstats},
	} {
		v, err := part.f(ctx, c, none{})
		if err != nil {
			return nil, err
		}
		d.Set(part.name, v)
	}
	usage, err := s.diskusage(ctx, c, argsOnly{})
	if err != nil {
		return nil, err
	}
	d.Set("diskusage", usage)
	who, err := s.w(ctx, c, none{})
	d.Set("w", who)
	return d, err
}
