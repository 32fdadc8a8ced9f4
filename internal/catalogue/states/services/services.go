// Package services holds the state module service: which services run, and
// which start at boot. It also holds apache_module, apache_site and apache_conf
// for Debian's web server, and supervisord, rabbitmq_user and others for the
// daemons of these names.
//
// The states are independent of the init system. They call the minion's
// execution module service, whatever its implementation, and omit what it does
// not support.
package services

import (
	"context"
	"errors"
	"strings"
	"time"

	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/catalogue/states"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type service struct{}

// machine is the machine that states change.
var machine = &host.Machine{}

// text returns an argument as a string, "" for None.
func text(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the modules of this family.
func Modules() []state.Module { return units.Modules(nil) }

func init() { units.Declare("service", serviceModule) }

func serviceModule() state.Module {
	s := service{}
	return state.Module{Name: "service", Doc: `Have services run or not, now and after a boot.`, Funcs: []state.Func{
		state.Of("running", s.running, `Have a service run.`).Knows("enabled"),
		state.Of("dead", s.dead, `Have a service not run.`).Knows("enabled"),
		state.Of("enabled", s.enabled, `Have a service start at boot.`),
		state.Of("disabled", s.disabled, `Have a service not start at boot.`),
		state.Of("masked", s.mask(true), `Have nothing start a service (systemd).`),
		state.Of("unmasked", s.mask(false), `Let a service be started again (systemd).`),
		state.Of("mod_watch", s.watch, `Restart or reload the service of a state that watches, or stop it.`),
	}}
}

type runArgs struct {
	Name          string    `salt:"name" doc:"name of the service"`
	Enable        any       `salt:"enable" doc:"true to start it at boot, false not to, null to leave that alone" default:"null"`
	Sig           any       `salt:"sig" doc:"text by which to find the process in the list of processes, where the init system cannot tell" default:"null"`
	InitDelay     any       `salt:"init_delay" doc:"seconds to wait after a start or stop" default:"null"`
	NoBlock       any       `salt:"no_block" doc:"do not wait for systemd" default:"false"`
	Unmask        bool      `salt:"unmask" doc:"undo a mask first (systemd)" default:"false"`
	UnmaskRuntime bool      `salt:"unmask_runtime" doc:"undo a mask that lasts until the next boot (systemd)" default:"false"`
	Kwargs        fn.Kwargs `salt:"kwargs"`
}

type bootArgs struct {
	Name   string    `salt:"name" doc:"name of the service"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// unit is one service as seen by the execution module.
type unit struct {
	e    *state.Env
	name string
	sig  any
	// options are keywords of the state that functions may accept.
	options *value.Dict
}

func (u unit) bool(ctx context.Context, fun string, args ...any) (bool, error) {
	v, err := u.e.Exec(ctx, "service."+fun, u.taken(fun), args...)
	return value.Truth(v), err
}

// taken returns those options that a function declares.
func (u unit) taken(fun string) *value.Dict {
	f, err := u.e.Funcs.Lookup("service." + fun)
	if err != nil {
		return nil
	}
	kw := value.NewDict(3)
	for k, v := range u.options.All() {
		if _, ok := f.Param(value.Str(k)); ok {
			kw.Set(k, v)
		}
	}
	return kw
}

func (u unit) runs(ctx context.Context) (bool, error) {
	if u.sig == nil {
		return u.bool(ctx, "status", u.name)
	}
	return u.bool(ctx, "status", u.name, u.sig)
}

// boots reports whether the service starts at boot. If this cannot be
// determined, it returns true.
func (u unit) boots(ctx context.Context) (bool, error) {
	if !u.e.Can("service.enabled") {
		return true, nil
	}
	return u.bool(ctx, "enabled", u.name)
}

func (u unit) available(ctx context.Context) (bool, error) {
	if u.e.Can("service.available") {
		return u.bool(ctx, "available", u.name)
	}
	all, err := u.e.Exec(ctx, "service.get_all", nil)
	if l, ok := all.(*value.List); ok {
		for _, it := range l.Items {
			if it == u.name {
				return true, nil
			}
		}
	}
	return false, err
}

// unavailableError means that the machine lacks the service.
type unavailableError struct{ error }

func (e unavailableError) Unwrap() error { return e.error }

func (u unit) unavailable() error {
	return unavailableError{fn.Errorf("The named service %s is not available", u.name)}
}

func newUnit(e *state.Env, name string, sig any, kw *value.Dict) unit {
	return unit{e: e, name: name, sig: sig, options: kw}
}

func (a runArgs) unit(e *state.Env) unit {
	kw := a.Kwargs.Clone()
	kw.Set("no_block", a.NoBlock)
	kw.Set("unmask", a.Unmask)
	kw.Set("unmask_runtime", a.UnmaskRuntime)
	return newUnit(e, a.Name, a.Sig, kw)
}

// wanted reads the argument enable; nil means that it is not given.
func (a runArgs) wanted() *bool {
	on := false
	switch v := a.Enable.(type) {
	case bool:
		on = v
	case string:
		on = strings.EqualFold(v, "true") || v == "1"
	default:
		return nil
	}
	return &on
}

// phase selects the comment for a service whose start at boot changes.
type phase int

const (
	desired phase = iota // nothing else had to change
	runs
	dead
)

// boot changes whether the service starts at boot, with Salt's comments.
// changed is false if nothing had to change.
func (u unit) boot(ctx context.Context, on bool, p phase) (c state.Change, changed bool, err error) {
	what, fun, not := "enabled", "enable", ""
	if !on {
		what, fun, not = "disabled", "disable", "not "
	}
	is := map[phase]string{desired: "is in the desired state", runs: "is running", dead: "is dead"}[p]
	ok, err := u.available(ctx)
	switch {
	case err != nil:
		return c, false, err
	case !ok && on:
		return c, false, u.unavailable()
	case !ok:
		return state.Change{Comment: u.unavailable().Error()}, false, nil
	case !u.e.Can("service."+fun) || !u.e.Can("service."+what):
		end := map[phase]string{desired: "is in the desired state", runs: "started", dead: "is dead"}[p]
		return state.Change{Comment: capital(fun) + " is not available on this minion, service " + u.name + " " + end}, false, nil
	}
	before, err := u.bool(ctx, what, u.name)
	if err != nil {
		return c, false, err
	}
	if before {
		return state.Change{Comment: "Service " + u.name + " is already " + what + ", and " + is}, false, nil
	}
	done, err := u.bool(ctx, fun, u.name)
	if !done {
		text := "Failed when setting service " + u.name + " to " + not + "start at boot, " +
			map[phase]string{desired: "but the service was already running", runs: "but the service is running", dead: "and the service is dead"}[p]
		if !on && p == runs {
			text = strings.Replace(text, "but the service is", "and is", 1)
		}
		if err != nil {
			text += ". Additional information follows:\n\n" + err.Error()
		}
		return c, false, fn.Errorf("%s", text)
	}
	after, err := u.bool(ctx, what, u.name)
	if err != nil {
		return c, false, err
	}
	c = state.Change{Diff: value.NewDict(1), Comment: "Service " + u.name + " has been " + what + ", and " + is}
	if after {
		c.Diff.Set(u.name, true)
	}
	return c, true, nil
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// onlyBoot returns the plan for a service of which only the start at boot may
// have to change.
func (u unit) onlyBoot(ctx context.Context, on bool) (state.Plan, error) {
	what, fun := "enabled", "enable"
	if !on {
		what, fun = "disabled", "disable"
	}
	ok, err := u.available(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	if ok && u.e.Can("service."+fun) && u.e.Can("service."+what) {
		if ok, err = u.bool(ctx, what, u.name); err != nil {
			return state.Plan{}, err
		}
		if !ok {
			return state.Plan{Steps: []state.Step{{
				Change: state.Change{Comment: "Service " + u.name + " set to be " + what},
				Do: func(ctx context.Context) (state.Change, error) {
					c, _, err := u.boot(ctx, on, desired)
					return c, err
				},
			}}}, nil
		}
	}
	c, _, err := u.boot(ctx, on, desired) // only returns the comment that nothing changes
	return state.Plan{Comment: c.Comment}, err
}

// look makes the checks that running and dead have in common. done says that p
// is the final plan.
func (a runArgs) look(ctx context.Context, u unit, verb string) (p state.Plan, done bool, err error) {
	if a.Kwargs.Has("enabled") {
		return p, true, fn.Errorf(`Service %s uses non-existent option "enabled".  Perhaps "enable" option was intended?`, a.Name)
	}
	if u.e.Can("service.offline") {
		off, err := u.bool(ctx, "offline")
		if off || err != nil {
			return state.Plan{Comment: "Running in OFFLINE mode. Nothing to do"}, true, err
		}
	}
	ok, err := u.available(ctx)
	if err != nil || ok {
		return p, err != nil, err
	}
	p.Forecast = &state.Result{Comment: "Service " + a.Name + " not present; if created in this state run, it would have been " + verb}
	if verb == "stopped" {
		p.Comment = u.unavailable().Error()
		return p, true, nil
	}
	return p, true, u.unavailable()
}

// now reports whether the service runs and starts at boot.
func (u unit) now(ctx context.Context) (running, boots bool, err error) {
	if running, err = u.runs(ctx); err == nil {
		boots, err = u.boots(ctx)
	}
	return running, boots, err
}

// settled returns the plan for a service that already runs, or does not run, as
// declared.
func (u unit) settled(ctx context.Context, comment string, want *bool, boots bool) (state.Plan, error) {
	if want == nil || *want == boots {
		return state.Plan{Comment: comment}, nil
	}
	return u.onlyBoot(ctx, *want)
}

func (service) running(ctx context.Context, e *state.Env, a runArgs) (state.Plan, error) {
	u := a.unit(e)
	p, done, err := a.look(ctx, u, "started")
	if done || err != nil {
		return p, err
	}
	running, boots, err := u.now(ctx)
	if err != nil {
		return p, err
	}
	var unmask state.Plan
	said := ""
	if a.Unmask {
		if unmask, err = u.maskPlan(ctx, false, a.UnmaskRuntime); err != nil {
			return p, err
		}
		if said = unmask.Comment; len(unmask.Steps) > 0 {
			said = unmask.Steps[0].Change.Comment
		}
	}
	undo := func(ctx context.Context) (string, error) {
		if len(unmask.Steps) == 0 {
			return unmask.Comment, nil
		}
		c, err := unmask.Steps[0].Do(ctx)
		return c.Comment, err
	}
	if running {
		p, err := u.settled(ctx, lines("The service "+a.Name+" is already running", unmask.Comment), a.wanted(), boots)
		if err == nil && len(unmask.Steps) > 0 {
			p.Steps = append([]state.Step{{
				Change: state.Change{Comment: lines(p.Comment, said)},
				Do: func(ctx context.Context) (state.Change, error) {
					text, err := undo(ctx)
					return state.Change{Comment: lines(p.Comment, text)}, err
				},
			}}, p.Steps...)
		}
		return p, err
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: lines("Service "+a.Name+" is set to start", said)},
		Do: func(ctx context.Context) (state.Change, error) {
			text, err := undo(ctx)
			if err != nil {
				return state.Change{}, err
			}
			return failed(a.turn(ctx, u, true, boots, text))
		},
	}}}, nil
}

// failed moves the comment of a failed change to the error.
func failed(c state.Change, err error) (state.Change, error) {
	if errors.Is(err, errBad) {
		err = fn.Errorf("%s", c.Comment)
		c.Comment = ""
	}
	return c, err
}

func lines(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, "\n")
}

// errBad means that the comment of the returned change reports the failure.
var errBad = fn.Errorf("failed")

// turn starts or stops a service, and changes its start at boot. unmasked is
// the comment of a previous unmask.
func (a runArgs) turn(ctx context.Context, u unit, on, booted bool, unmasked string) (state.Change, error) {
	fun, good, bad := "start", "Started service "+a.Name, "Service "+a.Name+" failed to start"
	if !on {
		fun, good, bad = "stop", "Service "+a.Name+" was killed", "Service "+a.Name+" failed to die"
	}
	done, err := u.bool(ctx, fun, a.Name)
	if err != nil {
		return state.Change{}, err
	}
	if !done {
		c, _ := a.alsoBoot(ctx, u, state.Change{Comment: bad}, !on)
		return c, errBad
	}
	if err := a.wait(ctx); err != nil {
		return state.Change{}, err
	}
	if !on {
		u.sig = nil
	}
	running, boots, err := u.now(ctx)
	if err != nil {
		return state.Change{}, err
	}
	c := state.Change{Comment: good, Diff: value.NewDict(1)}
	if booted != boots || running == on {
		c.Diff.Set(a.Name, running)
	}
	if running != on {
		c.Comment = bad
	}
	c, err = a.alsoBoot(ctx, u, c, running)
	if on && value.Truth(a.InitDelay) {
		c.Comment += "\nDelayed return for " + value.Str(a.InitDelay) + " seconds"
	}
	if on && a.Unmask {
		c.Comment += "\n" + unmasked
	}
	if running != on && err == nil {
		err = errBad
	}
	return c, err
}

// alsoBoot changes the start at boot of a service that was started or stopped.
func (a runArgs) alsoBoot(ctx context.Context, u unit, c state.Change, running bool) (state.Change, error) {
	want := a.wanted()
	if want == nil {
		return c, nil
	}
	p := dead
	if running {
		p = runs
	}
	b, changed, err := u.boot(ctx, *want, p)
	if err != nil {
		c.Comment = err.Error()
		return c, errBad
	}
	if c.Comment = b.Comment; changed {
		c.Diff = b.Diff
	}
	return c, nil
}

// wait waits for init_delay.
func (a runArgs) wait(ctx context.Context) error { return initDelay(ctx, a.InitDelay) }

// initDelay waits for a number of seconds as given in SLS files.
func initDelay(ctx context.Context, seconds any) error {
	var d time.Duration
	switch n := seconds.(type) {
	case int64:
		d = time.Duration(n) * time.Second
	case float64:
		d = time.Duration(n * float64(time.Second))
	case nil:
		return nil
	default:
		return fn.Errorf("init_delay must be a number of seconds, not %s", value.Repr(seconds))
	}
	if !wait.Sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

func (service) dead(ctx context.Context, e *state.Env, a runArgs) (state.Plan, error) {
	u := a.unit(e)
	p, done, err := a.look(ctx, u, "stopped")
	if done || err != nil {
		return p, err
	}
	running, boots, err := u.now(ctx)
	switch {
	case err != nil:
		return p, err
	case !running:
		return u.settled(ctx, "The service "+a.Name+" is already dead", a.wanted(), boots)
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Service " + a.Name + " is set to be killed"},
		Do:     func(ctx context.Context) (state.Change, error) { return failed(a.turn(ctx, u, false, boots, "")) },
	}}}, nil
}

func (service) enabled(ctx context.Context, e *state.Env, a bootArgs) (state.Plan, error) {
	u := newUnit(e, a.Name, nil, a.Kwargs.Dict)
	p, err := u.onlyBoot(ctx, true)
	if _, ok := errors.AsType[unavailableError](err); ok {
		p.Forecast = &state.Result{Comment: "Service " + a.Name + " not present; if created in this state run, it would have been enabled"}
	}
	return p, err
}

func (service) disabled(ctx context.Context, e *state.Env, a bootArgs) (state.Plan, error) {
	return newUnit(e, a.Name, nil, a.Kwargs.Dict).onlyBoot(ctx, false)
}

type maskArgs struct {
	Name    string `salt:"name" doc:"name of the service"`
	Runtime bool   `salt:"runtime" doc:"a mask that lasts until the next boot" default:"false"`
}

func (service) mask(on bool) func(context.Context, *state.Env, maskArgs) (state.Plan, error) {
	return func(ctx context.Context, e *state.Env, a maskArgs) (state.Plan, error) {
		return newUnit(e, a.Name, nil, nil).maskPlan(ctx, on, a.Runtime)
	}
}

// maskPlan returns the plan to mask or unmask a service.
func (u unit) maskPlan(ctx context.Context, on, runtime bool) (state.Plan, error) {
	if !u.e.Can("service.masked") {
		return state.Plan{}, fn.Errorf("Service masking not available on this minion")
	}
	kind, fun, done, is := "masked", "mask", "masked", "is already "
	if runtime {
		kind, done = "runtime masked", "runtime masked"
	}
	if !on {
		fun, done, is = "unmask", strings.Replace(done, "masked", "unmasked", 1), "was already "
	}
	masked := func(ctx context.Context) (bool, error) { return u.bool(ctx, "masked", u.name, runtime) }
	now, err := masked(ctx)
	if err != nil || now == on {
		return state.Plan{Comment: "Service " + u.name + " " + is + done}, err
	}
	diff := value.DictOf(kind, value.DictOf("old", now, "new", on))
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: diff, Comment: "Service " + u.name + " would be " + done},
		Do: func(ctx context.Context) (state.Change, error) {
			if _, err := u.bool(ctx, fun, u.name, runtime); err != nil {
				return state.Change{}, err
			}
			now, err := masked(ctx)
			if err == nil && now != on {
				err = fn.Errorf("Failed to %s service %s", fun, u.name)
			}
			if err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: diff, Comment: "Service " + u.name + " was " + done}, nil
		},
	}}}, nil
}

type watchArgs struct {
	Name        string    `salt:"name" doc:"name of the service"`
	Sfun        string    `salt:"sfun" doc:"function of the state that watches" default:"null"`
	Sig         any       `salt:"sig" doc:"text by which to find the process" default:"null"`
	Reload      bool      `salt:"reload" doc:"reload the service in place of a restart" default:"false"`
	FullRestart bool      `salt:"full_restart" doc:"stop and start the service in place of a restart, where there is a difference" default:"false"`
	InitDelay   any       `salt:"init_delay" doc:"seconds to wait afterwards" default:"null"`
	Force       bool      `salt:"force" doc:"with reload: restart what cannot be reloaded" default:"false"`
	Kwargs      fn.Kwargs `salt:"kwargs"`
}

// verb returns the function that makes a service notice a change.
func (a watchArgs) verb(u unit, running bool) (fun, verb, past string) {
	switch {
	case !running:
		return "start", "start", "started"
	case a.Reload && a.Force && u.e.Can("service.force_reload"):
		return "force_reload", "forcefully reload", "forcefully reloaded"
	case a.Reload && u.e.Can("service.reload"):
		return "reload", "reload", "reloaded"
	case a.FullRestart && u.e.Can("service.full_restart"):
		return "full_restart", "fully restart", "fully restarted"
	}
	return "restart", "restart", "restarted"
}

func (service) watch(ctx context.Context, e *state.Env, a watchArgs) (state.Plan, error) {
	u := newUnit(e, a.Name, a.Sig, a.Kwargs.Dict)
	if a.Sfun != "running" && a.Sfun != "dead" {
		return state.Plan{}, fn.Errorf("Unable to trigger watch for service.%s", a.Sfun)
	}
	running, err := u.runs(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	fun, verb, past := "stop", "stop", "stopped"
	if a.Sfun == "running" {
		fun, verb, past = a.verb(u, running)
	} else if !running {
		return state.Plan{Comment: "Service is already stopped"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Service is set to be " + past},
		Do: func(ctx context.Context) (state.Change, error) {
			if fun == "start" {
				if _, err := u.bool(ctx, "stop", a.Name); err != nil {
					return state.Change{}, err
				}
			}
			v, err := e.Exec(ctx, "service."+fun, u.taken(fun), a.Name)
			if err == nil {
				err = initDelay(ctx, a.InitDelay)
			}
			if err != nil {
				return state.Change{}, err
			}
			c := state.Change{Diff: value.DictOf(a.Name, v)}
			if !value.Truth(v) {
				return c, fn.Errorf("Failed to %s the service", verb)
			}
			c.Comment = "Service " + past
			return c, nil
		},
	}}}, nil
}
