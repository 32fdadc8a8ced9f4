package packages

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"brine/internal/call/fn"
	hostpkgs "brine/internal/host/packages"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("gem", gemModule) }

// gemModule returns the states for Ruby packages.
func gemModule() state.Module {
	return state.Module{Name: "gem", Doc: `Keep packages of Ruby installed, or not, by way of gem.`, Funcs: []state.Func{
		state.Of("installed", gemInstalled, `Have a package of Ruby installed, possibly in a version.`),
		state.Of("removed", gemRemoved, `Have a package of Ruby not installed.`),
		state.Of("sources_add", gemSource("add"), `Have an address that packages come from.`),
		state.Of("sources_remove", gemSource("remove"), `Have an address that packages do not come from.`),
	}}
}

type gemRemovedArgs struct {
	Name string `salt:"name" doc:"name of the package"`
	Ruby any    `salt:"ruby" doc:"has no effect: RVM and rbenv are not asked" default:"null"`
	User any    `salt:"user" doc:"user to run gem as" default:"null"`
	Bin  any    `salt:"gem_bin" doc:"path of gem" default:"null"`
}

// versions returns the installed versions of the package, nil if there is none.
func (a gemRemovedArgs) versions(ctx context.Context, e *state.Env) ([]string, bool, error) {
	v, err := e.Exec(ctx, "gem.list", a.with(), a.Name)
	d, _ := v.(*value.Dict)
	return value.Texts(d.At(a.Name)), d.Has(a.Name), err
}

func (a gemRemovedArgs) with(more ...any) *value.Dict {
	return with(append(more, "ruby", a.Ruby, "gem_bin", a.Bin, "runas", a.User)...)
}

type gemInstalledArgs struct {
	Name        string `salt:"name" doc:"name of the package"`
	Ruby        any    `salt:"ruby" doc:"has no effect: RVM and rbenv are not asked" default:"null"`
	Bin         any    `salt:"gem_bin" doc:"path of gem" default:"null"`
	User        any    `salt:"user" doc:"user to run gem as" default:"null"`
	Version     any    `salt:"version" doc:"version, or condition such as >=1.2" default:"null"`
	Rdoc        bool   `salt:"rdoc" doc:"make documentation for RDoc" default:"false"`
	Ri          bool   `salt:"ri" doc:"make documentation for ri" default:"false"`
	PreReleases bool   `salt:"pre_releases" doc:"also versions that are not released" default:"false"`
	Proxy       any    `salt:"proxy" doc:"address of a proxy" default:"null"`
	Source      any    `salt:"source" doc:"address that the package comes from" default:"null"`
}

var gemCondition = regexp.MustCompile(`^(>=|>|<=|<)\s*(.*)$`)

// fulfilled reports whether the installed versions meet the requirement, and
// returns the comment.
func (a gemInstalledArgs) fulfilled(have []string) (string, bool) {
	const already = "Gem is already installed."
	if a.Version == nil {
		return already, true
	}
	want := value.Str(a.Version)
	m := gemCondition.FindStringSubmatch(want)
	if m == nil {
		return already, slices.Contains(have, want)
	}
	if len(have) == 0 {
		return "", false
	}
	c := hostpkgs.ComparePython(strings.TrimSpace(strings.TrimPrefix(have[0], "default: ")), strings.TrimSpace(m[2]))
	ok := map[string]bool{">=": c >= 0, ">": c > 0, "<=": c <= 0, "<": c < 0}[m[1]]
	return "Installed Gem meets version requirements.", ok
}

func gemInstalled(ctx context.Context, e *state.Env, a gemInstalledArgs) (state.Plan, error) {
	at := gemRemovedArgs{a.Name, a.Ruby, a.User, a.Bin}
	have, there, err := at.versions(ctx, e)
	if err != nil {
		return state.Plan{}, err
	}
	if comment, ok := a.fulfilled(have); there && ok {
		return state.Plan{Comment: comment}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "The gem " + a.Name + " would have been installed"},
		Do: func(ctx context.Context) (state.Change, error) {
			kw := at.with("version", a.Version, "rdoc", a.Rdoc, "ri", a.Ri, "pre_releases", a.PreReleases, "proxy", a.Proxy, "source", a.Source)
			v, err := e.Exec(ctx, "gem.install", kw, a.Name)
			if err == nil && !value.Truth(v) {
				err = fn.Errorf("Could not install gem.")
			}
			return made(err, value.DictOf(a.Name, "Installed"), "Gem was successfully installed")
		},
	}}}, nil
}

func gemRemoved(ctx context.Context, e *state.Env, a gemRemovedArgs) (state.Plan, error) {
	_, there, err := a.versions(ctx, e)
	if err != nil || !there {
		return state.Plan{Comment: "Gem is not installed."}, err
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "The gem " + a.Name + " would have been removed"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "gem.uninstall", a.with(), a.Name)
			if err == nil && !value.Truth(v) {
				err = fn.Errorf("Could not remove gem.")
			}
			return made(err, value.DictOf(a.Name, "Removed"), "Gem was successfully removed.")
		},
	}}}, nil
}

type gemSourceArgs struct {
	Name string `salt:"name" doc:"the address"`
	Ruby any    `salt:"ruby" doc:"has no effect: RVM and rbenv are not asked" default:"null"`
	User any    `salt:"user" doc:"user to run gem as" default:"null"`
}

func gemSource(what string) func(context.Context, *state.Env, gemSourceArgs) (state.Plan, error) {
	words := map[string][4]string{
		"add":    {"Gem source is already added.", "The gem source %s would have been added.", "Installed", "Gem source was successfully added."},
		"remove": {"Gem source is already removed.", "The gem source would have been removed.", "Removed", "Gem source was successfully removed."},
	}[what]
	return func(ctx context.Context, e *state.Env, a gemSourceArgs) (state.Plan, error) {
		v, err := e.Exec(ctx, "gem.sources_list", with("ruby", a.Ruby, "runas", a.User))
		if err != nil || slices.Contains(value.Texts(v), a.Name) == (what == "add") {
			return state.Plan{Comment: words[0]}, err
		}
		return state.Plan{Steps: []state.Step{{
			Change: state.Change{Comment: strings.ReplaceAll(words[1], "%s", a.Name)},
			Do: func(ctx context.Context) (state.Change, error) {
				v, err := e.Exec(ctx, "gem.sources_"+what, with("source_uri", a.Name, "ruby", a.Ruby, "runas", a.User))
				if err == nil && !value.Truth(v) {
					err = fn.Errorf("Could not %s gem source.", what)
				}
				return made(err, value.DictOf(a.Name, words[2]), words[3])
			},
		}}}, nil
	}
}

// made returns the change of a step, or its failure.
func made(err error, diff *value.Dict, comment string) (state.Change, error) {
	if err != nil {
		return state.Change{}, err
	}
	return state.Change{Diff: diff, Comment: comment}, nil
}
