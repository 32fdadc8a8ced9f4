package packages

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/packages"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// apart returns the functions that need Debian's tools.
func (p pkg) apart() []fn.Func {
	return []fn.Func{
		fn.Of("info_installed", p.infoInstalled, `Return what is known of installed packages.`,
			fn.Example("salt '*' pkg.info_installed bash failhard=false")),
		fn.Of("show", p.show, `Return what the lists of packages say of packages, by version.`,
			fn.Example("salt '*' pkg.show bash filter=description-md5,provides")),
		fn.Of("get_selections", p.getSelections, `Return the packages by what is wanted of them: install, hold, deinstall or purge.`,
			fn.Example("salt '*' pkg.get_selections state=hold")),
		fn.Of("set_selections", p.setSelections, `Set what is wanted of packages: install, hold, deinstall or purge.`,
			fn.Example(`salt '*' pkg.set_selections selection='{"hold": ["openssh-server"]}'`)),
		fn.Of("list_downloaded", p.listDownloaded, `Return the packages that were fetched and are kept, by version.`,
			fn.Example("salt '*' pkg.list_downloaded")),
		fn.Of("list_repos", p.listRepos, `Return the repositories by their addresses, or with dnf by their names.`, fn.Example("salt '*' pkg.list_repos")),
		fn.Of("get_repo", p.getRepo,
			`Return a repository given by a line as it would be in apt's sources, or with dnf by its name; an empty map if there is none.`,
			fn.Example(`salt '*' pkg.get_repo "deb http://deb.debian.org/debian bookworm main"`)),
		fn.Of("mod_repo", p.modRepo, `Add a repository given by a line of apt's sources, or change it.
			Keywords: comps and architectures (with commas), disabled or enabled, comments, file, refresh, and for
			its key keyid with keyserver, key_url, or key_text.
			With dnf it is given by its name, and the keywords are its options.`,
			fn.Example(`salt '*' pkg.mod_repo "deb [signed-by=/etc/apt/keyrings/x.gpg] http://example.com/debian stable main" refresh=False`)),
		fn.Of("services_need_restart", p.needRestart, `Return the services that run programs which have been upgraded since, as checkrestart(1) finds them.`,
			fn.Example("salt '*' pkg.services_need_restart")),
		fn.Of("del_repo", p.delRepo, `Remove a repository, or the components that the line names, from apt's sources.`,
			fn.Example(`salt '*' pkg.del_repo "deb http://example.com/debian stable main"`)),
	}
}

type keywords struct {
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (p pkg) needRestart(ctx context.Context, c *fn.Call, _ keywords) (*value.List, error) {
	if _, err := p.apt(c, "pkg.services_need_restart"); err != nil {
		return nil, err
	}
	if p.m.Which("checkrestart") == "" {
		return nil, &fn.ProgramError{Reason: "'checkrestart' is needed. It is part of the 'debian-goodies' package which can be installed from " +
			"official repositories."}
	}
	out, err := p.m.Do(ctx, "checkrestart", "--machine", "--package")
	if err != nil {
		return nil, fn.Errorf("cannot run checkrestart: %w", err)
	}
	found := map[string]bool{}
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		if text, ok := strings.CutPrefix(line, "SERVICE:"); ok {
			name, _, _ := strings.Cut(text, ",")
			found[name] = true
		}
	}
	return value.Strings(slices.Sorted(maps.Keys(found))), nil
}

// infoNames maps fields to their names in pkg.info_installed.
var infoNames = map[string]string{"package": "name", "origin": "vendor", "section": "group", "maintainer": "packager", "homepage": "url"}

func (p pkg) infoInstalled(ctx context.Context, c *fn.Call, a namesArgs) (*value.Dict, error) {
	apt, err := p.apt(c, "pkg.info_installed")
	if err != nil {
		return nil, err
	}
	list, err := informed(ctx, apt, a)
	out := value.NewDict(len(list))
	for _, info := range list {
		if s := info["status"]; len(s) > 1 && s[1] != 'i' {
			continue
		}
		d := value.NewDict(len(info))
		for _, k := range slices.Sorted(maps.Keys(info)) {
			if name, ok := infoNames[k]; ok {
				d.Set(name, info[k])
			} else if k != "status" {
				d.Set(k, info[k])
			}
		}
		out.Set(info["package"], d)
	}
	return out, err
}

