package minion

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/background"
	"brine/internal/daemons/minion/calls"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/ownpillar"
	"brine/internal/daemons/usermodules"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// local reports whether files come from this machine instead of a master.
func (cfg *Config) local() bool {
	return cfg.Options.FileClient == "local" || len(cfg.Options.Master) == 0
}

// fileSource returns the location of files on this machine by a configuration, the minion's or a derived one.
func (m *Minion) fileSource(cfg *Config) calls.FileSource {
	return calls.FileSource{
		CacheDir: cfg.CacheDir, HashType: cfg.Handshake.HashType, Files: cfg.Files, Backends: cfg.Backends, Opts: cfg.Opts,
		Own: func(name string) func() (fileserver.Backend, error) { return m.userFiles.Backend(name, true) },
	}
}

// localServer returns the server of files on this machine, nil if they come
// from a master.
func (m *Minion) localServer() *fileserver.Server {
	if !m.cfg.local() {
		return nil
	}
	return m.fileSource(&m.cfg).Server(m.log)
}

// ownFiles returns the user's own file server backends.
func (m *Minion) ownFiles() *usermodules.Files {
	c := m.modulesConfig(usermodules.FileKinds)
	c.Call = func() *fn.Call {
		opts := c.Opts.Clone()
		opts.Set("__role", "minion")
		return &fn.Call{ID: c.ID, Log: c.Log, Config: fn.Tree{Dict: opts}, Grains: fn.Tree{Dict: value.NewDict(0)}}
	}
	return usermodules.NewFiles(c)
}

// ownPillar returns the pillar compiled by a configuration, the minion's or a derived
// one. call creates calls with the same configuration.
func (cfg *Config) ownPillar(r *render.Renderer, funcs *fn.Registry, user *usermodules.Modules, call func() *fn.Call, g *grains.Store, b *background.Group,
	log *slog.Logger) *ownpillar.Pillar {
	return ownpillar.New(ownpillar.Config{
		ID: cfg.ID, CacheDir: cfg.CacheDir, HashType: cfg.Handshake.HashType, Pillar: cfg.Pillar, Git: cfg.GitPillar, Top: cfg.Top, Opts: cfg.Opts,
		Renderer: r, Funcs: funcs, Python: user.Pillars(), Call: call, Grains: g.Grains, Background: b, Log: log,
	})
}

// lookForBeacons is the interval of scans for changed beacon modules. Other modules are
// scanned again when a function fetches them.
const lookForBeacons = 2 * time.Second

// userModules returns the user's own modules of some kinds.
func (m *Minion) userModules(kinds []string) *usermodules.Modules {
	return usermodules.New(m.modulesConfig(kinds))
}

func (m *Minion) modulesConfig(kinds []string) usermodules.Config {
	cfg := &m.cfg
	opts := cfg.Opts
	if opts == nil {
		opts = value.NewDict(0)
	}
	own, _ := fn.Tree{Dict: opts}.Get("grains").(*value.Dict)
	one, every := slices.Equal(kinds, usermodules.BeaconKinds), time.Duration(0)
	if one {
		every = lookForBeacons
	}
	return usermodules.Config{
		Kinds: kinds, One: one, Every: every,
		Options: cfg.Options.PythonOptions, Sync: cfg.Options.ExtmodOptions, CacheDir: cfg.CacheDir, ExtensionModules: cfg.ExtensionModules,
		ID: cfg.ID, Opts: opts, OwnGrains: own, Disabled: cfg.Options.DisableModules, Only: cfg.Options.WhitelistModules,
		Log:      m.log,
		SaltFile: func(module string) string { return saltFile(module, m.grains.Reader(nil)) },
		Call: func() *fn.Call {
			c := m.calls.New(nil, "")
			c.Funcs = m.funcs
			return c
		},
		Funcs: func() *fn.Registry { return m.funcs },
	}
}

// engineConfig returns the configuration of the modules of an engine.
func (m *Minion) engineConfig(kinds []string) usermodules.Config {
	c := m.modulesConfig(kinds)
	c.One, c.Every, c.Options.Timeout = true, lookForBeacons, 0
	c.Bus, c.OnMinion = m.bus.Own(), true
	c.Call = func() *fn.Call {
		c := m.calls.New(m.links.WithPillar(), "")
		c.Funcs = m.funcs
		return c
	}
	return c
}

// runEngines runs the engines of the option engines until ctx ends.
func (m *Minion) runEngines(ctx context.Context) {
	e := usermodules.Engines{
		List: usermodules.ParseEngines(m.cfg.Options.Engines), Fetch: "salt-call", Stock: m.stock.Engine, Log: m.log,
		Open: func() *usermodules.Modules { return usermodules.New(m.engineConfig(usermodules.EngineKinds)) },
	}
	e.Run(ctx)
}

// stockModules returns the modules of a stock Salt if python_fallback allows them,
// otherwise nil.
func (m *Minion) stockModules() (*usermodules.Stock, error) {
	o := &m.cfg.Options
	switch o.PythonFallback {
	case "":
		return nil, nil
	case "salt":
	default:
		return nil, salt.Errorf(salt.Invalid, "python_fallback: %q is neither salt nor empty", o.PythonFallback)
	}
	return &usermodules.Stock{
		Python: o.Program, Log: m.log,
		Allowed: func(module string) bool {
			return (len(o.WhitelistModules) == 0 || slices.Contains(o.WhitelistModules, module)) && !slices.Contains(o.DisableModules, module)
		},
		Modules: func(kinds []string, python, dir string) *usermodules.Modules {
			c := m.modulesConfig(kinds)
			if slices.Equal(kinds, usermodules.StockEngineKinds) {
				c = m.engineConfig(kinds)
			}
			c.Stock, c.Options.Program = dir, python
			return usermodules.New(c)
		},
	}, nil
}

// collectGrains gathers the grains, and adds those of the user's modules.
func (m *Minion) collectGrains(ctx context.Context) *value.Dict {
	g := m.cfg.CollectGrains(ctx)
	m.user.Grains(ctx, g)
	return g
}

// Grains returns the current grains, which the caller must not modify.
func (m *Minion) Grains() *value.Dict { return m.grains.Grains() }
