// Package systemd lists and controls the units of systemd and the scripts of
// System V init with systemctl(1). A service is named without ".service", any
// other unit in full.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"brine/internal/host"
)

// kinds of units that can be listed.
var kinds = []string{"service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer"}

// FullName returns the name with its kind: "ssh.service" for "ssh".
func FullName(name string) string {
	for _, k := range kinds {
		if strings.HasSuffix(name, "."+k) {
			return name
		}
	}
	return name + ".service"
}

// ShortName returns the name without ".service". ok is false for kinds such as
// slices and scopes, which are not started by users.
func ShortName(full string) (name string, ok bool) {
	i := strings.LastIndexByte(full, '.')
	if i < 0 || !slices.Contains(kinds, full[i+1:]) {
		return "", false
	}
	if full[i+1:] == "service" {
		return full[:i], true
	}
	return full, true
}

// Machine is a machine with systemd.
type Machine struct {
	*host.Machine
	// Below is the root directory of another system to work on, "" for the
	// machine itself.
	Below string
}

// path returns a path as seen below the root.
func (m Machine) path(p string) string { return filepath.Join("/", m.Below, p) }

// Systemctl runs systemctl with these arguments. It is an error if it cannot be
// run; its exit code is in the output.
func (m Machine) Systemctl(ctx context.Context, args ...string) (host.Output, error) {
	if m.Below != "" {
		args = append([]string{"--root", m.Below}, args...)
	}
	out, err := m.Do(ctx, "systemctl", args...)
	if err != nil {
		return out, fmt.Errorf("cannot run systemctl: %w", err)
	}
	return out, nil
}

// Units returns the sorted names of the units that are installed, and of the
// scripts of System V init that have no unit of their name.
func (m Machine) Units() []string {
	all := map[string]bool{}
	for _, dir := range []string{"/lib/systemd/system", "/usr/lib/systemd/system", "/etc/systemd/system"} {
		for _, file := range m.List(m.path(dir)) {
			if name, ok := ShortName(file); ok {
				all[name] = true
			}
		}
	}
	for _, name := range m.scripts() {
		all[name] = true
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// scripts returns the names of all scripts of System V init.
func (m Machine) scripts() []string {
	var names []string
	for _, name := range m.List(m.path("/etc/init.d")) {
		st, err := os.Stat(m.Path(m.path("/etc/init.d/" + name)))
		if err == nil && st.Mode()&0o111 != 0 {
			names = append(names, name)
		}
	}
	return names
}

// ownUnit reports whether there is a unit file with a name.
func (m Machine) ownUnit(name string) bool {
	return slices.ContainsFunc([]string{"/lib/systemd/system", "/usr/lib/systemd/system", "/etc/systemd/system"}, func(dir string) bool {
		return m.Exists(m.path(dir + "/" + FullName(name)))
	})
}

// Script reports whether a name is that of a System V init script without a
// unit.
func (m Machine) Script(name string) bool {
	return slices.Contains(m.scripts(), name) && !m.ownUnit(name)
}

// ScriptEnabled reports whether a script is started at boot.
func (m Machine) ScriptEnabled(ctx context.Context, name string) bool {
	link := regexp.MustCompile(`^S[0-9]{0,2}` + regexp.QuoteMeta(name))
	return slices.ContainsFunc(m.List(m.path("/etc/rc"+m.runlevel(ctx)+".d")), link.MatchString)
}

func (m Machine) runlevel(ctx context.Context) string {
	out, _, err := m.Run(ctx, "runlevel")
	if f := strings.Fields(out); err == nil && len(f) == 2 && len(f[1]) == 1 {
		return f[1]
	}
	return "2" // Debian's default
}

// InState returns the sorted names of the units whose files are in a state:
// enabled, disabled or static. Scripts count as enabled or disabled.
func (m Machine) InState(ctx context.Context, state string) ([]string, error) {
	out, err := m.Systemctl(ctx, "--full", "--no-legend", "--no-pager", "list-unit-files")
	if err != nil {
		return nil, err
	}
	names := []string{}
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || f[1] != state {
			continue
		}
		if name, ok := ShortName(f[0]); ok {
			names = append(names, name)
		}
	}
	if state != "static" {
		for _, name := range m.scripts() {
			if !m.ownUnit(name) && m.ScriptEnabled(ctx, name) == (state == "enabled") {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Running returns the sorted names of the units that run.
func (m Machine) Running(ctx context.Context) ([]string, error) {
	out, err := m.Systemctl(ctx, "--full", "--no-legend", "--no-pager", "--plain")
	if err != nil {
		return nil, err
	}
	names := []string{}
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "running" {
			continue
		}
		if name, ok := ShortName(f[0]); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// ErrOffline means that systemd does not run.
var ErrOffline = errors.New("systemd does not run on this machine")

// State is the state of a unit.
type State struct {
	Known  bool // the unit exists
	Reload bool // its files changed, and systemd must reload them
}

// State queries the state of a unit.
func (m Machine) State(ctx context.Context, name string) (State, error) {
	out, err := m.Systemctl(ctx, "show", "--property=LoadState", "--property=NeedDaemonReload", "--", FullName(name))
	if err != nil {
		return State{}, err
	}
	if out.Exit != 0 {
		if !m.IsDir("/run/systemd/system") {
			return State{}, ErrOffline
		}
		return State{}, fmt.Errorf("systemctl says: %s", out.Stderr)
	}
	var s State
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		switch key, v, _ := strings.Cut(line, "="); key {
		case "LoadState":
			s.Known = v != "not-found" && v != ""
		case "NeedDaemonReload":
			s.Reload = v == "yes"
		}
	}
	if !s.Known && m.Exists(m.path("/etc/systemd/system/"+FullName(name))) {
		s.Reload = true // systemd has not loaded the unit yet
	}
	return s, nil
}

// Masked reports whether a unit is linked to /dev/null, so that it cannot be
// started.
func (m Machine) Masked(name string, runtime bool) bool {
	dir := "/etc"
	if runtime {
		dir = "/run"
	}
	link, err := os.Readlink(m.Path(m.path(dir + "/systemd/system/" + FullName(name))))
	return err == nil && link == "/dev/null"
}
