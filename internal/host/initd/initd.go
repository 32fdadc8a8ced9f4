// Package initd lists and controls the services of machines without systemd: by
// OpenRC, or by scripts of System V init in /etc/init.d.
package initd

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"brine/internal/host"
)

// System is the init system of a machine. Find returns it.
type System struct {
	m      *host.Machine
	openRC bool
}

// Service is an installed service.
type Service struct {
	Name    string
	Enabled bool // starts at boot
	// Runlevels are the OpenRC runlevels in which the service starts.
	Runlevels []string
}

// Find returns the init system of a machine. ok is false if systemd runs, or if
// there is neither OpenRC nor a tool that enables scripts.
func Find(m *host.Machine) (s System, ok bool) {
	switch {
	case m.IsDir("/run/systemd/system"):
		return System{}, false
	case m.Which("rc-update") != "":
		return System{m, true}, true
	}
	tool := m.Which("update-rc.d") != "" || m.Which("chkconfig") != ""
	return System{m, false}, tool && m.IsDir("/etc/init.d")
}

// OpenRC reports whether the system is OpenRC.
func (s System) OpenRC() bool { return s.openRC }

// Services returns all services, sorted by name.
func (s System) Services(ctx context.Context) ([]Service, error) {
	if s.openRC {
		return s.ofOpenRC(ctx)
	}
	enabled := map[string]bool{}
	for _, level := range []string{"S", s.runlevel(ctx)} {
		for _, link := range s.m.List("/etc/rc" + level + ".d") {
			if name := started.FindStringSubmatch(link); name != nil {
				enabled[name[1]] = true
			}
		}
	}
	var list []Service
	for _, name := range s.m.List("/etc/init.d") {
		if name != "README" || enabled[name] {
			list = append(list, Service{Name: name, Enabled: enabled[name]})
		}
		delete(enabled, name)
	}
	for name := range enabled {
		list = append(list, Service{Name: name, Enabled: true})
	}
	slices.SortFunc(list, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// started matches links that start a script at boot.
var started = regexp.MustCompile(`^S[0-9]{0,2}(.+)$`)

func (s System) runlevel(ctx context.Context) string {
	out, _, err := s.m.Run(ctx, "runlevel")
	if f := strings.Fields(out); err == nil && len(f) == 2 && len(f[1]) == 1 {
		return f[1]
	}
	return "2" // Debian's default; a container has none
}

func (s System) ofOpenRC(ctx context.Context) ([]Service, error) {
	out, err := s.m.Do(ctx, "rc-update", "-v", "show")
	if err != nil {
		return nil, fmt.Errorf("cannot run rc-update: %w", err)
	}
	var list []Service
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		name, levels, ok := strings.Cut(line, "|")
		if !ok {
			continue
		}
		l := strings.Fields(levels)
		slices.Sort(l)
		list = append(list, Service{strings.TrimSpace(name), len(l) > 0, l})
	}
	slices.SortFunc(list, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Act runs the script of a service with an action such as start or status. It
// is an error if the script cannot be run; its exit code is in the output.
func (s System) Act(ctx context.Context, name, word string) (host.Output, error) {
	script := "/etc/init.d/" + name
	program, args := script, []string{word}
	if !s.openRC && s.m.Which("service") != "" {
		program, args = "service", []string{name, word}
	} else if !s.m.Exists(script) {
		return host.Output{Stderr: script + " does not exist", Exit: 127}, nil
	}
	out, err := s.m.Do(ctx, program, args...)
	if err != nil {
		return out, fmt.Errorf("cannot run %s: %w", program, err)
	}
	return out, nil
}

// Enable enables a service at boot. For OpenRC, runlevels become its only
// runlevels; none means the default one.
func (s System) Enable(ctx context.Context, name string, runlevels []string) (host.Output, error) {
	switch {
	case s.openRC && len(runlevels) > 0:
		now, err := s.levels(ctx, name)
		if err != nil {
			return host.Output{}, err
		}
		return s.run(ctx, update("delete", name, without(now, runlevels)), update("add", name, without(runlevels, now)))
	case s.openRC:
		return s.run(ctx, []string{"rc-update", "add", name})
	case s.m.Which("update-rc.d") == "":
		return s.run(ctx, []string{"chkconfig", name, "on"})
	case s.m.Which("insserv") != "":
		return s.run(ctx, []string{"insserv", name}, []string{"update-rc.d", name, "enable"})
	}
	return s.run(ctx, []string{"update-rc.d", name, "defaults"}, []string{"update-rc.d", name, "enable"})
}

// Disable disables a service at boot. For OpenRC, it is removed from runlevels;
// none means the default one.
func (s System) Disable(ctx context.Context, name string, runlevels []string) (host.Output, error) {
	switch {
	case s.openRC && len(runlevels) > 0:
		now, err := s.levels(ctx, name)
		if err != nil {
			return host.Output{}, err
		}
		return s.run(ctx, update("delete", name, slices.DeleteFunc(now, func(l string) bool { return !slices.Contains(runlevels, l) })))
	case s.openRC:
		return s.run(ctx, []string{"rc-update", "delete", name})
	case s.m.Which("update-rc.d") == "":
		return s.run(ctx, []string{"chkconfig", name, "off"})
	}
	return s.run(ctx, []string{"update-rc.d", name, "disable"})
}

func (s System) levels(ctx context.Context, name string) ([]string, error) {
	all, err := s.ofOpenRC(ctx)
	for _, one := range all {
		if one.Name == name {
			return one.Runlevels, err
		}
	}
	return nil, err
}

// without returns the items that are only in the first list.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(l string) bool { return slices.Contains(other, l) })
}

// update returns a command for some runlevels, nil for none.
func update(word, name string, levels []string) []string {
	if len(levels) == 0 {
		return nil
	}
	return append([]string{"rc-update", word, name}, slices.Sorted(slices.Values(levels))...)
}

// run runs commands until one fails.
func (s System) run(ctx context.Context, commands ...[]string) (out host.Output, err error) {
	for _, c := range commands {
		if c == nil {
			continue
		}
		if strings.HasPrefix(c[len(c)-1], "-") {
			return out, errors.New("a runlevel or service must not begin with a dash")
		}
		if out, err = s.m.Do(ctx, c[0], c[1:]...); err != nil {
			return out, fmt.Errorf("cannot run %s: %w", c[0], err)
		}
		if out.Exit != 0 {
			break
		}
	}
	return out, nil
}
