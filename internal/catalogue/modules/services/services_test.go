package services

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/host/initd"
	"brine/internal/py/value"
)

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules(&host.Machine{})) }

const signatures = "testdata/signatures.json"

func TestSignatures(t *testing.T) {
	stocktest.Signatures(t, signatures, Modules(&host.Machine{}), map[string]string{})
}

func TestRecordingIsTrue(t *testing.T) { stocktest.Verify(t, signatures) }

// fake is a machine below a directory. Its systemctl answers from a map of its
// arguments and records them.
type fake struct {
	*host.Machine
	calls   []string
	answers map[string]string
	exits   map[string]int
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{Machine: &host.Machine{Root: t.TempDir()}, answers: map[string]string{}, exits: map[string]int{}}
	for path, mode := range map[string]os.FileMode{
		"/usr/bin/systemctl": 0o755, "/usr/sbin/update-rc.d": 0o755, "/lib/systemd/system/ssh.service": 0o644, "/lib/systemd/system/x.slice": 0o644,
		"/etc/systemd/system/app.timer": 0o644, "/etc/systemd/system/multi-user.target.wants/job@1.service": 0o644,
		"/etc/init.d/ssh": 0o755, "/etc/init.d/old": 0o755, "/etc/init.d/README": 0o644, "/etc/init.d/off": 0o755, "/etc/rc2.d/S01old": 0o644,
		"/etc/rc2.d/K01off":     0o644,
		"/run/systemd/system/x": 0o644, "/r/usr/lib/systemd/system/other.service": 0o644,
	} {
		if err := os.MkdirAll(filepath.Dir(f.Path(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Path(path), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/null", f.Path("/etc/systemd/system/gone.service")); err != nil {
		t.Fatal(err)
	}
	f.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		call := strings.Join(append([]string{filepath.Base(path)}, args...), " ")
		f.calls = append(f.calls, call)
		if strings.Contains(call, " show --property=LoadState") && f.answers[call] == "" {
			return "LoadState=loaded\nNeedDaemonReload=no", 0, nil
		}
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
	return r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: fun, Arg: arg})
}

const files = "systemctl --full --no-legend --no-pager list-unit-files"

func TestReading(t *testing.T) {
	f := newFake(t)
	f.answers[files] = "ssh.service enabled enabled\napp.timer disabled enabled\nx.slice static -\ngetty@.service enabled enabled\nstatic.target static -\n"
	f.answers["systemctl --full --no-legend --no-pager --plain"] = "ssh.service loaded active running OpenSSH\napp.timer loaded active waiting T\n" +
		"init.scope loaded active running S\n"
	f.answers["systemctl show -- ssh.service"] = "Id=ssh.service\nAfter=a.target b.target\nExecStart={ path=/usr/sbin/sshd ; argv[]=/usr/sbin/sshd " +
		"-D $OPTS ; pid=1 }\nEnvironment=A=1\n"
	f.answers["systemctl is-enabled -- sshd.service"] = "alias"
	f.answers["systemctl show --property=Id -- sshd.service"] = "Id=ssh.service"
	for _, call := range []string{"systemctl is-enabled -- app.timer", "systemctl is-enabled -- old.service", "systemctl is-enabled -- off.service",
		"systemctl is-enabled -- job@1.service", "systemctl is-active -- app.timer"} {
		f.exits[call] = 1
	}
	f.answers["systemctl show --property=LoadState --property=NeedDaemonReload -- none.service"] = "LoadState=not-found\nNeedDaemonReload=no"
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"service.get_all", nil, "['app.timer', 'gone', 'off', 'old', 'ssh']"},
		{"service.get_all", []any{"/r"}, "['other']"},
		{"service.get_enabled", nil, "['getty@', 'old', 'ssh']"},
		{"service.get_disabled", nil, "['app.timer', 'off']"},
		{"service.get_static", nil, "['static.target']"},
		{"service.get_running", nil, "['ssh']"},
		{"service.available", []any{"ssh"}, "True"},
		{"service.available", []any{"none"}, "False"},
		{"service.missing", []any{"none"}, "True"},
		{"service.status", []any{"ssh"}, "True"},
		{"service.status", []any{"[as]*"}, "{'app.timer': False, 'ssh': True}"},
		{"service.enabled", []any{"ssh"}, "True"},
		{"service.enabled", []any{"sshd"}, "True"},
		{"service.enabled", []any{"app.timer"}, "False"},
		{"service.enabled", []any{"old"}, "True"},
		{"service.disabled", []any{"off"}, "True"},
		{"service.enabled", []any{"job@1"}, "True"},
		{"service.masked", []any{"gone"}, "True"},
		{"service.masked", []any{"ssh"}, "False"},
		{"service.show", []any{"ssh"},
			"{'Id': 'ssh.service', 'After': ['a.target', 'b.target'], 'ExecStart': {'path': '/usr/sbin/sshd', 'argv[]': '/usr/sbin/sshd -D $OPTS', " +
				"'pid': '1'}, 'Environment': 'A=1'}"},
		{"service.execs", nil, "{'ssh': '/usr/sbin/sshd'}"},
		{"service.offline", nil, "False"},
	} {
		if got := value.Repr(f.run(t, c.fun, c.arg...).Return); got != c.want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, got, c.want)
		}
	}
}

