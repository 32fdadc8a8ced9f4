// Package timezone reads and sets the time zone of a machine and the time of
// its hardware clock.
package timezone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/host"
)

const (
	zones     = "/usr/share/zoneinfo/"
	localtime = "/etc/localtime"
)

// ErrUnnamed means that the zone of the machine has no name.
var ErrUnnamed = errors.New(localtime + " is neither a link to a zone nor named in /etc/timezone")

// UnknownError means that a zone is not installed. Path is its expected path.
type UnknownError struct{ Name, Path string }

func (e *UnknownError) Error() string { return "Can't find a local timezone \"" + e.Name + "\"" }

// Zone returns the name of the time zone. It reads the link that systemd also maintains, and Debian's
// additional file.
func Zone(m *host.Machine) (string, error) {
	if link, err := os.Readlink(m.Path(localtime)); err == nil {
		if !path.IsAbs(link) {
			link = path.Join("/etc", link)
		}
		if name, ok := strings.CutPrefix(path.Clean(link), zones); ok {
			return name, nil
		}
	}
	if name := strings.TrimSpace(m.Text("/etc/timezone")); name != "" {
		return name, nil
	}
	if m.Exists(localtime) {
		return "", ErrUnnamed
	}
	return "UTC", nil // the default of programs without the file
}

// Now returns the time in the current zone of the machine, which may have
// changed since the start of this process.
func Now(m *host.Machine) time.Time {
	if b, err := m.ReadFile(localtime); err == nil {
		if loc, err := time.LoadLocationFromTZData("", b); err == nil {
			return time.Now().In(loc)
		}
	}
	return time.Now().UTC()
}

// file returns the path of a zone, and whether it is installed.
func file(m *host.Machine, name string) (string, bool) {
	if !filepath.IsLocal(name) || name == "." {
		return zones + name, false
	}
	return zones + name, m.IsFile(zones + name)
}

// Is reports whether the machine is in a time zone, by the rules of the zone and
// not by its name.
func Is(m *host.Machine, name string) (bool, error) {
	path, ok := file(m, name)
	if !ok {
		return false, &host.InvalidError{Err: &UnknownError{name, path}}
	}
	have, err := m.ReadFile(localtime)
	if err != nil {
		return false, fmt.Errorf("Failed to read %s to determine current timezone: %w", localtime, err) //lint:ignore ST1005 it is Salt's text
	}
	want, err := m.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("cannot read the zone: %w", err)
	}
	return bytes.Equal(have, want), nil
}

// Set sets the time zone. With named, its name is also written to /etc/timezone.
func Set(m *host.Machine, name string, named bool) error {
	path, ok := file(m, name)
	if !ok {
		return &UnknownError{name, path}
	}
	if err := atomicfile.Symlink(path, m.Path(localtime), nil); err != nil {
		return fmt.Errorf("cannot set the time zone: %w", err)
	}
	if named {
		if err := atomicfile.Write(m.Path("/etc/timezone"), []byte(name+"\n"), 0o644, false); err != nil {
			return fmt.Errorf("cannot set the time zone: %w", err)
		}
	}
	return nil
}

// ClockIsLocal reports whether the hardware clock runs in local time, by the
// third line of the file that hwclock(8) and systemd maintain; without it the
// clock runs in UTC.
func ClockIsLocal(m *host.Machine) bool {
	lines := m.Lines("/etc/adjtime")
	return len(lines) > 2 && strings.TrimSpace(lines[2]) == "LOCAL"
}

// SetClockLocal makes the hardware clock run in local time, or UTC. ok is false
// if timedatectl(1) fails.
func SetClockLocal(ctx context.Context, m *host.Machine, local bool) (ok bool, err error) {
	out, err := m.Do(ctx, "timedatectl", "set-local-rtc", strconv.FormatBool(local))
	if err != nil {
		return false, fmt.Errorf("cannot run timedatectl: %w", err)
	}
	return out.Exit == 0, nil
}
