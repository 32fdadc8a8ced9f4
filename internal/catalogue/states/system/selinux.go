package system

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/selinux"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("selinux", func() state.Module {
		when := func(g fn.Reader) (string, bool) {
			_, ok := policy().Usable(g)
			return "selinux module could not be loaded", ok
		}
		return state.Module{Name: "selinux", When: when, Doc: `Keep the mode of SELinux, its booleans, modules and policies.`, Funcs: []state.Func{
			state.Of("mode", selinuxMode, `Have SELinux in a mode. To change from or to disabled, restart the machine.`),
			state.Of("boolean", selinuxBoolean, `Have a boolean on or off.`),
			state.Of("module", selinuxModule, `Have a policy module enabled or disabled.`),
			state.Of("module_install", selinuxInstalled, `Install a policy module from a file.`),
			state.Of("module_remove", selinuxRemoved, `Have no such policy module.`),
			state.Of("fcontext_policy_present", fcontextPresent, `Have a policy for the context of files.`),
			state.Of("fcontext_policy_absent", fcontextAbsent, `Have no such policy for the context of files.`),
			state.Of("fcontext_policy_applied", fcontextApplied, `Have files with the contexts of the policy.`),
			state.Of("port_policy_present", portPresent, `Have a type for a port.`),
			state.Of("port_policy_absent", portAbsent, `Have no type for a port.`),
		}}
	})
}

// policy is the SELinux policy of this machine.
func policy() selinux.Policy { return selinux.Policy{M: machine} }

type selinuxModeArgs struct {
	Name any `salt:"name" doc:"enforcing, permissive or disabled"`
}

func selinuxMode(_ context.Context, _ *state.Env, a selinuxModeArgs) (state.Plan, error) {
	want := ""
	switch m := strings.ToLower(value.Str(a.Name)); {
	case strings.HasPrefix(m, "e"), m == "1", m == "on":
		want = "Enforcing"
	case strings.HasPrefix(m, "p"), m == "0", m == "off":
		want = "Permissive"
	case strings.HasPrefix(m, "d"):
		want = "Disabled"
	default:
		return state.Plan{}, state.Errorf("%s is not an accepted mode", value.Str(a.Name))
	}
	now, configured := any(policy().Mode()), policy().Configured()
	if now == any(want) && configured != any(want) {
		now = configured
	}
	if now == any(want) {
		return state.Plan{Comment: "SELinux is already in " + want + " mode"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: value.DictOf("old", now, "new", want), Comment: "SELinux mode is set to be changed to " + want},
		Do: func(context.Context) (state.Change, error) {
			mode, err := policy().SetMode(want)
			if err == nil && mode != want && (want != "Disabled" || policy().Configured() != any(want)) {
				err = state.Errorf("Failed to set SELinux to %s mode", want)
			}
			if err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: value.DictOf("old", now, "new", mode), Comment: "SELinux has been set to " + want + " mode"}, nil
		}}}}, nil
}

type selinuxBooleanArgs struct {
	Name    string `salt:"name" doc:"name of the boolean"`
	Value   any    `salt:"value" doc:"on or off"`
	Persist bool   `salt:"persist" doc:"also from the next boot on" default:"false"`
}

