package core

import (
	"context"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("environ", func() state.Module {
		return state.Module{Name: "environ", Doc: `Set variables of the minion's environment.`, Funcs: []state.Func{
			state.Of("setenv", setenv, `Have variables in the environment of the minion and what it starts.`),
		}}
	})
}

type setenvArgs struct {
	Name       string `salt:"name" doc:"name of the variable, unless value is a map"`
	Value      any    `salt:"value" doc:"its value, a map of variables, or false to unset or empty it"`
	FalseUnset bool   `salt:"false_unsets" doc:"false unsets a variable in place of making it empty" default:"false"`
	ClearAll   bool   `salt:"clear_all" doc:"unset or empty all other variables" default:"false"`
	Update     bool   `salt:"update_minion" doc:"has no effect: there is but one process" default:"false"`
	Permanent  any    `salt:"permanent" doc:"has no effect on Unix" default:"false"`
}

func setenv(_ context.Context, e *state.Env, a setenvArgs) (state.Plan, error) {
	vars := value.NewDict(1)
	switch v := a.Value.(type) {
	case string:
		vars.Set(a.Name, v)
	case bool:
		if v {
			return state.Plan{}, fn.Errorf("Environ value must be string, dict or False")
		}
		vars.Set(a.Name, v)
	case *value.Dict:
		vars = v
	default:
		return state.Plan{}, fn.Errorf("Environ value must be string, dict or False")
	}
	changes := a.changes(vars)
	if changes.Len() == 0 {
		return state.Plan{Comment: "Environ values were already set with the correct values",
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "Environ values are already set with the correct values"}}, nil
	}
	// As in Salt, a test succeeds although there are changes to make.
	forecast := &state.Result{Verdict: state.Succeeded, Comment: "Environ values will be changed", Changes: changes}
	return state.Plan{Forecast: forecast, Steps: []state.Step{{
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "environ.setenv", nil, vars, a.FalseUnset, a.ClearAll, a.Update, a.Permanent)
			d, ok := v.(*value.Dict)
			if err != nil || !ok {
				return state.Change{Diff: changes}, fn.Errorf("Failed to set environ variables")
			}
			return state.Change{Diff: d, Comment: "Environ values were set"}, nil
		},
	}}}, nil
}

// changes compares the environment with the declared variables.
func (a setenvArgs) changes(vars *value.Dict) *value.Dict {
	out := value.NewDict(vars.Len())
	var unset any = ""
	if a.FalseUnset {
		unset = nil
	}
	if a.ClearAll {
		for _, entry := range os.Environ() {
			if k, _, _ := strings.Cut(entry, "="); !vars.Has(k) {
				out.Set(k, unset)
			}
		}
	}
	for k, v := range vars.All() {
		now, ok := os.LookupEnv(value.Str(k))
		switch {
		case v == false && a.FalseUnset:
			if ok {
				out.Set(k, nil)
			}
		case v == false:
			if !ok || now != "" {
				out.Set(k, "")
			}
		case now != value.Str(v) || value.TypeName(v) != "str":
			out.Set(k, v)
		}
	}
	return out
}
