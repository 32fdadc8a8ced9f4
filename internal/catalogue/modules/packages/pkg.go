package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/packages"
	"brine/internal/py/value"
)

type pkg struct{ m *host.Machine }

func init() { units.Register("pkg", pkgModule) }

func pkgModule(m *host.Machine) fn.Module {
	p := pkg{m}
	reading := []fn.Func{
		fn.Of("list_pkgs", p.listPkgs, `Return the versions of all installed packages.`, fn.Example("salt '*' pkg.list_pkgs versions_as_list=true")),
		fn.Of("version", p.version, `Return the installed versions of packages, named or by pattern; an empty text for what is not installed.`,
			fn.Example("salt '*' pkg.version bash")),
		fn.Of("latest_version", p.latestVersion,
			`Return the versions to which packages could be upgraded, or that could be installed; an empty text if there is none.
			The keyword refresh fetches the lists of packages first unless it is false, fromrepo names the only repository.`,
			fn.Example("salt '*' pkg.latest_version bash refresh=false")),
		fn.Of("available_version", p.latestVersion, `Same as pkg.latest_version.`, fn.Example("salt '*' pkg.available_version bash")),
		fn.Of("upgrade_available", p.upgradeAvailable, `Say whether a package could be upgraded or installed.`,
			fn.Example("salt '*' pkg.upgrade_available bash")),
		fn.Of("list_upgrades", p.listUpgrades, `Return the versions that an upgrade of all packages would install.`,
			fn.Example("salt '*' pkg.list_upgrades refresh=false")),
		fn.Of("refresh_db", p.refreshDB, `Fetch the lists of packages again.`, fn.Example("salt '*' pkg.refresh_db")),
		fn.Of("version_cmp", p.versionCmp, `Compare two versions: -1, 0 or 1.`, fn.Example("salt '*' pkg.version_cmp 0.2.4-0ubuntu1 0.2.4.1-0ubuntu1")),
		fn.Of("owner", p.owner, `Return the package that a file belongs to, or each of several files.`, fn.Example("salt '*' pkg.owner /usr/bin/apachectl")),
	}
	return fn.Module{Name: "pkg", When: p.when, Doc: `Packages of software: which are installed and which could be.`,
		Funcs: slices.Concat(reading, p.changing(), append(p.apart(), p.keyFunctions()...))}
}

// redHat lists systems with another os_family that use Red Hat's packages.
var redHat = []string{"amazon", "xcp", "xenserver", "virtuozzolinux", "virtuozzo", "issabel pbx", "openeuler"}

func family(grains fn.Reader) string {
	system, _ := grains.Get("os").(string)
	if slices.Contains(redHat, strings.ToLower(system)) {
		return "RedHat"
	}
	name, _ := grains.Get("os_family").(string)
	return name
}

func (p pkg) when(grains fn.Reader) (string, bool) {
	switch family(grains) {
	case "Debian", "Alpine":
		return "", true
	case "RedHat":
		if !packages.HasYum(p.m) {
			return "neither dnf nor yum was found", false
		}
		return "", true
	}
	return "only available on systems of the families Debian, RedHat and Alpine", false
}

func (p pkg) manager(c *fn.Call) packages.Manager {
	arch, _ := c.Grains.Get("osarch").(string)
	return packages.For(p.m, family(c.Grains), arch)
}

// expected marks an error to be shown to users as it is.
func expected(err error) error {
	if err == nil {
		return nil
	}
	return fn.Errorf("%w", err)
}

// isTrue reads a boolean keyword that may be a string.
func isTrue(v any, otherwise bool) bool {
	if v == nil {
		return otherwise
	}
	return salt.IsTrue(v)
}

