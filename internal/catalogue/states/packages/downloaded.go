package packages

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type downloadArgs struct {
	words
	From any `salt:"fromrepo" doc:"only repository, with apt the release that is preferred" default:"null"`
}

func downloaded(ctx context.Context, e *state.Env, a downloadArgs) (state.Plan, error) {
	p := pkg{e, a.Kwargs.Clone()}
	p.options.Delete("downloadonly")
	switch {
	case !p.can("list_downloaded"):
		return state.Plan{}, fn.Errorf("The pkg.downloaded state is not available on this platform")
	case a.none():
		return state.Plan{Comment: "No packages to download provided"}, nil
	}
	l, err := a.list()
	if err != nil {
		return state.Plan{}, err
	}
	wanted, err := p.named(ctx, l, a.Plain)
	if err != nil {
		return state.Plan{}, err
	}
	have, err := p.fetched(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	targets, spec := value.NewDict(wanted.Len()), false
	for name, version := range wanted.All() {
		there := have.Has(name)
		if there && value.Truth(version) {
			spec = true
			if there, err = p.fulfills(ctx, value.Texts(have.At(name)), value.Str(version), a.Epoch, false); err != nil {
				return state.Plan{}, err
			}
		}
		if !there {
			targets.Set(name, version)
		}
	}
	switch {
	case targets.Len() == 0 && spec:
		return state.Plan{Comment: "All specified packages (matching specified versions) are already downloaded"}, nil
	case targets.Len() == 0:
		return state.Plan{Comment: "All specified packages are already downloaded"}, nil
	}
	names := strings.Join(keys(targets), ", ")
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "The following packages would be downloaded: " + names},
		Do: func(ctx context.Context) (state.Change, error) {
			kw := value.DictOf("name", given(a.Name), "pkgs", l, "version", nil, "downloadonly", true, "fromrepo", a.From, "ignore_epoch", a.Epoch)
			v, err := p.exec(ctx, "install", kw)
			if err != nil {
				return failure(err, "An error was encountered while downloading package(s)")
			}
			changes, _ := v.(*value.Dict)
			have, err := p.fetched(ctx)
			if err != nil {
				return state.Change{Diff: changes}, err
			}
			var failed []string
			for name, version := range targets.All() {
				ok, err := p.verified(ctx, value.Str(name), version, have)
				if err != nil {
					return state.Change{Diff: changes}, err
				}
				if !ok {
					failed = append(failed, withVersion(value.Str(name), version))
				}
			}
			if len(failed) > 0 {
				return state.Change{Diff: changes}, fn.Errorf("The following packages failed to download: %s", strings.Join(failed, ", "))
			}
			c := state.Change{Diff: changes}
			if changes.Len() == 0 {
				c.Comment = "Packages downloaded: " + names
			}
			return c, nil
		},
	}}}, nil
}

// fetched returns the versions of downloaded packages, as lists.
func (p pkg) fetched(ctx context.Context) (*value.Dict, error) {
	v, err := p.exec(ctx, "list_downloaded", nil)
	d, _ := v.(*value.Dict)
	out := value.NewDict(d.Len())
	for name, versions := range d.All() {
		one, _ := versions.(*value.Dict)
		out.Set(name, value.Strings(keys(one)))
	}
	return out, err
}

