package minion

import (
	"log/slog"

	"brine/internal/call/fn"
	"brine/internal/daemons/minion/background"
	"brine/internal/daemons/minion/calls"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/ownpillar"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// local reports whether files come from this machine instead of a master.
func (cfg *Config) local() bool {
	return cfg.Options.FileClient == "local" || len(cfg.Options.Master) == 0
}

// fileSource is where files of this machine are.
func (cfg *Config) fileSource() calls.FileSource {
	return calls.FileSource{CacheDir: cfg.CacheDir, HashType: cfg.Handshake.HashType, Files: cfg.Files, Backends: cfg.Backends, Opts: cfg.Opts}
}

// localServer serves the files of this machine, nil if they come from a master.
func (cfg *Config) localServer(log *slog.Logger) *fileserver.Server {
	if !cfg.local() {
		return nil
	}
	return cfg.fileSource().Server(log)
}

// ownPillar is the pillar by a configuration, the minion's or one that was made of it.
// call makes calls by the same configuration.
func (cfg *Config) ownPillar(r *render.Renderer, funcs *fn.Registry, call func() *fn.Call, g *grains.Store, b *background.Group,
	log *slog.Logger) *ownpillar.Pillar {
	return ownpillar.New(ownpillar.Config{
		ID: cfg.ID, CacheDir: cfg.CacheDir, HashType: cfg.Handshake.HashType, Pillar: cfg.Pillar, Git: cfg.GitPillar, Top: cfg.Top, Opts: cfg.Opts,
		Renderer: r, Funcs: funcs, Call: call, Grains: g.Grains, Background: b, Log: log,
	})
}

// Grains returns the current grains, which the caller must not change.
func (m *Minion) Grains() *value.Dict { return m.grains.Grains() }
