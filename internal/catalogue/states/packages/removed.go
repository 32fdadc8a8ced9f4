package packages

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// removal is a state that removes packages.
type removal struct {
	pkg
	a      words
	action string
	wanted *value.Dict
}

func uninstalled(action string) func(context.Context, *state.Env, words) (state.Plan, error) {
	return func(ctx context.Context, e *state.Env, a words) (state.Plan, error) {
		r := &removal{pkg: a.pkg(e), a: a, action: action}
		l, err := a.list()
		if err != nil {
			return state.Plan{}, err
		}
		if a.none() {
			l = a.Pkgs.(*value.List)
		}
		if r.wanted, err = r.named(ctx, l, a.Plain); err != nil {
			return state.Plan{}, err
		}
		return r.plan(ctx)
	}
}

func (r *removal) plan(ctx context.Context) (state.Plan, error) {
	targets, spec, err := r.targets(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	if len(targets) == 0 {
		switch {
		case r.action == "purge":
			return state.Plan{Comment: "None of the targeted packages are installed or partially installed"}, nil
		case spec:
			return state.Plan{Comment: "All specified packages (matching specified versions) are already absent"}, nil
		}
		return state.Plan{Comment: "All specified packages are already absent"}, nil
	}
	diff := value.NewDict(len(targets))
	for _, name := range targets {
		diff.Set(name, value.DictOf("new", r.action+"d", "old", ""))
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: diff, Comment: "The following packages will be " + r.action + "d: " + strings.Join(targets, ", ") + "."},
		Do:     func(ctx context.Context) (state.Change, error) { return r.do(ctx, targets) },
	}}}, nil
}

// targets returns the installed packages to remove. spec says that versions
// were compared.
func (r *removal) targets(ctx context.Context) (names []string, spec bool, err error) {
	have, err := r.installed(ctx)
	if err != nil {
		return nil, false, err
	}
	for name, version := range r.wanted.All() {
		n := value.Str(name)
		versions := value.Texts(have.At(n))
		if len(versions) == 0 {
			continue
		}
		v, err := r.clean(ctx, version)
		if err != nil {
			return nil, false, err
		}
		there := v == nil
		if !there {
			spec = true
			if there, err = r.fulfills(ctx, versions, value.Str(version), r.a.Epoch, false); err != nil {
				return nil, false, err
			}
		}
		if there {
			names = append(names, n)
		}
	}
	if r.action == "purge" {
		left, err := r.left(ctx)
		if err != nil {
			return nil, false, err
		}
		names = append(names, left...)
	}
	slices.Sort(names)
	return names, spec, nil
}

// left returns the removed packages whose configuration remains.
func (r *removal) left(ctx context.Context) ([]string, error) {
	d, err := r.installed(ctx, "removed", true)
	var names []string
	for _, name := range keys(r.wanted) {
		if d.Has(name) {
			names = append(names, name)
		}
	}
	return names, err
}

func (r *removal) do(ctx context.Context, targets []string) (state.Change, error) {
	v, err := r.exec(ctx, r.action, value.DictOf("pkgs", r.a.Pkgs, "version", r.a.Version), given(r.a.Name))
	if err != nil {
		text := "An error was encountered while removing package(s)"
		if r.action == "purge" {
			text = "An error was encountered while purging package(s)"
		}
		return failure(err, text)
	}
	changes, _ := v.(*value.Dict)
	now, err := r.installed(ctx)
	if err != nil {
		return state.Change{Diff: changes}, err
	}
	var failed, absent []string
	for _, name := range keys(r.wanted) {
		if now.Has(name) && slices.Contains(targets, name) {
			failed = append(failed, name)
		}
		if !slices.Contains(targets, name) {
			absent = append(absent, name)
		}
	}
	if r.action == "purge" {
		left, err := r.left(ctx)
		if err != nil {
			return state.Change{Diff: changes}, err
		}
		failed = append(failed, left...)
	}
	slices.Sort(failed)
	slices.Sort(absent)
	switch {
	case len(failed) > 0:
		return state.Change{Diff: changes}, fn.Errorf("The following packages failed to %s: %s.", r.action, strings.Join(failed, ", "))
	case len(absent) > 0:
		return state.Change{Diff: changes, Comment: "The following packages were not installed: " + strings.Join(absent, ", ") +
			" The following packages were " + r.action + "d: " + strings.Join(targets, ", ") + "."}, nil
	}
	return state.Change{Diff: changes, Comment: "All targeted packages were " + r.action + "d."}, nil
}
