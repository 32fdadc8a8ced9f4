package system

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/counters"
	fs "brine/internal/host/disk"
	"brine/internal/host/process"
	"brine/internal/py/value"
)

func (p ps) details() []fn.Func {
	return []fn.Func{
		fn.Of("proc_info", p.procInfo, `Return what is known of a process, under psutil's names.
			All but its connections and its maps of memory.`, fn.Example("salt '*' ps.proc_info 2322"),
			fn.Example(`salt '*' ps.proc_info 2322 attrs='["pid", "name"]'`)),
		fn.Of("status", p.inStatus, `Return the processes in a state such as running, sleeping, disk-sleep, stopped, zombie or idle.`,
			fn.Example("salt '*' ps.status zombie")),
		fn.Of("disk_partitions", p.partitions, `Return the mounted file systems on disks, or all of them.`, fn.Example("salt '*' ps.disk_partitions")),
		fn.Of("disk_partition_usage", p.partitionUsage, `Return the mounted file systems on disks, or all of them, and how full they are, in bytes.`,
			fn.Example("salt '*' ps.disk_partition_usage")),
		fn.Of("disk_io_counters", p.diskCounters, `Return what went from and to disks since boot.`, fn.Example("salt '*' ps.disk_io_counters device=sda1")),
		fn.Of("get_users", p.users, `Return the users who are logged in.`, fn.Example("salt '*' ps.get_users")),
		fn.Of("lsof", p.lsof, `Return what lsof(8) prints of the programs whose name begins with a text.`, fn.Example("salt '*' ps.lsof apache2")),
		fn.Of("netstat", p.lines("netstat", "-nap"), `Return the lines of netstat(8) that hold a text.`, fn.Example("salt '*' ps.netstat apache2")),
		fn.Of("ss", p.lines("ss", "-neap"), `Return the lines of ss(8) that hold a text.`, fn.Example("salt '*' ps.ss apache2")),
	}
}

type infoArgs struct {
	PID   int `salt:"pid" doc:"id of the process"`
	Attrs any `salt:"attrs" doc:"list of what to return; all if null" default:"null"`
}

func (p ps) procInfo(_ context.Context, _ *fn.Call, a infoArgs) (*value.Dict, error) {
	d, ok := process.Detail(p.m, a.PID)
	if !ok {
		return nil, fn.Errorf("process PID not found (pid=%d)", a.PID)
	}
	all := p.attributes(d)
	if a.Attrs == nil {
		return all, nil
	}
	wanted, ok := a.Attrs.(*value.List)
	if !ok {
		return nil, fn.Invalidf("attrs is a list of names, not %s", value.Repr(a.Attrs))
	}
	some := value.NewDict(wanted.Len())
	for _, name := range wanted.Items {
		v, ok := all.Get(name)
		if !ok {
			return nil, fn.Errorf("invalid attr name %s; there are: %s", value.Repr(name), strings.Join(textKeys(all), ", "))
		}
		some.Set(name, v)
	}
	return some, nil
}

func textKeys(d *value.Dict) []string {
	var keys []string
	for k := range d.All() {
		keys = append(keys, value.Str(k))
	}
	return keys
}

