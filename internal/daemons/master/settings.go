package master

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"brine/internal/base/target"
	"brine/internal/call/auth"
	"brine/internal/daemons/usermodules"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/backends"
	"brine/internal/net/channel"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/sls/top"
	"brine/internal/store/keystore"
)

// settings contains the options in effect and the services built from them. A reload replaces
// all of them at once.
type settings struct {
	cacheDir string
	log      *slog.Logger
	keys     *keystore.Store
	tokens   *auth.Tokens
	// systems are the user's own modules of external_auth, or nil.
	systems auth.Modules
	// userFiles are the user's own file server backends, or nil.
	userFiles *usermodules.Files
	// compiler builds the pillar compiler of a configuration.
	compiler func(cfg Config, git *gitpillar.Source, groups target.Nodegroups) *pillar.Compiler
	// roots replaces the file_roots and pillar_roots of a configuration by those
	// that a cluster agreed on.
	roots func(Config) Config

	live atomic.Pointer[live]
	// mu is held while live is replaced; own is the configuration it was built
	// from, before roots changed it.
	mu  sync.Mutex
	own Config
}

// live contains the parts of settings that a reload replaces.
type live struct {
	options  Options
	channel  channel.Options
	autosign *keystore.Autosign
	groups   target.Nodegroups
	files    *fileserver.Server
	top      top.Options
	pillar   *pillar.Compiler
	git      *gitpillar.Source
	opts     *value.Dict
	auth     *auth.Service
	cfg      Config // everything was built from it
}

func (s *settings) current() *live                  { return s.live.Load() }
func (s *settings) auth() *auth.Service             { return s.live.Load().auth }
func (s *settings) options() *Options               { return &s.live.Load().options }
func (s *settings) autosign() *keystore.Autosign    { return s.live.Load().autosign }
func (s *settings) nodegroups() target.Nodegroups   { return s.live.Load().groups }
func (s *settings) fileServer() *fileserver.Server  { return s.live.Load().files }
func (s *settings) channelOptions() channel.Options { return s.live.Load().channel }

// configured returns the configuration of the last reload, before the cluster's
// agreed roots replace parts of it.
func (s *settings) configured() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own
}

// set applies a configuration.
func (s *settings) set(cfg Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = cfg
	cfg = s.roots(cfg)
	groups := target.Nodegroups{}
	for k, v := range cfg.Options.Nodegroups.All() {
		groups[value.Str(k)] = v
	}
	who, errs := auth.New(cfg.Auth, s.systems, s.tokens, s.log)
	for _, err := range errs {
		s.log.Error("cannot use an authentication system of external_auth", "err", err)
	}
	missing, unusable := keystore.CheckFiles(cfg.Keys, cfg.User)
	for _, err := range missing {
		s.log.Warn("cannot decide by a file about the keys of new minions", "err", err)
	}
	for _, err := range unusable {
		s.log.Error("cannot decide by a file about the keys of new minions", "err", err)
	}
	var autosign *keystore.Autosign
	if s.keys != nil { // not in a check before the start
		autosign = keystore.NewAutosign(s.keys, cfg.Keys, cfg.User, s.log)
	}
	git := s.gitPillar(cfg)
	compiler := s.compiler(cfg, git, groups)
	pillar.LogMisconfigured(compiler, s.log)
	s.live.Store(&live{
		git: git, cfg: cfg,
		auth:    who,
		options: cfg.Options, channel: cfg.Channel, groups: groups,
		autosign: autosign,
		files: fileserver.New(cfg.Files, fileserver.Config{
			CacheDir: s.cacheDir, HashType: cfg.Options.HashType, BufferSize: cfg.Options.FileBufferSize,
			More: backends.More(cfg.Backends, backends.Config{
				CacheDir: s.cacheDir, HashType: cfg.Options.HashType, Files: cfg.Files, Receives: cfg.Options.FileRecv, Log: s.log,
			}),
			Own: func(name string) func() (fileserver.Backend, error) { return s.userFiles.Backend(name, false) },
		}, s.log),
		top: cfg.Top, pillar: compiler, opts: cfg.Opts,
	})
}

// setRoots switches to other roots. It calls agree, which changes the roots that s.roots
// applies.
func (s *settings) setRoots(agree func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	agree()
	cfg := s.roots(s.own)
	l := *s.live.Load()
	l.cfg = cfg
	l.files = l.files.WithRoots(cfg.Files, fileserver.Config{CacheDir: s.cacheDir})
	l.pillar = s.compiler(cfg, l.git, l.groups)
	s.live.Store(&l)
}

// gitPillar returns the git repositories that ext_pillar names.
func (s *settings) gitPillar(cfg Config) *gitpillar.Source {
	src := gitpillar.New(cfg.GitPillar, gitpillar.Config{CacheDir: s.cacheDir, HashType: cfg.Options.HashType, Log: s.log})
	for _, entry := range pillar.Entries(cfg.Pillar, "git") {
		if _, err := src.Add(entry); err != nil && cfg.GitPillar.Verify {
			pillar.LogGit(err, s.log)
		}
	}
	return src
}

// stateOptions returns the options that matter for states: the names of
// environments, but not their directories.
func (s *settings) stateOptions(envsOnly bool) *value.Dict {
	roots := value.NewDict(2)
	for _, env := range s.fileServer().Envs() {
		roots.Set(env, &value.List{})
	}
	t := s.current().top
	d := value.DictOf("file_roots", roots, "top_file_merging_strategy", t.Strategy, "env_order", value.Strings(t.EnvOrder), "default_top", t.DefaultTop)
	if envsOnly {
		return d
	}
	opts := s.current().opts
	for _, o := range []struct {
		name  string
		usual any
	}{
		{"renderer", "jinja|yaml"}, {"failhard", false}, {"state_top", t.StateTop}, {"state_top_saltenv", nil}, {"nodegroups", value.NewDict(0)},
		{"state_auto_order", true}, {"state_events", false}, {"state_aggregate", false}, {"jinja_env", value.NewDict(0)},
		{"jinja_sls_env", value.NewDict(0)}, {"jinja_lstrip_blocks", false}, {"jinja_trim_blocks", false},
	} {
		v := opts.At(o.name)
		if v == nil {
			v = o.usual
		}
		d.Set(o.name, v)
	}
	return d
}
