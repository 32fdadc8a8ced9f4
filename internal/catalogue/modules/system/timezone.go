package system

import (
	"bytes"
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

type timezone struct{ m *host.Machine }

func timezoneModule(m *host.Machine) fn.Module {
	z := timezone{m}
	return fn.Module{Name: "timezone", Doc: `The time zone of the machine.`, Funcs: []fn.Func{
		fn.Of("get_zone", z.getZone, `Return the name of the time zone.`, fn.Example("salt '*' timezone.get_zone")),
		fn.Of("get_zonecode", z.getZonecode, `Return the abbreviation of the time zone.`, fn.Example("salt '*' timezone.get_zonecode")),
		fn.Of("get_offset", z.getOffset, `Return how far the time is from UTC.`, fn.Example("salt '*' timezone.get_offset")),
		fn.Of("zone_compare", z.zoneCompare, `Say whether the machine is in a time zone.`, fn.Example("salt '*' timezone.zone_compare America/Denver")),
		fn.Of("set_zone", z.setZone, `Set the time zone.`, fn.Example("salt '*' timezone.set_zone America/Denver")),
		fn.Of("get_hwclock", z.getHwclock, `Say whether the hardware clock has UTC or localtime.`, fn.Example("salt '*' timezone.get_hwclock")),
		fn.Of("set_hwclock", z.setHwclock, `Have the hardware clock keep UTC or localtime.`, fn.Example("salt '*' timezone.set_hwclock UTC")),
	}}
}

const (
	zones     = "/usr/share/zoneinfo/"
	localtime = "/etc/localtime"
)

// getZone reads the link that systemd keeps too, and the file that Debian
// keeps beside it.
func (z timezone) getZone(context.Context, *fn.Call, none) (string, error) {
	if link, err := os.Readlink(z.m.Path(localtime)); err == nil {
		if !path.IsAbs(link) {
			link = path.Join("/etc", link)
		}
		if name, ok := strings.CutPrefix(path.Clean(link), zones); ok {
			return name, nil
		}
	}
	if name := strings.TrimSpace(z.m.Text("/etc/timezone")); name != "" {
		return name, nil
	}
	if z.m.Exists(localtime) {
		return "", fn.Errorf("Unable to determine timezone: %s is neither a link to a zone nor named in /etc/timezone", localtime)
	}
	return "UTC", nil // what programs take without the file
}

// now returns the time in the zone of the machine as it is now, which may not
// be that at the start of this process.
func (z timezone) now() time.Time {
	if b, err := z.m.ReadFile(localtime); err == nil {
		if loc, err := time.LoadLocationFromTZData("", b); err == nil {
			return time.Now().In(loc)
		}
	}
	return time.Now().UTC()
}

func (z timezone) getZonecode(context.Context, *fn.Call, none) (string, error) {
	return z.now().Format("MST"), nil
}

func (z timezone) getOffset(context.Context, *fn.Call, none) (string, error) {
	return z.now().Format("-0700"), nil
}

type zoneArgs struct {
	Timezone string `salt:"timezone" doc:"name of the time zone"`
}

// file returns the path of a zone.
func (z timezone) file(name string) (string, bool) {
	if !filepath.IsLocal(name) || name == "." {
		return zones + name, false
	}
	return zones + name, z.m.IsFile(zones + name)
}

func (z timezone) zoneCompare(_ context.Context, _ *fn.Call, a zoneArgs) (bool, error) {
	file, ok := z.file(a.Timezone)
	if !ok {
		return false, fn.Invalidf("Can't find a local timezone \"%s\"", a.Timezone)
	}
	have, err := z.m.ReadFile(localtime)
	if err != nil {
		return false, fn.Errorf("Failed to read %s to determine current timezone: %w", localtime, err)
	}
	want, err := z.m.ReadFile(file)
	if err != nil {
		return false, fn.Errorf("cannot read the zone: %w", err)
	}
	return bytes.Equal(have, want), nil
}

func (z timezone) setZone(_ context.Context, c *fn.Call, a zoneArgs) (any, error) {
	file, ok := z.file(a.Timezone)
	if !ok {
		return "Zone does not exist: " + file, nil
	}
	// The link is made beside and then moved, so that there always is a zone.
	link := z.m.Path("/etc/" + atomicfile.TempPrefix + "localtime")
	_ = os.Remove(link)
	if err := os.Symlink(file, link); err != nil {
		return false, fn.Errorf("cannot set the time zone: %w", err)
	}
	if err := os.Rename(link, z.m.Path(localtime)); err != nil {
		_ = os.Remove(link)
		return false, fn.Errorf("cannot set the time zone: %w", err)
	}
	if family := c.Grains.Get("os_family"); family == "Debian" || family == "Gentoo" {
		if err := atomicfile.Write(z.m.Path("/etc/timezone"), []byte(a.Timezone+"\n"), 0o644, false); err != nil {
			return false, fn.Errorf("cannot set the time zone: %w", err)
		}
	}
	return true, nil
}

// getHwclock reads the third line of the file that hwclock(8) and systemd
// keep; without it the clock has UTC.
func (z timezone) getHwclock(context.Context, *fn.Call, none) (string, error) {
	lines := z.m.Lines("/etc/adjtime")
	if len(lines) > 2 && strings.TrimSpace(lines[2]) == "LOCAL" {
		return "localtime", nil
	}
	return "UTC", nil
}

type clockArgs struct {
	Clock string `salt:"clock" doc:"UTC or localtime"`
}

func (z timezone) setHwclock(ctx context.Context, _ *fn.Call, a clockArgs) (bool, error) {
	local := "false"
	switch {
	case a.Clock == "localtime":
		local = "true"
	case !strings.EqualFold(a.Clock, "UTC"):
		return false, fn.Invalidf("Only 'UTC' and 'localtime' are allowed, not %s", value.Repr(a.Clock))
	}
	out, err := z.m.Do(ctx, "timedatectl", "set-local-rtc", local)
	if err != nil {
		return false, fn.Errorf("cannot run timedatectl: %w", err)
	}
	return out.Exit == 0, nil
}
