package packages

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type heldArgs struct {
	Name    *string   `salt:"name" doc:"name of the package; null if pkgs is given"`
	Version any       `salt:"version" doc:"version to keep, where the package manager holds versions" default:"null"`
	Pkgs    any       `salt:"pkgs" doc:"list of names, or of maps from name to version" default:"null"`
	Replace bool      `salt:"replace" doc:"free all other packages" default:"false"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

type unheldArgs struct {
	Name    *string   `salt:"name" doc:"name of the package; null if pkgs is given"`
	Version any       `salt:"version" doc:"version that is kept, where the package manager holds versions" default:"null"`
	Pkgs    any       `salt:"pkgs" doc:"list of names, or of maps from name to version" default:"null"`
	All     bool      `salt:"all" doc:"free all packages" default:"false"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

// holdChange is a package to be held or unheld.
type holdChange struct {
	name    string
	version any
	on      bool
	before  bool // another version is held
}

// holdList returns the packages in name, version and pkgs, with their versions.
func holdList(name *string, version, pkgs any) (*value.Dict, error) {
	out := value.NewDict(2)
	if pkgs == nil {
		if name == nil || *name == "" {
			return nil, errNoName
		}
		out.Set(*name, version)
		return out, nil
	}
	l, ok := pkgs.(*value.List)
	if !ok {
		return nil, fn.Errorf("pkgs must be a list, not %s", value.Repr(pkgs))
	}
	for _, it := range l.Items {
		if d, ok := it.(*value.Dict); ok {
			out.Update(d)
		} else {
			out.Set(value.Str(it), nil)
		}
	}
	return out, nil
}

func held(ctx context.Context, e *state.Env, a heldArgs) (state.Plan, error) {
	p := pkg{e, a.Kwargs.Dict}
	wanted, err := holdList(a.Name, a.Version, a.Pkgs)
	if err != nil {
		return state.Plan{}, err
	}
	if wanted.Len() == 0 && !a.Replace {
		return state.Plan{Comment: "No packages to be held provided"}, nil
	}
	locks, exact, err := p.holds(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	if !p.can("hold") {
		return state.Plan{}, fn.Errorf("`hold` function is not implemented for the package manager.")
	}
	var list []holdChange
	for name, version := range wanted.All() {
		n := value.Str(name)
		there := locks.Has(n)
		if !there || exact && locks.Str(n) != textOf(version) {
			list = append(list, holdChange{n, version, true, there})
		}
	}
	for _, n := range keys(locks) {
		if a.Replace && !wanted.Has(n) {
			list = append(list, holdChange{name: n})
		}
	}
	return p.setHolds(given(a.Name), list), nil
}

func textOf(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

func unheld(ctx context.Context, e *state.Env, a unheldArgs) (state.Plan, error) {
	p := pkg{e, a.Kwargs.Dict}
	wanted, err := holdList(a.Name, a.Version, a.Pkgs)
	if err != nil {
		return state.Plan{}, err
	}
	if wanted.Len() == 0 && !a.All {
		return state.Plan{Comment: "No packages to be unheld provided"}, nil
	}
	locks, exact, err := p.holds(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	var list []holdChange
	for _, n := range keys(locks) {
		version := locks.Str(n)
		if a.All || wanted.Has(n) && (!exact || version == "" || version == textOf(wanted.At(n))) {
			c := holdChange{name: n}
			if value.Truth(wanted.At(n)) {
				if c.version = version; version == "" {
					c.version = "None" // Salt's word where versions are not held
				}
			}
			list = append(list, c)
		}
	}
	return p.setHolds(given(a.Name), list), nil
}

// setHolds returns the plan to change holds.
func (p pkg) setHolds(id any, list []holdChange) state.Plan {
	if len(list) == 0 {
		return state.Plan{Comment: "No changes made"}
	}
	var predicted []string
	for _, c := range list {
		text := "The following package would be unheld: "
		if c.before {
			text = "The following package's hold rule would be updated: "
		} else if c.on {
			text = "The following package would be held: "
		}
		if text += c.name; c.version != nil {
			text += " (version = " + value.Str(c.version) + ")"
		}
		predicted = append(predicted, text)
	}
	comment := strings.Join(predicted, "\n")
	// As in Salt, a test succeeds even if it would change holds.
	forecast := &state.Result{Verdict: state.Succeeded, Comment: comment}
	return state.Plan{Forecast: forecast, Steps: []state.Step{{
		Change: state.Change{Comment: comment},
		Do: func(ctx context.Context) (state.Change, error) {
			diff, good := value.NewDict(len(list)), true
			var comments []string
			for _, c := range list {
				text, ok, err := p.setHold(ctx, id, c, diff)
				if err != nil {
					return state.Change{Diff: diff}, err
				}
				good = good && ok
				comments = append(comments, text)
			}
			text := strings.Join(comments, "\n")
			if !good {
				return state.Change{Diff: diff}, fn.Errorf("%s", text)
			}
			return state.Change{Diff: diff, Comment: text}, nil
		},
	}}}
}

// setHold holds or unholds one package and adds the function's result to the
// changes.
func (p pkg) setHold(ctx context.Context, id any, c holdChange, diff *value.Dict) (comment string, good bool, err error) {
	call := func(fun string, item any) (*value.Dict, error) {
		v, err := p.bare(ctx, fun, value.DictOf("name", id, "pkgs", value.ListOf(item)))
		d, _ := v.(*value.Dict)
		return d, err
	}
	if !c.on {
		d, err := call("unhold", c.name)
		diff.Update(d)
		return d.Dict(c.name).Str("comment"), value.Truth(d.Dict(c.name).At("result")), err
	}
	freed := false
	if c.before {
		d, err := call("unhold", c.name)
		if err != nil {
			return "", false, err
		}
		freed = value.Truth(d.Dict(c.name).At("result"))
	}
	var item any = c.name
	if c.version != nil {
		item = value.DictOf(c.name, c.version)
	}
	d, err := call("hold", item)
	diff.Update(d)
	good = value.Truth(d.Dict(c.name).At("result"))
	switch {
	case !good:
		return "Package " + c.name + " was not held", false, err
	case freed:
		return "Package " + c.name + " was updated with hold rule", true, err
	}
	return "Package " + c.name + " is now being held", true, err
}
