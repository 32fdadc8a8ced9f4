package system

import (
	"context"
	"errors"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/timezone"
	"brine/internal/py/value"
)

type zones struct{ m *host.Machine }

func init() { units.Register("timezone", timezoneModule) }

func timezoneModule(m *host.Machine) fn.Module {
	z := zones{m}
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

func (z zones) getZone(context.Context, *fn.Call, none) (string, error) {
	name, err := timezone.Zone(z.m)
	if errors.Is(err, timezone.ErrUnnamed) {
		err = fn.Errorf("Unable to determine timezone: %w", err)
	}
	return name, err
}

func (z zones) getZonecode(context.Context, *fn.Call, none) (string, error) {
	return timezone.Now(z.m).Format("MST"), nil
}

func (z zones) getOffset(context.Context, *fn.Call, none) (string, error) {
	return timezone.Now(z.m).Format("-0700"), nil
}

type zoneArgs struct {
	Timezone string `salt:"timezone" doc:"name of the time zone"`
}

func (z zones) zoneCompare(_ context.Context, _ *fn.Call, a zoneArgs) (bool, error) {
	is, err := timezone.Is(z.m, a.Timezone)
	return is, fn.FromHost(err)
}

func (z zones) setZone(_ context.Context, c *fn.Call, a zoneArgs) (any, error) {
	family := c.Grains.Get("os_family")
	err := timezone.Set(z.m, a.Timezone, family == "Debian" || family == "Gentoo")
	var unknown *timezone.UnknownError
	if errors.As(err, &unknown) { // not an error in Salt
		return "Zone does not exist: " + unknown.Path, nil
	}
	return err == nil, fn.FromHost(err)
}

func (z zones) getHwclock(context.Context, *fn.Call, none) (string, error) {
	if timezone.ClockIsLocal(z.m) {
		return "localtime", nil
	}
	return "UTC", nil
}

type clockArgs struct {
	Clock string `salt:"clock" doc:"UTC or localtime"`
}

func (z zones) setHwclock(ctx context.Context, _ *fn.Call, a clockArgs) (bool, error) {
	local := a.Clock == "localtime"
	if !local && !strings.EqualFold(a.Clock, "UTC") {
		return false, fn.Invalidf("Only 'UTC' and 'localtime' are allowed, not %s", value.Repr(a.Clock))
	}
	ok, err := timezone.SetClockLocal(ctx, z.m, local)
	return ok, fn.FromHost(err)
}
