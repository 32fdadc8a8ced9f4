package system

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules(&host.Machine{})) }

const signatures = "testdata/signatures.json"

func TestSignatures(t *testing.T) {
	all := Modules(&host.Machine{})
	take := func(name string) []fn.Module {
		at := slices.IndexFunc(all, func(m fn.Module) bool { return m.Name == name })
		one := []fn.Module{all[at]}
		all = slices.Delete(all, at, at+1)
		return one
	}
	stocktest.Signatures(t, cronTable, take("cron"), nil)
	stocktest.Signatures(t, smbiosTable, take("smbios"), nil)
	stocktest.Signatures(t, selinuxTable, take("selinux"), nil)
	stocktest.Signatures(t, signatures, all, nil)
}

// cronTable was recorded with cron installed, without which Salt lacks the
// module.
const cronTable = "testdata/cron.json"

// smbiosTable was recorded with dmidecode installed.
const smbiosTable = "testdata/smbios.json"

// selinuxTable was recorded with programs of these names: Salt does not run them for its signatures.
const selinuxTable = "testdata/selinux.json"

func TestRecordingIsTrue(t *testing.T) {
	stocktest.Verify(t, signatures)
	if m := (&host.Machine{}); m.Which("semanage") != "" && m.Which("setsebool") != "" && m.Which("semodule") != "" {
		stocktest.Verify(t, selinuxTable)
	}
	if (&host.Machine{}).Which("crontab") != "" {
		stocktest.Verify(t, cronTable)
	}
	if (&host.Machine{}).Which("dmidecode") != "" {
		stocktest.Verify(t, smbiosTable)
	}
}

// TestMountsLikeSalt compares what Salt and Brine read from this machine.
func TestMountsLikeSalt(t *testing.T) {
	dir := t.TempDir()
	tab := filepath.Join(dir, "fstab")
	if err := os.WriteFile(tab, []byte("# x\n/dev/a / ext4 rw,noatime 0 1\ntmpfs /t tmpfs size=1m\ntmpfs /t tmpfs size=2m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "sysctl.conf")
	if err := os.WriteFile(conf, []byte("# x\na.b = 1 2\nc=d=e\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	jobs := [][]any{{"mount.active"}, {"mount.fstab", tab}, {"mount.fstab", "/no/such"}, {"mount.is_mounted", "/proc"}, {"mount.is_mounted", "/nothing"},
		{"mount.swaps"},
		{"mount.get_mount_from_path", "/proc/self"}, {"mount.get_device_from_path", "/proc/self"}, {"mount.is_fuse_exec", "sh"},
		{"mount.swapoff", "/no/such"},
		{"mount.umount", "/no/such"}, {"mount.set_fstab", "/t", "tmpfs", "tmpfs", "config=" + tab, "test=True"},
		{"mount.set_fstab", "/u", "/dev/u", "ext4", "config=" + tab, "test=True"},
		{"mount.set_fstab", "/", "/dev/a", "ext4", "opts=noatime,rw", "pass_num=1", "config=" + tab, "test=True"},
		{"sysctl.get", "kernel.ostype"}, {"sysctl.get", "net.ipv4.tcp_rmem"}, {"sysctl.show", conf}, {"sysctl.show", "/no/such"}, {"sysctl.default_config"}}
	recorded := stocktest.Ask(t, nil, jobs...)
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range recorded {
		if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: j.Str("fun"), Arg: jobs[i][1:]}); !value.Equal(got.Return, j.At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got.Return), value.Repr(j.At("return")))
		}
	}
}

// TestMountCacheLikeSalt compares the cache of mount options with Salt's.
func TestMountCacheLikeSalt(t *testing.T) {
	jobs := [][]any{{"mount.read_mount_cache", "/x"}, {"mount.delete_mount_cache", "/x"},
		{"mount.write_mount_cache", "/x", "tmpfs", true, "tmpfs", "ro,noexec"},
		{"mount.write_mount_cache", "/y", "tmpfs", false, "tmpfs", "rw"}, {"mount.read_mount_cache", "/x"}, {"mount.delete_mount_cache", "/x"},
		{"mount.read_mount_cache", "/x"}, {"mount.read_mount_cache", "/y"}}
	recorded := stocktest.Ask(t, nil, jobs...)
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	config := fn.Tree{Dict: value.DictOf("cachedir", t.TempDir())}
	for i, j := range recorded {
		if got := r.Run(t.Context(), &fn.Call{Config: config}, fn.Job{Fun: j.Str("fun"), Arg: jobs[i][1:]}); !value.Equal(got.Return, j.At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got.Return), value.Repr(j.At("return")))
		}
	}
	if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "mount.read_mount_cache", Arg: []any{"/x"}}); got.Success {
		t.Errorf("without a cachedir: %v", got.Return)
	}
}

