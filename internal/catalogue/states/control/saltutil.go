package control

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// kinds are the kinds of modules that Salt's minions fetch from masters.
var kinds = []string{"beacons", "clouds", "engines", "executors", "grains", "log_handlers", "matchers", "modules", "output", "outputters", "pillar",
	"proxymodules", "renderers", "returners", "sdb", "serializers", "states", "thorium", "tops", "utils", "wrapper"}

func init() { units.Declare("saltutil", saltutilModule) }

func saltutilModule() state.Module {
	m := state.Module{Name: "saltutil", Doc: `Fetch modules from the master.`, Funcs: []state.Func{
		state.Of("sync_all", syncAll, `Fetch modules of all kinds. Keywords are those of the function.`),
	}}
	for _, kind := range kinds {
		m.Funcs = append(m.Funcs, state.Of("sync_"+kind, syncOne(kind), `Fetch modules of a kind. Keywords are those of the function.`))
	}
	return m
}

type syncArgs struct {
	Name   string    `salt:"name" doc:"anything"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

const nothingToSync = "No updates to sync"

func syncAll(_ context.Context, e *state.Env, a syncArgs) (state.Plan, error) {
	return whole(func(ctx context.Context, test bool) state.Result {
		if test {
			return undecided("saltutil.sync_all would have been run")
		}
		v, err := e.Exec(ctx, "saltutil.sync_all", a.Kwargs.Dict)
		if err != nil {
			return failed("Failed to run sync_all: %v", err)
		}
		r := succeeded(nothingToSync)
		all, _ := v.(*value.Dict)
		for kind, names := range all.All() {
			if value.Truth(names) {
				if r.Changes == nil {
					r.Changes = value.NewDict(1)
				}
				r.Changes.Set(kind, names)
				r.Comment = "Sync performed"
			}
		}
		return r
	})
}

func syncOne(kind string) func(context.Context, *state.Env, syncArgs) (state.Plan, error) {
	return func(_ context.Context, e *state.Env, a syncArgs) (state.Plan, error) {
		return whole(func(ctx context.Context, test bool) state.Result {
			function := "saltutil.sync_" + kind
			if test {
				return undecided("%s would have been run", function)
			}
			if !e.Can(function) { // as in Salt: only the master has some kinds
				return failed("Failed to run sync_%s: '%s'", kind, function)
			}
			names, err := e.Exec(ctx, function, a.Kwargs.Dict)
			switch {
			case err != nil:
				return failed("Failed to run sync_%s: %v", kind, err)
			case !value.Truth(names):
				return succeeded(nothingToSync)
			}
			r := succeeded("Updated %s.", kind)
			r.Changes = value.DictOf(kind, names)
			return r
		})
	}
}
