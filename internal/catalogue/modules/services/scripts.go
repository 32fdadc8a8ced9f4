package services

import (
	"context"
	"slices"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/initd"
	"brine/internal/host/process"
	"brine/internal/py/value"
)

// scripts manages the services of a machine on which systemd does not run.
// Arguments that only systemd knows have no effect.
type scripts struct {
	initd.System
	m *host.Machine
}

// function is a function of systemd's services, and method is the same for the
// init system.
type (
	function = func(context.Context, *fn.Call, args) (any, error)
	method   = func(scripts, context.Context, *fn.Call, args) (any, error)
)

// or returns a function that asks systemd, or the init system where systemd
// does not run. It validates the name first. Only systemd supports other
// roots.
func (s service) or(units function, other method) function {
	return func(ctx context.Context, c *fn.Call, a args) (any, error) {
		init, ok := s.scripts(c)
		if !ok || a.Root != "" {
			return units(ctx, c, a)
		}
		return other(init, ctx, c, a)
	}
}

// scripts returns the init system of a machine on which systemd does not run.
// ok is false if there is none, and if the option providers names systemd,
// which can enable and mask units without running.
func (s service) scripts(c *fn.Call) (init scripts, ok bool) {
	if d, _ := c.Config.Get("providers").(*value.Dict); d.Str("service") == "systemd_service" {
		return scripts{}, false
	}
	sys, ok := initd.Find(s.m)
	return scripts{sys, s.m}, ok
}

// names returns the names of the services for which keep returns true. With
// levels set, OpenRC returns a map from names to runlevels.
func (s scripts) names(ctx context.Context, levels bool, keep func(initd.Service) bool) (any, error) {
	all, err := s.Services(ctx)
	if err != nil {
		return nil, expected(err)
	}
	list, byName := &value.List{}, value.NewDict(len(all))
	for _, one := range all {
		if keep(one) {
			list.Append(one.Name)
			byName.Set(one.Name, value.Strings(one.Runlevels))
		}
	}
	if levels && s.OpenRC() {
		return byName, nil
	}
	return list, nil
}

func (s scripts) all(ctx context.Context, _ *fn.Call, _ args) (any, error) {
	return s.names(ctx, true, func(initd.Service) bool { return true })
}

func (s scripts) enabledOnes(ctx context.Context, _ *fn.Call, _ args) (any, error) {
	return s.names(ctx, true, func(o initd.Service) bool { return o.Enabled })
}

func (s scripts) disabledOnes(ctx context.Context, _ *fn.Call, _ args) (any, error) {
	return s.names(ctx, false, func(o initd.Service) bool { return !o.Enabled })
}

// find looks up a service. ok is false if there is none.
func (s scripts) find(ctx context.Context, name string) (one initd.Service, ok bool, err error) {
	if err := checked(name); err != nil {
		return one, false, err
	}
	all, err := s.Services(ctx)
	i := slices.IndexFunc(all, func(o initd.Service) bool { return o.Name == name })
	if i < 0 {
		return one, false, expected(err)
	}
	return all[i], true, expected(err)
}

func (s scripts) available(ctx context.Context, _ *fn.Call, a args) (any, error) {
	_, ok, err := s.find(ctx, a.Name)
	return ok, err
}

func (s scripts) missing(ctx context.Context, _ *fn.Call, a args) (any, error) {
	_, ok, err := s.find(ctx, a.Name)
	return !ok, err
}

func (s scripts) disabled(ctx context.Context, _ *fn.Call, a args) (any, error) {
	one, ok, err := s.find(ctx, a.Name)
	return ok && !one.Enabled, err
}

func (s scripts) startsAtBoot(ctx context.Context, a bootArgs) (bool, error) {
	one, ok, err := s.find(ctx, a.Name)
	if !ok || err != nil {
		return false, err
	}
	for _, level := range levels(a) {
		if !slices.Contains(one.Runlevels, level) {
			return false, nil
		}
	}
	return one.Enabled, nil
}

// levels reads the keyword runlevels, which is for OpenRC.
func levels(a bootArgs) []string {
	v, _ := a.Kwargs.Get("runlevels")
	l, ok := v.(*value.List)
	if !ok && v != nil {
		l = value.ListOf(v)
	}
	var out []string
	if l != nil {
		for _, it := range l.Items {
			out = append(out, value.Str(it))
		}
	}
	return out
}

// run runs a service script with a verb. The job gets its exit status.
func (s scripts) run(ctx context.Context, c *fn.Call, name, word string) (any, error) {
	if err := checked(name); err != nil {
		return nil, err
	}
	out, err := s.Act(ctx, name, word)
	return s.told(c, out, err)
}

// told reports whether a program succeeded. The job gets its exit status.
func (s scripts) told(c *fn.Call, out host.Output, err error) (any, error) {
	if err != nil {
		return false, expected(err)
	}
	if out.Exit != 0 {
		c.Log.Error("init system command failed", "exit", out.Exit, "stdout", out.Stdout, "stderr", out.Stderr)
		c.SetRetcode(out.Exit)
	}
	return out.Exit == 0, nil
}

func act(word string) method {
	return func(s scripts, ctx context.Context, c *fn.Call, a args) (any, error) {
		return s.run(ctx, c, a.Name, word)
	}
}

func (s scripts) change(ctx context.Context, c *fn.Call, a bootArgs, do func(context.Context, string, []string) (host.Output, error)) (any, error) {
	if err := checked(a.Name); err != nil {
		return false, err
	}
	out, err := do(ctx, a.Name, levels(a))
	return s.told(c, out, err)
}

func (s scripts) status(ctx context.Context, a statusArgs) (any, error) {
	if value.Truth(a.Sig) {
		re, err := target.CompileRegexp(".*?(?:" + value.Str(a.Sig) + ")")
		if err != nil {
			return nil, fn.Invalidf("%s is no regular expression: %w", value.Repr(a.Sig), err)
		}
		return len(process.Matching(s.m, re.MatchString)) > 0, nil
	}
	runs := func(name string) (bool, error) {
		out, err := s.Act(ctx, name, "status")
		return err == nil && out.Exit == 0, expected(err)
	}
	if !pattern(a.Name) {
		return runs(a.Name)
	}
	all, err := s.Services(ctx)
	if err != nil {
		return nil, expected(err)
	}
	glob, found := target.ParseGlob(a.Name), value.NewDict(0)
	for _, one := range all {
		if !glob.Match(one.Name) {
			continue
		}
		on, err := runs(one.Name)
		if err != nil {
			return nil, err
		}
		found.Set(one.Name, on)
	}
	return found, nil
}
