package core

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type grains struct{}

func init() {
	g := grains{}
	units.Declare("grains", func() state.Module {
		return state.Module{Name: "grains", Doc: `Keep grains in the minion's file of grains.`, Funcs: []state.Func{
			state.Of("exists", g.exists, `Fail unless there is a grain.`),
			state.Of("present", g.present, `Have a grain with a value.`),
			state.Of("absent", g.absent, `Have a grain without value, or no such grain.`),
			state.Of("append", g.append, `Have a value in a grain that is a list.`),
			state.Of("list_present", g.listPresent, `Have values in a grain that is a list; without such a grain it is made.`),
			state.Of("list_absent", g.listAbsent, `Have values not in a grain that is a list.`),
		}}
	})
}

type grainArgs struct {
	Name  string `salt:"name" doc:"path of the grain"`
	Delim string `salt:"delimiter" doc:"what separates the parts of the path" default:":"`
}

func (a grainArgs) path() string { return strings.ReplaceAll(a.Name, a.Delim, ":") }

// nameByPath lets a result have the path as its name, as in Salt.
func nameByPath(plan *state.Plan, name, path string) {
	if name == path {
		return
	}
	if plan.Extra == nil {
		plan.Extra = value.NewDict(1)
	}
	plan.Extra.Set("name", path)
}

// get returns a grain. ok is false if there is none.
func (grains) get(ctx context.Context, e *state.Env, path string) (v any, ok bool, err error) {
	missing := value.Tuple{"no grain"} // no grain has a tuple as its value
	v, err = e.Exec(ctx, "grains.get", nil, path, missing)
	if _, none := v.(value.Tuple); none {
		return nil, false, err
	}
	return v, err == nil, err
}

func (g grains) exists(ctx context.Context, e *state.Env, a grainArgs) (plan state.Plan, err error) {
	defer nameByPath(&plan, a.Name, grainArgs{a.Name, a.Delim}.path())
	_, ok, err := g.get(ctx, e, a.path())
	if err == nil && !ok {
		err = fn.Errorf("Grain does not exist")
	}
	return state.Plan{Comment: "Grain exists"}, err
}

type grainPresentArgs struct {
	Name  string `salt:"name" doc:"path of the grain"`
	Value any    `salt:"value" doc:"its value"`
	Delim string `salt:"delimiter" doc:"what separates the parts of the path" default:":"`
	Force bool   `salt:"force" doc:"replace a map or list, or anything by one" default:"false"`
}

// set calls grains.set, which returns the form of a state result.
func (grains) set(ctx context.Context, e *state.Env, path string, v any, kw *value.Dict) (*value.Dict, error) {
	r, err := e.Exec(ctx, "grains.set", kw, path, v)
	d, _ := r.(*value.Dict)
	if err == nil && d.At("result") != true {
		err = fn.Errorf("%s", d.Str("comment"))
	}
	return d, err
}

func (g grains) present(ctx context.Context, e *state.Env, a grainPresentArgs) (plan state.Plan, err error) {
	defer nameByPath(&plan, a.Name, grainArgs{a.Name, a.Delim}.path())
	path := grainArgs{a.Name, a.Delim}.path()
	now, ok, err := g.get(ctx, e, path)
	if err != nil {
		return state.Plan{}, err
	}
	if ok && value.Equal(now, a.Value) {
		return state.Plan{Comment: "Grain is already set"}, nil
	}
	predicted := state.Change{Comment: "Grain " + path + " is set to be added", Diff: value.DictOf("new", path)}
	if ok {
		predicted = state.Change{Comment: "Grain " + path + " is set to be changed", Diff: value.DictOf("changed", value.DictOf(path, a.Value))}
	}
	return state.Plan{Steps: []state.Step{{Change: predicted, Do: func(ctx context.Context) (state.Change, error) {
		d, err := g.set(ctx, e, path, a.Value, value.DictOf("force", a.Force))
		if err != nil {
			return state.Change{Diff: d.Dict("changes")}, err
		}
		c := state.Change{Diff: d.Dict("changes"), Comment: d.Str("comment")}
		if c.Diff.Len() > 0 {
			c.Comment = "Set grain " + path + " to " + value.Str(a.Value)
		}
		return c, nil
	}}}}, nil
}