// informed returns what dpkg knows of packages. Unknown packages are an error,
// unless the keyword failhard is false.
func informed(ctx context.Context, apt packages.Apt, a namesArgs) ([]packages.Info, error) {
	list, err := apt.Info(ctx, a.texts())
	if err != nil && isTrue(a.Kwargs.At("failhard"), true) {
		return nil, fn.Errorf("Error getting packages information: %s", strings.TrimPrefix(err.Error(), "dpkg-query failed: "))
	}
	return list, nil
}

func (p pkg) show(ctx context.Context, c *fn.Call, a namesArgs) (*value.Dict, error) {
	apt, err := p.apt(c, "pkg.show")
	if err != nil {
		return nil, err
	}
	if isTrue(a.Kwargs.At("refresh"), false) {
		if _, err := p.refresh(ctx, c, packages.Options{}, 0); err != nil {
			return nil, err
		}
	}
	out := value.NewDict(0)
	if len(a.Names) == 0 {
		return out, nil
	}
	var wanted []string
	switch f := a.Kwargs.At("filter").(type) {
	case string:
		wanted = strings.Split(strings.ToLower(f), ",")
	case *value.List:
		for _, it := range f.Items {
			wanted = append(wanted, strings.ToLower(value.Str(it)))
		}
	}
	entries, err := apt.Show(ctx, a.texts())
	if err != nil {
		return nil, expected(err)
	}
	for _, e := range entries {
		name, version := e["Package"], e["Version"]
		if name == "" || version == "" {
			continue
		}
		d := value.NewDict(len(e))
		for _, k := range slices.Sorted(maps.Keys(e)) {
			if k == "Package" || k == "Version" || len(wanted) > 0 && !slices.Contains(wanted, strings.ToLower(k)) {
				continue
			}
			first, _, _ := strings.Cut(e[k], "\n")
			d.Set(k, first)
		}
		if !out.Has(name) {
			out.Set(name, value.NewDict(1))
		}
		out.Dict(name).Set(version, d)
	}
	return out, nil
}

type selectionsArgs struct {
	Pattern any `salt:"pattern" doc:"names, * stands for anything; null for all" default:"null"`
	State   any `salt:"state" doc:"the only state of interest" default:"null"`
}

func (p pkg) getSelections(ctx context.Context, c *fn.Call, a selectionsArgs) (*value.Dict, error) {
	apt, err := p.apt(c, "pkg.get_selections")
	if err != nil {
		return nil, err
	}
	all, err := apt.Selections(ctx)
	if err != nil {
		return nil, expected(err)
	}
	pattern := "*"
	if value.Truth(a.Pattern) {
		pattern = value.Str(a.Pattern)
	}
	out := value.NewDict(4)
	if value.Truth(a.State) {
		out.Set(a.State, &value.List{})
	}
	for _, name := range packages.Match(all, []string{pattern}) {
		state := all[name]
		if value.Truth(a.State) && state != a.State {
			continue
		}
		if !out.Has(state) {
			out.Set(state, &value.List{})
		}
		out.At(state).(*value.List).Append(name)
	}
	return out, nil
}

type setSelectionsArgs struct {
	Path      any    `salt:"path" doc:"file with lines of name and state" default:"null"`
	Selection any    `salt:"selection" doc:"map from state to a list of names" default:"null"`
	Clear     bool   `salt:"clear" doc:"forget all other selections first" default:"false"`
	Saltenv   string `salt:"saltenv" doc:"environment of the file" default:"base"`
}

