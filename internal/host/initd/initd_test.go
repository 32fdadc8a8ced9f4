package initd

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"brine/internal/host"
)

// machine returns a machine with these files. Those in a bin directory are
// programs that answer from a map of their calls. The calls are recorded.
func machine(t *testing.T, answers map[string]string, files ...string) (m *host.Machine, calls *[]string) {
	t.Helper()
	m, calls = &host.Machine{Root: t.TempDir()}, new([]string)
	for _, f := range files {
		if err := m.WriteFile(f, nil); err != nil {
			t.Fatal(err)
		}
		if err := m.Chmod(f, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		call := strings.Join(append([]string{filepath.Base(path)}, args...), " ")
		*calls = append(*calls, call)
		out, ok := answers[call]
		if !ok {
			return "", 0, nil
		}
		if out == "fails" {
			return out, 3, nil
		}
		return out, 0, nil
	}
	return m, calls
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		files      []string
		ok, openRC bool
	}{
		{[]string{"/run/systemd/system/x", "/etc/init.d/a", "/usr/sbin/update-rc.d"}, false, false},
		{[]string{"/etc/init.d/a", "/usr/sbin/update-rc.d"}, true, false},
		{[]string{"/etc/init.d/a", "/sbin/chkconfig"}, true, false},
		{[]string{"/etc/init.d/a"}, false, false},
		{[]string{"/usr/sbin/update-rc.d"}, false, false},
		{[]string{"/etc/init.d/a", "/sbin/rc-update"}, true, true},
	} {
		m, _ := machine(t, nil, c.files...)
		if s, ok := Find(m); ok != c.ok || s.OpenRC() != c.openRC {
			t.Errorf("%v: %v, OpenRC %v", c.files, ok, s.OpenRC())
		}
	}
}

func TestScripts(t *testing.T) {
	files := []string{"/etc/init.d/README", "/etc/init.d/ssh", "/etc/init.d/x11-common", "/etc/init.d/off", "/etc/rc2.d/S01ssh", "/etc/rcS.d/S20x11-common",
		"/etc/rc2.d/K01off",
		"/etc/rc3.d/S01off", "/etc/rc2.d/S02gone", "/usr/sbin/update-rc.d", "/usr/sbin/service"}
	m, calls := machine(t, map[string]string{"service ssh status": "fails"}, files...)
	s, _ := Find(m)
	got, err := s.Services(t.Context())
	want := []Service{{Name: "gone", Enabled: true}, {Name: "off"}, {Name: "ssh", Enabled: true}, {Name: "x11-common", Enabled: true}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if out, err := s.Act(t.Context(), "ssh", "status"); err != nil || out.Exit != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	*calls = nil
	act(t, s.Enable, "ssh", nil)
	act(t, s.Disable, "ssh", nil)
	if want := []string{"update-rc.d ssh defaults", "update-rc.d ssh enable", "update-rc.d ssh disable"}; !slices.Equal(*calls, want) {
		t.Errorf("ran %q", *calls)
	}
	m, calls = machine(t, map[string]string{"runlevel": "N 3"}, append(files, "/usr/sbin/insserv", "/sbin/runlevel")...)
	s, _ = Find(m)
	if got, err := s.Services(t.Context()); err != nil || !slices.ContainsFunc(got, func(o Service) bool { return o.Name == "off" && o.Enabled }) {
		t.Errorf("%+v, %v", got, err)
	}
	*calls = nil
	act(t, s.Enable, "ssh", nil)
	if want := []string{"insserv ssh", "update-rc.d ssh enable"}; !slices.Equal(*calls, want) {
		t.Errorf("ran %q", *calls)
	}
	m, calls = machine(t, nil, "/etc/init.d/ssh", "/sbin/chkconfig")
	s, _ = Find(m)
	act(t, s.Enable, "ssh", nil)
	act(t, s.Disable, "ssh", nil)
	if out, err := s.Act(t.Context(), "none", "start"); err != nil || out.Exit != 127 {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := s.Act(t.Context(), "ssh", "start"); err != nil || out.Exit != 0 {
		t.Errorf("%+v, %v", out, err)
	}
	if want := []string{"chkconfig ssh on", "chkconfig ssh off", "ssh start"}; !slices.Equal(*calls, want) {
		t.Errorf("ran %q", *calls)
	}
}

func act(t *testing.T, do func(context.Context, string, []string) (host.Output, error), name string, levels []string) {
	t.Helper()
	if out, err := do(t.Context(), name, levels); err != nil || out.Exit != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestOpenRC(t *testing.T) {
	m, calls := machine(t, map[string]string{"rc-update -v show": "  sshd |      default boot\n hwclock |\n no line\n"}, "/sbin/rc-update",
		"/etc/init.d/sshd")
	s, _ := Find(m)
	got, err := s.Services(t.Context())
	if want := []Service{{"hwclock", false, []string{}}, {"sshd", true, []string{"boot", "default"}}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	*calls = nil
	for _, c := range []struct {
		do     func(context.Context, string, []string) (host.Output, error)
		name   string
		levels []string
		want   []string
	}{
		{s.Enable, "hwclock", nil, []string{"rc-update add hwclock"}},
		{s.Enable, "sshd", []string{"boot", "default"}, nil},
		{s.Enable, "sshd", []string{"sysinit", "boot"}, []string{"rc-update delete sshd default", "rc-update add sshd sysinit"}},
		{s.Disable, "sshd", nil, []string{"rc-update delete sshd"}},
		{s.Disable, "sshd", []string{"boot", "sysinit"}, []string{"rc-update delete sshd boot"}},
		{s.Disable, "sshd", []string{"sysinit"}, nil},
	} {
		*calls = nil
		act(t, c.do, c.name, c.levels)
		ran := slices.DeleteFunc(*calls, func(s string) bool { return s == "rc-update -v show" })
		if !slices.Equal(ran, c.want) {
			t.Errorf("%s %v: ran %q, want %q", c.name, c.levels, ran, c.want)
		}
	}
	if _, err := s.Enable(t.Context(), "sshd", []string{"-x"}); err == nil {
		t.Error("an option is accepted as a runlevel")
	}
}
