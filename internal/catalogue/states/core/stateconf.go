package core

import (
	"context"

	"brine/internal/sls/state"
)

func init() {
	set := func(context.Context, *state.Env, anyArgs) (state.Plan, error) { return state.Plan{}, nil }
	units.Declare("stateconf", func() state.Module {
		return state.Module{Name: "stateconf", Doc: `What SLS files of the renderer stateconf set; the states do nothing.`, Funcs: []state.Func{
			state.Of("set", set, `Set names for the templates of this file and of those that include it.`),
			state.Of("context", set, `The same as stateconf.set.`),
		}}
	})
}
