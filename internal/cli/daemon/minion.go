package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"brine/internal/base/trace"
	"brine/internal/call/client"
	"brine/internal/catalogue/grains"
	"brine/internal/cli/frame"
	"brine/internal/cli/session"
	"brine/internal/daemons/config"
	"brine/internal/daemons/minion"
	"brine/internal/net/transport/named"
	"brine/internal/py/value"
)

// MinionApplet returns the program salt-minion.
func MinionApplet() frame.Applet {
	b := &blueprint{
		command: &frame.Command{Name: "salt-minion", Doc: "The minion daemon: runs what its masters ask for."},
		kind:    config.MinionKind, title: "Salt Minion", class: "Minion", alone: true,
		load: loadMinion,
	}
	return frame.Applet{Name: "salt-minion", Summary: "the minion daemon", Run: b.run}
}

func loadMinion(t *config.Tree, starting bool, log *slog.Logger) (*common, error) {
	t.WarnUnknown(&config.Minion{})
	cfg, err := config.NewMinion(t, config.ThisMachine(), starting, log)
	if err != nil {
		return nil, err
	}
	t.WarnPaths(cfg)
	return &common{
		log: &cfg.Log, pidFile: cfg.Files.PIDFile, profile: cfg.Profile, metrics: cfg.Metrics.Address, user: cfg.Files.User,
		refused:  t.Refuse(cfg.Overrides, &config.Minion{}),
		cacheDir: cfg.Files.CacheDir, directories: []string{cfg.Files.PKIDir, cfg.Files.CacheDir, cfg.Files.SockDir},
		check: func(ctx context.Context, c *checker) {
			c.key(filepath.Join(cfg.Files.PKIDir, "minion.pem"), "")
			mc, err := MinionConfig(cfg, t, log)
			if err != nil {
				c.fault("%v", err)
				return
			}
			faults := minion.CheckStart(&mc, c.logger(log))
			for _, err := range faults {
				c.fault("%v", err)
			}
			if len(faults) == 0 {
				c.masters(ctx, cfg.Options.Master)
			}
			warnOwnServed(ctx, t, mc.Opts, cfg, log)
		},
		build: func(ctx context.Context, log *slog.Logger) (service, error) {
			mc, err := MinionConfig(cfg, t, log)
			if err != nil {
				return nil, err
			}
			warnOwnServed(ctx, t, mc.Opts, cfg, log)
			mc.Tracer = trace.New(cfg.Traces, "salt-minion", mc.ID, log)
			return minion.New(ctx, mc, log)
		},
	}, nil
}

// MinionConfig converts the options to the minion's configuration, for the daemon and for
// salt-call.
func MinionConfig(cfg *config.Minion, t *config.Tree, log *slog.Logger) (minion.Config, error) {
	tr, err := named.New(cfg.Network.Transport, log)
	if err != nil {
		return minion.Config{}, err
	}
	dial, subscribe, err := cfg.Network.Dial()
	if err != nil {
		return minion.Config{}, err
	}
	opts, err := config.Dump(t, cfg)
	if err != nil {
		return minion.Config{}, err
	}
	opts.Set("conf_file", cfg.Files.ConfFile)
	opts.Set("config_dir", filepath.Dir(cfg.Files.ConfFile))
	opts.Set("__role", "minion")
	opts.Set("__cli", "salt-minion")
	if err := config.AddUnused(config.MinionKind, opts); err != nil {
		return minion.Config{}, err
	}
	f := cfg.Files
	g := cfg.Grains
	g.ID, g.ConfFile, g.CacheDir, g.Opts, g.Version = f.ID, f.ConfFile, f.CacheDir, opts, frame.Version
	g.Master = masterGrain(cfg.Options.Master)
	return minion.Config{
		Overlaid: func(path string) (minion.Config, error) { return overlaid(cfg, t, path, log) },
		LocalMaster: func() (*client.Client, func(), error) {
			return session.LocalMaster(filepath.Join(filepath.Dir(f.ConfFile), "master"), os.Getenv, log)
		},
		ID: f.ID, PKIDir: f.PKIDir, CacheDir: f.CacheDir, ConfDir: filepath.Dir(f.ConfFile), ExtensionModules: f.ExtensionModules,
		Options: cfg.Options, Handshake: cfg.Handshake, Transport: tr, Dial: dial, SubscribeDial: subscribe, Events: cfg.Events, Files: cfg.Served,
		Backends: cfg.Elsewhere, Pillar: cfg.Pillar, GitPillar: cfg.GitPillar, Top: cfg.Top, Templates: cfg.Templates, Returners: cfg.Returners,
		Keysize: f.Keysize, Opts: opts,
		CollectGrains: func(ctx context.Context) *value.Dict {
			d, err := grains.Collect(ctx, g, log)
			if err != nil {
				log.Error("cannot collect some grains", "err", err)
			}
			return d
		},
	}, nil
}

// overlaid returns the configuration overlaid with another file. The minion keeps its id, unless
// the file has one.
func overlaid(cfg *config.Minion, t *config.Tree, path string, log *slog.Logger) (minion.Config, error) {
	over, err := t.Overlay(path)
	if err != nil {
		return minion.Config{}, err
	}
	if _, set := over.Origin("id"); !set {
		over.Set("id", cfg.Files.ID, t.Path)
	}
	c, err := config.NewMinion(over, config.ThisMachine(), false, log)
	if err != nil {
		return minion.Config{}, err
	}
	over.WarnUnknown(&config.Minion{})
	return MinionConfig(c, over, log)
}

func masterGrain(masters minion.Masters) any {
	if len(masters) == 1 {
		return masters[0]
	}
	return value.Strings(masters)
}
