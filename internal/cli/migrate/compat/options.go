package compat

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/catalogue/beacons"
	"brine/internal/daemons/api"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/returner"
)

// master is the configuration of a master.
type master struct {
	tree *config.Tree
	conf *config.Master
	opts *value.Dict
}

// installed checks the files of a configuration directory.
type installed struct{ c *checker }

// configurations checks the options of the master and the minion, and the other files in the
// directory.
func (k installed) configurations() error {
	c := k.c
	dir := c.cfg.ConfigDir
	if dir == "" {
		return nil
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return salt.Errorf(salt.Invalid, "%s is not a directory with the configuration of a master or a minion: name it with --config", dir)
	}
	for _, kind := range []config.Kind{config.MasterKind, config.MinionKind} {
		path := config.Path(kind, dir, c.cfg.Getenv)
		t, err := config.Load(path, kind, c.cfg.Log)
		if err != nil {
			k.unusable(path, err)
			continue
		}
		if len(t.Files) == 0 {
			continue
		}
		k.options(t)
		c.configs = append(c.configs, t)
		if kind == config.MasterKind {
			if err := k.readMaster(t); err != nil {
				k.unusable(path, err)
			}
		} else if err := k.readMinion(t); err != nil {
			k.unusable(path, err)
		}
		if err := k.moduleDirs(t); err != nil {
			return err
		}
	}
	k.otherPrograms(dir)
	return nil
}

// unusable records that a configuration cannot be read, with its errors.
func (k installed) unusable(path string, err error) {
	c := k.c
	for s := range strings.Lines(err.Error()) {
		s = strings.TrimSpace(s)
		c.add(Finding{Kind: KindOption, Name: s, Places: at(path, 0), Why: "no daemon starts with it", Missing: true})
	}
}

func thisMachine() config.Machine {
	machine := config.ThisMachine()
	machine.FullName = func(name string) string { return name }
	return machine
}

// readMaster decodes the master's options.
func (k installed) readMaster(t *config.Tree) error {
	c := k.c
	conf, err := config.NewMaster(t, thisMachine(), c.cfg.Log)
	if err != nil {
		return err
	}
	opts, err := config.Dump(t, conf)
	if err == nil {
		c.master = &master{t, conf, opts}
	}
	return err
}

// readMinion decodes the minion's options.
func (k installed) readMinion(t *config.Tree) error {
	conf, err := config.NewMinion(t, thisMachine(), false, k.c.cfg.Log)
	if err != nil {
		return err
	}
	if err := conf.Options.CheckStartup(); err != nil {
		o, _ := t.Origin("startup_states")
		k.c.add(Finding{Kind: KindOption, Name: "startup_states", Places: places(o.File, o.Line), Why: err.Error() + "; no states run at the start"})
	}
	return nil
}

// apiOptions are the options that salt-api reads from the master's configuration.
type apiOptions struct {
	API    api.Options
	Client client.Options
}

// unitKinds maps options that name a unit to the kinds of their findings.
var unitKinds = map[string]string{
	"output": KindOutputter, "fileserver_backend": KindFileServer, "ext_pillar": KindPillar, "external_auth": KindAuth, "event_return": KindReturner,
	"master_tops": KindTop, "return": KindReturner, "beacons": KindBeacon, "module_executors": KindExecutor, "roster": KindRoster, "engines": KindEngine,
}

