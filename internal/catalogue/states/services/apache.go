package services

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/apache"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// apachePart is a kind of configuration that Debian's Apache can enable, with the
// suffix of its state's name.
type apachePart struct {
	name string
	part apache.Part
}

func init() {
	site, mod, conf := apache.Parts(machine)
	for _, p := range []apachePart{{"module", mod}, {"site", site}, {"conf", conf}} {
		units.Declare("apache_"+p.name, p.module)
	}
}

// module returns the module apache_module, apache_site or apache_conf.
func (p apachePart) module() state.Module {
	return state.Module{Name: "apache_" + p.name, When: apacheInstalled, Doc: `Have a ` + p.name + ` of Debian's Apache enabled, or not.`,
		Funcs: []state.Func{
			state.Of("enabled", p.have(true), `Have it enabled.`),
			state.Of("disabled", p.have(false), `Have it disabled.`),
		}}
}

// apacheInstalled reports whether this is a Debian system with Apache.
func apacheInstalled(grains fn.Reader) (string, bool) {
	return "apache module could not be loaded", grains.Get("os_family") == "Debian" && machine.Which("apache2ctl") != ""
}

type apacheArgs struct {
	Name string `salt:"name" doc:"its name"`
}

// have returns the state function that enables or disables it.
func (p apachePart) have(enabled bool) func(context.Context, *state.Env, apacheArgs) (state.Plan, error) {
	verb := "enable"
	if !enabled {
		verb = "disable"
	}
	return func(_ context.Context, _ *state.Env, a apacheArgs) (state.Plan, error) {
		if p.part.Enabled(a.Name) == enabled {
			return state.Plan{Comment: a.Name + " already " + verb + "d."}, nil
		}
		diff := value.DictOf("old", nil, "new", a.Name)
		if !enabled {
			diff = value.DictOf("old", a.Name, "new", nil)
		}
		return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Apache " + p.name + " " + a.Name + " is set to be " + verb + "d.", Diff: diff},
			Do: func(ctx context.Context) (state.Change, error) {
				d, err := p.part.Set(ctx, a.Name, enabled)
				if err != nil {
					return state.Change{}, err
				}
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
