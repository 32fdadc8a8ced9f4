package beacons

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"brine/internal/host/counters"
	"brine/internal/py/value"
)

// netCounters lists the counters of an interface by Salt's names, in the order
// of its events, with their columns in /proc/net/dev.
var netCounters = []struct {
	name string
	at   int
}{
	{"bytes_sent", 8}, {"bytes_recv", 0}, {"packets_sent", 9}, {"packets_recv", 1}, {"errin", 2}, {"errout", 10}, {"dropin", 3}, {"dropout", 11},
}

// netLimits are the limits of one interface.
type netLimits struct {
	greater bool // report a value above the limit, not only the limit itself
	limits  map[string]int64
}

func netInterfaces(c Config) (names []string, out map[string]netLimits, err error) {
	all, ok := c.Get("interfaces").(*value.Dict)
	if !ok {
		return nil, nil, errors.New("it requires interfaces, a map")
	}
	out = map[string]netLimits{}
	for k, v := range all.All() {
		name := value.Str(k)
		set, ok := v.(*value.Dict)
		if !ok {
			return nil, nil, fmt.Errorf("interfaces: %s: expected a map", name)
		}
		n := netLimits{greater: set.Str("type") == "greater", limits: map[string]int64{}}
		if t := set.Str("type"); t != "" && t != "equal" && t != "greater" {
			return nil, nil, fmt.Errorf("interfaces: %s: type: expected equal or greater, got %q", name, t)
		}
		for _, c := range netCounters {
			v, ok := set.Get(c.name)
			if !ok {
				continue
			}
			if n.limits[c.name], err = strconv.ParseInt(value.Str(v), 10, 64); err != nil {
				return nil, nil, fmt.Errorf("interfaces: %s: %s: expected a whole number, got %s", name, c.name, value.Repr(v))
			}
		}
		if len(n.limits) == 0 && !set.Has("type") {
			return nil, nil, fmt.Errorf("interfaces: %s: it names no counter such as bytes_recv", name)
		}
		names, out[name] = append(names, name), n
	}
	return names, out, nil
}

func validNetwork(c Config) error {
	_, _, err := netInterfaces(c)
	return err
}

func init() {
	kinds.Register("network_info", func(b machine) Beacon {
		return Beacon{
			Settings: "interfaces",
			Doc:      "Report interfaces whose counters reach a limit: the value itself (type equal), or any above it (type greater).",
			Example:  "- interfaces:\n    eth0:\n      type: greater\n      errin: 10\n      dropin: 100\n",
			Validate: validNetwork, Look: b.network,
		}
	})
}

// network reports the counters of interfaces that have reached a limit.
func (b machine) network(_ context.Context, l Look) (out []*value.Dict, err error) {
	names, limits, err := netInterfaces(l.Config)
	if err != nil {
		return nil, err
	}
	devices := map[string]counters.NetDevice{}
	for _, d := range counters.NetDevices(b.m) {
		devices[d.Name] = d
	}
	for _, name := range names {
		d, ok := devices[name]
		if !ok {
			continue
		}
		now, due := value.NewDict(len(netCounters)), false
		for _, c := range netCounters {
			n, err := strconv.ParseInt(d.Values[c.at], 10, 64)
			if err != nil {
				continue
			}
			now.Set(c.name, n)
			limit, ok := limits[name].limits[c.name]
			due = due || ok && (n == limit && !limits[name].greater || n > limit && limits[name].greater)
		}
		if due {
			out = append(out, value.DictOf("interface", name, "network_info", now))
		}
	}
	return out, nil
}
