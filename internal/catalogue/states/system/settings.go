package system

import (
	"context"
	"errors"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/parameters"
	"brine/internal/host/locale"
	"brine/internal/host/sysctl"
	"brine/internal/host/timezone"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("sysctl", func() state.Module {
		return state.Module{Name: "sysctl", Doc: `Keep parameters of the kernel.`, Funcs: []state.Func{
			state.Of("present", sysctlPresent, `Have a value of a kernel parameter, now and after a boot.`),
		}}
	})
	units.Declare("timezone", func() state.Module {
		return state.Module{Name: "timezone", Doc: `Keep the time zone.`, Funcs: []state.Func{
			state.Of("system", timezoneSystem, `Have a time zone, and the hardware clock in UTC.`),
		}}
	})
	units.Declare("locale", func() state.Module {
		return state.Module{Name: "locale", Doc: `Keep locales.`, Funcs: []state.Func{
			state.Of("system", localeSystem, `Have a locale as the system's.`),
			state.Of("present", localePresent, `Have a locale that can be used.`),
		}}
	})
}

type sysctlArgs struct {
	Name   string `salt:"name" doc:"name of the parameter"`
	Value  any    `salt:"value" doc:"its value"`
	Config any    `salt:"config" doc:"file that keeps it for the next boot; by default the system's" default:"null"`
}

func sysctlPresent(ctx context.Context, e *state.Env, a sysctlArgs) (state.Plan, error) {
	want := value.Str(a.Value)
	kernel, config := parameters.Kernel{M: machine}, sysctl.DefaultFile(machine)
	if a.Config != nil {
		config = value.Str(a.Config)
	}
	v, err := kernel.Show(ctx, e.Call, parameters.ShowArgs{File: config})
	if err != nil {
		return state.Plan{}, err
	}
	configured, _ := v.(*value.Dict) // an empty list if the file does not exist
	current, err := kernel.Get(ctx, e.Call, parameters.NameArgs{Name: a.Name})
	if err != nil {
		current = err.Error() // a value, too, for Salt
	}
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	predicted := "Sysctl option " + a.Name + " would be changed to " + want
	switch has := configured.Has(a.Name); {
	case v == nil:
		predicted = "Sysctl option " + a.Name + " might be changed, we failed to check config file at " + config +
			". The file is either unreadable, or missing."
	case current == "" && has:
		predicted = "Sysctl value " + a.Name + " is present in configuration file but is not present in the running config. The value " + a.Name +
			" is set to be changed to " + want
	case current == "" || has && words(want) != words(current):
	case has && words(value.Str(configured.At(a.Name))) == words(want):
		return state.Plan{Comment: "Sysctl value " + a.Name + " = " + want + " is already set"}, nil
	case has: // the file has another value, which would apply after a reboot
	case words(want) != words(current):
		predicted = "Sysctl option " + a.Name + " set to be changed to " + want
	default:
		predicted = "Sysctl value is currently set on the running system but not in a config file. Sysctl option " + a.Name + " set to be changed to " + want +
			" in config file."
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: predicted},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := kernel.Persist(ctx, e.Call, parameters.PersistArgs{Name: a.Name, Value: a.Value, Config: config})
			switch {
			case err != nil:
				return state.Change{}, fn.Errorf("Failed to set %s to %s: %w", a.Name, want, err)
			case v == "Already set":
				return state.Change{Comment: "Sysctl value " + a.Name + " = " + want + " is already set"}, nil
			case v == "Updated":
				return state.Change{Diff: value.DictOf(a.Name, a.Value), Comment: "Updated sysctl value " + a.Name + " = " + want}, nil
			}
			return state.Change{}, fn.Errorf("Failed to set %s to %s: %s", a.Name, want, v)
		},
	}}}, nil
}

type timezoneArgs struct {
	Name string `salt:"name" doc:"name of the time zone, such as Europe/Berlin"`
	UTC  bool   `salt:"utc" doc:"have the hardware clock in UTC" default:"true"`
}

