package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/textedit"
	"brine/internal/call/auth"
	"brine/internal/call/output"
	"brine/internal/catalogue/beacons"
	"brine/internal/daemons/master"
	"brine/internal/daemons/master/sinks"
	"brine/internal/daemons/minion/runner"
	"brine/internal/daemons/usermodules"
	"brine/internal/files/extmods"
	"brine/internal/files/fileserver/backends"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/render"
	"brine/internal/store/returner"
)

// unitOption is an option that names units: modules, backends or other plugins.
type unitOption struct {
	key   string
	names func(v any) []string
	known func() []string
	// python is the kind of the user's own modules that the option may name as well, or "".
	python string
	// lost is the consequence of a missing unit. If it is empty, a daemon starts without the
	// unit.
	lost string
}

// ownModules returns the names of the user's own modules of a kind that are on disk.
func (t *Tree) ownModules(kind string) []string { return slices.Sorted(maps.Keys(t.ownClaims(kind))) }

// ownClaims returns the user's own modules of a kind that are on disk, by the names that they provide.
func (t *Tree) ownClaims(kind string) map[string][]string {
	_, dir := moduleDirs(t)
	return extmods.Scan(extmods.Dirs(t.Values, dir, kind)).Claims
}

// moduleDirs returns the daemon's cache and the directory of fetched modules.
func moduleDirs(t *Tree) (cache, modules string) {
	root, dir := t.Values.Str("root_dir"), t.Values.Str("extension_modules")
	if root == "" {
		root = "/"
	}
	if cache = t.Values.Str("cachedir"); cache == "" {
		cache = "/var/cache/salt/" + string(t.Kind)
	}
	if dir == "" {
		dir = filepath.Join(cache, "extmods")
	}
	return underRoot(root, cache), underRoot(root, dir)
}

// Options of both daemons, and of each.
var (
	commonUnits = []unitOption{
		{"output", value.Split, outputters, "output", ""},
		{"renderer", rendererNames, render.Names, "renderers", ""},
	}
	// dataUnits are the sources of files and pillar, of a master and of a masterless minion.
	dataUnits = []unitOption{
		{"fileserver_backend", value.Split, backends.Names, "fileserver", "its files would be missing"},
		{"ext_pillar", keysOfList, pillar.Externals, "pillar", "minions would be configured without its pillar"},
	}
	masterUnits = []unitOption{
		{"external_auth", keys, auth.Systems, "auth", "its users could not log in"},
		{"event_return", value.Texts, sinks.EventReturnNames, "returners", "no event would be stored there"},
		{"master_tops", keys, master.TopSources, "tops", "minions would be configured without its SLS files"},
		{"on_demand_ext_pillar", onDemand, pillar.Externals, "pillar", ""},
	}
	minionUnits = []unitOption{
		{"return", value.Split, returner.Names, "returners", ""},
		{"schedule_returner", value.Split, returner.Names, "returners", ""},
		{"beacons", beaconNames, beacons.Names, "beacons", ""},
		{"module_executors", value.Split, runner.ExecutorNames, "executors", "no function would run"},
	}
)

// MissingUnits returns the units that options name and that do not exist. A daemon starts
// without those in other, with a warning.
func (t *Tree) MissingUnits() (needed []Unsupported, other []Unsupported) {
	options := slices.Concat(commonUnits, masterUnits, dataUnits)
	if t.Kind == MinionKind {
		options = slices.Concat(commonUnits, minionUnits)
		if t.Values.Str("file_client") == "local" {
			options = append(options, dataUnits...)
		}
	}
	for _, o := range options {
		known := o.known()
		if o.python != "" {
			known = append(slices.Clone(known), t.ownModules(o.python)...)
		}
		for _, name := range o.names(t.Values.At(o.key)) {
			switch {
			case name == "" || slices.Contains(known, name):
			case o.lost != "":
				lost := "; without it " + o.lost
				if o.python != "" {
					lost = "; if it is a module of your own, " + o.obtain(t.Kind) + lost
				}
				needed = append(needed, missingUnit(o.key, name, known, lost))
			default:
				other = append(other, missingUnit(o.key, name, known, ""))
			}
		}
	}
	moreNeeded, moreOther := t.missingEngines()
	return append(needed, moreNeeded...), append(other, moreOther...)
}