// options checks the options of one configuration.
func (k installed) options(t *config.Tree) {
	c := k.c
	declare := []any{&config.Minion{}}
	if t.Kind == config.MasterKind {
		declare = []any{&config.Master{}, &apiOptions{}}
	}
	add := func(kind, key, name, why string, missing bool) {
		o, _ := t.Origin(key)
		c.add(Finding{Kind: kind, Name: name, Places: places(o.File, o.Line), Why: why, Missing: missing})
	}
	for _, r := range t.Remarks(declare...) {
		add(KindOption, r.Key, r.Key, r.Text, false)
	}
	needed, other := t.MissingUnits()
	for _, u := range slices.Concat(needed, other, t.Unsupported(declare...)) {
		if kind := unitKinds[u.Key]; kind != "" && u.Unit != "" {
			file, line := k.part(t, u.Key, u.Unit)
			c.add(Finding{Kind: kind, Name: u.Unit, Places: places(file, line), Why: u.Key + ": " + u.Why, Missing: true})
		} else {
			add(KindOption, u.Key, u.Key, u.Why, true)
		}
	}
	for key := range t.Values.All() {
		k.optionDiffers(t, value.Str(key))
	}
}

// named checks the functions, returners and caches named by options.
func (k installed) named(t *config.Tree) {
	c := k.c
	at := func(key string) (string, int) {
		o, _ := t.Origin(key)
		return o.File, o.Line
	}
	missing := func(kind, key, name, why string) {
		file, line := at(key)
		c.add(Finding{Kind: kind, Name: name, Places: places(file, line), Why: key + ": " + why, Missing: true})
	}
	if name := t.Values.Str("cache"); name != "" && !slices.Contains(drivers.Names(), name) {
		missing(KindCache, "cache", name, "there is no such driver; use one of "+strings.Join(drivers.Names(), ", "))
	}
	for _, key := range []string{"master_job_cache", "ext_job_cache", "default_returner"} {
		if name := t.Values.Str(key); name != "" && name != "local_cache" && !slices.Contains(returner.Names(), name) {
			missing(KindReturner, key, name, "there is no such returner; use one of "+strings.Join(returner.Names(), ", "))
		}
	}
	if name := t.Values.Str("roster"); name != "" {
		missing(KindRoster, "roster", name, "there is no salt-ssh")
	}
	for _, v := range t.Values.Dict("schedule").All() {
		job, _ := v.(*value.Dict)
		for _, name := range value.Split(job.At("returner")) {
			if name != "" {
				file, line := k.part(t, "schedule", name)
				c.returner(name, file, line)
			}
		}
	}
	kinds := map[string]string{config.ExecutionModules: "local", config.RunnerModules: "runner", config.WheelModules: "wheel"}
	for _, f := range t.NamedFunctions() {
		if !f.Pattern && isFunction(f.Name) {
			file, line := k.part(t, f.Key, f.Name)
			c.called(kinds[f.Kind], f.Name, file, line)
		}
	}
	for _, r := range t.MissingPermissions() {
		file, line := at(r.Key)
		c.add(Finding{Kind: KindOption, Name: r.Key, Places: places(file, line), Why: r.Text})
	}
	if t.Kind == config.MinionKind {
		for name := range t.Values.Dict("beacons").All() {
			file, line := k.part(t, "beacons", value.Str(name))
			c.differs("beacon", value.Str(name), file, line)
		}
	}
}

// part returns the place of a word inside an option, or that of the option.
func (k installed) part(t *config.Tree, key, word string) (string, int) {
	o, _ := t.Origin(key)
	if n := k.c.lines.of(o.File).inside(o.Line, word); n > 0 {
		return o.File, n
	}
	return o.File, o.Line
}

// unitNames returns the names in a list of maps or in a map.
func unitNames(v any) (names []string) {
	items := []any{v}
	if l, ok := v.(*value.List); ok {
		items = l.Items
	}
	for _, it := range items {
		switch it := it.(type) {
		case *value.Dict:
			for k := range it.All() {
				names = append(names, value.Str(k))
			}
		case string:
			names = append(names, it)
		}
	}
	return names
}

func (c *checker) beacon(name, path string, line int) {
	if slices.Contains(beacons.Names(), name) {
		c.differs("beacon", name, path, line)
		return
	}
	why := "neither Brine nor Salt has this beacon"
	if reason := beacons.Unsupported(name); reason != "" {
		why = "Brine does not have this beacon of Salt: " + reason
	}
	c.add(Finding{Kind: KindBeacon, Name: name, Places: places(path, line), Why: why, Missing: true})
}

