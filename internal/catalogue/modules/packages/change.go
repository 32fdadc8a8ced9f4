package packages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/host/packages"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// changing returns the functions that install, upgrade and remove packages.
func (p pkg) changing() []fn.Func {
	return []fn.Func{
		fn.Of("install", p.install, `Install packages, or bring them to a version, and return what changed.
			Further keywords: version, for a single package; with apt only_upgrade, install_recommends, force_conf_new and cache_valid_time;
			with dnf enablerepo and disablerepo.`,
			fn.Example("salt '*' pkg.install nginx version=1.22.1-9"), fn.Example(`salt '*' pkg.install pkgs='["foo", {"bar": "1.2.3-0ubuntu0"}]'`)),
		fn.Of("remove", p.remove, `Remove packages and return what changed.`, fn.Example("salt '*' pkg.remove nginx")),
		fn.Of("purge", p.purge, `Remove packages with their configuration and return what changed.`, fn.Example("salt '*' pkg.purge pkgs='[foo, bar]'")),
		fn.Of("upgrade", p.upgrade, `Install the newest versions of all packages and return what changed.`, fn.Example("salt '*' pkg.upgrade refresh=False")),
		fn.Of("autoremove", p.autoremove, `Remove packages that were installed for others alone, or list them.`,
			fn.Example("salt '*' pkg.autoremove list_only=True")),
		fn.Of("hold", p.hold, `Make packages keep their version.`, fn.Example("salt '*' pkg.hold nginx")),
		fn.Of("unhold", p.unhold, `Let packages be upgraded again.`, fn.Example("salt '*' pkg.unhold nginx")),
		fn.Of("file_list", p.fileList, `Return the files of packages in one list.`, fn.Example("salt '*' pkg.file_list httpd")),
		fn.Of("file_dict", p.fileDict, `Return the files of packages by package.`, fn.Example("salt '*' pkg.file_dict httpd")),
		fn.Of("list_repo_pkgs", p.listRepoPkgs, `Return the versions that packages can be had in, newest first.`,
			fn.Example("salt '*' pkg.list_repo_pkgs bash")),
		fn.Of("normalize_name", p.normalizeName, `Return the name of a package without the machine's own architecture.`,
			fn.Example("salt '*' pkg.normalize_name zsh:amd64")),
		fn.Of("parse_arch", p.parseArch, `Return name and architecture of a package's name.`, fn.Example("salt '*' pkg.parse_arch zsh:amd64")),
	}
}

// changer returns the package manager for changes.
func (p pkg) changer(c *fn.Call) packages.Changer {
	return p.manager(c).(packages.Changer)
}

