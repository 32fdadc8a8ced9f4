package master

import (
	"brine/internal/daemons/master/sinks"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/wheel"
	"brine/internal/daemons/usermodules"
	"brine/internal/files/fetch"
	"brine/internal/files/fileserver"
	"brine/internal/net/event"
	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/returner"
)

// offlineRunners are the runners (or their modules) that work without a running master: they
// need no minions, and change nothing that a running master would have to know about.
var offlineRunners = []string{
	"cache.fetch", "cache.grains", "cache.list", "cache.mine", "cache.pillar",
	"config", "doc.runner", "doc.wheel", "error", "fileserver",
	"jobs.exit_success", "jobs.last_run", "jobs.list_job", "jobs.list_jobs", "jobs.list_jobs_filter", "jobs.lookup_jid", "jobs.master", "jobs.print_job",
	"http", "match", "mine.get", "network", "pillar", "saltutil", "sdb", "test",
}

// withoutData are the offline runners that read no data of a master, so that they work on a
// machine that never had one.
var withoutData = []string{"config", "doc", "error", "http", "network.wol", "network.wollist", "sdb", "test"}

// named reports whether a list of functions and modules has a function.
func named(list []string, fun string) bool {
	module, _, _ := strings.Cut(fun, ".")
	return slices.Contains(list, fun) || slices.Contains(list, module)
}

// RunsOffline reports whether a runner works without a running master.
func RunsOffline(fun string) bool { return named(offlineRunners, fun) }

// RunOffline runs a runner in this process on the files of a master that is not
// running, and returns the data of its last event. It opens jobs read-only, and
// briefly, so that a master can start; if a running master has them open, the
// error is of kind Unavailable.
func RunOffline(ctx context.Context, cfg Config, fun string, args []any, progress func(*value.Dict), log *slog.Logger) (*value.Dict, error) {
	if !RunsOffline(fun) {
		return nil, salt.Errorf(salt.Unavailable, "%s needs a master that runs", fun)
	}
	m := &offline{
		cfg: cfg, log: log, bus: event.NewBus(0),
		sinks: sinks.Config{MasterID: cfg.ID, Jobs: cfg.Jobs, Returner: cfg.Returners, Opts: cfg.Opts, Ctx: func() context.Context { return ctx }},
	}
	defer m.close()
	if err := m.open(fun); err != nil {
		return nil, err
	}
	jid := salt.NewJID(time.Now())
	c := &fn.Call{ID: cfg.ID, JID: jid, Log: log, Config: fn.Tree{Dict: cfg.Opts}}
	if m.user != nil {
		c.SDB = m.user.SDB()
	}
	c.Progress = func(part any) {
		d, ok := part.(*value.Dict)
		if !ok {
			d = value.DictOf("data", part)
		}
		progress(d)
	}
	o := runners.Run(ctx, m.runners, c, fn.Job{Fun: fun, Arg: args})
	d := value.DictOf("fun", "runner."+fun, "jid", jid, "return", o.Return, "success", o.Success)
	if o.Retcode != 0 {
		d.Set("retcode", int64(o.Retcode))
	}
	if o.Out != "" {
		d.Set("outputter", o.Out)
	}
	return d, nil
}

// offline is the data that a runner reads without a running master.
type offline struct {
	cfg   Config
	log   *slog.Logger
	bus   *event.Bus
	sinks sinks.Config

	keys    *keystore.Store
	cache   *cache.Cache
	jobs    offlineStore      // nil if the runner does not need them
	remote  returner.Returner // the returner that jobs are read from, or nil
	runners *fn.Registry
	user    *usermodules.Modules
	// returners are the user's own returners.
	returners *usermodules.Modules
	userFiles *usermodules.Files
	templates *templates
}

// offlineStore is a read-only job store.
type offlineStore interface {
	runners.Jobs
	Close() error
}

