package daemon

import (
	"slices"

	"brine/internal/call/auth"
	"brine/internal/call/output"
	"brine/internal/catalogue/beacons"
	"brine/internal/daemons/config"
	"brine/internal/daemons/master"
	"brine/internal/daemons/minion/runner"
	"brine/internal/files/fileserver/backends"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
)

// unitOption is an option that names units.
type unitOption struct {
	key   string
	names func(v any) []string
	known func() []string
}

// Options of both daemons, and of each.
var (
	commonUnits = []unitOption{
		{"fileserver_backend", value.Split, backends.Names},
		{"ext_pillar", keysOfList, pillar.Externals},
		{"output", value.Split, outputters},
	}
	masterUnits = []unitOption{
		{"external_auth", keys, auth.Systems},
		{"master_tops", keys, master.TopSources},
	}
	minionUnits = []unitOption{
		{"beacons", beaconNames, beacons.Names},
		{"module_executors", value.Split, runner.ExecutorNames},
	}
)

// units warns about names that no unit has: the daemon runs without them.
func (c *checker) units(t *config.Tree, options ...unitOption) {
	for _, o := range options {
		known := o.known()
		for _, name := range o.names(t.Values.At(o.key)) {
			if name != "" && !slices.Contains(known, name) {
				c.warn("%v", t.UnknownName(o.key, name, known))
			}
		}
	}
}

// outputters returns the values of the option output: text is another name of txt.
func outputters() []string { return append(output.Names(), "text") }

// keys reads the keys of a map.
func keys(v any) (names []string) {
	d, _ := v.(*value.Dict)
	for k := range d.All() {
		names = append(names, value.Str(k))
	}
	return names
}

// keysOfList reads a list of maps.
func keysOfList(v any) (names []string) {
	l, _ := v.(*value.List)
	if l == nil {
		return nil
	}
	for _, it := range l.Items {
		names = append(names, keys(it)...)
	}
	return names
}

// beaconNames reads a map of settings, of which beacon_module may name the beacon.
func beaconNames(v any) (names []string) {
	d, _ := v.(*value.Dict)
	for k, def := range d.All() {
		name := value.Str(k)
		if c, err := beacons.ParseConfig(def); err == nil {
			if s, ok := c.Get("beacon_module").(string); ok {
				name = s
			}
		}
		if name != "enabled" {
			names = append(names, name)
		}
	}
	return names
}
