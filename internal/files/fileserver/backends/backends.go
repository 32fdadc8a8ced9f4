// Package backends joins the options and constructors of the file server backends that have their own
// packages.
package backends

import (
	"log/slog"
	"slices"

	"brine/internal/base/registry"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/gitfs"
	"brine/internal/files/fileserver/minionfs"
	"brine/internal/files/fileserver/s3fs"
)

type (
	// Git are the options of gitfs.
	Git = gitfs.Options
	// Minion are the options of minionfs.
	Minion = minionfs.Options
	// S3 are the options of s3fs.
	S3 = s3fs.Options
)

// Options are the options of all these backends.
type Options struct {
	Git
	Minion
	S3
}

// Config is the further configuration of the backends.
type Config struct {
	CacheDir, HashType string
	// Files are the options of the file server itself.
	Files fileserver.Options
	// Receives says whether minions may push files to this master.
	Receives bool
	// Alone means that nothing updates the file server periodically, as on a masterless minion.
	Alone bool
	Log   *slog.Logger
}

var makers = registry.New[func(o Options, c Config, name string) (fileserver.Backend, error)]("file server backend")

// A backend has two names, with and without fs.
func init() {
	for _, name := range []string{"git", "gitfs"} {
		makers.Register(name, func(o Options, c Config, name string) (fileserver.Backend, error) {
			return gitfs.New(o.Git, gitfs.Config{Name: name, CacheDir: c.CacheDir, HashType: c.HashType, Alone: c.Alone, Log: c.Log})
		})
	}
	for _, name := range []string{"minion", "minionfs"} {
		makers.Register(name, func(o Options, c Config, name string) (fileserver.Backend, error) {
			return minionfs.New(o.Minion, name, c.CacheDir, c.Receives, fileserver.Ignored(c.Files, c.Log))
		})
	}
	for _, name := range []string{"s3", "s3fs"} {
		makers.Register(name, func(o Options, c Config, name string) (fileserver.Backend, error) {
			return s3fs.New(o.S3, name, c.CacheDir, fileserver.Ignored(c.Files, c.Log), c.Alone, c.Log)
		})
	}
}

// Names returns the values of the option fileserver_backend, sorted.
func Names() []string { return slices.Sorted(slices.Values(append(makers.Names(), "roots"))) }

// More returns the constructors of the backends, for fileserver.Config.
func More(o Options, c Config) map[string]func(name string) (fileserver.Backend, error) {
	more := map[string]func(string) (fileserver.Backend, error){}
	for _, name := range makers.Names() {
		build, _ := makers.Lookup(name)
		more[name] = func(name string) (fileserver.Backend, error) { return build(o, c, name) }
	}
	return more
}