// open opens the stores that the runner reads.
func (m *offline) open(fun string) error {
	dir := keyDir(&m.cfg)
	// Create nothing on a machine that never had a master. The exception is fetching modules: a
	// master whose options name such modules starts only once they exist.
	if module, _, _ := strings.Cut(fun, "."); module == "saltutil" {
		if err := makeDirs(&m.cfg); err != nil {
			return err
		}
	}
	for _, path := range []string{m.cfg.CacheDir, dir} {
		if _, err := os.Stat(path); err != nil {
			if errors.Is(err, fs.ErrNotExist) && named(withoutData, fun) {
				return m.openNothing()
			}
			return salt.Errorf(salt.Unavailable, "this machine has no master's data: %w", err)
		}
	}
	own, err := OwnDir(&m.cfg)
	if err != nil {
		return err
	}
	if m.keys, err = keystore.Open(dir, m.log); err != nil {
		return err
	}
	driver, err := drivers.Open(m.cfg.Cache.Driver, remote.Options(m.cfg.Opts), m.cfg.Cache.Timeout)
	if err != nil {
		return err
	}
	if m.cache, err = cache.Open(m.cfg.CacheDir, own, m.cfg.Cache, driver, m.log); err != nil {
		return err
	}
	m.returners = userModules(&m.cfg, usermodules.ReturnerKinds, func() *fn.Call { return m.templates.call() }, serves{}, m.log)
	m.sinks.Python = m.returners.Returners()
	jobs, err := m.openJobs(own, strings.HasPrefix(fun, "jobs."))
	if err != nil {
		return err
	}
	m.userFiles = userFiles(&m.cfg, nil, m.log)
	s := &settings{cacheDir: m.cfg.CacheDir, log: m.log, keys: m.keys, userFiles: m.userFiles, roots: func(cfg Config) Config { return cfg }}
	t, err := newTemplates(templates{
		id: m.cfg.ID, cacheDir: m.cfg.CacheDir, opts: m.cfg.Opts, ctx: m.sinks.Ctx, settings: s, runners: func() *fn.Registry { return m.runners },
		log: m.log,
	}, &m.cfg)
	if err != nil {
		return err
	}
	m.user, m.templates = t.user, t
	s.compiler = t.compiler
	s.set(m.cfg)
	known := &targets{groups: s.nodegroups, keys: m.keys, cache: m.cache}
	data := &minionData{ctx: m.sinks.Ctx, settings: s, targets: known, cache: m.cache, bus: m.bus, log: m.log,
		rateLimitedLog: ratelimit.NewLog(m.log, 10, 10*time.Second)}
	wheels, err := newWheels(wheel.Deps{Keys: m.keys, HashType: m.cfg.Options.HashType, KeySize: m.cfg.Options.Keysize}, m.bus, m.cache, s, func() {})
	if err != nil {
		return err
	}
	var stored runners.Jobs
	if m.jobs != nil {
		stored = m.jobs
	}
	none := &client.InProcess{Events: m.bus, User: "root", Publish: func(*value.Dict) *value.Dict {
		return value.DictOf("error", value.DictOf("name", "SaltMasterError", "message", "no master runs"))
	}}
	m.runners, err = fn.NewRegistry(nil, runners.New(runners.Deps{
		Jobs: runners.JobStores{Jobs: jobs, Returners: sinks.NewReader(m.sinks, stored, m.log), Running: (&running{}).list},
		Keys: m.keys, Cache: m.cache, Targets: known,
		Client: client.New(m.cfg.Client, value.Str(m.cfg.Opts.At("conf_file")), none, none, m.log), Bus: m.bus,
		Wheels: func() *value.Dict { return wheels.Docs() }, Serves: offlineServes{runnerServes{settings: s, templates: t}}, Mine: data.mineFor,
	})...)
	return err
}

// openNothing builds the runners without any store.
func (m *offline) openNothing() (err error) {
	wheels, err := fn.NewRegistry(nil, wheel.New(wheel.Deps{})...)
	if err != nil {
		return err
	}
	m.runners, err = fn.NewRegistry(nil, runners.New(runners.Deps{Bus: m.bus, Wheels: func() *value.Dict { return wheels.Docs() }})...)
	return err
}

// withShared adds the jobs of masters that share cachedir without a cluster.
func (m *offline) withShared(s *job.Store) (runners.Jobs, error) {
	if m.cfg.Cluster.On() {
		return s, nil
	}
	files, err := job.NewLocalCache(m.cfg.CacheDir, m.cfg.Options.HashType)
	if err != nil {
		return nil, err
	}
	c := &cohabitation{cacheDir: m.cfg.CacheDir}
	c.look()
	return &sharedJobs{s, files, c.shared}, nil
}

// openJobs opens the jobs for reading, if the runner needs them.
func (m *offline) openJobs(own string, wanted bool) (runners.Jobs, error) {
	if !wanted {
		return sinks.NoJobs{}, nil
	}
	var jobs runners.Jobs = sinks.NoJobs{}
	switch o := m.cfg.Cluster; {
	case o.On() && !o.Isolated:
		s, err := job.OpenShared(m.cfg.CacheDir, m.cfg.ID, m.cfg.Options.HashType, m.cfg.Jobs, m.log)
		if err != nil {
			return nil, err
		}
		m.jobs, jobs = s, s
	default:
		s, err := job.OpenReadOnly(own, m.cfg.Jobs, m.log)
		switch {
		case err == nil:
			m.jobs, jobs = s, s
			if jobs, err = m.withShared(s); err != nil {
				return nil, err
			}
		case salt.KindOf(err) != salt.NotFound: // a master without jobs has no file
			return nil, err
		}
	}
	name := m.cfg.Client.ExtJobCache
	if name == "" || name == sinks.LocalJobs {
		name = m.cfg.Returners.JobCache
	}
	if name == "" || name == sinks.LocalJobs || name == "local" {
		return jobs, nil
	}
	remote, err := m.sinks.Open(name)
	if err != nil {
		return nil, err
	}
	m.remote = remote
	return sinks.NewReader(m.sinks, jobs, m.log).Beside(remote), nil
}

// offlineServes is runnerServes without a running master: other masters are not
// notified.
type offlineServes struct{ runnerServes }

func (offlineServes) TellChanges([]fileserver.Changes) {}
func (s offlineServes) GitPillar() runners.GitPillar {
	return tellingPillar{s.settings.current().git, func(fetch.States) {}}
}

func (m *offline) close() {
	if m.jobs != nil {
		m.jobs.Close()
	}
	if m.cache != nil {
		m.cache.Close()
	}
	if m.remote != nil {
		m.remote.Close()
	}
	for _, own := range []*usermodules.Modules{m.user, m.returners} {
		if own != nil {
			own.Close()
		}
	}
	if m.userFiles != nil {
		m.userFiles.Close()
	}
}