func TestActing(t *testing.T) {
	const state = "systemctl show --property=LoadState --property=NeedDaemonReload -- "
	for _, c := range []struct {
		fun  string
		arg  []any
		want []string
	}{
		{"service.start", []any{"ssh"}, []string{state + "ssh.service", "systemctl start -- ssh.service"}},
		{"service.stop", []any{"app.timer", true}, []string{state + "app.timer", "systemctl --no-block stop -- app.timer"}},
		{"service.restart", []any{"salt-minion"}, []string{state + "salt-minion.service", "systemctl --no-block restart -- salt-minion.service"}},
		{"service.restart", []any{"salt-minion", false}, []string{state + "salt-minion.service", "systemctl restart -- salt-minion.service"}},
		{"service.start", []any{"gone", "unmask=true"}, []string{state + "gone.service", state + "gone.service", "systemctl unmask -- gone.service",
			"systemctl start -- gone.service"}},
		{"service.force_reload", []any{"ssh"}, []string{state + "ssh.service", "systemctl --no-block force-reload -- ssh.service"}},
		{"service.enable", []any{"ssh"}, []string{state + "ssh.service", "systemctl enable -- ssh.service"}},
		{"service.enable", []any{"ssh", "root=/r", "x=1"}, []string{"systemctl --root /r enable -- ssh.service"}},
		{"service.disable", []any{"ssh"}, []string{state + "ssh.service", "systemctl disable -- ssh.service"}},
		{"service.enable", []any{"old"}, []string{"update-rc.d -f old defaults 99"}},
		{"service.disable", []any{"old"}, []string{"update-rc.d -f old remove"}},
		{"service.mask", []any{"ssh", true}, []string{state + "ssh.service", "systemctl mask --runtime -- ssh.service"}},
		{"service.unmask", []any{"ssh"}, nil},
		{"service.systemctl_reload", nil, []string{"systemctl --system daemon-reload"}},
	} {
		f := newFake(t)
		if o := f.run(t, c.fun, c.arg...); o.Return != true || !slices.Equal(f.calls, c.want) {
			t.Errorf("%s %v: %+v, ran %q, want %q", c.fun, c.arg, o, f.calls, c.want)
		}
	}
}

func TestChangedUnit(t *testing.T) {
	f := newFake(t)
	f.answers["systemctl show --property=LoadState --property=NeedDaemonReload -- app.timer"] = "LoadState=not-found\nNeedDaemonReload=no"
	f.run(t, "service.start", "app.timer")
	if len(f.calls) != 4 || f.calls[1] != "systemctl --system daemon-reload" {
		t.Errorf("ran %q", f.calls)
	}
}