func selinuxBoolean(ctx context.Context, _ *state.Env, a selinuxBooleanArgs) (state.Plan, error) {
	all, err := policy().Booleans(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	now, ok := all.At(a.Name).(*value.Dict)
	if !ok {
		return state.Plan{}, state.Errorf("Boolean %s is not available", a.Name)
	}
	want := ""
	switch strings.ToLower(value.Str(a.Value)) {
	case "1", "on", "yes", "true":
		want = "on"
	case "0", "off", "no", "false":
		want = "off"
	default:
		return state.Plan{}, state.Errorf("%s is not a valid value for the boolean", value.Str(a.Value))
	}
	later := a.Persist && now.Str("Default") != want
	if now.Str("State") == want && !later {
		return state.Plan{Comment: "Boolean is in the correct state"}, nil
	}
	return one("Boolean "+a.Name+" is set to be changed to "+want, func(ctx context.Context) (state.Change, error) {
		done, err := policy().SetBoolean(ctx, a.Name, want, a.Persist)
		if err == nil && !done {
			err = state.Errorf("Failed to set the boolean %s to %s", a.Name, want)
		}
		if err != nil {
			return state.Change{}, err
		}
		diff := value.DictOf("State", value.DictOf("old", now.Str("State"), "new", want))
		if later {
			diff.Set("Default", value.DictOf("old", now.Str("Default"), "new", want))
		}
		return state.Change{Diff: diff, Comment: "Boolean " + a.Name + " has been set to " + want}, nil
	}), nil
}

type selinuxModuleArgs struct {
	Name    string    `salt:"name" doc:"name of the policy module"`
	State   any       `salt:"module_state" doc:"Enabled or Disabled" default:"Enabled"`
	Version string    `salt:"version" doc:"version that the module must have" default:"any"`
	Options fn.Kwargs `salt:"opts" doc:"install: install it first, from source; remove: remove it"`
}

func selinuxModule(ctx context.Context, e *state.Env, a selinuxModuleArgs) (state.Plan, error) {
	install, remove := value.Truth(a.Options.At("install")), value.Truth(a.Options.At("remove"))
	switch {
	case install && remove:
		return state.Plan{}, state.Errorf("Cannot install and remove at the same time")
	case remove:
		return selinuxRemoved(ctx, e, selinuxNamed{a.Name})
	case !install:
		return a.plan(ctx)
	}
	source := selinuxNamed{a.Name}
	if v, ok := a.Options.Get("source"); ok {
		source.Name = value.Str(v)
	}
	p, err := selinuxInstalled(ctx, e, source)
	if err != nil {
		return p, err
	}
	step := p.Steps[0].Do
	p.Steps[0].Do = func(ctx context.Context) (state.Change, error) {
		if _, err := step(ctx); err != nil {
			return state.Change{}, err
		}
		then, err := a.plan(ctx)
		if err != nil || len(then.Steps) == 0 {
			return state.Change{Comment: then.Comment}, err
		}
		return then.Steps[0].Do(ctx)
	}
	return p, nil
}

// plan enables or disables the module.
func (a selinuxModuleArgs) plan(ctx context.Context) (state.Plan, error) {
	all, err := policy().Modules(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	now, ok := all.At(a.Name).(*value.Dict)
	if !ok {
		return state.Plan{}, state.Errorf("Module %s is not available", a.Name)
	}
	given, want := value.Str(a.State), ""
	switch strings.ToLower(given) {
	case "1", "on", "yes", "true", "enabled":
		want = "enabled"
	case "0", "off", "no", "false", "disabled":
		want = "disabled"
	default:
		return state.Plan{}, state.Errorf("%s is not a valid state for the %s module.", given, a.Name)
	}
	if v := value.Str(now.At("Version")); a.Version != "any" && v != a.Version {
		return state.Plan{}, state.Errorf("Module version is %s and does not match the desired version of %s or you are using semodule >= 2.4", v, a.Version)
	}
	if now.Bool("Enabled") == (want == "enabled") {
		return state.Plan{Comment: "Module " + a.Name + " is in the desired state"}, nil
	}
	return one("Module "+a.Name+" is set to be toggled to "+given, func(ctx context.Context) (state.Change, error) {
		done, err := policy().SetModule(ctx, a.Name, want)
		if err == nil && !done {
			err = state.Errorf("Failed to set the Module %s to %s", a.Name, given)
		}
		if err != nil {
			return state.Change{}, err
		}
		return state.Change{Comment: "Module " + a.Name + " has been set to " + given}, nil
	}), nil
}

type selinuxNamed struct {
	Name string `salt:"name" doc:"name of the policy module, or its file"`
}

func selinuxInstalled(_ context.Context, e *state.Env, a selinuxNamed) (state.Plan, error) {
	return one("Module "+a.Name+" is set to be installed", func(ctx context.Context) (state.Change, error) {
		done, err := policy().Install(ctx, e.Call, a.Name)
		if err == nil && !done {
			err = state.Errorf("Failed to install module %s", a.Name)
		}
		if err != nil {
			return state.Change{}, err
		}
		return state.Change{Comment: "Module " + a.Name + " has been installed"}, nil
	}), nil
}

func selinuxRemoved(ctx context.Context, _ *state.Env, a selinuxNamed) (state.Plan, error) {
	all, err := policy().Modules(ctx)
	if err == nil && !all.Has(a.Name) {
		err = state.Errorf("Module %s is not available", a.Name)
	}
	if err != nil {
		return state.Plan{}, err
	}
	return one("Module "+a.Name+" is set to be removed", func(ctx context.Context) (state.Change, error) {
		done, err := policy().Remove(ctx, a.Name)
		if err == nil && !done {
			err = state.Errorf("Failed to remove module %s", a.Name)
		}
		if err != nil {
			return state.Change{}, err
		}
		return state.Change{Comment: "Module " + a.Name + " has been removed"}, nil
	}), nil
}

type fcontextArgs struct {
	Name     string `salt:"name" doc:"file specification, a regular expression"`
	Type     string `salt:"sel_type" doc:"type of the context"`
	FileType string `salt:"filetype" doc:"a, f, d, c, b, s, l or p" default:"a"`
	User     string `salt:"sel_user" doc:"SELinux user" default:"null"`
	Level    string `salt:"sel_level" doc:"MLS range" default:"null"`
}

// failed returns an error if the result of cmd.run_all is a failure.
func failed(what string, done *value.Dict, err error) error {
	if err == nil && done.Int("retcode") != 0 {
		err = state.Errorf("%s: %s", what, value.Repr(done))
	}
	return err
}

func fcontextPresent(ctx context.Context, e *state.Env, a fcontextArgs) (state.Plan, error) {
	kind, err := selinux.FileType(a.FileType)
	if err != nil {
		return state.Plan{}, err
	}
	want := selinux.FileContext{Type: a.Type, User: a.User, Level: a.Level}
	now, err := policy().GetFile(ctx, a.Name, a.FileType, want)
	if err != nil {
		return state.Plan{}, err
	}
	if now != nil {
		return state.Plan{Comment: fmt.Sprintf(`SELinux policy for "%s" already present with specified filetype "%s" and sel_type "%s".`, a.Name, kind,
			a.Type)}, nil
	}
	return one("", func(ctx context.Context) (state.Change, error) {
		done, err := policy().AddFile(ctx, e.Call, a.Name, a.FileType, want)
		if err = failed("Error adding new rule", done, err); err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: value.DictOf("old", value.NewDict(0), "new", value.DictOf(a.Name, value.DictOf("filetype", kind, "sel_type", a.Type)))}, nil
	}), nil
}

type fcontextAbsentArgs struct {
	Name     string `salt:"name" doc:"file specification, a regular expression"`
	FileType string `salt:"filetype" doc:"a, f, d, c, b, s, l or p" default:"a"`
	Type     any    `salt:"sel_type" doc:"type of the context; null: any" default:"null"`
	User     string `salt:"sel_user" doc:"SELinux user" default:"null"`
	Level    string `salt:"sel_level" doc:"MLS range" default:"null"`
}

func fcontextAbsent(ctx context.Context, e *state.Env, a fcontextAbsentArgs) (state.Plan, error) {
	of := selinux.FileContext{User: a.User, Level: a.Level}
	if a.Type != nil {
		of.Type = value.Str(a.Type)
	}
	now, err := policy().GetFile(ctx, a.Name, a.FileType, of)
	if err != nil {
		return state.Plan{}, err
	}
	if now == nil {
		return state.Plan{Comment: fmt.Sprintf(`SELinux policy for "%s" already absent with specified filetype "%s" and sel_type "%s".`, a.Name, a.FileType,
			value.Str(a.Type))}, nil
	}
	change := state.Change{Diff: value.DictOf("old", value.DictOf(a.Name, now), "new", value.NewDict(0))}
	return state.Plan{Steps: []state.Step{{Change: change, Do: func(ctx context.Context) (state.Change, error) {
		if of.Type == "" {
			of.Type = now.Str("sel_type")
		}
		done, err := policy().DeleteFile(ctx, e.Call, a.Name, a.FileType, of)
		return change, failed("Error removing policy", done, err)
	}}}}, nil
}

type fcontextAppliedArgs struct {
	Name      string `salt:"name" doc:"path of the files"`
	Recursive bool   `salt:"recursive" doc:"also below directories" default:"false"`
}

func fcontextApplied(ctx context.Context, e *state.Env, a fcontextAppliedArgs) (state.Plan, error) {
	due, err := policy().Unapplied(ctx, e.Call, a.Name, a.Recursive)
	if err != nil {
		return state.Plan{}, err
	}
	if due == "" {
		return state.Plan{Comment: `SElinux policies are already applied for filespec "` + a.Name + `"`}, nil
	}
	return one("", func(ctx context.Context) (state.Change, error) {
		done, err := policy().Apply(ctx, e.Call, a.Name, a.Recursive)
		if err = failed("cannot apply the policy", done, err); err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: done.Dict("changes")}, nil
	}), nil
}

