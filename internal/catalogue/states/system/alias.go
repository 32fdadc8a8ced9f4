package system

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host/mailaliases"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("alias", func() state.Module {
		return state.Module{Name: "alias", Doc: `Keep aliases of mailboxes.`, Funcs: []state.Func{
			state.Of("present", aliasPresent, `Have an alias with a target.`),
			state.Of("absent", aliasAbsent, `Have no such alias.`),
		}}
	})
}

// aliasFile returns the file of the option aliases.file.
func aliasFile(e *state.Env) mailaliases.File {
	f := mailaliases.File{M: machine}
	if v := e.Config.Get("aliases.file"); value.Truth(v) {
		f.Path = value.Str(v)
	}
	return f
}

type aliasArgs struct {
	Name   string `salt:"name" doc:"alias"`
	Target any    `salt:"target" doc:"mailbox, or a list of them"`
}

func aliasPresent(_ context.Context, e *state.Env, a aliasArgs) (state.Plan, error) {
	has, err := aliasFile(e).Has(a.Name, value.Texts(a.Target))
	if err != nil {
		return state.Plan{}, err
	}
	if has {
		return state.Plan{Comment: "Alias " + a.Name + " already present"}, nil
	}
	shown := a.Name + " -> " + value.Str(a.Target)
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Alias " + shown + " is set to be added"},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := aliasFile(e).Set(ctx, a.Name, value.Texts(a.Target)); err != nil {
				return state.Change{}, fn.Errorf("Failed to set alias %s: %w", shown, err)
			}
			return state.Change{Diff: value.DictOf("alias", a.Name), Comment: "Set email alias " + shown}, nil
		}}}}, nil
}

type aliasNameArgs struct {
	Name string `salt:"name" doc:"alias"`
}

func aliasAbsent(_ context.Context, e *state.Env, a aliasNameArgs) (state.Plan, error) {
	if aliasFile(e).Target(a.Name) == "" {
		return state.Plan{Comment: "Alias " + a.Name + " already absent"}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Alias " + a.Name + " is set to be removed"},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := aliasFile(e).Remove(ctx, a.Name); err != nil {
				return state.Change{}, fn.Errorf("Failed to remove alias %s: %w", a.Name, err)
			}
			return state.Change{Diff: value.DictOf("alias", a.Name), Comment: "Removed alias " + a.Name}, nil
		}}}}, nil
}

// joined joins names in a sentence: "module x" or "modules x, y".
func joined(noun string, names []string, one, many string) string {
	if len(names) == 1 {
		return noun + " " + names[0] + " " + one
	}
	return noun + "s " + strings.Join(names, ", ") + " " + many
}