type patchArgs struct {
	Name     string    `salt:"name" doc:"id of the advisory, unless advisory_ids is given"`
	IDs      any       `salt:"advisory_ids" doc:"list of ids of advisories" default:"null"`
	Download any       `salt:"downloadonly" doc:"fetch packages and change nothing" default:"null"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func patchDownloaded(ctx context.Context, e *state.Env, a patchArgs) (state.Plan, error) {
	a.Download = true
	return patches(ctx, e, a, "pkg.patch_downloaded")
}

func patchInstalled(ctx context.Context, e *state.Env, a patchArgs) (state.Plan, error) {
	return patches(ctx, e, a, "pkg.patch_installed")
}

func patches(ctx context.Context, e *state.Env, a patchArgs, fun string) (state.Plan, error) {
	p := pkg{e, a.Kwargs.Dict}
	if !p.can("list_patches") {
		return state.Plan{}, fn.Errorf("The %s state is not available on this platform", fun)
	}
	if l, ok := a.IDs.(*value.List); ok && l.Len() == 0 {
		return state.Plan{Comment: "No advisory ids provided"}, nil
	}
	v, err := p.exec(ctx, "list_installed_patches", nil)
	if err != nil {
		return state.Plan{}, err
	}
	have, _ := v.(*value.Dict)
	ids := value.Texts(a.IDs)
	if len(ids) == 0 {
		if ids = []string{a.Name}; value.Truth(have.At(a.Name)) {
			return state.Plan{Comment: "Advisory patch " + a.Name + " is already installed"}, nil
		}
	}
	var targets []string
	for _, id := range ids {
		if !value.Truth(have.At(id)) {
			targets = append(targets, id)
		}
	}
	if len(targets) == 0 {
		return state.Plan{Comment: "All specified advisory patches are already installed"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "The following advisory patches would be downloaded: " + strings.Join(targets, ", ")},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := p.exec(ctx, "install", value.DictOf("name", a.Name, "advisory_ids", a.IDs, "downloadonly", a.Download))
			if err != nil {
				return failure(err, "An error was encountered while downloading package(s)")
			}
			changes, _ := v.(*value.Dict)
			c := state.Change{Diff: changes}
			if changes.Len() == 0 {
				c.Comment = "Advisory patch is not needed or related packages are already installed"
				if value.Truth(a.Download) {
					c.Comment = "Advisory patch is not needed or related packages are already downloaded"
				}
			}
			return c, nil
		},
	}}}, nil
}

type groupArgs struct {
	Name    string    `salt:"name" doc:"name of the group of packages"`
	Skip    any       `salt:"skip" doc:"list of default packages to leave out" default:"null"`
	Include any       `salt:"include" doc:"list of further packages of the group" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func groupInstalled(ctx context.Context, e *state.Env, a groupArgs) (state.Plan, error) {
	p := pkg{e, a.Kwargs.Dict}
	if !p.can("group_diff") {
		return state.Plan{}, fn.Errorf("pkg.group_install not available for this platform")
	}
	for _, given := range []struct {
		name string
		v    any
	}{{"skip", a.Skip}, {"include", a.Include}} {
		if _, ok := given.v.(*value.List); given.v != nil && !ok {
			return state.Plan{}, fn.Errorf("%s must be formatted as a list", given.name)
		}
	}
	v, err := p.exec(ctx, "group_diff", nil, a.Name)
	if err != nil {
		return state.Plan{}, fn.Errorf("An error was encountered while installing/updating group '%s': %w.", a.Name, err)
	}
	d, _ := v.(*value.Dict)
	part := func(kind, what string) []string { return value.Texts(d.Dict(kind).At(what)) }
	skip := map[string]bool{}
	for _, name := range value.Texts(a.Skip) {
		skip[name] = true
	}
	var refused []string
	for _, what := range []string{"installed", "not installed"} {
		for _, name := range part("mandatory", what) {
			if skip[name] {
				refused = append(refused, name)
			}
		}
	}
	if len(refused) > 0 {
		return state.Plan{}, fn.Errorf("The following mandatory packages cannot be skipped: %s", strings.Join(refused, ", "))
	}
	targets := part("mandatory", "not installed")
	for _, name := range part("default", "not installed") {
		if !skip[name] {
			targets = append(targets, name)
		}
	}
	targets = append(targets, value.Texts(a.Include)...)
	if len(targets) == 0 {
		return state.Plan{Comment: "Group '" + a.Name + "' is already installed"}, nil
	}
	predicted, done := "will be installed", "was installed"
	if len(part("mandatory", "installed"))+len(part("default", "installed"))+len(part("optional", "installed")) > 0 {
		predicted, done = "is partially installed and will be updated", "was updated"
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Group '" + a.Name + "' " + predicted},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := p.exec(ctx, "install", value.DictOf("pkgs", value.Strings(targets)))
			if err != nil {
				return failure(err, "An error was encountered while installing/updating group '"+a.Name+"'")
			}
			changes, _ := v.(*value.Dict)
			have, err := p.installed(ctx)
			if err != nil {
				return state.Change{Diff: changes}, err
			}
			var failed []string
			for _, name := range targets {
				if !have.Has(name) {
					failed = append(failed, name)
				}
			}
			if len(failed) > 0 {
				return state.Change{Diff: changes}, fn.Errorf("Failed to install the following packages: %s", strings.Join(failed, ", "))
			}
			return state.Change{Diff: changes, Comment: "Group '" + a.Name + "' " + done}, nil
		},
	}}}, nil
}