type portPresentArgs struct {
	Name     string `salt:"name" doc:"protocol and port, as tcp/8080 or udp/20-21, or any name if protocol and port are given"`
	Type     string `salt:"sel_type" doc:"type of the port"`
	Protocol any    `salt:"protocol" doc:"tcp or udp" default:"null"`
	Port     any    `salt:"port" doc:"port or range of ports" default:"null"`
	Range    string `salt:"sel_range" doc:"MLS range" default:"null"`
}

func portPresent(ctx context.Context, e *state.Env, a portPresentArgs) (state.Plan, error) {
	port := selinux.Port{Name: a.Name, Protocol: a.Protocol, Port: a.Port}
	now, err := policy().GetPort(ctx, port, a.Type)
	if err != nil {
		return state.Plan{}, err
	}
	if now != nil {
		return state.Plan{Comment: fmt.Sprintf(`SELinux policy for "%s" already present with specified sel_type "%s", protocol "%s" and port "%s".`, a.Name,
			a.Type, value.Str(a.Protocol), value.Str(a.Port))}, nil
	}
	return one("", func(ctx context.Context) (state.Change, error) {
		old, err := policy().GetPort(ctx, port, "")
		if err != nil {
			return state.Change{}, err
		}
		action := "add"
		if old != nil {
			action = "modify"
		}
		done, err := policy().ChangePort(ctx, e.Call, action, port, a.Type, a.Range)
		if err = failed("Error adding new policy", done, err); err != nil {
			return state.Change{}, err
		}
		return portChange(ctx, port, a.Type, old)
	}), nil
}

