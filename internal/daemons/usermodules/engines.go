package usermodules

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/value"
)

// EngineKinds are the kinds that the process of an engine loads, on minions and masters.
var EngineKinds = []string{kindEngines, kindModules, kindRunners, kindRenderers, kindReturners, "utils", "serializers"}

const (
	// engineModule is the argument that names the module of an engine, for several engines of one
	// module.
	engineModule = "engine_module"

	// engineGrace is how long an engine may go on after SIGTERM.
	engineGrace = 5 * time.Second
	// An engine that has ended is started again after firstPause, then after twice as long each
	// time. One that ran for maxPause begins with firstPause again.
	firstPause = time.Second
	maxPause   = time.Minute
	// lookForEngines is how often the files are listed while a module is missing.
	lookForEngines = 2 * time.Second
)

// ParseEngines reads the option engines: a list of names and of maps of a name to arguments, or one
// map.
func ParseEngines(option any) (engines []EngineConfig) {
	items, isList := option.(*value.List)
	if !isList {
		items = &value.List{}
		d, _ := option.(*value.Dict)
		for name, args := range d.All() {
			items.Append(value.DictOf(name, args))
		}
	}
	for _, it := range items.Items {
		e := EngineConfig{Name: value.Str(it)}
		if d, ok := it.(*value.Dict); ok {
			var args any
			for k, v := range d.All() { // as in Salt, the first key counts
				e.Name, args = value.Str(k), v
				break
			}
			e.Args, ok = args.(*value.Dict)
			e.Invalid = !ok && args != nil
		}
		e.Module = e.Name
		if e.Args != nil && e.Args.Has(engineModule) {
			e.Module = value.Str(e.Args.At(engineModule))
			e.Args = e.Args.Clone()
			e.Args.Delete(engineModule)
		}
		if e.Name != "" {
			engines = append(engines, e)
		}
	}
	return engines
}

// EngineConfig is one engine of the option engines.
type EngineConfig struct {
	// Name is the name of the engine, Module that of its module.
	Name, Module string
	// Args are the keyword arguments of its function start, or nil.
	Args *value.Dict
	// Invalid means that the arguments are not a map.
	Invalid bool
}

// Engines runs the engines of a daemon: functions start of the user's modules that run as long as
// the daemon does, each in a process of its own.
type Engines struct {
	// List are the engines.
	List []EngineConfig
	// Open returns the modules for one engine.
	Open func() *Modules
	// Stock returns the modules of a stock Salt for one engine, or nil. It may be nil.
	Stock func() *Modules
	// Fetch is the command that fetches modules.
	Fetch string
	Log   *slog.Logger
}

// Run runs the engines until ctx ends, and waits for their end.
func (e *Engines) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, c := range e.List {
		wg.Go(func() { e.keep(ctx, c) })
	}
	wg.Wait()
}

// keep runs one engine again and again.
func (e *Engines) keep(ctx context.Context, c EngineConfig) {
	log := e.Log.With("engine", c.Name, "module", c.Module)
	if c.Invalid {
		log.Error("option engines: the arguments of an engine must be a map; it is not started")
		return
	}
	m := e.Open()
	defer m.Close()
	if err := m.pool.Off(); err != nil {
		log.Error("option engines: cannot start an engine", "err", err)
		return
	}
	if !m.has(kindEngines, c.Module) && e.Stock != nil {
		if stock := e.Stock(); stock != nil && stock.has(kindEngines, c.Module) {
			defer stock.Close()
			m = stock
		}
	}
	pause := firstPause
	for e.exists(ctx, m, c, log) {
		log.Info("starting an engine")
		began := time.Now()
		m.Rescan()
		files, _ := m.listing(kindEngines)
		missing, err := m.pool.Engine(ctx, m.engineEnv(), c.Module, c.Args.Clone(), engineGrace)
		switch {
		case ctx.Err() != nil:
			log.Info("an engine has ended because the daemon stops")
			return
		case missing != "":
			log.Error("option engines: cannot start an engine before its module changes", "reason", missing)
			for l := files; l.Stamp == files.Stamp; l, _ = m.listing(kindEngines) {
				if !wait.Sleep(ctx, lookForEngines) {
					return
				}
			}
			continue
		}
		if time.Since(began) >= maxPause {
			pause = firstPause
		}
		if trace := python.Trace(err); trace != "" {
			log.Error("an engine raised an exception; starting it again", "after", pause, "traceback", trace)
		} else if err != nil {
			log.Error("an engine failed; starting it again", "after", pause, "err", err)
		} else {
			log.Warn("an engine has ended; starting it again", "after", pause)
		}
		if !wait.Sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// exists waits until the module of an engine exists. It returns false if ctx ends first.
func (e *Engines) exists(ctx context.Context, m *Modules, c EngineConfig, log *slog.Logger) bool {
	for logged := false; !m.has(kindEngines, c.Module); logged = true {
		if !logged {
			log.Error("option engines: there is no module for an engine; if it is one of your own, fetch it with " + e.Fetch + " saltutil.sync_engines")
		}
		if !wait.Sleep(ctx, lookForEngines) {
			return false
		}
	}
	return ctx.Err() == nil
}

// engineEnv returns the environment of an engine. It runs for so long that each function gets the
// grains and the pillar of its own time.
func (m *Modules) engineEnv() *python.Env {
	c := m.call()
	c.Pillar = currentPillar{m}
	e := env(c, nil)
	e.Functions = map[string]python.Functions{kindModules: current{m.call, false}, kindBuiltin: current{m.call, true}}
	if m.cfg.Runners != nil {
		e.Functions[kindRunners] = current{call: func() *fn.Call {
			c := m.call()
			c.Funcs = m.cfg.Runners()
			return c
		}}
	}
	if m.cfg.Wheel != nil {
		e.Functions[kindWheel] = m.cfg.Wheel
	}
	e.Bus, e.Commander, e.OnMinion = m.cfg.Bus, m.cfg.Commander, m.cfg.OnMinion
	return e
}

// current are Brine's functions, each with a call of its own.
type current struct {
	call func() *fn.Call
	// all means those of modules that the user's modules replace, too.
	all bool
}

func (f current) functions() python.Functions {
	own := ownFunctions{f.call()}
	if f.all {
		return allFunctions{own}
	}
	return own
}

// Has implements python.Functions.
func (f current) Has(name string) bool { return f.functions().Has(name) }

// Names implements python.Functions.
func (f current) Names() []string { return f.functions().Names() }

// Call implements python.Functions.
func (f current) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	return f.functions().Call(ctx, name, args, kwargs)
}

// currentPillar is the pillar of the time at which it is read.
type currentPillar struct{ m *Modules }

// Get implements fn.Reader.
func (p currentPillar) Get(key string) any { return p.m.call().Pillar.Get(key) }

// All implements fn.Reader.
func (p currentPillar) All() *value.Dict { return p.m.call().Pillar.All() }