func TestFailures(t *testing.T) {
	f := newFake(t)
	f.exits["systemctl start -- ssh.service"], f.answers["systemctl start -- ssh.service"] = 5, "Unit ssh.service not found."
	if o := f.run(t, "service.start", "ssh"); o.Return != "ERROR: Unit ssh.service not found." {
		t.Errorf("%+v", o)
	}
	f.exits["systemctl stop -- ssh.service"] = 5
	if o := f.run(t, "service.stop", "ssh"); o.Return != false {
		t.Errorf("%+v", o)
	}
	for _, path := range []string{"/run/systemd", "/usr/sbin/update-rc.d"} {
		if err := os.RemoveAll(f.Path(path)); err != nil {
			t.Fatal(err)
		}
	}
	const state = "systemctl show --property=LoadState --property=NeedDaemonReload -- ssh.service"
	f.exits[state], f.answers[state] = 1, "System has not been booted"
	if o := f.run(t, "service.available", "ssh"); o.Return != "ERROR: Cannot run in offline mode. Failed to get information on unit 'ssh'" {
		t.Errorf("%+v", o)
	}
	for _, name := range []string{"", "-H", "a b", "../x"} {
		f.calls = nil
		if o := f.run(t, "service.stop", name); o.Success || len(f.calls) != 0 {
			t.Errorf("%q: %+v, ran %q", name, o, f.calls)
		}
	}
	if err := os.Remove(f.Path("/usr/bin/systemctl")); err != nil {
		t.Fatal(err)
	}
	if o := f.run(t, "service.get_all"); o.Success || !strings.Contains(value.Str(o.Return), "__virtual__ returned False") {
		t.Errorf("%+v", o)
	}
}

// TestWithoutSystemd uses System V init scripts instead of units.
func TestWithoutSystemd(t *testing.T) {
	f := newFake(t)
	if err := os.RemoveAll(f.Path("/run/systemd")); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"/usr/sbin/service": "", "/proc/7/stat": "7 (sshd) S 0 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 500 4096 3 0\n",
		"/proc/7/cmdline": "/usr/sbin/sshd\x00-D\x00"} {
		if err := f.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := f.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.exits["service ssh status"], f.exits["service none start"] = 3, 1
	for _, c := range []struct {
		fun     string
		arg     []any
		want    string
		retcode int
	}{
		{"service.get_all", nil, "['off', 'old', 'ssh']", 0},
		{"service.get_all", []any{"/r"}, "['other']", 0},
		{"service.get_enabled", nil, "['old']", 0},
		{"service.get_disabled", nil, "['off', 'ssh']", 0},
		{"service.available", []any{"ssh"}, "True", 0},
		{"service.available", []any{"none"}, "False", 0},
		{"service.missing", []any{"none"}, "True", 0},
		{"service.enabled", []any{"old"}, "True", 0},
		{"service.enabled", []any{"none"}, "False", 0},
		{"service.disabled", []any{"ssh"}, "True", 0},
		{"service.disabled", []any{"none"}, "False", 0},
		{"service.status", []any{"old"}, "True", 0},
		{"service.status", []any{"ssh"}, "False", 0},
		{"service.status", []any{"[os]*"}, "{'off': True, 'old': True, 'ssh': False}", 0},
		{"service.status", []any{"ssh", "sshd -D$"}, "True", 0},
		{"service.status", []any{"ssh", "other"}, "False", 0},
		{"service.status", []any{"ssh", "("}, "ERROR executing 'service.status': '(' is no regular expression: ", 1},
		{"service.start", []any{"ssh"}, "True", 0},
		{"service.start", []any{"none"}, "False", 1},
		{"service.force_reload", []any{"ssh"}, "True", 0},
		{"service.enable", []any{"ssh"}, "True", 0},
		{"service.disable", []any{"ssh"}, "True", 0},
		{"service.start", []any{"-x"}, `ERROR executing 'service.start': "-x" is no name of a service`, 1},
	} {
		o := f.run(t, c.fun, c.arg...)
		got, text := o.Return.(string)
		if !text {
			got = value.Repr(o.Return)
		}
		if !strings.HasPrefix(got, c.want) || o.Retcode != c.retcode {
			t.Errorf("%s %v: got  %s, %d\nwant %s, %d", c.fun, c.arg, got, o.Retcode, c.want, c.retcode)
		}
	}
	f.calls = nil
	f.run(t, "service.force_reload", "ssh")
	f.run(t, "service.enable", "ssh")
	f.run(t, "service.disable", "ssh")
	if want := []string{"service ssh force-reload", "update-rc.d ssh defaults", "update-rc.d ssh enable", "update-rc.d ssh disable"}; !slices.Equal(f.calls,
		want) {
		t.Errorf("ran %q", f.calls)
	}
}

