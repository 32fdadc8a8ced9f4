package services

import (
	"context"
	"strings"

	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// apachePart is a kind of what Debian's Apache can have enabled: what its
// state is named for, and the word in the functions of the module apache.
type apachePart struct{ name, word string }

func init() {
	for _, m := range apacheModules() {
		units.Add(m)
	}
}

// apacheModules returns the modules apache_module, apache_site and
// apache_conf.
func apacheModules() (all []state.Module) {
	for _, p := range []apachePart{{"module", "mod"}, {"site", "site"}, {"conf", "conf"}} {
		all = append(all, state.Module{Name: "apache_" + p.name, Doc: `Have a ` + p.name + ` of Debian's Apache enabled, or not.`, Funcs: []state.Func{
			state.Of("enabled", p.have(true), `Have it enabled.`),
			state.Of("disabled", p.have(false), `Have it disabled.`),
		}})
	}
	return all
}

type apacheArgs struct {
	Name string `salt:"name" doc:"its name"`
}

// have returns the state function that has it enabled, or disabled.
func (p apachePart) have(enabled bool) func(context.Context, *state.Env, apacheArgs) (state.Plan, error) {
	verb, fun := "enable", "apache.a2en"+p.word
	if !enabled {
		verb, fun = "disable", "apache.a2dis"+p.word
	}
	return func(ctx context.Context, e *state.Env, a apacheArgs) (state.Plan, error) {
		now, err := e.Exec(ctx, "apache.check_"+p.word+"_enabled", nil, a.Name)
		if err != nil {
			return state.Plan{}, err
		}
		if now == enabled {
			return state.Plan{Comment: a.Name + " already " + verb + "d."}, nil
		}
		diff := value.DictOf("old", nil, "new", a.Name)
		if !enabled {
			diff = value.DictOf("old", a.Name, "new", nil)
		}
		return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Apache " + p.name + " " + a.Name + " is set to be " + verb + "d.", Diff: diff},
			Do: func(ctx context.Context) (state.Change, error) {
				v, err := e.Exec(ctx, fun, nil, a.Name)
				if err != nil {
					return state.Change{}, err
				}
				d, _ := v.(*value.Dict)
				switch said, _ := d.At("Status").(string); {
				case strings.HasSuffix(said, " "+verb+"d"):
					return state.Change{Diff: diff}, nil
				case said != "":
					return state.Change{}, state.Errorf("Failed to %s %s Apache %s (%s)", verb, a.Name, p.name, said)
				}
				return state.Change{}, state.Errorf("Failed to %s %s Apache %s", verb, a.Name, p.name)
			}}}}, nil
	}
}
