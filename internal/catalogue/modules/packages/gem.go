package packages

import (
	"context"
	"regexp"
	"strings"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// gem manages Ruby packages.
type gem struct{ m *host.Machine }

func init() { units.Register("gem", gemModule) }

func gemModule(m *host.Machine) fn.Module {
	g := gem{m}
	place := []string{"ruby", "runas", "gem_bin"}
	named := append([]string{"gems"}, place...)
	source := append([]string{"source_uri"}, place...)
	return fn.Module{Name: "gem", Doc: `Packages of Ruby, by way of gem. What goes by RVM or rbenv has to be named by gem_bin.`, Funcs: []fn.Func{
		fn.Of("install", g.install, `Install packages, named in a list or with blanks between them, and return what gem prints.`,
			fn.Example("salt '*' gem.install vagrant"), fn.Example("salt '*' gem.install redphone gem_bin=/opt/sensu/embedded/bin/gem")),
		fn.Of("uninstall", g.uninstall, `Remove packages in all versions, and return what gem prints.`, fn.Params(named...),
			fn.Example("salt '*' gem.uninstall vagrant")),
		fn.Of("update", g.update, `Upgrade packages and return what gem prints.`, fn.Params(named...), fn.Example("salt '*' gem.update vagrant")),
		fn.Of("update_system", g.updateSystem, `Upgrade gem itself.`, fn.Params(append([]string{"version"}, place...)...),
			fn.Example("salt '*' gem.update_system")),
		fn.Of("version", g.versionOf, `Return the version of gem.`, fn.Params(place...), fn.Example("salt '*' gem.version")),
		fn.Of("list", g.list, `Return the versions of installed packages, by name.`, fn.Params(append([]string{"prefix"}, place...)...),
			fn.Example("salt '*' gem.list")),
		fn.Of("list_upgrades", g.listUpgrades, `Return the versions that installed packages could be upgraded to.`, fn.Params(place...),
			fn.Example("salt '*' gem.list_upgrades")),
		fn.Of("sources_add", g.sourcesAdd, `Add an address that packages come from.`, fn.Params(source...),
			fn.Example("salt '*' gem.sources_add http://rubygems.org/")),
		fn.Of("sources_remove", g.sourcesRemove, `Remove an address that packages come from.`, fn.Params(source...),
			fn.Example("salt '*' gem.sources_remove http://rubygems.org/")),
		fn.Of("sources_list", g.sourcesList, `Return the addresses that packages come from.`, fn.Params(place...), fn.Example("salt '*' gem.sources_list")),
	}}
}

type gemArgs struct {
	Gems    any    `salt:"gems" doc:"names of packages"`
	Source  string `salt:"source_uri" doc:"the address"`
	Prefix  string `salt:"prefix" doc:"how names begin" default:""`
	Version string `salt:"version" doc:"version of gem; the newest without" default:""`
	Ruby    string `salt:"ruby" doc:"has no effect: RVM and rbenv are not asked" default:"null"`
	Runas   string `salt:"runas" doc:"user to run gem as" default:"null"`
	Bin     string `salt:"gem_bin" doc:"path of gem" default:"null"`
}

type gemInstallArgs struct {
	Gems        any    `salt:"gems" doc:"names of packages"`
	Ruby        string `salt:"ruby" doc:"has no effect: RVM and rbenv are not asked" default:"null"`
	Bin         string `salt:"gem_bin" doc:"path of gem" default:"null"`
	Runas       string `salt:"runas" doc:"user to run gem as" default:"null"`
	Version     any    `salt:"version" doc:"version, or condition such as >= 1.2" default:"null"`
	Rdoc        bool   `salt:"rdoc" doc:"make documentation for RDoc" default:"false"`
	Ri          bool   `salt:"ri" doc:"make documentation for ri" default:"false"`
	PreReleases bool   `salt:"pre_releases" doc:"also versions that are not released" default:"false"`
	Proxy       string `salt:"proxy" doc:"address of a proxy" default:"null"`
	Source      string `salt:"source" doc:"address that the packages come from" default:"null"`
}

// run runs gem through the cmd module and returns its output. gem gives what follows "--" to the
// programs that build a package, so the names in a must not look like options.
func (g gem) run(ctx context.Context, c *fn.Call, a gemArgs, words ...string) (string, error) {
	if err := host.NoOption("gem", append(gemNames(a.Gems), a.Version, a.Prefix, a.Source)...); err != nil {
		return "", fn.FromHost(err)
	}
	if a.Ruby != "" {
		c.Log.Warn("the argument ruby has no effect: RVM and rbenv are not asked; gem_bin names another gem", "ruby", a.Ruby)
	}
	if a.Bin == "" {
		a.Bin = "gem"
	}
	kw := value.DictOf("python_shell", false)
	if a.Runas != "" {
		kw.Set("runas", a.Runas)
	}
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(append([]string{a.Bin}, words...))}, kw)
	if err != nil {
		return "", err
	}
	d, _ := v.(*value.Dict)
	if d.Int("retcode") != 0 {
		return "", fn.Errorf("%s", d.Str("stderr"))
	}
	return d.Str("stdout"), nil
}

