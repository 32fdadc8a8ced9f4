// Package calls builds an execution function's view of a minion and of the master
// that published the job: grains, pillar, options, files and templates.
package calls

import (
	"context"
	"log/slog"
	"time"

	"brine/internal/base/salt"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/backends"
	"brine/internal/py/value"
)

// FileSource is the location of the files of a configuration.
type FileSource struct {
	// CacheDir and HashType are the options of these names.
	CacheDir, HashType string
	Files              fileserver.Options
	Backends           backends.Options
	// Opts are all options under their names.
	Opts *value.Dict
	// Own returns the constructor of a backend of the user, or nil. It may be nil itself.
	Own func(name string) func() (fileserver.Backend, error)
}

// Local returns a client of the files of this machine.
func (s FileSource) Local(log *slog.Logger) *fileclient.Client {
	return fileclient.New(localFiles{s.Server(log), s.Opts}, s.options(), log)
}

func (cfg FileSource) options() fileclient.Options {
	o := cfg.Opts
	return fileclient.Options{
		CacheDir: cfg.CacheDir, HashType: cfg.HashType,
		Web: fileclient.WebOptions{
			ConnectTimeout: seconds(o.At("http_connect_timeout")), RequestTimeout: seconds(o.At("http_request_timeout")),
			CABundle: o.Str("ca_bundle"), UserAgent: o.Str("user_agent"),
		},
	}
}

// Server returns a server of the files of this machine.
func (cfg FileSource) Server(log *slog.Logger) *fileserver.Server {
	return fileserver.New(cfg.Files, fileserver.Config{
		CacheDir: cfg.CacheDir, HashType: cfg.HashType, Own: cfg.Own,
		More: backends.More(cfg.Backends, backends.Config{CacheDir: cfg.CacheDir, HashType: cfg.HashType, Files: cfg.Files, Alone: true, Log: log}),
	}, log)
}

// seconds returns an option that is a number of seconds, or 0.
func seconds(v any) time.Duration {
	switch x := v.(type) {
	case int64:
		return time.Duration(x) * time.Second
	case float64:
		return time.Duration(x * float64(time.Second))
	}
	return 0
}

// localFiles answers like a master, for a minion with file_client: local.
type localFiles struct {
	server *fileserver.Server
	opts   *value.Dict
}

// Request implements fileclient.Source.
func (l localFiles) Request(ctx context.Context, load *value.Dict) (any, error) {
	switch load.Str("cmd") {
	case "_master_tops":
		return value.NewDict(0), nil
	case "_master_opts":
		return l.opts, nil
	case "_file_recv":
		return nil, salt.Errorf(salt.Unavailable, "there is no master to push a file to")
	}
	return l.server.Request(ctx, load)
}