func timezoneSystem(ctx context.Context, e *state.Env, a timezoneArgs) (state.Plan, error) {
	same, err := timezone.Is(machine, a.Name)
	if err != nil {
		return state.Plan{}, fn.Errorf("Unable to compare desired timezone '%s' to system timezone: %w", a.Name, err)
	}
	setZone, setClock := !same, a.UTC && timezone.ClockIsLocal(machine)
	if !setZone && !setClock {
		text := "Timezone " + a.Name + " already set"
		if a.UTC {
			text += ", UTC already set to " + a.Name
		}
		return state.Plan{Comment: text}, nil
	}
	var predicted []string
	if setZone {
		predicted = append(predicted, "Timezone "+a.Name+" needs to be set")
	}
	if setClock {
		predicted = append(predicted, "UTC needs to be set to True")
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: strings.Join(predicted, ", ")},
		Do: func(ctx context.Context) (state.Change, error) {
			c := state.Change{Diff: value.NewDict(2)}
			var said []string
			if setZone {
				family := e.Grains.Get("os_family")
				if err := timezone.Set(machine, a.Name, family == "Debian" || family == "Gentoo"); err != nil {
					return c, because("Failed to set timezone", err)
				}
				c.Diff.Set("timezone", a.Name)
				said = append(said, "Set timezone "+a.Name)
			}
			if setClock {
				if ok, err := timezone.SetClockLocal(ctx, machine, false); err != nil || !ok {
					return c, because(strings.Join(append(said, "Failed to set UTC to True"), ", "), err)
				}
				c.Diff.Set("utc", true)
				said = append(said, "Set UTC to True")
			}
			c.Comment = strings.Join(said, ", ")
			return c, nil
		},
	}}}, nil
}

// because adds the reason to a message, if there is one.
func because(text string, err error) error {
	if err == nil {
		return fn.Errorf("%s", text)
	}
	return fn.Errorf("%s: %w", text, err)
}

type localeArgs struct {
	Name string `salt:"name" doc:"name of the locale, such as de_DE.UTF-8"`
}

func localeSystem(_ context.Context, _ *state.Env, a localeArgs) (state.Plan, error) {
	if locale.Default(machine) == a.Name {
		return state.Plan{Comment: "System locale " + a.Name + " already set"}, nil
	}
	set := func(ctx context.Context) (bool, error) { return locale.SetDefault(ctx, machine, a.Name) }
	return localePlan(set, a.Name, "System locale "+a.Name+" needs to be set", "Set system locale "+a.Name, "Failed to set system locale to "+a.Name), nil
}

func localePresent(ctx context.Context, e *state.Env, a localeArgs) (state.Plan, error) {
	there, err := locale.IsInstalled(ctx, machine, a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	if there {
		return state.Plan{Comment: "Locale " + a.Name + " is already present"}, nil
	}
	install := func(ctx context.Context) (bool, error) {
		out, err := locale.Install(ctx, machine, locale.Wanted{Name: a.Name, OS: value.Str(e.Grains.Get("os")), Family: value.Str(e.Grains.Get("os_family"))})
		if errors.Is(err, locale.ErrUnknown) || err == nil && out.Exit != 0 {
			e.Log.Error("cannot install locale", "locale", a.Name, "stderr", out.Stderr, "err", err)
			return false, nil
		}
		return err == nil, err
	}
	return localePlan(install, a.Name, "Locale "+a.Name+" needs to be generated", "Generated locale "+a.Name, "Failed to generate locale "+a.Name), nil
}

func localePlan(do func(context.Context) (bool, error), name, will, did, failed string) state.Plan {
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: will},
		Do: func(ctx context.Context) (state.Change, error) {
			if ok, err := do(ctx); err != nil || !ok {
				return state.Change{}, because(failed, err)
			}
			return state.Change{Diff: value.DictOf("locale", name), Comment: did}, nil
		},
	}}}
}