type grainAbsentArgs struct {
	Name        string `salt:"name" doc:"path of the grain"`
	Destructive bool   `salt:"destructive" doc:"remove the grain in place of setting it to null" default:"false"`
	Delim       string `salt:"delimiter" doc:"what separates the parts of the path" default:":"`
	Force       bool   `salt:"force" doc:"also if it is a map or list" default:"false"`
}

func (g grains) absent(ctx context.Context, e *state.Env, a grainAbsentArgs) (plan state.Plan, err error) {
	defer nameByPath(&plan, a.Name, grainArgs{a.Name, a.Delim}.path())
	path := grainArgs{a.Name, a.Delim}.path()
	now, ok, err := g.get(ctx, e, path)
	switch {
	case err != nil:
		return state.Plan{}, err
	case !ok:
		return state.Plan{Comment: "Grain " + path + " does not exist"}, nil
	case now == nil && !a.Destructive:
		return state.Plan{Comment: "Grain is already set"}, nil
	}
	predicted := state.Change{Comment: "Value for grain " + path + " is set to be deleted (None)", Diff: value.DictOf("grain", path, "value", nil)}
	done := state.Change{Comment: "Value for grain " + path + " was set to None", Diff: predicted.Diff}
	if a.Destructive {
		predicted = state.Change{Comment: "Grain " + path + " is set to be deleted", Diff: value.DictOf("deleted", path)}
		done = state.Change{Comment: "Grain " + path + " was deleted", Diff: predicted.Diff}
	}
	return state.Plan{Steps: []state.Step{{Change: predicted, Do: func(ctx context.Context) (state.Change, error) {
		d, err := g.set(ctx, e, path, nil, value.DictOf("destructive", a.Destructive, "force", a.Force))
		if err != nil {
			return state.Change{Diff: d.Dict("changes")}, err
		}
		return done, nil
	}}}}, nil
}

type grainAppendArgs struct {
	Name    string `salt:"name" doc:"path of the grain"`
	Value   any    `salt:"value" doc:"value to have in the list"`
	Convert bool   `salt:"convert" doc:"make a list of a grain that is none" default:"false"`
	Delim   string `salt:"delimiter" doc:"what separates the parts of the path" default:":"`
}

func contains(l *value.List, v any) bool {
	return slices.ContainsFunc(l.Items, func(it any) bool { return value.Equal(it, v) })
}

func (g grains) append(ctx context.Context, e *state.Env, a grainAppendArgs) (plan state.Plan, err error) {
	defer nameByPath(&plan, a.Name, grainArgs{a.Name, a.Delim}.path())
	path, text := grainArgs{a.Name, a.Delim}.path(), value.Str(a.Value)
	now, ok, err := g.get(ctx, e, path)
	if err != nil {
		return state.Plan{}, err
	}
	l, isList := now.(*value.List)
	predicted := "Value " + text + " in grain " + path + " is set to be added"
	do := func(ctx context.Context) error {
		_, err := e.Exec(ctx, "grains.append", nil, path, a.Value)
		return err
	}
	switch {
	case !ok:
		return state.Plan{}, fn.Errorf("Grain %s does not exist", path)
	case isList && contains(l, a.Value):
		return state.Plan{Comment: "Value " + text + " is already in the list for grain " + path}, nil
	case isList:
	case !a.Convert:
		return state.Plan{}, fn.Errorf("Grain %s is not a valid list", path)
	default:
		predicted = "Grain " + path + " is set to be converted to list and value " + text + " will be added"
		items := value.ListOf()
		if now != nil {
			items.Append(now)
		}
		items.Append(a.Value)
		do = func(ctx context.Context) error {
			_, err := e.Exec(ctx, "grains.setval", nil, path, items)
			return err
		}
	}
	diff := value.DictOf("added", a.Value)
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: diff, Comment: predicted}, Do: func(ctx context.Context) (state.Change, error) {
		if err := do(ctx); err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: diff, Comment: "Value " + text + " was added to grain " + path}, nil
	}}}}, nil
}

