package system

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(state.Module{Name: "alias", Doc: `Keep aliases of mailboxes.`, Funcs: []state.Func{
		state.Of("present", aliasPresent, `Have an alias with a target.`),
		state.Of("absent", aliasAbsent, `Have no such alias.`),
	}})
}

type aliasArgs struct {
	Name   string `salt:"name" doc:"alias"`
	Target any    `salt:"target" doc:"mailbox, or a list of them"`
}

func aliasPresent(ctx context.Context, e *state.Env, a aliasArgs) (state.Plan, error) {
	has, err := e.Exec(ctx, "aliases.has_target", nil, a.Name, a.Target)
	if err != nil {
		return state.Plan{}, err
	}
	if has == true {
		return state.Plan{Comment: "Alias " + a.Name + " already present"}, nil
	}
	shown := a.Name + " -> " + value.Str(a.Target)
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Alias " + shown + " is set to be added"}, Do: func(ctx context.Context) (state.Change, error) {
		if _, err := e.Exec(ctx, "aliases.set_target", nil, a.Name, a.Target); err != nil {
			return state.Change{}, fn.Errorf("Failed to set alias %s: %w", shown, err)
		}
		return state.Change{Diff: value.DictOf("alias", a.Name), Comment: "Set email alias " + shown}, nil
	}}}}, nil
}

type aliasNameArgs struct {
	Name string `salt:"name" doc:"alias"`
}

func aliasAbsent(ctx context.Context, e *state.Env, a aliasNameArgs) (state.Plan, error) {
	now, err := e.Exec(ctx, "aliases.get_target", nil, a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	if !value.Truth(now) {
		return state.Plan{Comment: "Alias " + a.Name + " already absent"}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Alias " + a.Name + " is set to be removed"}, Do: func(ctx context.Context) (state.Change, error) {
		if _, err := e.Exec(ctx, "aliases.rm_alias", nil, a.Name); err != nil {
			return state.Change{}, fn.Errorf("Failed to remove alias %s: %w", a.Name, err)
		}
		return state.Change{Diff: value.DictOf("alias", a.Name), Comment: "Removed alias " + a.Name}, nil
	}}}}, nil
}

// joined names things in a sentence: "module x" or "modules x, y".
func joined(noun string, names []string, one, many string) string {
	if len(names) == 1 {
		return noun + " " + names[0] + " " + one
	}
	return noun + "s " + strings.Join(names, ", ") + " " + many
}
