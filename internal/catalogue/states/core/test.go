package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type test struct{}

func init() {
	units.Declare("test", func() state.Module {
		return state.Module{Name: "test", Doc: `States that do nothing, to try requisites and outputters with.`, Funcs: []state.Func{
			state.Of("nop", test{}.nop, `Do nothing, whatever the arguments are.`),
			state.Of("succeed_without_changes", test{}.succeed, `Succeed without changes.`),
			state.Of("succeed_with_changes", test{}.succeedWithChanges, `Succeed and report a change.`),
			state.Of("fail_without_changes", test{}.fail, `Fail without changes.`),
			state.Of("fail_with_changes", test{}.failWithChanges, `Fail and report a change.`),
			state.Of("configurable_test_state", test{}.configurable, `Give the result that the arguments ask for.`),
			state.Of("show_notification", test{}.notify, `Show a text as the comment.`),
			state.Of("check_pillar", test{}.checkPillar, `Fail unless keys are in the pillar and of a kind.`),
			state.Of("mod_watch", test{}.watch, `Tell which of the watched states have changes.`),
		}}
	})
}

type anyArgs struct {
	Name   string    `salt:"name" doc:"anything"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// comment returns the argument comment. These states ignore all other
// arguments.
func (a anyArgs) comment(otherwise string) string {
	if v, ok := a.Kwargs.Get("comment"); ok {
		return value.Str(v)
	}
	return otherwise
}

func pretended() *value.Dict {
	return value.DictOf("testing", value.DictOf("old", "Unchanged", "new", "Something pretended to change"))
}

func (test) nop(context.Context, *state.Env, anyArgs) (state.Plan, error) {
	return state.Plan{Comment: "Success!"}, nil
}

func (test) succeed(_ context.Context, _ *state.Env, a anyArgs) (state.Plan, error) {
	return state.Plan{Comment: a.comment("Success!")}, nil
}

func (test) succeedWithChanges(_ context.Context, _ *state.Env, a anyArgs) (state.Plan, error) {
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: pretended(), Comment: "If we weren't testing, this would be successful with changes"},
		Do: func(context.Context) (state.Change, error) {
			return state.Change{Diff: pretended(), Comment: a.comment("Success!")}, nil
		},
	}}}, nil
}

func (test) fail(_ context.Context, _ *state.Env, a anyArgs) (state.Plan, error) {
	return state.Plan{
		Forecast: &state.Result{Verdict: state.Failed, Comment: "If we weren't testing, this would be a failure!"},
	}, errors.New(a.comment("Failure!"))
}

func (test) failWithChanges(_ context.Context, _ *state.Env, a anyArgs) (state.Plan, error) {
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: pretended(), Comment: "If we weren't testing, this would be failed with changes"},
		Do: func(context.Context) (state.Change, error) {
			return state.Change{Diff: pretended()}, errors.New(a.comment("Failure!"))
		},
	}}}, nil
}

type configurableArgs struct {
	Name        string `salt:"name" doc:"anything"`
	Changes     any    `salt:"changes" doc:"report changes: true, false or random" default:"true"`
	Result      any    `salt:"result" doc:"succeed: true, false or random" default:"true"`
	Comment     string `salt:"comment" doc:"the comment" default:""`
	Warnings    any    `salt:"warnings" doc:"text, or list of texts, to warn with" default:"null"`
	FailInTests bool   `salt:"allow_test_mode_failure" doc:"let result=false fail with test=True, too" default:"false"`
}

func (test) configurable(_ context.Context, _ *state.Env, a configurableArgs) (state.Plan, error) {
	changes, err := choose("changes", a.Changes)
	if err != nil {
		return state.Plan{}, err
	}
	good, err := choose("result", a.Result)
	if err != nil {
		return state.Plan{}, err
	}
	p := state.Plan{Comment: a.Comment}
	switch w := a.Warnings.(type) {
	case nil:
	case string:
		p.Warnings = []string{w}
	case *value.List:
		for _, it := range w.Items {
			p.Warnings = append(p.Warnings, value.Str(it))
		}
	default:
		return p, state.Errorf("You have specified the state option 'warnings' with invalid arguments. It must be a string or a list of strings")
	}
	p.Forecast = a.forecast(changes)
	failure := errors.New(a.Comment)
	if !changes {
		if !good {
			return p, failure
		}
		return p, nil
	}
	p.Steps = []state.Step{{Do: func(context.Context) (state.Change, error) {
		if !good {
			return state.Change{Diff: pretended()}, failure
		}
		return state.Change{Diff: pretended(), Comment: a.Comment}, nil
	}}}
	return p, nil
}

// forecast returns the result of a test run. As in Salt, it depends on the
// argument, not on a random choice.
func (a configurableArgs) forecast(changes bool) *state.Result {
	f := &state.Result{Comment: a.Comment}
	if a.Comment == "" {
		f.Comment = "This is a test"
	}
	if changes {
		f.Changes = pretended()
	}
	switch {
	case a.FailInTests && a.Result == false:
		f.Verdict = state.Failed
	case a.Changes == false:
		f.Verdict = state.Succeeded
	}
	return f
}

func choose(option string, v any) (bool, error) {
	if b, ok := v.(bool); ok {
		return b, nil
	}
	if strings.EqualFold(value.Str(v), "random") {
		return rand.IntN(2) == 0, nil
	}
	return false, state.Errorf("You have specified the state option '%s' with invalid arguments. It must be either True, False, or 'Random'", option)
}

type notifyArgs struct {
	Name   string    `salt:"name" doc:"anything"`
	Text   any       `salt:"text" doc:"what to show; a list is shown as lines" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (test) notify(_ context.Context, _ *state.Env, a notifyArgs) (state.Plan, error) {
	if !value.Truth(a.Text) {
		return state.Plan{}, state.Errorf("Missing required argument text.")
	}
	if l, ok := a.Text.(*value.List); ok {
		return state.Plan{Comment: strings.Join(value.Texts(l), "\n")}, nil
	}
	return state.Plan{Comment: value.Str(a.Text)}, nil
}

type checkPillarArgs struct {
	Name       string `salt:"name" doc:"anything"`
	Present    any    `salt:"present" doc:"keys that have to be there" default:"null"`
	Boolean    any    `salt:"boolean" doc:"keys of booleans" default:"null"`
	Integer    any    `salt:"integer" doc:"keys of integers" default:"null"`
	String     any    `salt:"string" doc:"keys of texts" default:"null"`
	Listing    any    `salt:"listing" doc:"keys of lists" default:"null"`
	Dictionary any    `salt:"dictionary" doc:"keys of mappings" default:"null"`
	Verbose    bool   `salt:"verbose" doc:"also tell of the keys that are right" default:"false"`
}

// kind is a type that check_pillar can require.
type kind struct {
	keys any
	name string // Salt's name, "" for any type
	is   func(v any) bool
}

func (a checkPillarArgs) kinds() []kind {
	is := func(names ...string) func(any) bool {
		return func(v any) bool {
			for _, n := range names {
				if value.TypeName(v) == n {
					return true
				}
			}
			return false
		}
	}
	return []kind{
		{a.Present, "", func(any) bool { return true }},
		{a.Boolean, "<class 'bool'>", is("bool")},
		{a.Integer, "<class 'int'>", is("int", "bool")},
		{a.String, "(<class 'str'>,)", is("str")},
		{a.Listing, "<class 'list'>", is("list")},
		{a.Dictionary, "<class 'dict'>", is("dict")},
	}
}

func (test) checkPillar(_ context.Context, e *state.Env, a checkPillarArgs) (state.Plan, error) {
	var failed, fine strings.Builder
	asked := false
	for _, k := range a.kinds() {
		if !value.Truth(k.keys) {
			continue
		}
		asked = true
		keys, err := keyList(k.keys)
		if err != nil {
			return state.Plan{}, err
		}
		for _, key := range keys {
			v, ok := value.Traverse(e.Pillar.All(), key, ":")
			switch {
			case !ok || v == nil:
				fmt.Fprintf(&failed, "Pillar key \"%s\" is missing.\n", key)
			case !k.is(v):
				fmt.Fprintf(&failed, "Pillar key \"%s\" is not %s.\n", key, k.name)
			case a.Verbose:
				name := k.name
				if name == "" {
					name = "None"
				}
				fmt.Fprintf(&fine, "- %s (%s)\n", key, name)
			}
		}
	}
	if !asked {
		return state.Plan{}, state.Errorf("Missing required argument text.")
	}
	text := failed.String()
	if fine.Len() > 0 {
		text += "Those keys passed the check:\n" + fine.String()
	}
	if failed.Len() > 0 {
		return state.Plan{}, errors.New(text)
	}
	return state.Plan{Comment: text}, nil
}

func keyList(v any) ([]string, error) {
	switch x := v.(type) {
	case string:
		return []string{x}, nil
	case *value.List:
		out := make([]string, len(x.Items))
		for i, it := range x.Items {
			out[i] = value.Str(it)
		}
		return out, nil
	}
	return nil, fmt.Errorf("keys of the pillar have to be a text or a list of texts, not %s", value.TypeName(v))
}

type watchArgs struct {
	Name   string    `salt:"name" doc:"anything"`
	Sfun   string    `salt:"sfun" doc:"function of the state that watches" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (test) watch(_ context.Context, e *state.Env, a watchArgs) (state.Plan, error) {
	changed := &value.List{}
	for _, it := range e.Low.Dict("__reqs__").List("watch") {
		req, _ := it.(*value.Dict)
		if value.Truth(e.Run.Result(state.Tag(req)).At("changes")) {
			changed.Append(value.Str(req.At("state")) + ": " + value.Str(req.At("__id__")))
		}
	}
	r := state.Result{Verdict: state.Succeeded, Comment: "Watch statement fired.", Changes: value.DictOf("Requisites with changes", changed)}
	if v, ok := a.Kwargs.Get("comment"); ok {
		r.Comment = value.Str(v)
	}
	if d, ok := a.Kwargs.At("changes").(*value.Dict); ok {
		r.Changes = d
	}
	if v, ok := a.Kwargs.Get("result"); ok && v == nil {
		r.Verdict = state.Undecided
	} else if ok && !value.Truth(v) {
		r.Verdict = state.Failed
	}
	return state.Plan{Forecast: &r, Steps: []state.Step{{Do: func(context.Context) (state.Change, error) {
		c := state.Change{Diff: r.Changes, Comment: r.Comment}
		if r.Verdict == state.Failed {
			return state.Change{Diff: r.Changes}, errors.New(r.Comment)
		}
		return c, nil
	}}}}, nil
}