type installArgs struct {
	Name       any       `salt:"name" doc:"name of the package, or several with commas" default:"null"`
	Refresh    any       `salt:"refresh" doc:"fetch the lists of packages first" default:"false"`
	From       any       `salt:"fromrepo" doc:"only repository, with apt the release that is preferred" default:"null"`
	SkipVerify any       `salt:"skip_verify" doc:"do without signatures" default:"false"`
	Debconf    any       `salt:"debconf" doc:"URL or path of a file with answers to the questions of packages (Debian)" default:"null"`
	Pkgs       any       `salt:"pkgs" doc:"list of names, or of maps from name to version" default:"null"`
	Sources    any       `salt:"sources" doc:"list of maps from name to a file or URL of the package" default:"null"`
	Reinstall  any       `salt:"reinstall" doc:"install again what is there in this version" default:"false"`
	Download   any       `salt:"downloadonly" doc:"fetch packages and change nothing" default:"false"`
	Epoch      any       `salt:"ignore_epoch" ignored:"epochs count" default:"false"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

func (p pkg) install(ctx context.Context, c *fn.Call, a installArgs) (*value.Dict, error) {
	if value.Truth(a.Debconf) {
		if ok, err := c.Funcs.Call(ctx, c, "debconf.set_file", []any{a.Debconf}, nil); err != nil || ok != true {
			return nil, fn.Errorf("cannot set the answers of %s: %w", value.Str(a.Debconf), cmp.Or(err, errors.New("there is no such file")))
		}
	}
	o := packages.InstallOptions{Options: options(a.Kwargs.Dict), Reinstall: isTrue(a.Reinstall, false), DownloadOnly: isTrue(a.Download, false),
		SkipVerify: isTrue(a.SkipVerify, false), OnlyUpgrade: isTrue(a.Kwargs.At("only_upgrade"), false),
		NewConfig: isTrue(a.Kwargs.At("force_conf_new"), false)}
	if a.From != nil && a.From != "" {
		o.From = value.Str(a.From)
	}
	if v, ok := a.Kwargs.Get("install_recommends"); ok {
		on := isTrue(v, true)
		o.Recommends = &on
	}
	targets, err := p.targets(ctx, c, a)
	if err != nil || len(targets) == 0 {
		return value.NewDict(0), err
	}
	if isTrue(a.Refresh, false) {
		if _, err := p.refresh(ctx, c, options(a.Kwargs.Dict), a.Kwargs.Int("cache_valid_time")); err != nil {
			return nil, err
		}
	}
	changes, err := p.changer(c).Install(ctx, targets, o)
	return changesOr(changes, err, "Problem encountered installing package(s)")
}

// targets reads name, pkgs and sources; the last one given wins.
func (p pkg) targets(ctx context.Context, c *fn.Call, a installArgs) ([]packages.Target, error) {
	pkgs, sources := parsed(a.Pkgs), parsed(a.Sources)
	switch {
	case value.Truth(pkgs) && value.Truth(sources):
		return nil, fn.Invalidf("Only one of pkgs or sources can be specified.")
	case value.Truth(sources):
		return p.sources(ctx, c, sources, value.Str(orElse(a.Kwargs.At("saltenv"), "base")))
	case value.Truth(pkgs):
		return p.named(c, pkgs)
	case a.Name == nil || a.Name == "":
		return nil, nil
	}
	var targets []packages.Target
	for name := range strings.SplitSeq(value.Str(a.Name), ",") {
		t := packages.Target{Name: p.normal(c, strings.TrimSpace(name))}
		if v := a.Kwargs.At("version"); v != nil {
			t.Version = value.Str(v)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func orElse(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}

// parsed parses a string as YAML, since a list may be given as a string.
func parsed(v any) any {
	if s, ok := v.(string); ok {
		return yaml.LoadArg(s)
	}
	return v
}

// named reads a list of names and of maps from names to versions.
func (p pkg) named(c *fn.Call, v any) ([]packages.Target, error) {
	l, ok := v.(*value.List)
	if !ok {
		return nil, fn.Invalidf("pkgs must be a list, not %s", value.Repr(v))
	}
	var targets []packages.Target
	seen := map[string]bool{}
	add := func(name string, version any) {
		t := packages.Target{Name: p.normal(c, name)}
		if version != nil {
			t.Version = value.Str(version)
		}
		seen[t.Name] = true
		targets = append(targets, t)
	}
	for _, it := range l.Items {
		d, isMap := it.(*value.Dict)
		if !isMap {
			add(value.Str(it), nil)
		}
		for k, version := range d.All() {
			add(value.Str(k), version)
		}
	}
	if len(seen) != len(targets) {
		return nil, fn.Invalidf("You are passing a list of packages that contains duplicated packages names: %s. This cannot be processed. "+
			"In case you are targeting different versions of the same package, please target them individually", value.Repr(v))
	}
	return targets, nil
}

// sources reads a list of maps from names to files or URLs, and fetches the
// URLs.
func (p pkg) sources(ctx context.Context, c *fn.Call, v any, saltenv string) ([]packages.Target, error) {
	l, ok := v.(*value.List)
	if !ok {
		return nil, fn.Invalidf("sources must be a list, not %s", value.Repr(v))
	}
	var targets []packages.Target
	for _, it := range l.Items {
		d, ok := it.(*value.Dict)
		if !ok || d.Len() != 1 {
			return nil, fn.Invalidf("sources must be a list of maps with one entry each, not %s", value.Repr(v))
		}
		k, src := d.Entry(0)
		file := value.Str(src)
		if strings.Contains(file, "://") {
			path, err := c.Files.CacheFile(ctx, file, saltenv)
			if err != nil {
				return nil, fn.Errorf("cannot fetch %s: %w", file, err)
			}
			file = path
		}
		if !filepath.IsAbs(file) {
			return nil, fn.Invalidf("Path %s for package %s is either not absolute or an invalid protocol", file, value.Str(k))
		}
		targets = append(targets, packages.Target{Name: p.normal(c, value.Str(k)), File: file})
	}
	return targets, nil
}

// shownChanges returns {name: {old, new}}, sorted by name.
func shownChanges(changes packages.Changes) *value.Dict {
	d := value.NewDict(len(changes))
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		d.Set(name, value.DictOf("old", changes[name].Old, "new", changes[name].New))
	}
	return d
}

// changesOr returns changes, or an error with the changes made before it.
func changesOr(changes packages.Changes, err error, text string) (*value.Dict, error) {
	if err == nil {
		return shownChanges(changes), nil
	}
	return nil, problem(text, value.DictOf("errors", faults(err), "changes", shownChanges(changes)))
}

func faults(err error) *value.List {
	l := &value.List{}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			l.Append(e.Error())
		}
		return l
	}
	l.Append(err.Error())
	return l
}

// problem returns an error with details in Salt's form.
func problem(text string, info *value.Dict) error {
	err := fmt.Errorf("%s. Additional info follows:\n\n%s", text, output.Nested(info))
	return &fn.CommandError{Err: err, Info: info, Summary: text}
}

type removeArgs struct {
	Name   any       `salt:"name" doc:"name of the package, or several with commas; * stands for anything" default:"null"`
	Pkgs   any       `salt:"pkgs" doc:"list of names in place of name" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// names returns the names of the packages to remove. Without any, Salt's function for apt ends with an exception of
// Python that counts as wrong arguments, while the function that installs returns that nothing changed.
func (p pkg) names(c *fn.Call, a removeArgs) ([]string, error) {
	if !value.Truth(a.Name) && !value.Truth(a.Pkgs) && family(c.Grains) == "Debian" {
		return nil, &fn.ArgumentError{Err: errors.New("'NoneType' object is not iterable")}
	}
	targets, err := p.targets(context.Background(), c, installArgs{Name: a.Name, Pkgs: a.Pkgs})
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.Name
	}
	return names, err
}