type grainListArgs struct {
	Name  string `salt:"name" doc:"path of the grain"`
	Value any    `salt:"value" doc:"a value, or a list of values"`
	Delim string `salt:"delimiter" doc:"what separates the parts of the path" default:":"`
}

func (g grains) listPresent(ctx context.Context, e *state.Env, a grainListArgs) (plan state.Plan, err error) {
	defer nameByPath(&plan, a.Name, grainArgs{a.Name, a.Delim}.path())
	path, wanted := grainArgs{a.Name, a.Delim}.path(), a.Value
	now, ok, err := g.get(ctx, e, path)
	if err != nil {
		return state.Plan{}, err
	}
	if !ok {
		now = ""
	}
	predicted, said := "Grain "+path+" is set to be added", ""
	if value.Truth(now) {
		l, ok := now.(*value.List)
		if !ok {
			return state.Plan{}, fn.Errorf("Grain %s is not a valid list", path)
		}
		already := state.Plan{Comment: "Value " + value.Str(wanted) + " is already in grain " + path}
		if several, ok := wanted.(*value.List); ok {
			have, lack := value.ListOf(), value.ListOf()
			for _, v := range several.Items {
				if contains(l, v) {
					have.Append(v)
				} else {
					lack.Append(v)
				}
			}
			if lack.Len() == 0 {
				return already, nil
			}
			wanted = lack
			if have.Len() > 0 {
				said = "Removed value " + value.Str(have) + ` from update due to value found in "` + path + "\".\n"
			}
		} else if contains(l, wanted) {
			return already, nil
		}
		predicted = "Value " + value.Str(wanted) + " is set to be appended to grain " + path
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: predicted, Diff: value.DictOf("new", now)},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "grains.append", nil, path, wanted)
			if _, problem := v.(string); err != nil || problem {
				return state.Change{}, fn.Errorf("Failed append value %s to grain %s", value.Str(wanted), path)
			}
			return state.Change{Diff: value.DictOf("new", v), Comment: said + "Append value " + value.Str(wanted) + " to grain " + path}, nil
		},
	}}}, nil
}

func (g grains) listAbsent(ctx context.Context, e *state.Env, a grainListArgs) (plan state.Plan, err error) {
	defer nameByPath(&plan, a.Name, grainArgs{a.Name, a.Delim}.path())
	path := grainArgs{a.Name, a.Delim}.path()
	now, _, err := g.get(ctx, e, path)
	if err != nil {
		return state.Plan{}, err
	}
	if !value.Truth(now) {
		return state.Plan{Comment: "Grain " + path + " does not exist"}, nil
	}
	l, ok := now.(*value.List)
	if !ok {
		return state.Plan{}, fn.Errorf("Grain %s is not a valid list", path)
	}
	values := value.ListOf(a.Value)
	if several, ok := a.Value.(*value.List); ok {
		values = several
	}
	gone, found := value.ListOf(), value.ListOf() // found has a value that is given twice twice, as Salt's tests do
	left := slices.Clone(l.Items)
	var predicted, done []string
	for _, v := range values.Items {
		absent := "Value " + value.Str(v) + " is absent from grain " + path
		if !contains(l, v) {
			predicted = append(predicted, absent)
			done = append(done, absent)
			continue
		}
		found.Append(v)
		predicted = append(predicted, "Value "+value.Str(v)+" in grain "+path+" is set to be deleted")
		i := slices.IndexFunc(left, func(it any) bool { return value.Equal(it, v) })
		if i < 0 {
			done = append(done, absent)
			continue
		}
		left = slices.Delete(left, i, i+1)
		gone.Append(v)
		done = append(done, "Value "+value.Str(v)+" was deleted from grain "+path)
	}
	if gone.Len() == 0 {
		return state.Plan{Comment: strings.Join(done, "\n")}, nil
	}
	diff := value.DictOf("deleted", gone)
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: value.DictOf("deleted", found), Comment: strings.Join(predicted, "\n")},
		Do: func(ctx context.Context) (state.Change, error) {
			for _, v := range gone.Items {
				if _, err := e.Exec(ctx, "grains.remove", nil, path, v); err != nil {
					return state.Change{}, err
				}
			}
			return state.Change{Diff: diff, Comment: strings.Join(done, "\n")}, nil
		},
	}}}, nil
}
