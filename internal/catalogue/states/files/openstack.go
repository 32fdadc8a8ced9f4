package files

import (
	"context"
	"strings"

	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Add(openstackModule()) }

// openstackModule are the states of the configuration of OpenStack's services.
func openstackModule() state.Module {
	return state.Module{Name: "openstack_config", Doc: `Keep options of OpenStack's services, by openstack-config.`, Funcs: []state.Func{
		state.Of("present", openstackPresent, `Have an option with a value.`),
		state.Of("absent", openstackAbsent, `Have no such option.`),
	}}
}

// option returns the value of an option, and whether it is there.
func option(ctx context.Context, e *state.Env, file, section, parameter string) (v any, there bool, err error) {
	v, err = e.Exec(ctx, "openstack_config.get", nil, file, section, parameter)
	if err != nil && strings.HasPrefix(strings.ToLower(err.Error()), "parameter not found:") {
		return nil, false, nil
	}
	return v, err == nil, err
}

type openstackPresentArgs struct {
	Name      string `salt:"name" doc:"name of the option, unless parameter is given"`
	File      string `salt:"filename" doc:"path of the file"`
	Section   string `salt:"section" doc:"section"`
	Value     any    `salt:"value" doc:"value"`
	Parameter any    `salt:"parameter" doc:"name of the option" default:"null"`
}

func parameter(name string, p any) string {
	if p == nil {
		return name
	}
	return value.Str(p)
}

func openstackPresent(ctx context.Context, e *state.Env, a openstackPresentArgs) (state.Plan, error) {
	p := parameter(a.Name, a.Parameter)
	now, there, err := option(ctx, e, a.File, a.Section, p)
	switch {
	case err != nil:
		return state.Plan{}, err
	case there && value.Str(now) == value.Str(a.Value):
		return state.Plan{Comment: "The value is already set to the correct value"}, nil
	}
	would := "Value '" + value.Str(now) + "' is set to be changed to '" + value.Str(a.Value) + "'."
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		if _, err := e.Exec(ctx, "openstack_config.set", nil, a.File, a.Section, p, a.Value); err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: value.DictOf("Value", "Updated"), Comment: "The value has been updated"}, nil
	}}}}, nil
}

type openstackAbsentArgs struct {
	Name      string `salt:"name" doc:"name of the option, unless parameter is given"`
	File      string `salt:"filename" doc:"path of the file"`
	Section   string `salt:"section" doc:"section"`
	Parameter any    `salt:"parameter" doc:"name of the option" default:"null"`
}

func openstackAbsent(ctx context.Context, e *state.Env, a openstackAbsentArgs) (state.Plan, error) {
	p := parameter(a.Name, a.Parameter)
	now, there, err := option(ctx, e, a.File, a.Section, p)
	switch {
	case err != nil:
		return state.Plan{}, err
	case !there:
		return state.Plan{Comment: "The value is already absent"}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Value '" + value.Str(now) + "' is set to be deleted."}, Do: func(ctx context.Context) (state.Change, error) {
		if _, err := e.Exec(ctx, "openstack_config.delete", nil, a.File, a.Section, p); err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: value.DictOf("Value", "Deleted"), Comment: "The value has been deleted"}, nil
	}}}}, nil
}