func gemNames(v any) []string {
	if s, ok := v.(string); ok {
		return strings.Fields(s)
	}
	return value.Texts(v)
}

func (g gem) install(ctx context.Context, c *fn.Call, a gemInstallArgs) (string, error) {
	at := gemArgs{Ruby: a.Ruby, Runas: a.Runas, Bin: a.Bin, Gems: a.Gems, Source: a.Source}
	if err := host.NoOption("gem", a.Proxy); err != nil { // the value of -p may be left out
		return "", fn.FromHost(err)
	}
	version, err := g.version(ctx, c, at)
	if err != nil {
		return "", err
	}
	words := append([]string{"install"}, gemNames(a.Gems)...)
	if value.Truth(a.Version) {
		words = append(words, "--version", value.Str(a.Version))
	}
	option := func(on bool, name string) {
		if on {
			words = append(words, name)
		}
	}
	if atLeast(version, 3) { // version 3 has one option for both
		option(!a.Rdoc || !a.Ri, "--no-document")
		option(a.PreReleases, "--prerelease")
	} else {
		option(!a.Rdoc, "--no-rdoc")
		option(!a.Ri, "--no-ri")
		option(a.PreReleases, "--pre")
	}
	if a.Proxy != "" {
		words = append(words, "-p", a.Proxy)
	}
	if a.Source != "" {
		words = append(words, "--source", a.Source)
	}
	return g.run(ctx, c, at, words...)
}

func (g gem) uninstall(ctx context.Context, c *fn.Call, a gemArgs) (string, error) {
	return g.run(ctx, c, a, append(append([]string{"uninstall"}, gemNames(a.Gems)...), "-a", "-x")...)
}

func (g gem) update(ctx context.Context, c *fn.Call, a gemArgs) (string, error) {
	return g.run(ctx, c, a, append([]string{"update"}, gemNames(a.Gems)...)...)
}

func (g gem) updateSystem(ctx context.Context, c *fn.Call, a gemArgs) (string, error) {
	words := []string{"update", "--system"}
	if a.Version != "" {
		words = append(words, a.Version)
	}
	return g.run(ctx, c, a, words...)
}

func (g gem) versionOf(ctx context.Context, c *fn.Call, a gemArgs) (any, error) {
	v, err := g.version(ctx, c, a)
	if v == "" {
		return value.NewDict(0), err
	}
	return v, err
}

// version returns the first line that looks like a version, as warnings may
// precede it.
func (g gem) version(ctx context.Context, c *fn.Call, a gemArgs) (string, error) {
	out, err := g.run(ctx, c, a, "--version")
	for line := range strings.SplitSeq(out, "\n") {
		if line != "" && strings.ContainsRune(".0123456789", rune(line[0])) {
			return line, nil
		}
	}
	return "", err
}

var gemLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([^ ]+) \((.+)\)`) })

func (g gem) list(ctx context.Context, c *fn.Call, a gemArgs) (*value.Dict, error) {
	words := []string{"list"}
	if a.Prefix != "" {
		words = append(words, a.Prefix)
	}
	out, err := g.run(ctx, c, a, words...)
	found := value.NewDict(16)
	for line := range strings.SplitSeq(out, "\n") {
		if m := gemLine().FindStringSubmatch(line); m != nil {
			found.Set(m[1], value.Strings(strings.Split(m[2], ", ")))
		}
	}
	return found, err
}

var gemUpgrade = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(\S+) \(\S+ < (\S+)\)`) })

func (g gem) listUpgrades(ctx context.Context, c *fn.Call, a gemArgs) (*value.Dict, error) {
	out, err := g.run(ctx, c, a, "outdated")
	found := value.NewDict(8)
	for line := range strings.SplitSeq(out, "\n") {
		if m := gemUpgrade().FindStringSubmatch(line); m != nil {
			found.Set(m[1], m[2])
		}
	}
	return found, err
}

func (g gem) sourcesAdd(ctx context.Context, c *fn.Call, a gemArgs) (string, error) {
	return g.run(ctx, c, a, "sources", "--add", a.Source)
}

func (g gem) sourcesRemove(ctx context.Context, c *fn.Call, a gemArgs) (string, error) {
	return g.run(ctx, c, a, "sources", "--remove", a.Source)
}

func (g gem) sourcesList(ctx context.Context, c *fn.Call, a gemArgs) ([]string, error) {
	out, err := g.run(ctx, c, a, "sources")
	lines := strings.Split(out, "\n")
	if len(lines) < 3 { // two header lines come first
		return []string{}, err
	}
	return lines[2:], err
}