// portChange returns the change of the policy for a port.
func portChange(ctx context.Context, port selinux.Port, seltype string, old *value.Dict) (state.Change, error) {
	now, err := policy().GetPort(ctx, port, seltype)
	orNone := func(d *value.Dict) any {
		if d == nil {
			return nil
		}
		return d
	}
	return state.Change{Diff: value.DictOf("old", orNone(old), "new", orNone(now))}, err
}

type portAbsentArgs struct {
	Name     string `salt:"name" doc:"protocol and port, as tcp/8080 or udp/20-21, or any name if protocol and port are given"`
	Type     any    `salt:"sel_type" doc:"type of the port; null: any" default:"null"`
	Protocol any    `salt:"protocol" doc:"tcp or udp" default:"null"`
	Port     any    `salt:"port" doc:"port or range of ports" default:"null"`
}

func portAbsent(ctx context.Context, e *state.Env, a portAbsentArgs) (state.Plan, error) {
	port := selinux.Port{Name: a.Name, Protocol: a.Protocol, Port: a.Port}
	seltype := ""
	if a.Type != nil {
		seltype = value.Str(a.Type)
	}
	now, err := policy().GetPort(ctx, port, seltype)
	if err != nil {
		return state.Plan{}, err
	}
	if now == nil {
		return state.Plan{Comment: fmt.Sprintf(`SELinux policy for "%s" already absent with specified sel_type "%s", protocol "%s" and port "%s".`, a.Name,
			value.Str(a.Type), value.Str(a.Protocol), value.Str(a.Port))}, nil
	}
	return one("", func(ctx context.Context) (state.Change, error) {
		done, err := policy().ChangePort(ctx, e.Call, "delete", port, "", "")
		if err = failed("Error deleting policy", done, err); err != nil {
			return state.Change{}, err
		}
		return portChange(ctx, port, seltype, now)
	}), nil
}
