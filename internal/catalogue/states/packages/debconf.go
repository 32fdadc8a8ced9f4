package packages

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("debconf", debconfModule) }

// debconfModule returns the states for answers to packages' questions.
func debconfModule() state.Module {
	return state.Module{Name: "debconf", When: func(grains fn.Reader) (string, bool) {
		return "only available on Debian and its like", grains == nil || grains.Get("os_family") == "Debian"
	}, Doc: `Give answers to the questions that Debian's packages ask.`, Funcs: []state.Func{
		state.Of("set", debconfSet, `Have answers to questions of a package.`),
		state.Of("set_file", debconfFile, `Give the answers in a file. It is read each time.`),
	}}
}

type debconfSetArgs struct {
	Name   string      `salt:"name" doc:"package"`
	Data   *value.Dict `salt:"data" doc:"map of questions to maps of type and value"`
	Kwargs fn.Kwargs   `salt:"kwargs"`
}

func debconfSet(ctx context.Context, e *state.Env, a debconfSetArgs) (state.Plan, error) {
	current, err := e.Exec(ctx, "debconf.show", nil, a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	have := map[string]bool{}
	if l, ok := current.(*value.List); ok {
		for _, it := range l.Items {
			have[strings.Join(value.Texts(it), "\x00")] = true
		}
	}
	type answer struct{ question, kind, text string }
	var missing []answer
	kept, would := "", value.NewDict(2)
	for k, v := range a.Data.All() {
		d, _ := v.(*value.Dict)
		if !d.Has("type") || !d.Has("value") {
			return state.Plan{}, fn.Errorf("the question %s needs a type and a value", value.Str(k))
		}
		one := answer{value.Str(k), d.Str("type"), value.Str(d.At("value"))}
		if one.kind == "boolean" {
			one.text = "false"
			if value.Truth(d.At("value")) {
				one.text = "true"
			}
		}
		if have[one.question+"\x00"+one.kind+"\x00"+one.text] {
			if kept == "" {
				kept = "Unchanged answers: "
			}
			kept += one.question + " "
			continue
		}
		missing = append(missing, one)
		shown := one.text
		if one.kind == "password" {
			shown = "(password hidden)"
		}
		would.Set(one.question, "New value: "+shown)
	}
	if len(missing) == 0 {
		return state.Plan{Comment: "All specified answers are already set"}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: would, Comment: kept}, Do: func(ctx context.Context) (state.Change, error) {
		done := value.NewDict(len(missing))
		var failed error
		for _, m := range missing {
			ok, err := e.Exec(ctx, "debconf.set", nil, a.Name, m.question, m.kind, m.text)
			switch {
			case err != nil, ok != true:
				failed = fn.Errorf("Some settings failed to be applied.")
				if err != nil {
					failed = fn.Errorf("Some settings failed to be applied. %w", err)
				}
				done.Set(m.question, "Failed to set!")
			case m.kind == "password":
				done.Set(m.question, "(password hidden)")
			default:
				done.Set(m.question, m.text)
			}
		}
		return state.Change{Diff: done, Comment: kept}, failed
	}}}}, nil
}

type debconfFileArgs struct {
	Name     string    `salt:"name" doc:"any name"`
	Source   string    `salt:"source" doc:"URL or path of the file"`
	Template string    `salt:"template" doc:"template engine, such as jinja" default:"null"`
	Context  any       `salt:"context" doc:"variables of the template" default:"null"`
	Defaults any       `salt:"defaults" doc:"variables that context can override" default:"null"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func debconfFile(_ context.Context, e *state.Env, a debconfFileArgs) (state.Plan, error) {
	for i, v := range []any{a.Context, a.Defaults} {
		if _, ok := v.(*value.Dict); v != nil && !ok {
			return state.Plan{}, fn.Errorf("%s must be formed as a dict", [2]string{"Context", "Defaults"}[i])
		}
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Debconf selections would have been set."},
		Do: func(ctx context.Context) (state.Change, error) {
			fun, args := "debconf.set_file", []any{a.Source}
			if a.Template != "" {
				fun, args = "debconf.set_template", []any{a.Source, a.Template, a.Context, a.Defaults}
			}
			ok, err := e.Exec(ctx, fun, value.DictOf("saltenv", e.Saltenv), args...)
			switch {
			case err != nil:
				return state.Change{}, err
			case ok != true:
				return state.Change{}, fn.Errorf("Unable to set debconf selections from file.")
			}
			return state.Change{Comment: "Debconf selections were set."}, nil
		}}}}, nil
}