// attributes returns all attributes under psutil's names. Attributes with
// several numbers are lists.
func (p ps) attributes(d process.Details) *value.Dict {
	m := d.Memory
	total := counters.Memory(p.m)["MemTotal"]
	percent := 0.0
	if total > 0 {
		percent = float64(m.RSS) / float64(total) * 100
	}
	out := value.DictOf("pid", d.PID, "ppid", d.Parent, "name", d.Name, "exe", orNull(d.Exe), "cmdline", value.Strings(d.Command), "status", states[d.State],
		"username", process.NewOwners(p.m).Name(d.UID), "create_time", created(d.Process), "cwd", orNull(d.Dir), "terminal", orNull(d.Terminal), "nice",
		d.Nice,
		"uids", d.UIDs, "gids", d.GIDs, "cpu_times", value.ListOf(d.User.Seconds(), d.System.Seconds(), d.ChildUser.Seconds(), d.ChildSystem.Seconds(),
			d.Waited.Seconds()),
		"cpu_percent", 0.0, "cpu_affinity", d.Affinity, "cpu_num", d.CPU, "memory_info",
		value.ListOf(m.RSS, m.Virtual, m.Shared, m.Text, m.Lib, m.Data, m.Dirty),
		"memory_percent", percent, "num_threads", len(d.Threads), "num_ctx_switches", value.ListOf(d.Voluntary, d.Involuntary), "ionice", p.ioNice(d.PID),
		"io_counters", nil, "num_fds", nil, "open_files", nil, "environ", nil)
	threads := &value.List{}
	for _, t := range d.Threads {
		threads.Append(value.ListOf(t.ID, t.User.Seconds(), t.System.Seconds()))
	}
	out.Set("threads", threads)
	if io := d.IO; io != nil {
		out.Set("io_counters", value.ListOf(io.Reads, io.Writes, io.ReadBytes, io.WriteBytes, io.ReadChars, io.WriteChars))
	}
	if d.FDs != nil {
		out.Set("num_fds", int64(len(d.FDs)))
		out.Set("open_files", p.openFiles(d.FDs))
	}
	if d.Environ != nil {
		env := value.NewDict(len(d.Environ))
		for _, e := range d.Environ {
			if name, v, ok := strings.Cut(e, "="); ok && name != "" {
				env.Set(name, v)
			}
		}
		out.Set("environ", env)
	}
	return out
}

// ioNice returns the I/O scheduling class and priority of a process.
func (p ps) ioNice(pid int) any {
	const ofProcess, classBits = 1, 13
	if !p.m.Live() {
		return nil
	}
	v, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ofProcess, uintptr(pid), 0)
	if errno != 0 {
		return nil
	}
	return value.ListOf(int64(v>>classBits), int64(v&(1<<classBits-1)))
}

// openFiles returns the open regular files: path, descriptor, position, mode
// and flags.
func (p ps) openFiles(fds []process.FD) *value.List {
	out := &value.List{}
	for _, fd := range fds {
		if strings.HasPrefix(fd.Path, "/") && p.m.IsFile(fd.Path) {
			out.Append(value.ListOf(fd.Path, fd.Number, fd.Position, openMode(fd.Flags), fd.Flags))
		}
	}
	return out
}