type listArgs struct {
	List    any       `salt:"versions_as_list" doc:"return lists of versions instead of texts with commas" default:"false"`
	Removed any       `salt:"removed" doc:"those that left their configuration behind" default:"false"`
	Purge   any       `salt:"purge_desired" doc:"those that wait to be removed with all files" default:"false"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (p pkg) listPkgs(ctx context.Context, c *fn.Call, a listArgs) (*value.Dict, error) {
	if attr := a.Kwargs.At("attr"); attr != nil {
		return nil, fn.Invalidf("attr is not known; leave it out to get the versions")
	}
	states := []packages.State{packages.Installed, packages.PurgeDesired}
	switch {
	case isTrue(a.Removed, false):
		states = []packages.State{packages.Removed}
	case isTrue(a.Purge, false):
		states = states[1:]
	}
	versions, err := p.installed(ctx, c, states...)
	if err != nil {
		return nil, err
	}
	return shown(versions, isTrue(a.List, false)), nil
}

// installed returns the versions of installed packages, sorted.
func (p pkg) installed(ctx context.Context, c *fn.Call, states ...packages.State) (map[string][]string, error) {
	list, err := p.manager(c).List(ctx)
	if err != nil {
		return nil, expected(err)
	}
	versions := map[string][]string{}
	for _, one := range list {
		if slices.Contains(states, one.State) && !slices.Contains(versions[one.Name], one.Version) {
			versions[one.Name] = append(versions[one.Name], one.Version)
			slices.Sort(versions[one.Name])
		}
	}
	return versions, nil
}

// shown returns versions by name, sorted by name.
func shown(versions map[string][]string, lists bool) *value.Dict {
	d := value.NewDict(len(versions))
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		if lists {
			d.Set(name, value.Strings(versions[name]))
		} else {
			d.Set(name, strings.Join(versions[name], ","))
		}
	}
	return d
}

// namesArgs are any number of names, and keywords.
type namesArgs struct {
	Names  fn.Args   `salt:"names"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (a namesArgs) texts() []string {
	names := make([]string, len(a.Names))
	for i, n := range a.Names {
		names[i] = value.Str(n)
	}
	return names
}

func (p pkg) version(ctx context.Context, c *fn.Call, a namesArgs) (any, error) {
	if len(a.Names) == 0 {
		return value.NewDict(0), nil
	}
	all, err := p.installed(ctx, c, packages.Installed, packages.PurgeDesired)
	if err != nil {
		return nil, err
	}
	found, several := map[string][]string{}, false
	for _, name := range a.texts() {
		if !strings.Contains(name, "*") {
			found[name] = all[name]
			continue
		}
		several = true
		glob := target.ParseGlob(name)
		for have, versions := range all {
			if glob.Match(have) {
				found[have] = versions
			}
		}
	}
	return single(shown(found, isTrue(a.Kwargs.At("versions_as_list"), false)), several), nil
}

// single returns the only value of a map instead of the map, unless several were
// requested.
func single(d *value.Dict, several bool) any {
	if d.Len() == 1 && !several {
		_, v := d.Entry(0)
		return v
	}
	return d
}

func options(kw *value.Dict) packages.Options {
	list := func(v any) []string {
		switch x := v.(type) {
		case nil:
		case *value.List:
			var out []string
			for _, it := range x.Items {
				out = append(out, value.Str(it))
			}
			return out
		default:
			if text := value.Str(v); text != "" {
				return []string{text}
			}
		}
		return nil
	}
	o := packages.Options{From: kw.Str("fromrepo"), Enable: list(kw.At("enablerepo")), Disable: list(kw.At("disablerepo"))}
	if o.From == "" {
		o.From = kw.Str("repo")
	}
	return o
}

func (p pkg) latestVersion(ctx context.Context, c *fn.Call, a namesArgs) (any, error) {
	if len(a.Names) == 0 {
		return "", nil
	}
	if family(c.Grains) == "Debian" && a.Kwargs.Has("repo") {
		return nil, fn.Invalidf("The 'repo' argument is invalid, use 'fromrepo' instead")
	}
	if isTrue(a.Kwargs.At("refresh"), true) {
		if _, err := p.refresh(ctx, c, options(a.Kwargs.Dict), a.Kwargs.Int("cache_valid_time")); err != nil {
			return nil, err
		}
	}
	names, m := a.texts(), p.manager(c)
	candidates, err := m.Candidates(ctx, names, options(a.Kwargs.Dict))
	if err != nil {
		return nil, expected(err)
	}
	have, err := p.installed(ctx, c, packages.Installed, packages.PurgeDesired)
	if err != nil {
		return nil, err
	}
	latest := value.NewDict(len(names))
	for _, name := range alternatives(names, candidates) {
		v := candidates[name]
		if !isTrue(a.Kwargs.At("show_installed"), false) && slices.ContainsFunc(have[name], func(old string) bool {
			order, err := m.Compare(ctx, old, v)
			return err == nil && order >= 0
		}) {
			v = ""
		}
		latest.Set(name, v)
	}
	if family(c.Grains) == "Debian" {
		return ofCandidates(latest, candidates), nil
	}
	return single(latest, false), nil
}

// ofCandidates returns what Salt's module for apt returns: only the version if
// exactly one of the requested packages exists, even if several were requested,
// and a map if a single one is unknown.
func ofCandidates(latest *value.Dict, candidates map[string]string) any {
	known := &value.List{}
	for name := range latest.All() {
		if _, ok := candidates[value.Str(name)]; ok {
			known.Append(name)
		}
	}
	if known.Len() == 1 {
		return latest.At(known.Items[0])
	}
	return latest
}

// alternatives adds, after each name that is not a package, the names for other
// architectures.
func alternatives(names []string, candidates map[string]string) []string {
	out := slices.Clone(names)
	for _, name := range names {
		if _, ok := candidates[name]; ok {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(candidates)) {
			if strings.HasPrefix(other, name+":") {
				out = append(out, other)
			}
		}
	}
	return out
}

type upgradeArgs struct {
	Name   string    `salt:"name" doc:"name of the package"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (p pkg) upgradeAvailable(ctx context.Context, c *fn.Call, a upgradeArgs) (bool, error) {
	v, err := p.latestVersion(ctx, c, namesArgs{Names: fn.Args{a.Name}, Kwargs: a.Kwargs})
	return err == nil && v != "", err
}

type upgradesArgs struct {
	Refresh any       `salt:"refresh" doc:"fetch the lists of packages first" default:"true"`
	Dist    any       `salt:"dist_upgrade" doc:"allow upgrades that add or remove other packages, with apt" default:"true"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (p pkg) listUpgrades(ctx context.Context, c *fn.Call, a upgradesArgs) (map[string]string, error) {
	o := options(a.Kwargs.Dict)
	o.Dist = isTrue(a.Dist, true)
	if isTrue(a.Refresh, true) {
		if _, err := p.refresh(ctx, c, o, a.Kwargs.Int("cache_valid_time")); err != nil {
			return nil, err
		}
	}
	found, err := p.manager(c).Upgrades(ctx, o)
	return found, expected(err)
}

type refreshArgs struct {
	CacheValidTime any       `salt:"cache_valid_time" doc:"seconds for which the lists count as new, with apt" default:"0"`
	Failhard       any       `salt:"failhard" doc:"fail if a list cannot be fetched, with apt" default:"false"`
	Kwargs         fn.Kwargs `salt:"kwargs"`
}

// refreshDB returns what Salt's module of each family does: a map of the sources
// for Debian, else one word.
func (p pkg) refreshDB(ctx context.Context, c *fn.Call, a refreshArgs) (any, error) {
	valid, _ := a.CacheValidTime.(int64)
	sources, err := p.refresh(ctx, c, options(a.Kwargs.Dict), valid)
	if err != nil {
		return nil, err
	}
	var failed []string
	d := value.NewDict(len(sources))
	for _, s := range sources {
		var word any
		switch {
		case s.Failed:
			word = false
			failed = append(failed, s.Name)
		case s.Fetched:
			word = true
		}
		d.Set(s.Name, word)
	}
	if family(c.Grains) != "Debian" {
		return single(d, false), nil
	}
	if len(failed) > 0 && isTrue(a.Failhard, false) {
		return nil, fn.Errorf("Error getting repos: %s", strings.Join(failed, ", "))
	}
	return d, nil
}

// clearRefreshMark removes the file by which Salt requests fetching the lists.
// The request, set by hand or by an earlier Salt, must not be repeated.
func clearRefreshMark(c *fn.Call) {
	dir, _ := c.Config.Get("cachedir").(string)
	if dir == "" {
		return
	}
	if err := os.Remove(filepath.Join(dir, "pkg_refresh")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Warn("cannot remove the marker that requests a refresh of the package lists", "err", err)
	}
}

// refresh fetches the lists unless they are younger than valid, in seconds.
func (p pkg) refresh(ctx context.Context, c *fn.Call, o packages.Options, valid int64) ([]packages.Source, error) {
	clearRefreshMark(c)
	if valid > 0 && family(c.Grains) == "Debian" {
		st, err := os.Stat(p.m.Path("/var/lib/apt/lists"))
		if err == nil && time.Since(st.ModTime()) < time.Duration(valid)*time.Second {
			return nil, nil
		}
	}
	sources, err := p.manager(c).Refresh(ctx, o)
	return sources, expected(err)
}

type cmpArgs struct {
	A           any       `salt:"pkg1" doc:"a version"`
	B           any       `salt:"pkg2" doc:"another version"`
	IgnoreEpoch bool      `salt:"ignore_epoch" doc:"leave out what is before the first colon" default:"false"`
	Kwargs      fn.Kwargs `salt:"kwargs"`
}

func (p pkg) versionCmp(ctx context.Context, c *fn.Call, a cmpArgs) (int, error) {
	text := func(v any) string {
		s := value.Str(v)
		if _, rest, ok := strings.Cut(s, ":"); ok && a.IgnoreEpoch {
			return rest
		}
		return s
	}
	order, err := p.manager(c).Compare(ctx, text(a.A), text(a.B))
	return order, expected(err)
}

type pathsArgs struct {
	Paths  fn.Args   `salt:"paths"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (p pkg) owner(ctx context.Context, c *fn.Call, a pathsArgs) (any, error) {
	if len(a.Paths) == 0 {
		return "", nil
	}
	owners := value.NewDict(len(a.Paths))
	for _, path := range a.Paths {
		text := fmt.Sprint(path)
		name, err := p.manager(c).Owner(ctx, text)
		if err != nil {
			return nil, expected(err)
		}
		owners.Set(text, name)
	}
	return single(owners, false), nil
}