// moduleDirs finds Python modules in the directories named by options.
func (k installed) moduleDirs(t *config.Tree) error {
	c := k.c
	var dirs []string
	for key, v := range t.Values.All() {
		if name := value.Str(key); strings.HasSuffix(name, "_dirs") && name != "append_minionid_config_dirs" {
			for _, d := range value.Texts(v) {
				if err := c.pythonIn("_"+kindOfDirs(name), d); err != nil {
					return err
				}
			}
		}
		if value.Str(key) == "extension_modules" || value.Str(key) == "module_dirs" {
			dirs = append(dirs, value.Texts(v)...)
		}
	}
	for _, d := range dirs {
		for _, kind := range pythonKinds {
			if err := c.pythonIn(kind, filepath.Join(d, strings.TrimPrefix(kind, "_"))); err != nil {
				return err
			}
		}
	}
	return nil
}

// kindOfDirs returns the kind of the modules in the directories of an option.
func kindOfDirs(option string) string {
	name := strings.TrimSuffix(option, "_dirs")
	switch name {
	case "module":
		return "modules"
	case "outputter":
		return "output"
	case "render", "runner", "returner", "queue", "cloud", "engine", "executor", "matcher", "serializer", "top", "renderer", "beacon", "token":
		switch name {
		case "render":
			return "renderers"
		default:
			return name + "s"
		}
	}
	return name
}

// otherPrograms records the files of Salt's programs that Brine does not have.
func (k installed) otherPrograms(dir string) {
	c := k.c
	for _, p := range []struct{ program, pattern, why string }{
		{"salt-ssh", "roster", "there is no salt-ssh: the machines in this roster need a minion"},
		{"salt-proxy", "proxy", "there is no salt-proxy"},
		{"salt-proxy", "proxy.d/*.conf", "there is no salt-proxy"},
		{"salt-cloud", "cloud", "there is no salt-cloud"},
		{"salt-cloud", "cloud.*.d/*.conf", "there is no salt-cloud"},
		{"salt-cloud", "cloud.providers", "there is no salt-cloud"},
		{"salt-cloud", "cloud.profiles", "there is no salt-cloud"},
		{"salt-cloud", "cloud.map", "there is no salt-cloud"},
	} {
		found, err := filepath.Glob(filepath.Join(dir, p.pattern))
		if err != nil {
			continue
		}
		for _, path := range found {
			text, err := readFile(path, maxText)
			if err != nil {
				c.unread(path, err)
				continue
			}
			if line := firstContent(text); line > 0 {
				c.add(Finding{Kind: KindProgram, Name: p.program, Places: at(path, line), Why: p.why, Missing: true})
			}
		}
	}
}

// firstContent returns the number of the first line that is not a comment, 0 for none.
func firstContent(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return n
		}
	}
	return 0
}

// notSearched records the configured repositories that were not searched.
func (k installed) notSearched() {
	c := k.c
	if c.master == nil {
		return
	}
	for _, key := range []string{"gitfs_remotes", "s3.buckets"} {
		if n := c.master.opts.List(key); len(n) > 0 && len(c.cfg.Trees) == 0 {
			o, _ := c.master.tree.Origin(key)
			c.add(Finding{Kind: KindUnread, Name: key, Places: places(o.File, o.Line), Missing: true,
				Why: fmt.Sprintf("%s of files were not searched: check out their branches and name the directories with --tree", count(len(n), "remote source"))})
		}
	}
	if slices.Contains(unitNames(c.master.opts.At("ext_pillar")), "git") && len(c.cfg.Pillars) == 0 {
		o, _ := c.master.tree.Origin("ext_pillar")
		c.add(Finding{Kind: KindUnread, Name: "git_pillar", Places: places(o.File, o.Line), Missing: true,
			Why: "its repositories were not searched: check out their branches and name the directories with --pillar"})
	}
}