func (p pkg) setSelections(ctx context.Context, c *fn.Call, a setSelectionsArgs) (*value.Dict, error) {
	apt, err := p.apt(c, "pkg.set_selections")
	if err != nil {
		return nil, err
	}
	wanted, err := selection(ctx, c, a)
	if err != nil {
		return nil, err
	}
	before, err := apt.Selections(ctx)
	if err != nil {
		return nil, expected(err)
	}
	testing := value.Truth(c.Config.Get("test"))
	if a.Clear && wanted.Len() > 0 && !testing {
		if err := apt.ClearSelections(ctx); err != nil {
			return nil, fn.Errorf("Running dpkg --clear-selections failed: %w", err)
		}
	}
	out := value.NewDict(0)
	for state := range wanted.All() {
		for _, name := range wanted.List(value.Str(state)) {
			name := value.Str(name)
			if before[name] == state || testing {
				continue
			}
			if err := apt.Select(ctx, []string{name}, value.Str(state)); err != nil {
				c.Log.Error("cannot set the selection of a package", "package", name, "state", state, "err", err)
				continue
			}
			var old any
			if s, ok := before[name]; ok {
				old = s
			}
			out.Set(name, value.DictOf("old", old, "new", state))
		}
	}
	return out, nil
}

// selection reads the wanted selections, by state.
func selection(ctx context.Context, c *fn.Call, a setSelectionsArgs) (*value.Dict, error) {
	hasPath := value.Truth(a.Path)
	if hasPath && value.Truth(a.Selection) {
		return nil, fn.Invalidf("The 'selection' and 'path' arguments to pkg.set_selections are mutually exclusive, and cannot be specified together")
	}
	v := a.Selection
	if s, ok := v.(string); ok {
		var err error
		if v, err = yaml.Load([]byte(s), "selection"); err != nil {
			return nil, fn.Invalidf("Improperly-formatted selection: %w", err)
		}
	}
	wanted, _ := v.(*value.Dict)
	if hasPath {
		b, err := c.Files.Read(ctx, value.Str(a.Path), a.Saltenv)
		if err != nil {
			return nil, fn.Errorf("cannot read the selections: %w", err)
		}
		wanted = value.NewDict(4)
		for line := range strings.SplitSeq(string(b), "\n") {
			if f := strings.Fields(line); len(f) == 2 {
				if !wanted.Has(f[1]) {
					wanted.Set(f[1], &value.List{})
				}
				wanted.At(f[1]).(*value.List).Append(f[0])
			}
		}
	}
	var bad []string
	for state := range wanted.All() {
		if !slices.Contains([]any{"install", "hold", "deinstall", "purge"}, state) {
			bad = append(bad, value.Str(state))
		}
	}
	if len(bad) > 0 {
		return nil, fn.Invalidf("Invalid state(s): %s", strings.Join(bad, ", "))
	}
	return wanted, nil
}