// openMode returns the mode as Python's open takes it.
func openMode(flags int) string {
	mode := []string{"r", "w", "w+", "r"}[flags&unix.O_ACCMODE]
	if flags&unix.O_APPEND != 0 {
		mode = strings.Replace(mode, "w", "a", 1)
	}
	return strings.Replace(mode, "w+", "r+", 1)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// created returns when a process was started, in seconds with two digits.
func created(p process.Process) float64 {
	return float64(p.Started.UnixMilli()/10) / 100
}

type stateArgs struct {
	Status string `salt:"status" doc:"the state"`
}

func (p ps) inStatus(_ context.Context, _ *fn.Call, a stateArgs) (*value.List, error) {
	if a.Status == "" {
		return nil, fn.Invalidf("Filter is required for ps.status")
	}
	out := &value.List{}
	for _, pr := range process.All(p.m) {
		if states[pr.State] == a.Status {
			out.Append(value.DictOf("pid", pr.PID, "name", pr.Name))
		}
	}
	return out, nil
}

type allArgs struct {
	All bool `salt:"all" doc:"also file systems that are on no disk" default:"false"`
}

// maxPath is the maximum length of a path on Linux.
const maxPath = 4096

func (p ps) partitions(_ context.Context, _ *fn.Call, a allArgs) (*value.List, error) {
	onDisk := map[string]bool{}
	for _, line := range p.m.Lines("/proc/filesystems") {
		if f := strings.Fields(line); len(f) == 1 || len(f) == 2 && f[1] == "zfs" {
			onDisk[f[len(f)-1]] = true
		}
	}
	out := &value.List{}
	for _, mount := range fs.Mounts(p.m) {
		device := mount.Device
		if device == "none" {
			device = ""
		}
		if !a.All && (device == "" || !onDisk[mount.Type]) {
			continue
		}
		var longest any
		var st unix.Statfs_t
		if unix.Statfs(p.m.Path(mount.Path), &st) == nil {
			longest = int64(st.Namelen)
		}
		out.Append(value.DictOf("device", device, "mountpoint", mount.Path, "fstype", mount.Type, "opts", mount.Options, "maxfile", longest, "maxpath",
			maxPath))
	}
	return out, nil
}

func (p ps) partitionUsage(ctx context.Context, c *fn.Call, a allArgs) (*value.List, error) {
	list, err := p.partitions(ctx, c, a)
	if err != nil {
		return nil, err
	}
	for _, it := range list.Items {
		d := it.(*value.Dict)
		usage, err := p.diskUsage(ctx, c, pathArgs{d.Str("mountpoint")})
		if err != nil {
			return nil, err
		}
		d.Update(usage)
	}
	return list, nil
}

type deviceArgs struct {
	Device string `salt:"device" doc:"name of the only disk or partition to count" default:"null"`
}

// diskCounts lists the returned counters with their columns in
// /proc/diskstats. A sector is 512 bytes.
var diskCounts = []struct {
	key  string
	at   int
	unit int64
}{
	{"read_count", 3, 1}, {"write_count", 7, 1}, {"read_bytes", 5, 512}, {"write_bytes", 9, 512}, {"read_time", 6, 1}, {"write_time", 10, 1},
	{"read_merged_count", 4, 1}, {"write_merged_count", 8, 1}, {"busy_time", 12, 1},
}

func (p ps) diskCounters(_ context.Context, _ *fn.Call, a deviceArgs) (any, error) {
	sums, found := make([]int64, len(diskCounts)), false
	for _, line := range p.m.Lines("/proc/diskstats") {
		f := strings.Fields(line)
		if len(f) < 14 || a.Device != "" && f[2] != a.Device {
			continue
		}
		if a.Device == "" && !p.m.Exists("/sys/block/"+strings.ReplaceAll(f[2], "/", "!")) {
			continue // a partition, which is part of its disk's counters
		}
		found = true
		for i, c := range diskCounts {
			n, _ := strconv.ParseInt(f[c.at], 10, 64)
			sums[i] += n * c.unit
		}
	}
	switch {
	case !found && a.Device == "":
		return nil, fn.Errorf("the kernel counts no disks in /proc/diskstats")
	case !found:
		return false, nil
	}
	d := value.NewDict(len(diskCounts))
	for i, c := range diskCounts {
		d.Set(c.key, sums[i])
	}
	return d, nil
}

func (p ps) users(context.Context, *fn.Call, none) (*value.List, error) {
	out := &value.List{}
	for _, l := range counters.Logins(p.m) {
		from := l.Host
		if from == ":0" || from == ":0.0" {
			from = "localhost"
		}
		out.Append(value.DictOf("name", l.User, "terminal", orNull(l.Terminal), "host", from, "started", float64(l.Since.Truncate(time.Second).Unix()), "pid",
			l.PID))
	}
	return out, nil
}

type textArgs struct {
	Name string `salt:"name" doc:"text to look for"`
}

func (p ps) lsof(ctx context.Context, _ *fn.Call, a textArgs) (*value.List, error) {
	if a.Name == "" || a.Name[0] == '-' {
		return nil, fn.Invalidf("%q is no name of a program", a.Name)
	}
	out, err := p.m.Do(ctx, "lsof", "-c", a.Name)
	if err != nil {
		return nil, fn.Errorf("cannot run lsof: %w", err)
	}
	return value.ListOf(a.Name, printed(out)), nil
}

// printed returns standard output and standard error of a program.
func printed(out host.Output) string {
	return strings.Trim(out.Stdout+"\n"+out.Stderr, "\n")
}

func (p ps) lines(program, option string) func(context.Context, *fn.Call, textArgs) (*value.List, error) {
	return func(ctx context.Context, _ *fn.Call, a textArgs) (*value.List, error) {
		if p.m.Which(program) == "" {
			return nil, &fn.ProgramError{Program: program}
		}
		out, err := p.m.Do(ctx, program, option)
		if err != nil {
			return nil, fn.Errorf("cannot run %s: %w", program, err)
		}
		lines := slices.DeleteFunc(strings.Split(out.Stdout, "\n"), func(l string) bool { return !strings.Contains(l, a.Name) })
		return value.ListOf(a.Name, value.Strings(lines)), nil
	}
}
