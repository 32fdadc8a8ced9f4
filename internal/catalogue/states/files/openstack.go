package files

import (
	"context"
	"errors"
	"os/exec"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/openstack"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("openstack_config", openstackModule) }

// openstackModule returns the states for the configuration of OpenStack
// services.
func openstackModule() state.Module {
	return state.Module{Name: "openstack_config", Doc: `Keep options of OpenStack's services, by openstack-config.`, Funcs: []state.Func{
		state.Of("present", openstackPresent, `Have an option with a value.`),
		state.Of("absent", openstackAbsent, `Have no such option.`),
	}}
}

// lookUpOption returns the value of an option, and whether it exists.
func lookUpOption(ctx context.Context, o openstack.Option) (v string, there bool, err error) {
	v, err = o.Get(ctx)
	var failed *openstack.ProgramError
	if errors.As(err, &failed) && failed.Absent() {
		return "", false, nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = &fn.ProgramError{Program: openstack.Program}
	}
	return v, err == nil, err
}

// openstackOption returns an option of this machine. Its name is the state's,
// unless parameter is given.
func openstackOption(file, section, name string, parameter any) openstack.Option {
	if parameter != nil {
		name = value.Str(parameter)
	}
	return openstack.Option{M: &host.Machine{}, File: file, Section: section, Name: name}
}

type openstackPresentArgs struct {
	Name      string `salt:"name" doc:"name of the option, unless parameter is given"`
	File      string `salt:"filename" doc:"path of the file"`
	Section   string `salt:"section" doc:"section"`
	Value     any    `salt:"value" doc:"value"`
	Parameter any    `salt:"parameter" doc:"name of the option" default:"null"`
}

func openstackPresent(ctx context.Context, _ *state.Env, a openstackPresentArgs) (state.Plan, error) {
	o := openstackOption(a.File, a.Section, a.Name, a.Parameter)
	now, there, err := lookUpOption(ctx, o)
	switch {
	case err != nil:
		return state.Plan{}, err
	case there && now == value.Str(a.Value):
		return state.Plan{Comment: "The value is already set to the correct value"}, nil
	}
	was := now
	if !there {
		was = "None"
	}
	would := "Value '" + was + "' is set to be changed to '" + value.Str(a.Value) + "'."
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		if _, err := o.Set(ctx, value.Str(a.Value)); err != nil {
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

func openstackAbsent(ctx context.Context, _ *state.Env, a openstackAbsentArgs) (state.Plan, error) {
	o := openstackOption(a.File, a.Section, a.Name, a.Parameter)
	now, there, err := lookUpOption(ctx, o)
	switch {
	case err != nil:
		return state.Plan{}, err
	case !there:
		return state.Plan{Comment: "The value is already absent"}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Value '" + now + "' is set to be deleted."},
		Do: func(ctx context.Context) (state.Change, error) {
			if _, err := o.Delete(ctx); err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: value.DictOf("Value", "Deleted"), Comment: "The value has been deleted"}, nil
		}}}}, nil
}