// TestCron changes a crontab with a fake crontab program.
func TestCron(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	if err := m.WriteFile("/usr/bin/crontab", nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Chmod("/usr/bin/crontab", 0o755); err != nil {
		t.Fatal(err)
	}
	tab := "5 4 * * * mine\n"
	m.ExecCmd = func(_ context.Context, c host.Cmd) (host.Output, error) {
		if c.Args[2] == "-" {
			tab = c.Stdin
			return host.Output{}, nil
		}
		return host.Output{Stdout: strings.TrimSuffix(tab, "\n")}, nil
	}
	r, err := fn.NewRegistry(nil, Modules(m)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fun  string
		args []any
		want string
	}{
		{"cron.set_job", []any{"root", "*", 1, "*", "*", "*", "/bin/x", "identifier=X", "comment=why"}, "'new'"},
		{"cron.set_job", []any{"root", "*", 1, "*", "*", "*", "/bin/x", "identifier=X", "comment=why"}, "'present'"},
		{"cron.set_job", []any{"root", "*", 2, "*", "*", "*", "/bin/x", "identifier=X"}, "'updated'"},
		{"cron.get_entry", []any{"root", "X"},
			"{'minute': '*', 'hour': '2', 'daymonth': '*', 'month': '*', 'dayweek': '*', 'identifier': 'X', 'cmd': '/bin/x', 'comment': 'why', " +
				"'commented': False}"},
		{"cron.get_entry", []any{"root", "Y"}, "False"},
		{"cron.set_special", []any{"root", "@daily", "/bin/y"}, "'new'"},
		{"cron.set_env", []any{"root", "MAILTO", "a"}, "'new'"},
		{"cron.rm_job", []any{"root", "/bin/x", "hour=7", "identifier=X"}, "'absent'"},
		{"cron.rm_job", []any{"root", "/bin/x", "hour=2", "identifier=X"}, "'removed'"},
		{"cron.list_tab", []any{"root"},
			"{'pre': ['5 4 * * * mine'], 'crons': [], 'special': [{'spec': '@daily', 'identifier': None, 'cmd': '/bin/y', 'comment': None, " +
				"'commented': False}], 'env': [{'name': 'MAILTO', 'value': 'a'}]}"},
		{"cron.rm_special", []any{"root", "/bin/y"}, "'removed'"},
		{"cron.rm_env", []any{"root", "MAILTO"}, "'removed'"},
		{"cron.raw_cron", []any{"root"}, "'5 4 * * * mine\\n# Lines below here are managed by Salt, do not edit\\n'"},
		{"cron.set_job", []any{"root", "random", "3:4", "*", "*", "*", "/bin/z"}, "'new'"},
		{"cron.set_job", []any{"root", "random", "3:4", "*", "*", "*", "/bin/z"}, "'present'"},
	} {
		if got := value.Repr(r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: c.fun, Arg: c.args}).Return); got != c.want {
			t.Errorf("%s %v: %s\nwant %s", c.fun, c.args, got, c.want)
		}
	}
}

// fake is a machine below a directory. Its programs record how they were called
// and answer from a map; no real program runs.
type fake struct {
	*host.Machine
	calls   []string
	answers map[string]string
	exits   map[string]int
}

