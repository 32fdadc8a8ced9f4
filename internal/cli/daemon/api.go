package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"brine/internal/call/auth"
	"brine/internal/call/client"
	"brine/internal/cli/frame"
	"brine/internal/daemons/api"
	"brine/internal/daemons/config"
	"brine/internal/net/transport/named"
	"brine/internal/py/value"
)

// APIApplet returns the program salt-api.
func APIApplet() frame.Applet {
	b := &blueprint{
		command: &frame.Command{Name: "salt-api", Doc: "The REST interface to a master, for the programs that speak Salt's rest_cherrypy."},
		kind:    config.MasterKind, title: "salt api", class: "SaltAPI", alone: true,
		own:  map[string]string{"pidfile": "api_pidfile", "log_file": "api_logfile"},
		load: loadAPI,
	}
	return frame.Applet{Name: "salt-api", Summary: "the REST interface to a master", Run: b.run}
}

// apiOptions are the options of the master's configuration that salt-api needs in addition to
// config.Master.
type apiOptions struct {
	API    api.Options
	Client client.Options
}

func loadAPI(t *config.Tree, _ bool, log *slog.Logger) (*common, error) {
	t.WarnUnknown(&config.Master{}, &apiOptions{})
	cfg, err := config.NewMaster(t, config.ThisMachine(), log)
	if err != nil {
		return nil, err
	}
	var o apiOptions
	if err := config.Decode(t, &o); err != nil {
		return nil, err
	}
	f := cfg.Files
	for _, p := range []*string{&o.API.LogFile, &o.API.PIDFile} {
		if root := filepath.Clean(f.RootDir); root != "/" && !strings.HasPrefix(*p, root+"/") {
			*p = filepath.Join(root, *p)
		}
	}
	settings, err := o.API.Read(filepath.Join(f.CacheDir, "brine", "api"))
	if err != nil {
		return nil, err
	}
	for name := range cfg.Auth.External.All() {
		settings.EAuth = append(settings.EAuth, value.Str(name))
	}
	slices.Sort(settings.EAuth)
	settings.ApprovalAbove = cfg.Options.ApprovalAbove
	// A pointer must not become a non-nil interface. The master reports an error in external_auth.
	if flow, err := auth.NewCodeFlow(&cfg.Auth); err == nil && flow != nil {
		settings.CodeFlow = flow
	}
	for _, text := range settings.Warnings() {
		log.Warn(text)
	}
	cfg.Log.File = o.API.LogFile
	return &common{
		log: &cfg.Log, pidFile: o.API.PIDFile, profile: cfg.Profile, metrics: o.API.Metrics, user: f.User, cacheDir: f.CacheDir, directories: []string{f.CacheDir},
		check: func(_ context.Context, c *checker) {
			if _, err := named.ClientTLS(cfg.Network.Transport, cfg.Network.SSL); err != nil {
				c.fault("%v", err)
			}
			c.api(settings, noted(o.API.PIDFile, "salt-api"))
		},
		build: func(_ context.Context, log *slog.Logger) (service, error) { return newAPI(cfg, &o, settings, log) },
	}, nil
}

// api checks the files that salt-api reads and the port that it binds. running means that an
// instance is running and uses the port.
func (c *checker) api(s *api.Settings, running bool) {
	if err := s.CheckFiles(); err != nil {
		c.fault("%v", err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(s.Host, strconv.Itoa(s.Port)))
	switch {
	case err == nil:
		l.Close()
	case running && errors.Is(err, syscall.EADDRINUSE):
	default:
		c.fault("rest_cherrypy: port: %v", err)
	}
}

// apiService is the server with its connection to the master.
type apiService struct {
	*api.Server
	master *client.Local
}

func newAPI(cfg *config.Master, o *apiOptions, s *api.Settings, log *slog.Logger) (*apiService, error) {
	place, err := cfg.Place()
	if err != nil {
		return nil, err
	}
	local, err := client.NewLocal(place, "salt-api", log)
	if err != nil {
		return nil, err
	}
	server, err := api.New(*s, client.New(o.Client, cfg.Files.ConfFile, local, local, log), local, log)
	if err != nil {
		local.Close()
		return nil, err
	}
	log.Info("salt-api listens", "address", server.Addr().String())
	return &apiService{server, local}, nil
}

// Run serves until ctx is done.
func (s *apiService) Run(ctx context.Context) error {
	defer s.master.Close()
	return s.Server.Run(ctx)
}
