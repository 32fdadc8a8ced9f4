package daemon

import (
	"context"
	"log/slog"
	"path/filepath"

	"brine/internal/base/salt"
	"brine/internal/base/trace"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/daemons/master"
	"brine/internal/net/transport/named"
)

// MasterApplet returns the program salt-master.
func MasterApplet() frame.Applet {
	b := &blueprint{
		command: &frame.Command{Name: "salt-master", Doc: "The master daemon: commands minions and keeps what they return."},
		kind:    config.MasterKind, title: "salt master", class: "Master",
		load: loadMaster, room: masterRoom,
	}
	return frame.Applet{Name: "salt-master", Summary: "the master daemon", Run: b.run}
}

func loadMaster(t *config.Tree, _ bool, log *slog.Logger) (*common, error) {
	t.WarnUnknown(&config.Master{}, &apiOptions{})
	cfg, err := config.NewMaster(t, config.ThisMachine(), log)
	if err != nil {
		return nil, err
	}
	t.WarnPaths(cfg)
	return &common{
		log: &cfg.Log, pidFile: cfg.Files.PIDFile, profile: cfg.Profile, metrics: cfg.Metrics.Address, user: cfg.Files.User,
		refused:  t.Refuse(cfg.Overrides, &config.Master{}, &apiOptions{}),
		cacheDir: cfg.Files.CacheDir, directories: []string{cfg.Files.PKIDir, cfg.Files.CacheDir, cfg.Files.SockDir},
		check: func(ctx context.Context, c *checker) {
			c.key(filepath.Join(cfg.Files.PKIDir, "master.pem"), cfg.Options.KeyPass)
			if endpoints, err := cfg.Network.Endpoints(); err == nil { // masterConfig returns the error
				c.ports(endpoints, noted(cfg.Files.PIDFile, "salt-master"))
			}
			if mc, err := masterConfig(cfg, t, log); err != nil {
				c.fault("%v", err)
			} else {
				for _, err := range master.CheckStart(&mc, c.logger(log)) {
					c.fault("%v", err)
				}
				warnServed(ctx, t, mc.Opts, cfg, log)
			}
			refused, repaired := master.CheckExposed(&master.Config{PKIDir: cfg.Files.PKIDir, CacheDir: cfg.Files.CacheDir, Options: cfg.Options})
			for _, s := range refused {
				c.fault("%s", s)
			}
			for _, s := range repaired {
				c.warn("%s", s)
			}
		},
		build: func(ctx context.Context, log *slog.Logger) (service, error) {
			mc, err := masterConfig(cfg, t, log)
			if err != nil {
				return nil, err
			}
			warnServed(ctx, t, mc.Opts, cfg, log)
			mc.Tracer = trace.New(cfg.Traces, "salt-master", mc.ID, log)
			return master.New(mc, log)
		},
		reload: func(s service, log *slog.Logger) error {
			mc, err := masterConfig(cfg, t, log)
			if err == nil {
				s.(*master.Master).Reload(mc)
			}
			return err
		},
	}, nil
}

func masterConfig(cfg *config.Master, t *config.Tree, log *slog.Logger) (master.Config, error) {
	mc, err := cfg.Parts(t)
	if err != nil {
		return master.Config{}, err
	}
	mc.SSL = cfg.Network.SSL
	mc.Listen, err = listens(cfg, log)
	return mc, err
}

// listens returns the transports to serve: first that of the option transport, whose port is
// announced, then those of transport_opts.
func listens(cfg *config.Master, log *slog.Logger) ([]master.Listen, error) {
	endpoints, err := cfg.Network.Endpoints()
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "%w", err)
	}
	var out []master.Listen
	for _, e := range endpoints {
		tr, err := named.New(e.Transport, log)
		if err != nil {
			return nil, err
		}
		o, err := cfg.Network.Listen(e.Transport)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "%w", err)
		}
		out = append(out, master.Listen{Transport: tr, Options: o, Publish: e.Publish, Request: e.Requests})
	}
	return out, nil
}