const textRemoving = "Problem encountered removing package(s)"

func (p pkg) remove(ctx context.Context, c *fn.Call, a removeArgs) (*value.Dict, error) {
	names, err := p.names(c, a)
	if err != nil || len(names) == 0 {
		return value.NewDict(0), err
	}
	gone, _, err := p.changer(c).Remove(ctx, names, false)
	return changesOr(gone, err, textRemoving)
}

// purge also removes configuration. On Debian, the result distinguishes packages
// that were installed from those of which only the configuration was left.
func (p pkg) purge(ctx context.Context, c *fn.Call, a removeArgs) (*value.Dict, error) {
	names, err := p.names(c, a)
	if err != nil || len(names) == 0 {
		return value.NewDict(0), err
	}
	gone, left, err := p.changer(c).Remove(ctx, names, true)
	if err != nil || family(c.Grains) != "Debian" {
		return changesOr(gone, err, textRemoving)
	}
	if len(gone)+len(left) == 0 {
		return value.NewDict(0), nil
	}
	return value.DictOf("removed", shownChanges(left), "installed", shownChanges(gone)), nil
}

type upgradeAllArgs struct {
	Refresh any       `salt:"refresh" doc:"fetch the lists of packages first" default:"true"`
	Dist    any       `salt:"dist_upgrade" doc:"allow upgrades that add or remove other packages, with apt" default:"false"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (p pkg) upgrade(ctx context.Context, c *fn.Call, a upgradeAllArgs) (*value.Dict, error) {
	o := packages.InstallOptions{Options: options(a.Kwargs.Dict), NewConfig: isTrue(a.Kwargs.At("force_conf_new"), false),
		SkipVerify:   isTrue(a.Kwargs.At("skip_verify"), false),
		DownloadOnly: isTrue(a.Kwargs.At("download_only"), isTrue(a.Kwargs.At("downloadonly"), false))}
	o.Dist = isTrue(a.Dist, false)
	if family(c.Grains) == "Debian" && isTrue(a.Kwargs.At("allow_downgrades"), false) {
		o.Extra = []string{"--allow-downgrades"}
	}
	if isTrue(a.Refresh, true) {
		if _, err := p.refresh(ctx, c, o.Options, a.Kwargs.Int("cache_valid_time")); err != nil {
			return nil, err
		}
	}
	changes, err := p.changer(c).Upgrade(ctx, o)
	return changesOr(changes, err, "Problem encountered upgrading packages")
}

type autoremoveArgs struct {
	List  bool `salt:"list_only" doc:"only say what would be removed" default:"false"`
	Purge bool `salt:"purge" doc:"remove the configuration too" default:"false"`
}

func (p pkg) autoremove(ctx context.Context, c *fn.Call, a autoremoveArgs) (any, error) {
	if !a.List {
		changes, err := p.changer(c).AutoRemove(ctx, a.Purge)
		return changesOr(changes, err, textRemoving)
	}
	apt, err := p.apt(c, "pkg.autoremove with list_only")
	if err != nil {
		return nil, err
	}
	names, err := apt.Unneeded(ctx)
	return names, expected(err)
}

// apt returns Debian's package manager, or an error that says that a function
// needs it.
func (p pkg) apt(c *fn.Call, what string) (packages.Apt, error) {
	a, ok := packages.AptOf(p.manager(c))
	if !ok {
		return a, fn.Errorf("%s is only available with apt", what)
	}
	return a, nil
}

type holdArgs struct {
	Name    any       `salt:"name" doc:"name of the package" default:"null"`
	Pkgs    any       `salt:"pkgs" doc:"list of names in place of name" default:"null"`
	Sources any       `salt:"sources" doc:"list of maps whose keys are the names" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (a holdArgs) names() ([]string, error) {
	pkgs, sources := parsed(a.Pkgs), parsed(a.Sources)
	switch {
	case value.Truth(pkgs) && value.Truth(sources):
		return nil, fn.Invalidf("Only one of pkgs or sources can be specified.")
	case value.Truth(sources):
		pkgs = sources
	case value.Truth(pkgs):
	case value.Truth(a.Name):
		return []string{value.Str(a.Name)}, nil
	default:
		return nil, fn.Invalidf("One of name, pkgs, or sources must be specified.")
	}
	l, _ := pkgs.(*value.List)
	if l == nil {
		return []string{value.Str(pkgs)}, nil
	}
	var names []string
	for _, it := range l.Items {
		if d, ok := it.(*value.Dict); ok && d.Len() > 0 {
			it, _ = d.Entry(0)
		}
		names = append(names, value.Str(it))
	}
	return names, nil
}

func (p pkg) hold(ctx context.Context, c *fn.Call, a holdArgs) (*value.Dict, error) {
	return p.setHold(ctx, c, a, true)
}

func (p pkg) unhold(ctx context.Context, c *fn.Call, a holdArgs) (*value.Dict, error) {
	return p.setHold(ctx, c, a, false)
}

// setHold returns a result for each package in the form of state results.
func (p pkg) setHold(ctx context.Context, c *fn.Call, a holdArgs, hold bool) (*value.Dict, error) {
	names, err := a.names()
	if err != nil {
		return nil, err
	}
	m := p.changer(c)
	held, err := m.Held(ctx)
	if err != nil {
		return nil, expected(err)
	}
	words := map[bool][3]string{
		true:  {"is now being held", "is already set to be held", "is set to be held"},
		false: {"is no longer being held", "is already set not to be held", "is set not to be held"},
	}[hold]
	was, will := "install", "hold"
	if !hold {
		was, will = will, was
	}
	// Of dpkg, a package may have another selection, or none.
	var selected map[string]string
	apt, isApt := packages.AptOf(p.manager(c))
	if isApt {
		if selected, err = apt.Selections(ctx); err != nil {
			return nil, expected(err)
		}
	}
	out := value.NewDict(len(names))
	for _, name := range names {
		r := value.DictOf("name", name, "changes", value.NewDict(0), "result", true, "comment", fmt.Sprintf("Package %s %s.", name, words[1]))
		out.Set(name, r)
		now, known := selected[name]
		if isApt && !hold && !known {
			r.Set("result", false)
			r.Set("comment", fmt.Sprintf("Package %s does not have a state.", name))
			continue
		}
		if slices.Contains(held, name) == hold {
			continue
		}
		if value.Truth(c.Config.Get("test")) {
			r.Set("result", nil)
			r.Set("comment", fmt.Sprintf("Package %s %s.", name, words[2]))
			continue
		}
		if err := m.Hold(ctx, []string{name}, hold); err != nil {
			r.Set("result", false)
			r.Set("comment", err.Error())
			continue
		}
		change := value.DictOf("old", was, "new", will)
		if isApt {
			change.Set("old", nil)
			if known {
				change.Set("old", now)
			}
		}
		r.Set("changes", change)
		r.Set("comment", fmt.Sprintf("Package %s %s.", name, words[0]))
	}
	return out, nil
}

type packagesArgs struct {
	Packages fn.Args   `salt:"packages"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func (a packagesArgs) texts() []string { return namesArgs{Names: a.Packages}.texts() }

func (p pkg) fileList(ctx context.Context, c *fn.Call, a packagesArgs) (any, error) {
	files, err := p.changer(c).Files(ctx, a.texts())
	if err != nil {
		return "Error:  " + err.Error(), nil
	}
	all := map[string]bool{}
	for _, list := range files {
		for _, f := range list {
			all[f] = true
		}
	}
	return value.DictOf("errors", &value.List{}, "files", value.Strings(slices.Sorted(maps.Keys(all)))), nil
}

func (p pkg) fileDict(ctx context.Context, c *fn.Call, a packagesArgs) (any, error) {
	files, err := p.changer(c).Files(ctx, a.texts())
	if err != nil {
		return "Error:  " + err.Error(), nil
	}
	d := value.NewDict(len(files))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		d.Set(name, value.Strings(files[name]))
	}
	return value.DictOf("errors", &value.List{}, "packages", d), nil
}

type repoPkgsArgs struct {
	Names  fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (p pkg) listRepoPkgs(ctx context.Context, c *fn.Call, a repoPkgsArgs) (*value.Dict, error) {
	names := namesArgs{Names: a.Names}.texts()
	found := map[string][]string{}
	if apt, ok := packages.AptOf(p.manager(c)); ok {
		all, err := apt.Available(ctx, names)
		if err != nil {
			return nil, expected(err)
		}
		found = all
	} else {
		for _, name := range names {
			versions, err := p.changer(c).Versions(ctx, name, options(a.Kwargs.Dict))
			if err != nil {
				return nil, expected(err)
			}
			if len(versions) > 0 {
				found[name] = versions
			}
		}
	}
	d := value.NewDict(len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		d.Set(name, value.Strings(found[name]))
	}
	return d, nil
}

// separator returns the string between a package's name and its architecture.
func separator(c *fn.Call) string {
	if family(c.Grains) == "Debian" {
		return ":"
	}
	return "."
}

// normal strips the architecture from a name if it is the machine's own.
func (p pkg) normal(c *fn.Call, name string) string {
	if family(c.Grains) == "Alpine" {
		return name
	}
	i := strings.LastIndex(name, separator(c))
	if i < 0 {
		return name
	}
	own, _ := c.Grains.Get("osarch").(string)
	switch name[i+1:] {
	case own, "all", "any", "noarch":
		return name[:i]
	}
	return name
}

type nameArgs struct {
	Name string `salt:"name" doc:"name of the package"`
}

func (p pkg) normalizeName(_ context.Context, c *fn.Call, a nameArgs) (string, error) {
	return p.normal(c, a.Name), nil
}

func (p pkg) parseArch(_ context.Context, c *fn.Call, a nameArgs) (*value.Dict, error) {
	if i := strings.LastIndex(a.Name, separator(c)); i >= 0 && family(c.Grains) != "Alpine" {
		return value.DictOf("name", a.Name[:i], "arch", a.Name[i+1:]), nil
	}
	return value.DictOf("name", a.Name, "arch", nil), nil
}
