package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"

	"brine/internal/catalogue/grains"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/daemons/syndic"
	"brine/internal/net/transport/named"
	"brine/internal/py/value"
)

// SyndicApplet returns the program salt-syndic.
func SyndicApplet() frame.Applet {
	b := &blueprint{
		command: &frame.Command{Name: "salt-syndic", Doc: "The syndic daemon: passes on the commands of a master of masters to the master of this machine."},
		kind:    config.MasterKind, title: "Salt Syndic", class: "Syndic", alone: true,
		own:  map[string]string{"pidfile": "syndic_pidfile", "log_file": "syndic_log_file", "user": "syndic_user"},
		load: loadSyndic,
	}
	return frame.Applet{Name: "salt-syndic", Summary: "the syndic daemon, which connects a master with one above", Run: b.run}
}

// loadSyndic reads the master's configuration and that of the minion beside it: like Salt's, a
// syndic has the minion's id, key and connection.
func loadSyndic(t *config.Tree, _ bool, log *slog.Logger) (*common, error) {
	t.WarnUnknown(&config.Master{}, &apiOptions{})
	cfg, err := config.NewMaster(t, config.ThisMachine(), log)
	if err != nil {
		return nil, err
	}
	own, tree, err := config.LoadMinion(filepath.Join(filepath.Dir(t.Path), "minion"), false, log)
	if err != nil {
		return nil, err
	}
	o := &cfg.Syndic
	if len(o.Finger) == 0 { // Salt reads it from the minion's configuration
		if err := o.Finger.SetValue(tree.Values.At("syndic_finger")); err != nil {
			return nil, err
		}
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	f := cfg.Files
	for _, p := range []*string{&o.LogFile, &o.PIDFile} {
		if root := filepath.Clean(f.RootDir); root != "/" && *p != "" && !strings.HasPrefix(*p, root+"/") {
			*p = filepath.Join(root, *p)
		}
	}
	cfg.Log.File = o.LogFile
	user, userOption := f.User, ""
	if o.User != "" {
		user, userOption = o.User, "syndic_user"
	}
	return &common{
		log: &cfg.Log, pidFile: o.PIDFile, profile: cfg.Profile, metrics: o.Metrics, user: user, userOption: userOption,
		cacheDir: f.CacheDir, directories: []string{own.Files.PKIDir, f.CacheDir},
		check: func(ctx context.Context, c *checker) {
			c.key(filepath.Join(own.Files.PKIDir, "minion.pem"), "")
			sc, err := syndicConfig(cfg, own, tree, log)
			if err == nil {
				_, err = sc.Addresses()
			}
			if err == nil {
				_, err = named.ClientTLS(cfg.Network.Transport, cfg.Network.SSL)
			}
			if err != nil {
				c.fault("%v", err)
				return
			}
			c.masters(ctx, o.Masters)
		},
		build: func(ctx context.Context, log *slog.Logger) (service, error) {
			return newSyndic(ctx, cfg, own, tree, log)
		},
	}, nil
}

func newSyndic(ctx context.Context, cfg *config.Master, own *config.Minion, tree *config.Tree, log *slog.Logger) (*syndic.Syndic, error) {
	sc, err := syndicConfig(cfg, own, tree, log)
	if err != nil {
		return nil, err
	}
	if sc.Lower, err = newLower(cfg, log); err != nil {
		return nil, err
	}
	id, opts := sc.ID, sc.Opts
	offered := value.NewDict(0)
	if len(own.Options.AutosignGrains) > 0 {
		g := own.Grains
		g.ID, g.ConfFile, g.CacheDir, g.Opts, g.Version = id, own.Files.ConfFile, own.Files.CacheDir, opts, frame.Version
		if offered, err = grains.Collect(ctx, g, log); err != nil {
			log.Error("cannot collect some grains", "err", err)
		}
	}
	sc.Grains = func() *value.Dict { return offered }
	return syndic.New(sc, log)
}

// syndicConfig returns the configuration of a syndic without its connection to the master of this
// machine and its grains.
func syndicConfig(cfg *config.Master, own *config.Minion, tree *config.Tree, log *slog.Logger) (syndic.Config, error) {
	tr, err := named.New(own.Network.Transport, log)
	if err != nil {
		return syndic.Config{}, err
	}
	dial, subscribe, err := own.Network.Dial()
	if err != nil {
		return syndic.Config{}, err
	}
	opts, err := config.Dump(tree, own)
	if err != nil {
		return syndic.Config{}, err
	}
	port := cfg.Syndic.MasterPort
	if port == 0 {
		port = own.Options.MasterPort
	}
	return syndic.Config{
		ID: own.Files.ID, MasterID: cfg.Files.MasterID, PKIDir: own.Files.PKIDir, CacheDir: cfg.Files.CacheDir, Keysize: own.Files.Keysize, Options: cfg.Syndic,
		Port: port, IPOnly: own.Options.MasterURIFormat == "ip_only", Link: own.Options.LinkOptions, Handshake: own.Handshake, Transport: tr,
		Dial: dial, SubscribeDial: subscribe, Opts: opts, CommandTimeout: cfg.Client.Timeout + cfg.Client.GatherJobTimeout,
	}, nil
}

// newLower returns the connection to the master of this machine.
func newLower(cfg *config.Master, log *slog.Logger) (*syndic.Lower, error) {
	place, err := cfg.Place()
	if err != nil {
		return nil, err
	}
	return syndic.NewLower(place, cfg.Client, cfg.Files.ConfFile, log)
}