// obtain returns how to get a user's own module to where an option names it.
func (o unitOption) obtain(daemon Kind) string {
	program := "salt-run"
	switch {
	case o.key == "fileserver_backend" && daemon == MinionKind: // no function of minions fetches such modules
		return "name its directory in fileserver_dirs"
	case o.key == "module_executors":
		program = "salt-call --module-executors=direct_call"
	case daemon == MinionKind:
		program = "salt-call --local"
	}
	return "fetch it with " + program + " saltutil.sync_" + o.python
}

// saltEngines are the engines of Salt, which have no modules here.
var saltEngines = strings.Fields(`docker_events fluent http_logstash ircbot junos_syslog libvirt_events logentries logstash logstash_engine
	napalm_syslog reactor redis redis_sentinel script slack slack_bolt slack_bolt_engine sqs_events sseapi stalekey test thorium webhook`)

// missingEngines returns the engines that do not exist. A daemon starts without a module of the
// user that is not fetched yet.
func (t *Tree) missingEngines() (needed, other []Unsupported) {
	own := t.ownClaims("engines")
	for _, e := range usermodules.ParseEngines(t.Values.At("engines")) {
		fetch := "salt-run"
		if t.Kind == MinionKind {
			fetch = "salt-call --local"
		}
		why := fmt.Sprintf("there is no engine %q", e.Module)
		switch {
		case len(own[e.Module]) > 0, t.Kind == MasterKind && e.Module == "reactor":
		case !slices.Contains(saltEngines, e.Module):
			other = append(other, Unsupported{"engines", e.Module, why + "; if it is a module of your own, fetch it with " + fetch + " saltutil.sync_engines"})
		case e.Module == "sseapi":
			needed = append(needed, Unsupported{"engines", e.Module, why + "; " + insteadOfConsole})
		case t.Kind == MasterKind:
			needed = append(needed, Unsupported{"engines", e.Module, why + " among your own modules, and Brine has none of Salt's; follow the master's events " +
				"over the REST API (docs/rest-api.md) or by reactor"})
		case t.Values.Str("python_fallback") != "salt":
			needed = append(needed, Unsupported{"engines", e.Module, why + " among your own modules, and Brine has none of Salt's; set python_fallback: salt if " +
				"stock Salt is installed here (docs/python-modules.md)"})
		}
	}
	return needed, other
}

func missingUnit(key, name string, known []string, lost string) Unsupported {
	hint := "use one of " + strings.Join(known, ", ")
	// Names of plugins on which safety depends are similar: svnfs of Salt's is no misspelt s3fs.
	if near := textedit.Nearest(name, known); len(near) > 0 && lost == "" {
		hint = "did you mean " + near[0] + "?"
	}
	why := fmt.Sprintf("there is no %q; %s%s", name, hint, lost)
	if name == "sseapi" {
		why += "; " + insteadOfConsole
	}
	return Unsupported{Key: key, Unit: name, Why: why}
}

// outputters returns the values of the option output: text is another name for txt.
func outputters() []string { return append(output.Names(), "text") }

// rendererNames reads a pipe of renderers.
func rendererNames(v any) []string {
	spec, _ := v.(string)
	if spec == "" {
		return nil
	}
	return render.NamesIn(spec)
}

// onDemand reads on_demand_ext_pillar, without the sources of Salt's default.
func onDemand(v any) []string {
	return slices.DeleteFunc(value.Texts(v), func(name string) bool { return name == "libvirt" || name == "virtkey" })
}

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

// beaconNames reads the names of a map of beacons. The setting beacon_module overrides a name.
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