var fixture = map[string]string{
	"/proc/uptime":  "93784.51 100.0\n",
	"/proc/loadavg": "0.50 1.25 2.00 1/100 5\n",
	"/proc/stat": "cpu  200 10 100 600 90 0 5 2 1 0\ncpu0 100 5 50 300 45 0 2 1 0 0\ncpu1 100 5 50 300 45 0 3 1 1 0\nintr 30 10 20\nctxt 7\n" +
		"btime 1700000000\nsoftirq 6 1 2 3\n",
	"/proc/meminfo": "MemTotal: 1000 kB\nMemFree: 200 kB\nMemAvailable: 600 kB\nBuffers: 50 kB\nCached: 250 kB\nSReclaimable: " +
		"100 kB\nActive: 1 kB\nInactive: 2 kB\nShmem: 3 kB\nSlab: 4 kB\nSwapTotal: 100 kB\nSwapFree: 75 kB\nHugePages_Total: 0\n",
	"/proc/vmstat":      "nr_free 5\npswpin 2\npswpout 3\n",
	"/proc/diskstats":   " 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0 0 0\n 254 1 vda1 1 0 1 0 1 0 1 0 0 0 0\nshort\n",
	"/proc/cpuinfo":     "processor\t: 0\nflags\t: a b\n\nprocessor\t: 1\nmodel name\t: X: Y\nflags\t: c d\n",
	"/proc/net/netstat": "TcpExt: A B\nTcpExt: 1 2\nIpExt: C\nIpExt: 18446744073709551615\n",
	"/proc/net/dev": "Inter-| Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n    lo:100 0 0 0 0 0 0 0 " +
		"100 0 0 0 0 0 0 0\n",
	"/proc/mounts":               "/dev/vda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n/dev/x /a\\040b ext4 rw 0 0\n",
	"/proc/version":              "Linux version 6.1\n",
	"/proc/modules":              "kvm 999 1 kvm_intel,kvm_amd, Live 0x0\nloop 5 0 - Live 0x0\n",
	"/proc/sys/kernel/osrelease": "6.1.0\n",
	"/proc/sys/kernel/hostname":  "box\n",
	"/proc/1/stat":               "1 (systemd) S 0 1 1 0 -1 0 0 0 0 0 100 50 0 0 20 0 1 0 500 4096 3 0\n",
	"/proc/1/status":             "Name:\tsystemd\nUid:\t0\t0\t0\t0\n",
	"/proc/1/cmdline":            "/sbin/init\x00splash\x00",
	"/proc/2/stat":               "2 (kworker (x) y) I 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0 0\n",
	"/proc/2/status":             "Uid:\t0\t0\t0\t0\n",
	"/proc/77/stat":              "77 (a-very-long-nam) R 1 77 77 0 -1 0 0 0 0 0 300 0 0 0 20 0 1 0 600 8192 5 0\n",
	"/proc/77/status":            "Uid:\t1000\t1000\t1000\t1000\n",
	"/proc/77/cmdline":           "/usr/bin/a-very-long-name\x00--flag\x00",
	"/proc/78/stat":              "broken",
	"/proc/79/stat":              "79 (app) S 1 79 79 0 -1 0 0 0 0 0 300 100 20 10 20 5 2 0 600 8192 5 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 50 0 0\n",
	"/proc/79/status": "Uid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nCpus_allowed_list:\t0-2,5\nvoluntary_ctxt_switches:\t9\n" +
		"nonvoluntary_ctxt_switches:\t4\n",
	"/proc/79/cmdline":                   "/bin/app\x00",
	"/proc/79/statm":                     "10 5 4 3 2 1 0\n",
	"/proc/79/io":                        "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n",
	"/proc/79/environ":                   "A=1\x00B=x=y\x00",
	"/proc/79/fdinfo/3":                  "pos:\t12\nflags:\t0102001\n",
	"/proc/79/task/79/stat":              "79 (app) S 1 79 79 0 -1 0 0 0 0 0 300 100 0 0 20 0 1 0 600 8192 5 0\n",
	"/proc/79/task/80/stat":              "80 (app) S 1 79 79 0 -1 0 0 0 0 0 50 0 0 0 20 0 1 0 600 8192 5 0\n",
	"/var/log/app":                       "",
	"/proc/filesystems":                  "nodev\ttmpfs\n\text4\nnodev\tzfs\n",
	"/sys/block/vda/size":                "1",
	"/etc/passwd":                        "root:x:0:0::/root:/bin/sh\nfred:x:1000:1000::/:/bin/sh\n",
	"/etc/adjtime":                       "0.0 0 0.0\n0\nLOCAL\n",
	"/etc/timezone":                      "Etc/UTC\n",
	"/etc/locale.conf":                   "# x\nLANG=\"de_DE.UTF-8\"\n",
	"/etc/machine-info":                  "PRETTY_HOSTNAME=\"my \\\"box\\\"\"\n",
	"/etc/modules":                       "# boot\nloop max_loop=8\n",
	"/lib/modules/6.1.0/modules.builtin": "kernel/fs/ext4/ext4.ko\n",
	"/lib/modules/6.1.0/kernel/drivers/snd-pcm.ko.xz": "",
	"/lib/modules/6.1.0/modules.dep":                  "",
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{Machine: &host.Machine{Root: t.TempDir()}, answers: map[string]string{}, exits: map[string]int{}}
	write := func(path, text string, mode os.FileMode) {
		if err := os.MkdirAll(filepath.Dir(f.Path(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Path(path), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range fixture {
		write(path, text, 0o644)
	}
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		loc, err := os.ReadFile("/usr/share/zoneinfo/" + zone)
		if err != nil {
			t.Skip("this machine has no time zones")
		}
		write("/usr/share/zoneinfo/"+zone, string(loc), 0o644)
		if zone == "UTC" {
			write("/etc/localtime", string(loc), 0o644)
		}
	}
	for _, program := range []string{"df", "blkid", "who", "w", "ps", "locale", "lsof", "ss", "localectl", "update-locale", "modprobe", "rmmod", "halt",
		"poweroff", "shutdown", "init", "date", "hwclock", "timedatectl"} {
		write("/usr/bin/"+program, "", 0o755)
	}
	if err := os.MkdirAll(f.Path("/proc/79/fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"fd/3": "/var/log/app", "fd/4": "socket:[9]", "exe": "/bin/app", "cwd": "/srv"} {
		if err := os.Symlink(to, f.Path("/proc/79/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	f.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		call := strings.Join(append([]string{filepath.Base(path)}, args...), " ")
		f.calls = append(f.calls, call)
		return f.answers[call], f.exits[call], nil
	}
	return f
}

func (f *fake) run(t *testing.T, fun string, arg ...any) fn.Outcome {
	t.Helper()
	r, err := fn.NewRegistry(nil, Modules(f.Machine)...)
	if err != nil {
		t.Fatal(err)
	}
	return r.Run(t.Context(), &fn.Call{Grains: fn.Tree{Dict: value.DictOf("os_family", "Debian")}}, fn.Job{Fun: fun, Arg: arg})
}

const df = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 100 50 45 53% /\nmy disk 10 1 9 10% /mnt\nnone - - - - /x\nodd\n"

func TestReading(t *testing.T) {
	f := newFake(t)
	f.answers["df -P"], f.answers["df -P -i"], f.answers["df -P -l"] = df, df, df
	f.answers["blkid"] = "/dev/vda1: LABEL=\"my root\" UUID=\"a-b\" TYPE=\"ext4\"\n/dev/vdb: TYPE=\"swap\""
	f.answers["blkid -t TYPE=swap"] = "/dev/vdb: TYPE=\"swap\""
	f.exits["blkid /dev/none"] = 2
	f.answers["lsof -c app"], f.answers["ss -neap"] = "COMMAND PID\napp 79", "u other\nu app"
	f.answers["w -fh"] = "root pts/0 10:00 1:00 0.03s 0.01s bash -l\n"
	f.answers["ps aux"] = "USER PID COMMAND\nroot 1 init\nroot 9 salt-call ps.psaux init\n"
	f.answers["locale -a"] = "C\nC.utf8\nen_US.utf8\nde_DE.utf8@euro"
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"disk.usage", nil, "{'/': {'filesystem': '/dev/vda', '1K-blocks': '100', 'used': '50', 'available': '45', 'capacity': '53%'}, '/mnt': " +
			"{'filesystem': 'my disk', '1K-blocks': '10', 'used': '1', 'available': '9', 'capacity': '10%'}, " +
			"'/x': {'filesystem': 'none', '1K-blocks': '-', 'used': '-', 'available': '-', 'capacity': '-'}}"},
		{"disk.usage", []any{"q"}, "'ERROR: Invalid flag passed to disk.usage'"},
		{"disk.inodeusage", []any{},
			"{'/': {'inodes': '100', 'used': '50', 'free': '45', 'use': '53%', 'filesystem': '/dev/vda'}, '/mnt': {'inodes': '10', 'used': '1', " +
				"'free': '9', 'use': '10%', 'filesystem': 'my disk'}, " +
				"'/x': {'inodes': '-', 'used': '-', 'free': '-', 'use': '-', 'filesystem': 'none'}}"},
		{"disk.percent", []any{"/mnt"}, "'10%'"},
		{"disk.percent", []any{"/nowhere"}, "{}"},
		{"disk.blkid", nil, "{'/dev/vda1': {'LABEL': 'my root', 'UUID': 'a-b', 'TYPE': 'ext4'}, '/dev/vdb': {'TYPE': 'swap'}}"},
		{"disk.blkid", []any{value.DictOf("__kwarg__", true, "token", "TYPE=swap")}, "{'/dev/vdb': {'TYPE': 'swap'}}"},
		{"disk.blkid", []any{"/dev/none"}, "{}"},
		{"status.loadavg", nil, "{'1-min': 0.5, '5-min': 1.25, '15-min': 2.0}"},
		{"status.cpustats", nil,
			"{'cpu': {'user': 200, 'nice': 10, 'system': 100, 'idle': 600, 'iowait': 90, 'irq': 0, 'softirq': 5, 'steal': 2}, 'cpu0': 100, 'cpu1': 100, " +
				"'intr': {'total': 30, 'irqs': [10, 20]}, 'ctxt': 7, 'btime': 1700000000, 'softirq': {'total': 6, 'softirqs': [1, 2, 3]}}"},
		{"status.cpuinfo", nil, "{'processor': '1', 'flags': ['c', 'd'], 'model name': 'X'}"},
		{"status.vmstats", nil, "{'nr_free': 5, 'pswpin': 2, 'pswpout': 3}"},
		{"status.diskstats", nil,
			"{'vda': {'major': 254, 'minor': 0, 'device': 'vda', 'reads_issued': 1, 'reads_merged': 2, 'sectors_read': 3, 'ms_spent_reading': 4, " +
				"'writes_completed': 5, 'writes_merged': 6, 'sectors_written': 7, 'ms_spent_writing': 8, 'io_in_progress': 9, 'ms_spent_in_io': 10, " +
				"'weighted_ms_spent_in_io': 11}, " +
				"'vda1': {'major': 254, 'minor': 1, 'device': 'vda1', 'reads_issued': 1, 'reads_merged': 0, 'sectors_read': 1, 'ms_spent_reading': " +
				"0, 'writes_completed': 1, 'writes_merged': 0, 'sectors_written': 1, 'ms_spent_writing': 0, 'io_in_progress': 0, 'ms_spent_in_io': " +
				"0, 'weighted_ms_spent_in_io': 0}}"},
		{"status.nproc", nil, "2"},
		{"status.netstats", nil, "{'TcpExt': {'A': 1, 'B': 2}, 'IpExt': {'C': 18446744073709551615}}"},
		{"status.w", nil, "[{'idle': '1:00', 'jcpu': '0.03s', 'login': '10:00', 'pcpu': '0.01s', 'tty': 'pts/0', 'user': 'root', 'what': 'bash -l'}]"},
		{"status.procs", nil, "{'1': {'user': 'root', 'cmd': '/sbin/init splash'}, '2': {'user': 'root', 'cmd': '[kworker (x) y]'}, '77': {'user': " +
			"'fred', 'cmd': '/usr/bin/a-very-long-name --flag'}, '79': {'user': 'fred', 'cmd': '/bin/app'}}"},
		{"status.pid", []any{"fred|splash"}, `'1\n77\n79'`},
		{"status.version", nil, "'Linux version 6.1'"},
		{"status.time", []any{"%%%Q"}, "'%%Q'"},
		{"ps.get_pid_list", nil, "[1, 2, 77, 78, 79]"},
		{"ps.pgrep", []any{"a-very-long-name"}, "[77]"},
		{"ps.pgrep", []any{"splash"}, "None"},
		{"ps.pgrep", []any{"splash", "full=true"}, "[1]"},
		{"ps.pgrep", []any{"^a.*e$", "pattern_is_regex=true", "user=fred"}, "[77]"},
		{"ps.pgrep", []any{"a", "user=nobody"}, "None"},
		{"ps.psaux", []any{"ini+t"}, "['ini+t', ['root 1 init'], '1 occurrence(s).']"},
		{"ps.proc_info", []any{79},
			"{'pid': 79, 'ppid': 1, 'name': 'app', 'exe': '/bin/app', 'cmdline': ['/bin/app'], 'status': 'sleeping', 'username': 'fred', " +
				"'create_time': 1700000006.0, 'cwd': '/srv', 'terminal': None, 'nice': 5, " +
				"'uids': [1000, 1001, 1002], 'gids': [5, 6, 7], 'cpu_times': [3.0, 1.0, 0.2, 0.1, 0.5], 'cpu_percent': 0.0, 'cpu_affinity': [0, 1, " +
				"2, 5], 'cpu_num': 1, 'memory_info': [" +
				strconv.Itoa(5*os.Getpagesize()) + ", " + strconv.Itoa(10*os.Getpagesize()) + ", " + strconv.Itoa(4*os.Getpagesize()) + ", " +
				strconv.Itoa(3*os.Getpagesize()) + ", " + strconv.Itoa(2*os.Getpagesize()) + ", " + strconv.Itoa(os.Getpagesize()) + ", 0], " +
				"'memory_percent': " + value.Repr(float64(5*os.Getpagesize())/1024000*100) +
				", 'num_threads': 2, 'num_ctx_switches': [9, 4], 'ionice': None, 'io_counters': [3, 4, 5, 6, 1, 2], 'num_fds': 2, " +
				"'open_files': [['/var/log/app', 3, 12, 'a', 33793]], 'environ': {'A': '1', 'B': 'x=y'}, 'threads': [[79, 3.0, 1.0], [80, 0.5, 0.0]]}"},
		{"ps.proc_info", []any{79, "attrs=[name, nice]"}, "{'name': 'app', 'nice': 5}"},
		{"ps.proc_info", []any{5}, "'ERROR: process PID not found (pid=5)'"},
		{"ps.status", []any{"sleeping"}, "[{'pid': 1, 'name': 'systemd'}, {'pid': 79, 'name': 'app'}]"},
		{"ps.disk_io_counters", nil,
			"{'read_count': 1, 'write_count': 5, 'read_bytes': 1536, 'write_bytes': 3584, 'read_time': 4, 'write_time': 8, 'read_merged_count': 2, " +
				"'write_merged_count': 6, 'busy_time': 10}"},
		{"ps.disk_io_counters", []any{"sdx"}, "False"},
		{"ps.get_users", nil, "[]"},
		{"ps.lsof", []any{"app"}, "['app', 'COMMAND PID\\napp 79']"},
		{"ps.ss", []any{"app"}, "['app', ['u app']]"},
		{"ps.netstat", []any{"app"}, `"Command required for 'ps.netstat' not found: The 'netstat' binary was not found in $PATH."`},
		{"ps.cpu_times", nil, "{'user': 2.0, 'nice': 0.1, 'system': 1.0, 'idle': 6.0, 'iowait': 0.9, 'irq': 0.0, 'softirq': 0.05, 'steal': 0.02, " +
			"'guest': 0.01, 'guest_nice': 0.0}"},
		{"ps.cpu_percent", []any{"interval=0", "per_cpu=true"}, "[0.0, 0.0]"},
		{"ps.virtual_memory", nil,
			"{'total': 1024000, 'available': 614400, 'percent': 40.0, 'used': 409600, 'free': 204800, 'active': 1024, 'inactive': 2048, 'buffers': " +
				"51200, 'cached': 358400, 'shared': 3072, 'slab': 4096}"},
		{"ps.swap_memory", nil, "{'total': 102400, 'used': 25600, 'free': 76800, 'percent': 25.0, 'sin': 8192, 'sout': 12288}"},
		{"ps.total_physical_memory", nil, "1024000"},
		{"ps.num_cpus", nil, "2"},
		{"ps.boot_time", nil, "1700000000"},
		{"ps.network_io_counters", nil,
			"{'bytes_recv': 101, 'bytes_sent': 109, 'dropin': 4, 'dropout': 12, 'errin': 3, 'errout': 11, 'packets_recv': 2, 'packets_sent': 10}"},
		{"ps.network_io_counters", []any{"nothing"}, "False"},
		{"timezone.get_zone", nil, "'Etc/UTC'"},
		{"timezone.get_zonecode", nil, "'UTC'"},
		{"timezone.get_offset", nil, "'+0000'"},
		{"timezone.zone_compare", []any{"UTC"}, "True"},
		{"timezone.zone_compare", []any{"Europe/Berlin"}, "False"},
		{"timezone.zone_compare", []any{"../../etc/passwd"},
			"'ERROR executing \\'timezone.zone_compare\\': Can\\'t find a local timezone \"../../etc/passwd\"'"},
		{"timezone.get_hwclock", nil, "'localtime'"},
		{"locale.list_avail", nil, "['C', 'C.utf8', 'en_US.utf8', 'de_DE.utf8@euro']"},
		{"locale.avail", []any{"en_us.UTF-8 UTF-8"}, "True"},
		{"locale.avail", []any{"fr_FR.UTF-8"}, "False"},
		{"locale.get_locale", nil, "'de_DE.UTF-8'"},
		{"kmod.available", nil, "['ext4', 'snd_pcm']"},
		{"kmod.check_available", []any{"ext4"}, "True"},
		{"kmod.lsmod", nil, "[{'size': '999', 'module': 'kvm', 'depcount': '1', 'deps': ['kvm_intel', 'kvm_amd']}, {'size': '5', 'module': 'loop', " +
			"'depcount': '0', 'deps': []}]"},
		{"kmod.mod_list", nil, "['kvm', 'loop']"},
		{"kmod.mod_list", []any{true}, "['loop']"},
		{"kmod.is_loaded", []any{"kvm"}, "True"},
		{"system.get_computer_name", nil, "'box'"},
		{"system.get_computer_desc", nil, "'my \"box\"'"},
	} {
		if got := value.Repr(f.run(t, c.fun, c.arg...).Return); got != c.want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, got, c.want)
		}
	}
	up := f.run(t, "status.uptime").Return.(*value.Dict)
	if up.Int("seconds") != 93784 || up.Int("days") != 1 || up.Str("time") != "2:3" || up.Int("users") != 1 {
		t.Errorf("%v", value.Repr(up))
	}
	if d := f.run(t, "status.meminfo").Return.(*value.Dict); d.Dict("MemTotal").Str("unit") != "kB" || d.Dict("HugePages_Total").Str("value") != "0" {
		t.Errorf("%v", value.Repr(d))
	}
	if d := f.run(t, "status.netdev").Return.(*value.Dict); d.Dict("eth0").Int("tx_carrier") != 15 || d.Dict("lo").Int("rx_bytes") != 100 || d.Len() != 2 {
		t.Errorf("%v", value.Repr(d))
	}
	if d := f.run(t, "status.diskusage", "tmp*", "/").Return.(*value.Dict); d.Dict("/").Int("total") == 0 {
		t.Errorf("%v", value.Repr(d))
	}
	if d := f.run(t, "ps.disk_usage", "/").Return.(*value.Dict); d.Int("total") <= 0 || d.Int("used")+d.Int("free") > d.Int("total") {
		t.Errorf("%v", value.Repr(d))
	}
	top := f.run(t, "ps.top", 2, 0).Return.(*value.List)
	if top.Len() != 2 || top.Items[0].(*value.Dict).Dict("cpu").At("user") != 1.0 || top.Items[0].(*value.Dict).At("create_time") != 1700000005.0 {
		t.Errorf("%v", value.Repr(top))
	}
	if d := f.run(t, "status.all_status").Return.(*value.Dict); d.Len() != 11 {
		t.Errorf("%v", d.Keys())
	}
}

func TestActing(t *testing.T) {
	for _, c := range []struct {
		fun  string
		arg  []any
		want []string
	}{
		{"system.reboot", nil, []string{"shutdown -r now"}},
		{"system.reboot", []any{5}, []string{"shutdown -r 5"}},
		{"system.reboot", []any{"23:30"}, []string{"shutdown -r 23:30"}},
		{"system.shutdown", []any{"+5"}, []string{"shutdown -h +5"}},
		{"system.halt", nil, []string{"halt"}},
		{"system.poweroff", nil, []string{"poweroff"}},
		{"system.init", []any{3}, []string{"init 3"}},
		{"system.set_system_date_time", []any{2020, 2, 29, 12, 0, 0, "+0100"},
			[]string{"date -u -s @1582974000", "hwclock --test --systohc", "hwclock --systohc"}},
		{"timezone.set_hwclock", []any{"UTC"}, []string{"timedatectl set-local-rtc false"}},
		{"locale.set_locale", []any{"de_DE.UTF-8"}, []string{"update-locale LANG=de_DE.UTF-8"}},
		{"kmod.load", []any{"kvm nested=1"}, []string{"modprobe kvm nested=1"}},
		{"kmod.remove", []any{"loop"}, []string{"rmmod loop"}},
	} {
		f := newFake(t)
		if o := f.run(t, c.fun, c.arg...); !o.Success || !slices.Equal(f.calls, c.want) {
			t.Errorf("%s %v: %+v, ran %q", c.fun, c.arg, o, f.calls)
		}
	}
}

// TestRefused checks that no unintended argument reaches a program.
func TestRefused(t *testing.T) {
	for _, c := range [][]any{
		{"system.reboot", "-k"}, {"system.reboot", "now; rm"}, {"system.shutdown", "tomorrow"}, {"system.init", "-q"}, {"system.init", 9},
		{"system.set_system_date", "yesterday"},
		{"system.set_system_date_time", 2021, 2, 29}, {"system.set_system_date_time", "x"}, {"system.get_system_time", "late"}, {"timezone.set_hwclock", "x"},
		{"locale.set_locale", "-x"}, {"locale.set_locale", "a b"}, {"kmod.load", "-r x"}, {"kmod.load", ""}, {"kmod.remove", "../x"}, {"ps.pkill", ""},
		{"ps.kill_pid", 0}, {"ps.kill_pid", -1},
		{"ps.pgrep", "(", "pattern_is_regex=true"}, {"ps.lsof", "-x"}, {"ps.status", ""}, {"ps.proc_info", 79, "attrs=[none]"},
		{"ps.proc_info", 79, "attrs=name"}, {"ps.cpu_percent", -1}, {"disk.blkid", "-p"}, {"disk.usage", "x"},
	} {
		f := newFake(t)
		if o := f.run(t, c[0].(string), c[1:]...); o.Success || !strings.HasPrefix(value.Str(o.Return), "ERROR") || len(f.calls) != 0 {
			t.Errorf("%v: %+v, ran %q", c, o, f.calls)
		}
	}
	if o := newFake(t).run(t, "system.set_system_time", "noon"); o.Return != false {
		t.Errorf("%+v", o)
	}
}

func TestSetZone(t *testing.T) {
	f := newFake(t)
	if o := f.run(t, "timezone.set_zone", "Mars/Base"); o.Return != "Zone does not exist: /usr/share/zoneinfo/Mars/Base" {
		t.Errorf("%+v", o)
	}
	if o := f.run(t, "timezone.set_zone", "Europe/Berlin"); o.Return != true {
		t.Errorf("%+v", o)
	}
	if link, err := os.Readlink(f.Path("/etc/localtime")); err != nil || link != "/usr/share/zoneinfo/Europe/Berlin" {
		t.Errorf("%s, %v", link, err)
	}
	if f.Text("/etc/timezone") != "Europe/Berlin\n" || f.run(t, "timezone.get_zone").Return != "Europe/Berlin" {
		t.Errorf("%q", f.Text("/etc/timezone"))
	}
	if left, _ := filepath.Glob(f.Path("/etc/.brine*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestModulesAtBoot(t *testing.T) {
	f := newFake(t)
	f.run(t, "kmod.load", "kvm", true)
	if got := f.Text("/etc/modules"); got != "# boot\nloop max_loop=8\nkvm\n" {
		t.Errorf("%q", got)
	}
	f.run(t, "kmod.remove", "loop", true)
	f.run(t, "kmod.remove", "kvm", true, false)
	if got := f.Text("/etc/modules"); got != "# boot\n#loop max_loop=8\n" {
		t.Errorf("%q", got)
	}
	f.exits["modprobe none"], f.answers["modprobe none"] = 1, "not found"
	if o := f.run(t, "kmod.load", "none"); o.Return != "Error loading module none: not found" {
		t.Errorf("%+v", o)
	}
}

func TestSignals(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	job := func(fun string, arg ...any) any {
		return r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: fun, Arg: arg}).Return
	}
	if got, ok := job("ps.pgrep", "sleep").(*value.List); !ok || !slices.Contains(got.Items, any(int64(child.Process.Pid))) {
		t.Errorf("%v", value.Repr(got))
	}
	if got := job("ps.kill_pid", child.Process.Pid, 9); got != true {
		t.Errorf("%v", got)
	}
	if err := child.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%v", err)
	}
	if got := job("ps.kill_pid", child.Process.Pid); got != false {
		t.Errorf("%v", got)
	}
	if o := newFake(t).run(t, "ps.kill_pid", os.Getpid()); o.Success {
		t.Errorf("the process of another machine was signalled: %+v", o)
	}
}

func TestStrftime(t *testing.T) {
	at := time.Date(2024, 3, 7, 15, 4, 5, 6000, time.FixedZone("CET", 3600))
	for format, want := range map[string]string{
		"%A, %d. %B %Y %I:%M%p": "Thursday, 07. March 2024 03:04PM", "%a %b %e %H:%M:%S %Z %z": "Thu Mar  7 15:04:05 CET +0100",
		"%j %u %w %f %s %y %% %": "067 4 4 000006 1709820245 24 % %", "%F %T %D %R%n%t": "2024-03-07 15:04:05 03/07/24 15:04\n\t",
	} {
		if got := strftime(format, at); got != want {
			t.Errorf("%q: %q, want %q", format, got, want)
		}
	}
}

// TestLikeSaltHere compares what Salt and Brine read from this machine: constant
// values, and otherwise names and types. It omits status.netstats, as Salt loses
// the last counter of each group. It also omits the terminal of a process: for
// processes without one, psutil takes any regular file /dev/tty*, and tests of
// the shell's modules let Salt create such a file.
func TestLikeSaltHere(t *testing.T) {
	still := [][]any{{"status.nproc"}, {"status.version"}, {"status.cpuinfo"}, {"ps.num_cpus"}, {"ps.boot_time"}, {"ps.total_physical_memory"},
		{"timezone.get_zonecode"}, {"timezone.get_offset"},
		{"locale.list_avail"}, {"locale.avail", "C.UTF-8"}, {"kmod.available"}, {"system.get_computer_name"}, {"timezone.zone_compare", "UTC"},
		{"status.master"}, {"status.custom"}, {"ps.disk_partitions"}, {"ps.disk_partitions", true}, {"ps.get_users"}, {"ps.disk_io_counters", "no-such"},
		{"ps.status", "no-such"}, {"ps.ss", "no such text"},
		{"ps.proc_info", 1, "attrs=[pid, ppid, name, exe, cmdline, status, username, create_time, cwd, nice, ionice, uids, gids, cpu_affinity]"}}
	moving := [][]any{{"disk.usage"}, {"disk.inodeusage"}, {"disk.percent"}, {"disk.percent", "/"}, {"status.uptime"}, {"status.loadavg"},
		{"status.cpustats"}, {"status.meminfo"}, {"status.vmstats"}, {"status.diskstats"},
		{"status.diskusage"}, {"status.netdev"}, {"status.time"}, {"ps.cpu_times"}, {"ps.cpu_times", true}, {"ps.virtual_memory"}, {"ps.swap_memory"},
		{"ps.disk_usage", "/"},
		{"ps.cpu_percent"}, {"ps.get_pid_list"}, {"ps.pgrep", "e"}, {"ps.top", 1, 0}, {"ps.disk_io_counters"}, {"ps.disk_partition_usage"},
		{"ps.status", "sleeping"},
		{"ps.proc_info", 1, "attrs=[cpu_times, num_threads, threads, num_fds, io_counters, num_ctx_switches, memory_percent, memory_info, cpu_num]"},
		{"system.get_system_time"}, {"system.get_system_date_time"}}
	jobs := append(still, moving...)
	recorded := stocktest.Ask(t, nil, jobs...)
	r, err := fn.NewRegistry(nil, append(Modules(&host.Machine{}), other())...)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range recorded {
		got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: j.Str("fun"), Arg: jobs[i][1:]}).Return
		want := j.At("return")
		if i >= len(still) {
			got, want = shape(got), shape(want)
		}
		if !value.Equal(got, want) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got), value.Repr(want))
		}
	}
}

// shape replaces values by their types, and numbers in strings by one. It
// reduces lists to one item. It masks the command of a process, which is a list,
// or a name for a kernel thread, and the first process may differ.
func shape(v any) any {
	switch x := v.(type) {
	case *value.Dict:
		d := value.NewDict(x.Len())
		for k, w := range x.All() {
			if value.Str(k) == "cmd" {
				w = "command"
			}
			d.Set(value.Str(k), shape(w))
		}
		return d
	case *value.List:
		if x.Len() == 0 {
			return x
		}
		return value.ListOf(shape(x.Items[0]))
	case string:
		if _, err := strconv.ParseFloat(strings.TrimSuffix(x, "%"), 64); err == nil {
			return "number"
		}
		return "text"
	}
	return value.TypeName(v)
}
