package packages

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type latestArgs struct {
	Name       *string   `salt:"name" doc:"name of the package; null if pkgs is given"`
	Refresh    any       `salt:"refresh" doc:"fetch the lists of packages first; null: once in a run" default:"null"`
	From       any       `salt:"fromrepo" doc:"only repository, with apt the release that is preferred" default:"null"`
	SkipVerify any       `salt:"skip_verify" doc:"do without signatures" default:"false"`
	Pkgs       any       `salt:"pkgs" doc:"list of names" default:"null"`
	WatchFlags bool      `salt:"watch_flags" ignored:"only Gentoo has flags" default:"true"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

// fresh is a state that upgrades packages to the newest version.
type fresh struct {
	pkg
	a         latestArgs
	names     []string
	have      *value.Dict // installed versions, by name
	targets   *value.Dict // newer versions, by name
	unchanged []string    // names in the list pkgs that are up to date
}

func latest(ctx context.Context, e *state.Env, a latestArgs) (state.Plan, error) {
	w := words{Name: a.Name, Pkgs: a.Pkgs, Kwargs: a.Kwargs}
	switch {
	case value.Truth(a.Kwargs.At("sources")):
		return state.Plan{}, fn.Errorf(`The "sources" parameter is not supported.`)
	case w.none():
		return state.Plan{Comment: "No packages to install provided"}, nil
	}
	f := &fresh{pkg: w.pkg(e), a: a}
	l, err := w.list()
	if err != nil {
		return state.Plan{}, err
	}
	wanted, err := f.named(ctx, l, true)
	if err != nil {
		return state.Plan{}, err
	}
	f.names = keys(wanted)
	if !value.Truth(a.Pkgs) {
		f.names = []string{*a.Name}
	}
	if err := f.look(ctx); err != nil {
		return state.Plan{}, err
	}
	if f.targets.Len() == 0 {
		return state.Plan{Comment: f.upToDate()}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: f.predict(ctx), Do: f.do}}}, nil
}

// look compares the installed versions with the available ones.
func (f *fresh) look(ctx context.Context) error {
	kw := value.DictOf("fromrepo", f.a.From, "refresh", due(f.e, f.a.Refresh, true))
	newer, err := f.latest(ctx, f.exec, kw, f.names)
	if err != nil {
		return fn.Errorf("An error was encountered while checking the newest available version of package(s): %w", err)
	}
	v, err := f.exec(ctx, "version", nil, anys(f.names)...)
	if err != nil {
		return err
	}
	f.have, f.targets = byName(v, f.names), value.NewDict(len(f.names))
	var problems []string
	for _, name := range f.names {
		switch {
		case value.Truth(newer.At(name)):
			f.targets.Set(name, newer.At(name))
			continue
		case !value.Truth(f.have.At(name)):
			problems = append(problems, "No information found for '"+name+"'.")
		case value.Truth(f.a.Pkgs):
			f.unchanged = append(f.unchanged, name)
		}
	}
	slices.Sort(f.unchanged)
	if len(problems) > 0 {
		return fn.Errorf("%s", strings.Join(problems, " "))
	}
	return nil
}

func (f *fresh) upToDate() string {
	switch n := len(f.names); {
	case n > 10:
		return fmt.Sprintf("All %d packages are up-to-date.", n)
	case n > 1:
		return "All packages are up-to-date (" + strings.Join(slices.Sorted(slices.Values(f.names)), ", ") + ")."
	}
	return "Package " + f.names[0] + " is already up-to-date"
}

func (f *fresh) predict(ctx context.Context) state.Change {
	comment := "The following packages would be installed/upgraded: " + strings.Join(slices.Sorted(slices.Values(keys(f.targets))), ", ")
	switch n := len(f.unchanged); {
	case n > 10:
		comment += fmt.Sprintf("\n%d packages are already up-to-date", n)
	case n > 0:
		var with []string
		for _, name := range f.unchanged {
			with = append(with, name+" ("+value.Str(f.have.At(name))+")")
		}
		comment += "\nThe following packages are already up-to-date: " + strings.Join(with, ", ")
	}
	return state.Change{Comment: comment, Diff: f.installable(ctx, f.targets, f.have, false)}
}

func (f *fresh) do(ctx context.Context) (state.Change, error) {
	kw := value.DictOf("name", nil, "refresh", false, "fromrepo", f.a.From, "skip_verify", f.a.SkipVerify, "pkgs", value.Strings(keys(f.targets)))
	v, err := f.exec(ctx, "install", kw)
	if err != nil {
		return state.Change{}, fn.Errorf("An error was encountered while installing package(s): %w", err)
	}
	changes, _ := v.(*value.Dict)
	if changes.Len() == 0 {
		return state.Change{}, fn.Errorf("%s", f.nothing())
	}
	var failed, good []string
	for name, version := range f.targets.All() {
		n := value.Str(name)
		c := changes.Dict(n)
		if c == nil || c.At("new") != nil && version != "latest" && !slices.Contains(strings.Split(value.Str(c.At("new")), ","), value.Str(version)) {
			failed = append(failed, n)
		} else {
			good = append(good, n)
		}
	}
	slices.Sort(failed)
	slices.Sort(good)
	var comments []string
	if len(failed) > 0 {
		comments = append(comments, "The following packages failed to update: "+strings.Join(failed, ", "))
	}
	if len(good) > 0 {
		comments = append(comments, "The following packages were successfully installed/upgraded: "+strings.Join(good, ", "))
	}
	switch n := len(f.unchanged); {
	case n > 10:
		comments = append(comments, fmt.Sprintf("%d packages were already up-to-date ", n))
	case n > 0:
		comments = append(comments, "The following packages were already up-to-date: "+strings.Join(f.unchanged, ", "))
	}
	comment := strings.Join(comments, " ")
	if len(failed) > 0 {
		return state.Change{Diff: changes}, fn.Errorf("%s", comment)
	}
	return state.Change{Diff: changes, Comment: comment}, nil
}

// nothing returns the message that no package changed although some should.
func (f *fresh) nothing() string {
	names := slices.Sorted(slices.Values(keys(f.targets)))
	text := "Package " + names[0] + " failed to update."
	switch n := len(names); {
	case n > 10:
		text = fmt.Sprintf("%d targeted packages failed to update. See debug log for details.", n)
	case n > 1:
		text = "The following targeted packages failed to update. See debug log for details: (" + strings.Join(names, ", ") + ")."
	}
	switch n := len(f.unchanged); {
	case n > 10:
		text += fmt.Sprintf("%d packages were already up-to-date", n)
	case n > 0:
		text += " The following packages were already up-to-date: " + strings.Join(f.unchanged, ", ")
	}
	return text
}

type uptodateArgs struct {
	Name    any       `salt:"name" doc:"anything"`
	Refresh any       `salt:"refresh" doc:"fetch the lists of packages first: true or false" default:"false"`
	Pkgs    any       `salt:"pkgs" doc:"list of the only packages to look at" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func uptodate(ctx context.Context, e *state.Env, a uptodateArgs) (state.Plan, error) {
	p := pkg{e, a.Kwargs.Dict}
	refresh, ok := a.Refresh.(bool)
	switch {
	case !p.can("list_upgrades"):
		return state.Plan{}, fn.Errorf("State pkg.uptodate is not available")
	case !ok:
		return state.Plan{}, fn.Errorf("refresh must be either True or False")
	}
	refresh = due(e, refresh, false)
	v, err := p.exec(ctx, "list_upgrades", value.DictOf("refresh", refresh))
	if err != nil {
		return state.Plan{}, err
	}
	upgrades, _ := v.(*value.Dict)
	only, limited := a.Pkgs.(*value.List)
	due := value.NewDict(upgrades.Len())
	for name, version := range upgrades.All() {
		if limited && !slices.Contains(only.Items, name) {
			continue
		}
		old, err := p.exec(ctx, "version", nil, name)
		if err != nil {
			return state.Plan{}, err
		}
		due.Set(name, value.DictOf("new", version, "old", old))
	}
	if due.Len() == 0 {
		return state.Plan{Comment: "System is already up-to-date"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: due, Comment: "System update will be performed"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := p.exec(ctx, "upgrade", value.DictOf("refresh", refresh, "pkgs", a.Pkgs))
			if err != nil {
				return failure(err, "An error was encountered while updating packages")
			}
			changes, _ := v.(*value.Dict)
			c := state.Change{Diff: changes, Comment: "Upgrade ran successfully"}
			var missing []string
			for _, name := range keys(due) {
				if limited && !changes.Has(name) {
					missing = append(missing, name)
				}
			}
			if len(missing) > 0 {
				return state.Change{Diff: changes}, fn.Errorf("The following package(s) failed to update: %s", strings.Join(missing, ", "))
			}
			return c, nil
		},
	}}}, nil
}
