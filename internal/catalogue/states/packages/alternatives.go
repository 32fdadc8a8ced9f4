package packages

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("alternatives", alternativesModule) }

func alternativesModule() state.Module {
	return state.Module{Name: "alternatives", Doc: `Keep which of several programs a common name stands for.`, Funcs: []state.Func{
		state.Of("install", alternativeInstalled, `Have a program among those for a name.`),
		state.Of("remove", alternativeRemoved, `Have a program not among those for a name.`),
		state.Of("set", alternativeSet, `Have a name stand for a program.`),
		state.Of("auto", alternativeAuto, `Have a name stand for the program with the highest priority.`),
	}}
}

type alternativeArgs struct {
	Name string `salt:"name" doc:"the common name, such as pager"`
	Path string `salt:"path" doc:"path of the program"`
}

type alternativeInstallArgs struct {
	Name     string `salt:"name" doc:"the common name, such as pager"`
	Link     string `salt:"link" doc:"path of the name, such as /usr/bin/pager"`
	Path     string `salt:"path" doc:"path of the program"`
	Priority any    `salt:"priority" doc:"the highest number wins"`
}

// alternative calls a boolean function of the execution module alternatives.
func alternative(ctx context.Context, e *state.Env, fun string, args ...any) (bool, error) {
	v, err := e.Exec(ctx, "alternatives."+fun, nil, args...)
	return value.Truth(v), err
}

// current returns the current program for a name, "" for none.
func current(ctx context.Context, e *state.Env, name string) (string, error) {
	v, err := e.Exec(ctx, "alternatives.show_current", nil, name)
	path, _ := v.(string)
	return path, err
}

func alternativeInstalled(ctx context.Context, e *state.Env, a alternativeInstallArgs) (state.Plan, error) {
	extra := value.DictOf("link", a.Link, "path", a.Path, "priority", a.Priority)
	there, err := alternative(ctx, e, "check_exists", a.Name, a.Path)
	if err != nil || there {
		return state.Plan{Comment: "Alternative " + a.Path + " for " + a.Name + " is already registered", Extra: extra}, err
	}
	priority := value.Str(a.Priority)
	return state.Plan{Extra: extra, Steps: []state.Step{{
		Change: state.Change{Comment: "Alternative will be set for " + a.Name + " to " + a.Path + " with priority " + priority},
		Do: func(ctx context.Context) (state.Change, error) {
			out, err := e.Exec(ctx, "alternatives.install", nil, a.Name, a.Link, a.Path, a.Priority)
			if err != nil {
				return state.Change{}, err
			}
			if there, err := alternative(ctx, e, "check_exists", a.Name, a.Path); err != nil || !there {
				return state.Change{}, fn.Errorf("Alternative for %s not installed: %s", a.Name, value.Str(out))
			}
			c := state.Change{Diff: value.DictOf("name", a.Name, "link", a.Link, "path", a.Path, "priority", a.Priority)}
			c.Comment = "Alternative " + a.Path + " for " + a.Name + " registered with priority " + priority + " and not set to default"
			first, err := alternative(ctx, e, "check_installed", a.Name, a.Path)
			if first {
				c.Comment = "Alternative for " + a.Name + " set to path " + a.Path + " with priority " + priority
			}
			return c, err
		},
	}}}, nil
}

func alternativeRemoved(ctx context.Context, e *state.Env, a alternativeArgs) (state.Plan, error) {
	extra := value.DictOf("path", a.Path)
	there, err := alternative(ctx, e, "check_exists", a.Name, a.Path)
	if err != nil {
		return state.Plan{}, err
	}
	now, err := current(ctx, e, a.Name)
	switch {
	case err != nil:
		return state.Plan{}, err
	case !there && now == "":
		return state.Plan{Extra: extra}, fn.Errorf("Alternative for %s doesn't exist", a.Name)
	case !there:
		return state.Plan{Comment: "Alternative for " + a.Name + " is set to it's default path " + now, Extra: extra}, nil
	}
	return state.Plan{Extra: extra, Steps: []state.Step{{
		Change: state.Change{Comment: "Alternative for " + a.Name + " will be removed"},
		Do: func(ctx context.Context) (state.Change, error) {
			if _, err := e.Exec(ctx, "alternatives.remove", nil, a.Name, a.Path); err != nil {
				return state.Change{}, err
			}
			now, err := current(ctx, e, a.Name)
			if err != nil || now == "" {
				return state.Change{Comment: "Alternative for " + a.Name + " removed"}, err
			}
			return state.Change{Diff: value.DictOf("path", now), Comment: "Alternative for " + a.Name + " removed. Falling back to path " + now}, nil
		},
	}}}, nil
}

// display returns the lines that the system's program prints about a name.
func display(ctx context.Context, e *state.Env, name string) ([]string, error) {
	v, err := e.Exec(ctx, "alternatives.display", nil, name)
	return strings.Split(value.Str(v), "\n"), err
}

func alternativeSet(ctx context.Context, e *state.Env, a alternativeArgs) (state.Plan, error) {
	extra := value.DictOf("path", a.Path)
	now, err := current(ctx, e, a.Name)
	if err != nil || now == a.Path {
		return state.Plan{Comment: "Alternative for " + a.Name + " already set to " + a.Path, Extra: extra}, err
	}
	lines, err := display(ctx, e, a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	there := false
	for _, line := range lines {
		there = there || strings.HasPrefix(line, a.Path)
	}
	if !there {
		return state.Plan{Extra: extra}, fn.Errorf("Alternative %s for %s doesn't exist", a.Path, a.Name)
	}
	return state.Plan{Extra: extra, Steps: []state.Step{{
		Change: state.Change{Comment: "Alternative for " + a.Name + " will be set to path " + a.Path},
		Do: func(ctx context.Context) (state.Change, error) {
			if _, err := e.Exec(ctx, "alternatives.set", nil, a.Name, a.Path); err != nil {
				return state.Change{}, err
			}
			now, err := current(ctx, e, a.Name)
			if err == nil && now != a.Path {
				err = fn.Errorf("Alternative for %s not updated", a.Name)
			}
			if err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: value.DictOf("path", now), Comment: "Alternative for " + a.Name + " set to path " + now}, nil
		},
	}}}, nil
}

type alternativeAutoArgs struct {
	Name string `salt:"name" doc:"the common name, such as pager"`
}

func alternativeAuto(ctx context.Context, e *state.Env, a alternativeAutoArgs) (state.Plan, error) {
	lines, err := display(ctx, e, a.Name)
	if err != nil || strings.HasSuffix(lines[0], " auto mode") {
		return state.Plan{Comment: a.Name + " already in auto mode"}, err
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: a.Name + " will be put in auto mode"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "alternatives.auto", nil, a.Name)
			if err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: value.DictOf("result", v)}, nil
		},
	}}}, nil
}