func TestOpenRC(t *testing.T) {
	f := newFake(t)
	if err := os.RemoveAll(f.Path("/run/systemd")); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteFile("/sbin/rc-update", nil); err != nil {
		t.Fatal(err)
	}
	if err := f.Chmod("/sbin/rc-update", 0o755); err != nil {
		t.Fatal(err)
	}
	f.answers["rc-update -v show"] = " ssh | boot default\n off |\n"
	for _, c := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"service.get_all", nil, "{'off': [], 'ssh': ['boot', 'default']}"},
		{"service.get_enabled", nil, "{'ssh': ['boot', 'default']}"},
		{"service.get_disabled", nil, "['off']"},
		{"service.enabled", []any{"ssh", "runlevels=[boot, default]"}, "True"},
		{"service.enabled", []any{"ssh", "runlevels=sysinit"}, "False"},
		{"service.enable", []any{"off", "runlevels=boot"}, "True"},
	} {
		if got := value.Repr(f.run(t, c.fun, c.arg...).Return); got != c.want {
			t.Errorf("%s %v: got  %s\nwant %s", c.fun, c.arg, got, c.want)
		}
	}
	if last := f.calls[len(f.calls)-1]; last != "rc-update add off boot" {
		t.Errorf("ran %q", f.calls)
	}
}

// TestScriptsLikeSaltHere compares Salt and Brine on a machine without systemd.
func TestScriptsLikeSaltHere(t *testing.T) {
	m := &host.Machine{}
	if _, ok := initd.Find(m); !ok {
		t.Skip("systemd runs on this machine")
	}
	jobs := [][]any{{"environ.setval", "PATH", "/usr/sbin:/sbin:/usr/bin:/bin"}, {"service.available", "no-such-service"},
		{"service.missing", "no-such-service"}, {"service.status", "no-such-service"}, {"service.status", "no-such-*"},
		{"service.enabled", "no-such-service"}, {"service.disabled", "no-such-service"}, {"service.start", "no-such-service"},
		{"service.stop", "no-such-service"}, {"service.available", "dbus"},
		{"service.enabled", "dbus"}, {"service.disabled", "dbus"}}
	r, err := fn.NewRegistry(nil, Modules(m)...)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range stocktest.Ask(t, nil, jobs...) {
		if i == 0 {
			continue // depends on where the programs are
		}
		if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: j.Str("fun"), Arg: jobs[i][1:]}); !value.Equal(got.Return, j.At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got.Return), value.Repr(j.At("return")))
		}
	}
}

// TestLikeSaltHere compares what Salt and Brine read from this machine.
func TestLikeSaltHere(t *testing.T) {
	jobs := [][]any{{"service.get_all"}, {"service.get_static"}, {"service.enabled", "fstrim.timer"}, {"service.enabled", "no-such@x"}}
	const provider = "systemd_service"
	recorded := stocktest.Ask(t, map[string]any{"providers": map[string]string{"service": provider}}, jobs...)
	call := &fn.Call{Config: fn.Tree{Dict: value.DictOf("providers", value.DictOf("service", provider))}}
	if strings.Contains(value.Str(recorded[0].At("return")), "is not available") {
		t.Skip("this machine has no systemd")
	}
	r, err := fn.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range recorded {
		if got := r.Run(t.Context(), call, fn.Job{Fun: j.Str("fun"), Arg: jobs[i][1:]}); !value.Equal(got.Return, j.At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got.Return), value.Repr(j.At("return")))
		}
	}
}
