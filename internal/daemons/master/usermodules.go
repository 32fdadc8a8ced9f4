package master

import (
	"context"
	"log/slog"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/daemons/usermodules"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// lookForModules is how often a master looks for new files in the directories of modules;
// Salt's programs read them at each start.
const lookForModules = 2 * time.Second

// serves is what a running master has for the user's runners; all of it may be nil.
type serves struct {
	wheel     python.Functions // for salt.wheel
	runners   func() *fn.Registry
	bus       python.Bus
	commander python.Commander
}

// userModules returns the user's own modules of the given kinds for a master. call creates the
// context of calls that belong to no minion.
func userModules(cfg *Config, kinds []string, call func() *fn.Call, has serves, log *slog.Logger) *usermodules.Modules {
	return usermodules.New(modulesConfig(cfg, kinds, call, has, log))
}

func modulesConfig(cfg *Config, kinds []string, call func() *fn.Call, has serves, log *slog.Logger) usermodules.Config {
	o := cfg.Options
	return usermodules.Config{
		Kinds: kinds, Every: lookForModules, Options: o.PythonOptions, Sync: o.ModuleOptions.Sync(), CacheDir: cfg.CacheDir,
		ExtensionModules: cfg.ExtensionModules, ID: cfg.ID, Opts: cfg.Opts, OwnGrains: value.NewDict(0), Log: log,
		SaltFile: func(string) string { return "" },
		Wheel:    has.wheel, Runners: has.runners, Bus: has.bus, Commander: has.commander,
		Call: call,
	}
}

// userFiles returns the user's own file server backends.
func userFiles(cfg *Config, bus python.Bus, log *slog.Logger) *usermodules.Files {
	call := func() *fn.Call {
		opts := cfg.Opts.Clone()
		opts.Set("id", cfg.ID)
		opts.Set("__role", "master")
		return &fn.Call{ID: cfg.ID, Log: log, Config: fn.Tree{Dict: opts}, Grains: fn.Tree{Dict: value.NewDict(0)}}
	}
	return usermodules.NewFiles(modulesConfig(cfg, nil, call, serves{bus: bus}, log))
}

// call creates the context for calls of the master's execution functions that belong to no
// minion.
func (t *templates) call() *fn.Call {
	opts := t.opts.Clone()
	opts.Set("id", t.id)
	opts.Set("__role", "master")
	return &fn.Call{ID: t.id, Log: t.log, Funcs: t.funcs, Config: fn.Tree{Dict: opts}, Grains: t.grains, Files: t.ownFiles(), Templates: ownTemplates{t},
		SDB: t.user.SDB()}
}

// SyncModules implements runners.ModuleSource.
func (s runnerServes) SyncModules(ctx context.Context, kinds, envs []string, whitelist, blacklist any) (map[string][]string, error) {
	if s.templates == nil || s.templates.user == nil {
		return nil, salt.Errorf(salt.Unavailable, "there is no master's data on this machine, so no files to fetch modules from")
	}
	names, err := s.templates.user.Fetch(ctx, s.templates.call(), kinds, envs, whitelist, blacklist)
	if s.fetched != nil {
		s.fetched()
	}
	return names, err
}

// ownWheels are the master's own wheel functions, for the user's runners. Their calls are
// recorded and fire events like all others.
type ownWheels struct {
	calls *wheelCalls
	order func() within
}

// Has implements python.Functions.
func (w ownWheels) Has(name string) bool {
	_, ok := w.calls.registry.Own(name)
	return ok
}

// Names implements python.Functions.
func (w ownWheels) Names() []string { return w.calls.registry.OwnNames() }

// Call implements python.Functions.
func (w ownWheels) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	_, done := w.order().wheel(ctx, name, value.DictOf("fun", name, "arg", &value.List{Items: args}, "kwarg", kwargs))
	var ran wire.Ran
	wire.View(done, &ran)
	if ran.Success != true {
		return nil, fn.Errorf("%s", value.Str(ran.Return))
	}
	return ran.Return, nil
}

// pythonTop calls a module in Python for top data: for each environment, a list of SLS files.
func (t *templates) pythonTop(ctx context.Context, id, name string, sent *value.Dict) (*value.Dict, error) {
	c := t.call()
	var in wire.TopData
	wire.View(sent, &in)
	opts := in.Opts.Clone()
	if opts == nil {
		opts = value.NewDict(1)
	}
	opts.Set("id", id) // the minion may have sent another one
	var of wire.TopOpts
	wire.View(opts, &of)
	if of.Grains == nil {
		of.Grains = value.NewDict(0)
	}
	v, err := t.user.Top(ctx, c, name, opts, of.Grains)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "its function top returns a %s, not a map", value.TypeName(v))
	}
	return d, nil
}

// isTop reports whether a source of top data is a module in Python.
func (t *templates) isTop(name string) bool { return t.user.HasTop(name) }

// offlineCall creates the context of calls for a program that has only a master's
// configuration.
func offlineCall(cfg *Config, log *slog.Logger) func() *fn.Call {
	return func() *fn.Call {
		return &fn.Call{ID: cfg.ID, Log: log, Config: fn.Tree{Dict: cfg.Opts}, Grains: fn.Tree{Dict: value.NewDict(0)}}
	}
}

// OwnRunners returns the user's own modules of a master on this machine, for a program that shows
// their documentation; nil if no runner is among them. The caller closes them.
func OwnRunners(cfg *Config, log *slog.Logger) *usermodules.Modules {
	own := userModules(cfg, usermodules.RunnerKinds, offlineCall(cfg, log), serves{}, log)
	if !own.HasRunners() {
		own.Close()
		return nil
	}
	return own
}

// OwnOutputters returns the user's own outputters of a master on this machine, for a program
// that prints results.
func OwnOutputters(cfg *Config, log *slog.Logger) *usermodules.Modules {
	return userModules(cfg, usermodules.OutputKinds, offlineCall(cfg, log), serves{}, log)
}
