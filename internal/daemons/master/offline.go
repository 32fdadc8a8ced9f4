package master

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/catalogue/runners"
	"brine/internal/files/fileserver"
	"brine/internal/ha/cluster"
	"brine/internal/net/event"
	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/sls/render"
	"brine/internal/store/cache"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
)

// offlineRunners are the runners that need no minions and change nothing that a
// master would have to know of: functions, or modules.
var offlineRunners = []string{
	"cache.fetch", "cache.grains", "cache.list", "cache.mine", "cache.pillar",
	"config", "doc.runner", "doc.wheel", "error", "fileserver",
	"jobs.exit_success", "jobs.last_run", "jobs.list_job", "jobs.list_jobs", "jobs.list_jobs_filter", "jobs.lookup_jid", "jobs.master", "jobs.print_job",
	"http", "match", "mine.get", "network", "pillar", "saltutil", "test",
}

// RunsOffline reports whether a runner can answer from disk while no master
// runs.
func RunsOffline(fun string) bool {
	module, _, _ := strings.Cut(fun, ".")
	return slices.Contains(offlineRunners, fun) || slices.Contains(offlineRunners, module)
}

// RunOffline runs a runner in this process, with what a master that does not run
// has left on disk, and returns what its last event would tell. Jobs are read
// only, so that this process never holds what a master needs for longer than it
// works; if a master has them open after all, the error is of kind Unavailable.
func RunOffline(ctx context.Context, cfg Config, fun string, args []any, progress func(*value.Dict), log *slog.Logger) (*value.Dict, error) {
	if !RunsOffline(fun) {
		return nil, salt.Errorf(salt.Unavailable, "%s needs a master that runs", fun)
	}
	m := &Master{cfg: cfg, log: log, began: time.Now(), run: ctx, bus: event.NewBus(0), queue: newQueue(time.Now)}
	defer m.closeOffline()
	if err := m.openOffline(fun); err != nil {
		return nil, err
	}
	jid := salt.NewJID(time.Now())
	c := &fn.Call{ID: cfg.ID, JID: jid, Log: log, Config: fn.Tree{Dict: cfg.Opts}}
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

// openOffline opens what the runner reads.
func (m *Master) openOffline(fun string) error {
	dir := m.keyDirOf()
	// On a machine that never had a master nothing is to be made.
	for _, path := range []string{m.cfg.CacheDir, dir} {
		if _, err := os.Stat(path); err != nil {
			return salt.Errorf(salt.Unavailable, "this machine has no master's data: %w", err)
		}
	}
	own, err := m.offlineDir()
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
	jobs, err := m.offlineJobs(own, strings.HasPrefix(fun, "jobs."))
	if err != nil {
		return err
	}
	m.renderer = render.New(render.Options{Log: m.log})
	if m.templateFuncs, err = m.templateFunctions(); err != nil {
		return err
	}
	m.setLive(m.cfg)
	if m.wheels, err = m.newWheels(); err != nil {
		return err
	}
	nobody := &client.InProcess{Events: m.bus, User: "root", Publish: func(*value.Dict) *value.Dict {
		return value.DictOf("error", value.DictOf("name", "SaltMasterError", "message", "no master runs"))
	}}
	m.runners, err = fn.NewRegistry(nil, runners.New(runners.Deps{
		ID: m.cfg.ID, Jobs: jobs, JobsOf: m.jobsOf, Keys: m.keys, Cache: m.cache, Nodegroups: m.nodegroups,
		Client: client.New(m.cfg.Client, value.Str(m.cfg.Opts.At("conf_file")), nobody, nobody, m.log),
		Fire:   m.bus.Fire, Subscribe: m.bus.Subscribe, Running: m.running.list,
		Wheels: func() *value.Dict { return m.wheels.Docs() },
		Files:  func() runners.FileServer { return m.fileServer() }, TellChanges: func([]fileserver.Changes) {},
		Pillars: func() runners.Pillars { return m.live.Load().pillar },
		Matches: m.matches, Mine: func(asker string, load *value.Dict) *value.Dict { return (&minionData{m}).mineFor(asker, load) },
	})...)
	return err
}

// keyDirOf is keyDir of a master that has not joined its cluster.
func (m *Master) keyDirOf() string {
	if m.cfg.Cluster.On() {
		return m.cfg.Cluster.PKIDir
	}
	return m.cfg.PKIDir
}

// offlineDir is ownDir of a master that has not joined its cluster.
func (m *Master) offlineDir() (string, error) {
	if m.cfg.Cluster.On() {
		return cluster.OwnDir(m.cfg.CacheDir, m.cfg.ID)
	}
	return m.ownDir()
}

// offlineJobs opens the jobs for reading, if they are asked for.
func (m *Master) offlineJobs(own string, wanted bool) (runners.Jobs, error) {
	if !wanted {
		return noJobs{}, nil
	}
	var jobs runners.Jobs = noJobs{}
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
		case salt.KindOf(err) != salt.NotFound: // a master without jobs has no file
			return nil, err
		}
	}
	name := m.cfg.Client.ExtJobCache
	if name == "" || name == localJobs {
		name = m.cfg.Returners.JobCache
	}
	if name == "" || name == localJobs || name == "local" {
		return jobs, nil
	}
	far, err := m.openReturner(name)
	if err != nil {
		return nil, err
	}
	m.offlineFar = far
	return &history{m: m, far: far, local: jobs, away: func() bool { return false }}, nil
}

func (m *Master) closeOffline() {
	if m.jobs != nil {
		m.jobs.Close()
	}
	if m.cache != nil {
		m.cache.Close()
	}
	if m.offlineFar != nil {
		m.offlineFar.Close()
	}
}

// noJobs are those of a master that has none.
type noJobs struct{}

func (noJobs) Load(string) (*value.Dict, error)               { return nil, nil }
func (noJobs) Minions(string) ([]string, error)               { return nil, nil }
func (noJobs) Returns(string) (map[string]*value.Dict, error) { return map[string]*value.Dict{}, nil }
func (noJobs) List(job.Filter) ([]*job.Job, error)            { return nil, nil }