type kwargsOnly struct {
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func shownRepo(r packages.Repo) *value.Dict {
	return value.DictOf("file", r.File, "comps", value.Strings(r.Comps), "disabled", r.Disabled, "dist", r.Dist, "type", r.Type, "uri", r.URI,
		"line", strings.TrimSpace(r.Line), "architectures", value.Strings(r.Architectures), "signedby", r.SignedBy)
}

func (p pkg) listRepos(_ context.Context, c *fn.Call, a kwargsOnly) (*value.Dict, error) {
	if k, directories, ok := p.keeper(c, a.Kwargs.Dict); ok {
		return listSections(k, directories), nil
	}
	apt, err := p.apt(c, "pkg.list_repos")
	if err != nil {
		return nil, err
	}
	repos, err := apt.Repos()
	if err != nil {
		return nil, expected(err)
	}
	out := value.NewDict(len(repos))
	for _, r := range repos {
		if !out.Has(r.URI) {
			out.Set(r.URI, &value.List{})
		}
		out.At(r.URI).(*value.List).Append(shownRepo(r))
	}
	return out, nil
}

type repoArgs struct {
	Repo   string    `salt:"repo" doc:"line of apt's sources"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// find returns all repositories, and the one that a line describes.
func (p pkg) find(c *fn.Call, line string) (a packages.Apt, want packages.Repo, all []packages.Repo, err error) {
	if a, err = p.apt(c, "changing repositories"); err != nil {
		return a, want, nil, err
	}
	if strings.HasPrefix(line, "ppa:") {
		if line, err = ppaLine(c, line); err != nil {
			return a, want, nil, err
		}
	}
	if want, err = packages.ParseRepo(line); err != nil {
		return a, want, nil, fn.Invalidf("%w", err)
	}
	all, err = a.Repos()
	return a, want, all, expected(err)
}

// share reports whether two repositories have a component in common, or name
// none.
func share(want, have packages.Repo) bool {
	return len(want.Comps) == 0 || slices.ContainsFunc(want.Comps, func(comp string) bool { return slices.Contains(have.Comps, comp) })
}

func (p pkg) getRepo(_ context.Context, c *fn.Call, a repoArgs) (*value.Dict, error) {
	if k, directories, ok := p.keeper(c, a.Kwargs.Dict); ok {
		if _, s := findSection(k, directories, a.Repo); s != nil {
			return shownSection(s, false), nil
		}
		return value.NewDict(0), nil
	}
	_, want, all, err := p.find(c, a.Repo)
	if errors.Is(err, packages.ErrNoRepo) {
		return value.NewDict(0), nil // an invalid line matches no repository
	}
	if strings.HasPrefix(a.Repo, "ppa:") && !hasPPAs(c) {
		return value.NewDict(0), nil // Salt rejects it only in functions that write
	}
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Same(want) && share(want, r) {
			return shownRepo(r), nil
		}
	}
	return value.NewDict(0), nil
}

type modRepoArgs struct {
	Repo    string    `salt:"repo" doc:"line of apt's sources"`
	Saltenv string    `salt:"saltenv" doc:"environment of files to fetch" default:"base"`
	AptKey  any       `salt:"aptkey" doc:"keys without signed-by go to apt-key(8), if there is such a program" default:"true"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

// hasPPAs reports whether the system supports archives on Launchpad (PPAs).
func hasPPAs(c *fn.Call) bool {
	os, _ := c.Grains.Get("os").(string)
	return os == "Ubuntu" || os == "Mint" || os == "neon" || os == "Linux Mint"
}

// ppaLine returns the line in apt's sources for an archive on Launchpad.
func ppaLine(c *fn.Call, name string) (string, error) {
	owner, archive, ok := strings.Cut(strings.TrimPrefix(name, "ppa:"), "/")
	release, _ := c.Grains.Get("oscodename").(string)
	switch {
	case !hasPPAs(c):
		return "", fn.Invalidf("cannot parse \"ppa:\" style repo definitions: %s", name)
	case !ok || owner == "" || archive == "":
		return "", fn.Invalidf("Unable to get PPA info from argument. Expected format \"<PPA_OWNER>/<PPA_NAME>\" (e.g. saltstack/salt) not found.  "+
			"Received '%s' instead.", name)
	}
	return "deb http://ppa.launchpad.net/" + owner + "/" + archive + "/ubuntu " + release + " main", nil
}

// addPPA adds an archive on Launchpad and its key with apt-add-repository(1),
// which knows their URLs.
func (p pkg) addPPA(ctx context.Context, c *fn.Call, a modRepoArgs) (*value.Dict, error) {
	if _, err := ppaLine(c, a.Repo); err != nil {
		return nil, err
	}
	switch {
	case value.Truth(a.Kwargs.At("ppa_auth")):
		return nil, fn.Invalidf("ppa_auth is not supported: give the line of apt's sources, and its key")
	case p.m.Which("apt-add-repository") == "":
		return nil, fn.Errorf("apt-add-repository is missing: install the package software-properties-common")
	}
	out, err := p.m.Do(ctx, "apt-add-repository", append([]string{"-y"}, host.Operands(a.Repo)...)...)
	if err != nil {
		return nil, expected(err)
	}
	if out.Exit != 0 {
		return nil, fn.Errorf("Unable to add PPA '%s'. 'apt-add-repository -y' exited with status %d: '%s' ", strings.TrimPrefix(a.Repo, "ppa:"), out.Exit,
			out.Stderr)
	}
	if isTrue(a.Kwargs.At("refresh"), true) {
		if _, err := p.refresh(ctx, c, packages.Options{}, 0); err != nil {
			return nil, err
		}
	}
	return value.DictOf(a.Repo, value.DictOf("retcode", int64(0), "stdout", out.Stdout, "stderr", out.Stderr)), nil
}

func (p pkg) modRepo(ctx context.Context, c *fn.Call, a modRepoArgs) (*value.Dict, error) {
	if k, directories, ok := p.keeper(c, a.Kwargs.Dict); ok {
		return modSection(k, directories, a.Repo, a.Kwargs.Dict)
	}
	if strings.HasPrefix(a.Repo, "ppa:") {
		return p.addPPA(ctx, c, a)
	}
	apt, want, all, err := p.find(c, a.Repo)
	if err != nil {
		return nil, err
	}
	if err := p.trust(ctx, c, want, a); err != nil {
		return nil, err
	}
	r := want
	if v, ok := a.Kwargs.Get("comps"); ok {
		r.Comps = slices.Compact(append(r.Comps, value.Words(v)...))
	}
	if v, ok := a.Kwargs.Get("architectures"); ok {
		r.Architectures = value.Words(v)
	}
	if v, ok := a.Kwargs.Get("comments"); ok {
		r.Comment = strings.Join(value.Words(v), " ")
	}
	if v, ok := a.Kwargs.Get("disabled"); ok {
		r.Disabled = isTrue(v, false)
	} else if v, ok := a.Kwargs.Get("enabled"); ok {
		r.Disabled = !isTrue(v, true)
	}
	if f := a.Kwargs.Str("file"); f != "" {
		r.File = f
	}
	var old *packages.Repo
	for i := range all {
		if all[i].Same(want) && (share(want, all[i]) || len(all[i].Comps) == 0) {
			old, r.File = &all[i], all[i].File
			break
		}
	}
	if err := apt.SetRepo(old, r); err != nil {
		return nil, expected(err)
	}
	if isTrue(a.Kwargs.At("refresh"), true) {
		if _, err := p.refresh(ctx, c, packages.Options{}, 0); err != nil {
			return nil, err
		}
	}
	return value.DictOf(a.Repo, value.DictOf("architectures", value.Strings(r.Architectures), "comps", value.Strings(r.Comps), "disabled", r.Disabled,
		"file", r.File, "type", r.Type, "uri", r.URI, "line", r.String()+"\n", "signedby", r.SignedBy)), nil
}

func (p pkg) delRepo(ctx context.Context, c *fn.Call, a repoArgs) (string, error) {
	if k, directories, ok := p.keeper(c, a.Kwargs.Dict); ok {
		return delSection(k, directories, a.Repo)
	}
	apt, want, all, err := p.find(c, a.Repo)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, r := range all {
		if !r.Same(want) || !slices.Equal(r.Architectures, want.Architectures) || !share(want, r) {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(r.Comps), func(comp string) bool { return slices.Contains(want.Comps, comp) })
		if len(left) > 0 && len(want.Comps) > 0 {
			r, changed := r, r
			changed.Comps = left
			err = apt.SetRepo(&r, changed)
		} else {
			err = apt.RemoveRepo(r)
		}
		if err != nil {
			return "", expected(err)
		}
		if p.m.Exists(r.File) {
			text.WriteString("Repo '" + a.Repo + "' has been removed from " + r.File + ".\n")
		} else {
			text.WriteString("File " + r.File + " containing repo '" + a.Repo + "' has been removed.")
		}
	}
	if text.Len() == 0 {
		return "", fn.Errorf("Repo %s doesn't exist in the sources.list(s)", a.Repo)
	}
	if isTrue(a.Kwargs.At("refresh"), true) {
		_, err = p.refresh(ctx, c, packages.Options{}, 0)
	}
	return text.String(), err
}
