package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// RunningJob is a job that the minion is running.
type RunningJob struct {
	JID string
	// Fun is the name of the function, or a list of names.
	Fun any
	// PID is the process that runs the job.
	PID int
	// Load is the job's map as it was published.
	Load *value.Dict
}

// Jobs is the minion's table of jobs.
type Jobs interface {
	// Running returns the running jobs in any order.
	Running() []RunningJob
	// Signal sends sig to the programs that a job runs, and ends the job. The
	// error is of kind salt.NotFound if the job has ended meanwhile.
	Signal(jid string, sig syscall.Signal) error
	// Cached returns what a job returned, if the minion has kept it.
	Cached(jid string) (*value.Dict, bool)
}

// The kinds of data that a Refresher can collect again.
const (
	RefreshPillar   = "pillar" // includes the grains, which the pillar depends on
	RefreshModules  = "modules"
	RefreshBeacons  = "beacons"
	RefreshMatchers = "matchers"
)

// Refresher collects data of the minion again.
type Refresher interface {
	// Refresh starts to collect data of a kind. With wait, it returns when that is done. clean
	// also drops the pillar's cache.
	Refresh(ctx context.Context, what string, clean, wait bool) error
}

// Keys replaces the minion's key pair.
type Keys interface {
	// Regenerate makes a new key pair, which the minion uses after its next start.
	Regenerate(ctx context.Context) error
}

// Deps are the interfaces that saltutil needs.
type Deps struct {
	Jobs    Jobs
	Refresh Refresher
	Keys    Keys
	Masters Masters
	Local   LocalMaster
	// Modules fetches the user's own modules; nil if there are none.
	Modules Modules
}

// Modules are the user's own modules, in Python.
type Modules interface {
	// Fetch copies modules of some kinds from the file server and returns the names of new and
	// changed ones by kind. whitelist and blacklist replace the options unless they are nil.
	Fetch(ctx context.Context, c *fn.Call, kinds, envs []string, whitelist, blacklist any) (map[string][]string, error)
	// Rescan looks for modules that have changed on disk.
	Rescan() bool
	// List returns the names of all fetched modules by kind.
	List() map[string][]string
}

type saltutil struct{ Deps }

// Saltutil returns the module saltutil.
func Saltutil(d Deps) fn.Module {
	s := saltutil{d}
	m := fn.Module{Name: "saltutil", Doc: `Look after the minion and its jobs.`, Funcs: []fn.Func{
		fn.Of("running", s.running, `Return the jobs that are running, without this one.`, fn.Example("salt '*' saltutil.running")),
		fn.Of("find_job", s.findJob, `Return a running job, or an empty map.`, fn.Example("salt '*' saltutil.find_job 20260101000000000000")),
		fn.Of("is_running", s.isRunning, `Return the running jobs whose function matches a pattern.`, fn.Example("salt '*' saltutil.is_running 'state.*'")),
		fn.Of("find_cached_job", s.findCached, `Return what a job returned, if the option cache_jobs keeps that.`,
			fn.Example("salt '*' saltutil.find_cached_job 20260101000000000000")),
		fn.Of("signal_job", s.signalJob, `Send a signal to the programs of a job.`, fn.Example("salt '*' saltutil.signal_job 20260101000000000000 15")),
		fn.Of("term_job", s.one(syscall.SIGTERM), `Ask a job to end.`, fn.Example("salt '*' saltutil.term_job 20260101000000000000")),
		fn.Of("kill_job", s.one(syscall.SIGKILL), `Kill the programs of a job.`, fn.Example("salt '*' saltutil.kill_job 20260101000000000000")),
		fn.Of("term_all_jobs", s.all(syscall.SIGTERM), `Ask all jobs to end.`, fn.Example("salt '*' saltutil.term_all_jobs")),
		fn.Of("kill_all_jobs", s.all(syscall.SIGKILL), `Kill the programs of all jobs.`, fn.Example("salt '*' saltutil.kill_all_jobs")),
		fn.Of("refresh_grains", s.refreshGrains, `Collect the grains again.
			The keywords are refresh_pillar (true) and clean_pillar_cache (false).`, fn.Example("salt '*' saltutil.refresh_grains")),
		fn.Of("refresh_pillar", s.refreshPillar, `Have the pillar compiled again.`, fn.Example("salt '*' saltutil.refresh_pillar")),
		fn.Of("pillar_refresh", s.refreshPillar, `Same as saltutil.refresh_pillar.`, fn.Example("salt '*' saltutil.pillar_refresh")),
		fn.Of("refresh_modules", s.refreshModules, `Collect the modules again.
			The keyword async (true) says not to wait.`, fn.Example("salt '*' saltutil.refresh_modules")),
		fn.Of("refresh_beacons", s.refreshPlain(RefreshBeacons), `Collect the beacons again.`, fn.Example("salt '*' saltutil.refresh_beacons")),
		fn.Of("refresh_matchers", s.refreshPlain(RefreshMatchers), `Collect the matchers again.`, fn.Example("salt '*' saltutil.refresh_matchers")),
		fn.Of("clear_cache", s.clearCache, `Remove all files of the minion's cache.`, fn.Example("salt '*' saltutil.clear_cache")),
		fn.Of("clear_job_cache", s.clearJobCache, `Remove what old jobs returned from the minion's cache.`,
			fn.Example("salt '*' saltutil.clear_job_cache hours=12")),
		fn.Of("regen_keys", s.regenKeys, `Make a new key pair, which counts from the minion's next start on.
			The masters have to accept it, once the old key is deleted there.`, fn.Example("salt '*' saltutil.regen_keys")),
		fn.Of("revoke_auth", s.revokeAuth, `Ask the masters to remove the minion's key.`, fn.Example("salt '*' saltutil.revoke_auth")),
		fn.Of("mmodule", s.mmodule, `Call a function of the minion.`, fn.Example("salt '*' saltutil.mmodule base test.ping")),
		fn.Of("list_extmods", s.listExtmods, `Return the names of the user's own modules by kind.`, fn.Example("salt '*' saltutil.list_extmods")),
		fn.Of("sync_all", s.syncAll, `Fetch the user's own modules of all kinds from the file server.
			The result has the names of new and changed ones by kind.`, fn.Example("salt '*' saltutil.sync_all")),
	}}
	for _, k := range slices.Concat(kinds, masterKinds, []kind{{name: "outputters", refresh: RefreshModules}}) {
		m.Funcs = append(m.Funcs, fn.Of("sync_"+k.name, s.sync(k), `Fetch the user's own modules of this kind, and return the names of new and changed ones.`,
			append(k.arguments(), fn.Example("salt '*' saltutil.sync_"+k.name))...))
	}
	m.Funcs = append(m.Funcs, s.localFunctions()...)
	return m
}

func (j RunningJob) dict() *value.Dict {
	d := value.DictOf("pid", j.PID)
	d.Update(j.Load)
	return d
}

// others returns the running jobs without the calling one, sorted by jid.
func (s saltutil) others(c *fn.Call) []RunningJob {
	jobs := slices.DeleteFunc(s.Jobs.Running(), func(j RunningJob) bool { return j.JID == c.JID })
	slices.SortFunc(jobs, func(a, b RunningJob) int { return strings.Compare(a.JID, b.JID) })
	return jobs
}

func (s saltutil) running(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	return s.matching(c, func(RunningJob) bool { return true }), nil
}

func (s saltutil) matching(c *fn.Call, want func(RunningJob) bool) *value.List {
	l := &value.List{}
	for _, j := range s.others(c) {
		if want(j) {
			l.Append(j.dict())
		}
	}
	return l
}

type jidArgs struct {
	JID string `salt:"jid" doc:"id of the job"`
}

func (s saltutil) findJob(_ context.Context, c *fn.Call, a jidArgs) (*value.Dict, error) {
	found := s.matching(c, func(j RunningJob) bool { return j.JID == a.JID })
	if found.Len() == 0 {
		return value.NewDict(0), nil
	}
	return found.Items[0].(*value.Dict), nil
}

type funArgs struct {
	Fun string `salt:"fun" doc:"pattern of the function's name"`
}

func (s saltutil) isRunning(_ context.Context, c *fn.Call, a funArgs) (*value.List, error) {
	glob := target.ParseGlob(a.Fun)
	return s.matching(c, func(j RunningJob) bool {
		if l, ok := j.Fun.(*value.List); ok {
			return slices.ContainsFunc(l.Items, func(f any) bool { return glob.Match(value.Str(f)) })
		}
		return glob.Match(value.Str(j.Fun))
	}), nil
}

func (s saltutil) findCached(_ context.Context, c *fn.Call, a jidArgs) (any, error) {
	if d, ok := s.Jobs.Cached(a.JID); ok {
		return d, nil
	}
	if !value.Truth(c.Config.Get("cache_jobs")) {
		return "Local jobs cache directory not found; you may need to enable cache_jobs on this minion", nil
	}
	dir, _ := c.Config.Get("cachedir").(string)
	return fmt.Sprintf("Local jobs cache directory %s not found", filepath.Join(dir, "minion_jobs", a.JID)), nil
}

type signalArgs struct {
	JID string `salt:"jid" doc:"id of the job"`
	Sig int    `salt:"sig" doc:"number of the signal"`
}

func (s saltutil) signalJob(_ context.Context, c *fn.Call, a signalArgs) (string, error) {
	if a.Sig < 1 || a.Sig > 64 {
		return "", fn.Invalidf("%d is not the number of a signal", a.Sig)
	}
	return s.signal(c, a.JID, syscall.Signal(a.Sig))
}

// signal returns Salt's messages; "" for a job that does not run.
func (s saltutil) signal(c *fn.Call, jid string, sig syscall.Signal) (string, error) {
	jobs := s.others(c)
	i := slices.IndexFunc(jobs, func(j RunningJob) bool { return j.JID == jid })
	if i < 0 {
		return "", nil
	}
	err := s.Jobs.Signal(jid, sig)
	switch {
	case err == nil:
		return fmt.Sprintf("Signal %d sent to job %s at pid %d", int(sig), jid, jobs[i].PID), nil
	case salt.KindOf(err) == salt.NotFound:
		return fmt.Sprintf("Job %s was not running and job data has been cleaned up", jid), nil
	}
	return "", fn.Errorf("cannot signal job %s: %w", jid, err)
}

func (s saltutil) one(sig syscall.Signal) func(context.Context, *fn.Call, jidArgs) (string, error) {
	return func(_ context.Context, c *fn.Call, a jidArgs) (string, error) { return s.signal(c, a.JID, sig) }
}

func (s saltutil) all(sig syscall.Signal) func(context.Context, *fn.Call, none) (*value.List, error) {
	return func(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
		l := &value.List{}
		var errs []error
		for _, j := range s.others(c) {
			text, err := s.signal(c, j.JID, sig)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			l.Append(text)
		}
		return l, errors.Join(errs...)
	}
}

type kwArgs struct {
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (s saltutil) refreshGrains(ctx context.Context, _ *fn.Call, a kwArgs) (bool, error) {
	pillar, clean := true, false
	var bad []string
	for k, v := range a.Kwargs.Clean().All() {
		switch k {
		case "refresh_pillar":
			pillar = value.Truth(v)
		case "clean_pillar_cache":
			clean = value.Truth(v)
		default:
			bad = append(bad, value.Str(k)+"="+value.Str(v))
		}
	}
	if len(bad) > 0 {
		return false, fn.Invalidf("The following keyword arguments are not valid: %s", strings.Join(bad, ", "))
	}
	what := RefreshModules // refreshing modules also collects the grains
	if pillar {
		what = RefreshPillar
	}
	return s.begin(ctx, what, clean, false)
}

func (s saltutil) begin(ctx context.Context, what string, clean, wait bool) (bool, error) {
	if err := s.Refresh.Refresh(ctx, what, clean, wait); err != nil {
		return false, fn.Errorf("cannot refresh the %s: %w", what, err)
	}
	return true, nil
}

type pillarArgs struct {
	Wait    bool          `salt:"wait" doc:"return only when it is done" default:"false"`
	Timeout time.Duration `salt:"timeout" doc:"seconds to wait at most" default:"30"`
	Clean   bool          `salt:"clean_cache" doc:"drop the pillar's cache" default:"true"`
}

func (s saltutil) refreshPillar(ctx context.Context, c *fn.Call, a pillarArgs) (bool, error) {
	if !a.Wait {
		return s.begin(ctx, RefreshPillar, a.Clean, false)
	}
	limited, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	err := s.Refresh.Refresh(limited, RefreshPillar, a.Clean, true)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		c.Log.Warn("pillar refresh timed out", "timeout", a.Timeout) // Salt returns true even so
		return true, nil
	}
	if err != nil {
		return false, fn.Errorf("cannot refresh the pillar: %w", err)
	}
	return true, nil
}

func (s saltutil) refreshModules(ctx context.Context, _ *fn.Call, a kwArgs) (bool, error) {
	async, ok := a.Kwargs.Get("async")
	if s.Modules != nil {
		s.Modules.Rescan()
	}
	return s.begin(ctx, RefreshModules, false, ok && !value.Truth(async))
}

func (s saltutil) refreshPlain(what string) func(context.Context, *fn.Call, none) (bool, error) {
	return func(ctx context.Context, _ *fn.Call, _ none) (bool, error) { return s.begin(ctx, what, false, false) }
}

// kind is a kind of module that Salt fetches from a master, with what is refreshed afterwards.
type kind struct {
	name, refresh string
	// quiet kinds refresh only on request, lean ones never, and clean ones can drop the
	// pillar's cache.
	quiet, lean, clean bool
}

// kinds lists what sync_all fetches.
var kinds = []kind{
	{name: "clouds", refresh: RefreshModules}, {name: "beacons", refresh: RefreshBeacons}, {name: "modules", refresh: RefreshModules},
	{name: "states", refresh: RefreshModules}, {name: "sdb", lean: true}, {name: "grains", refresh: RefreshPillar, clean: true},
	{name: "renderers", refresh: RefreshModules}, {name: "returners", refresh: RefreshModules}, {name: "output", refresh: RefreshModules},
	{name: "utils", refresh: RefreshModules}, {name: "log_handlers", refresh: RefreshModules}, {name: "executors", refresh: RefreshModules},
	{name: "proxymodules", quiet: true}, {name: "engines", quiet: true}, {name: "thorium", quiet: true},
	{name: "serializers", refresh: RefreshModules}, {name: "matchers", quiet: true},
}

// masterKinds lists the kinds that only a minion without a master uses. sync_all fetches the
// first of them before all others.
var masterKinds = []kind{{name: "tops"}, {name: "pillar", refresh: RefreshPillar, clean: true}, {name: "wrapper", refresh: RefreshModules}}

// whose maps a master's kinds to their names in errors.
var whose = map[string]string{"tops": "Master top", "pillar": "Pillar", "wrapper": "Wrapper"}

// arguments returns the arguments of a sync function for this kind.
func (k kind) arguments() []fn.Option {
	names := []string{"saltenv", "refresh", "extmod_whitelist", "extmod_blacklist"}
	switch {
	case k.lean:
		return []fn.Option{fn.Params("saltenv", "extmod_whitelist", "extmod_blacklist")}
	case k.clean:
		names = append(names, "clean_pillar_cache")
	case k.quiet:
		return []fn.Option{fn.Params(names...), fn.Default("refresh", "false")}
	}
	return []fn.Option{fn.Params(names...)}
}

type syncArgs struct {
	Saltenv   any  `salt:"saltenv" doc:"environments to fetch from, as a list or with commas; null: those of the top file" default:"null"`
	Refresh   bool `salt:"refresh" doc:"refresh what the modules change" default:"true"`
	Whitelist any  `salt:"extmod_whitelist" doc:"the only modules to fetch: names with commas, or a map by kind; null: as configured" default:"null"`
	Blacklist any  `salt:"extmod_blacklist" doc:"modules that are not fetched, given likewise" default:"null"`
	Clean     bool `salt:"clean_pillar_cache" doc:"drop the pillar's cache" default:"false"`
}

func (s saltutil) sync(k kind) func(context.Context, *fn.Call, syncArgs) (*value.List, error) {
	return func(ctx context.Context, c *fn.Call, a syncArgs) (*value.List, error) {
		if text := whose[k.name]; text != "" && c.Config.Get("file_client") != "local" {
			return nil, fn.Errorf("%s modules can only be synced to masterless minions", text)
		}
		names, err := s.fetch(ctx, c, a, k.name)
		if err != nil {
			return nil, err
		}
		if a.Refresh && k.refresh != "" {
			if _, err := s.begin(ctx, k.refresh, a.Clean, false); err != nil {
				return nil, err
			}
		}
		return value.Strings(names[k.name]), nil
	}
}

// fetch copies modules of some kinds. Kinds that no environment has cost nothing.
func (s saltutil) fetch(ctx context.Context, c *fn.Call, a syncArgs, kinds ...string) (map[string][]string, error) {
	if s.Modules == nil {
		return nil, nil
	}
	envs := value.Split(a.Saltenv)
	if a.Saltenv == nil {
		envs = topEnvs(ctx, c)
	}
	dirs := make([]string, len(kinds))
	for i, k := range kinds {
		dirs[i] = directory(k)
	}
	found, err := s.Modules.Fetch(ctx, c, dirs, envs, a.Whitelist, a.Blacklist)
	names := make(map[string][]string, len(kinds))
	for i, k := range kinds {
		names[k] = found[dirs[i]]
	}
	if err != nil {
		return names, fn.Errorf("cannot fetch modules: %w", err)
	}
	return names, nil
}

// directory returns the directory of a kind of modules, without the leading _.
func directory(kind string) string {
	if kind == "proxymodules" {
		return "proxy"
	}
	return kind
}

// topEnvs returns the environments from which the top file assigns states to this minion, or
// base.
func topEnvs(ctx context.Context, c *fn.Call) []string {
	v, err := c.Funcs.Call(ctx, c, "state.show_top", nil, nil)
	tops, _ := v.(*value.Dict)
	var envs []string
	for k, names := range tops.All() {
		if _, ok := names.(*value.List); ok {
			envs = append(envs, value.Str(k))
		}
	}
	if err != nil || len(envs) == 0 {
		return []string{"base"}
	}
	return envs
}

func (s saltutil) listExtmods(context.Context, *fn.Call, none) (*value.Dict, error) {
	d := value.NewDict(0)
	if s.Modules != nil {
		all := s.Modules.List()
		for _, kind := range slices.Sorted(maps.Keys(all)) {
			d.Set(kind, value.Strings(all[kind]))
		}
	}
	return d, nil
}

func (s saltutil) syncAll(ctx context.Context, c *fn.Call, a syncArgs) (*value.Dict, error) {
	all := kinds
	if c.Config.Get("file_client") == "local" {
		all = slices.Concat(masterKinds[:1], kinds, masterKinds[1:])
	}
	kinds := make([]string, len(all))
	for i, k := range all {
		kinds[i] = k.name
	}
	names, err := s.fetch(ctx, c, a, kinds...)
	if err != nil {
		return nil, err
	}
	d := value.NewDict(len(all))
	for _, k := range kinds {
		d.Set(k, value.Strings(names[k]))
	}
	if a.Refresh {
		if _, err := s.begin(ctx, RefreshPillar, a.Clean, false); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// cacheDir returns the directory of the cache. It rejects an implausible one.
func cacheDir(c *fn.Call) (string, error) {
	dir, _ := c.Config.Get("cachedir").(string)
	if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
		return "", fn.Errorf("the option cachedir is %q, which cannot be cleared", dir)
	}
	return dir, nil
}

func (saltutil) clearCache(_ context.Context, c *fn.Call, _ none) (bool, error) {
	dir, err := cacheDir(c)
	if err != nil {
		return false, err
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return ignoreMissing(err)
		}
		return ignoreMissing(os.Remove(path))
	})
	if err != nil {
		c.Log.Error("cannot clear the cache", "err", err)
	}
	return err == nil, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

type hoursArgs struct {
	Hours float64 `salt:"hours" doc:"age from which on a job is old" default:"24"`
}

func (saltutil) clearJobCache(_ context.Context, c *fn.Call, a hoursArgs) (bool, error) {
	dir, err := cacheDir(c)
	if err != nil {
		return false, err
	}
	jobs := filepath.Join(dir, "minion_jobs")
	entries, err := os.ReadDir(jobs)
	if ignoreMissing(err) != nil {
		return false, fn.Errorf("cannot read the cache of jobs: %w", err)
	}
	limit := time.Now().Add(-time.Duration(a.Hours * float64(time.Hour)))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !info.ModTime().Before(limit) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(jobs, e.Name())); err != nil {
			c.Log.Error("cannot clear the job cache", "err", err)
			return false, nil
		}
	}
	return true, nil
}

func (s saltutil) regenKeys(ctx context.Context, _ *fn.Call, _ none) (any, error) {
	if err := s.Keys.Regenerate(ctx); err != nil {
		return nil, fn.Errorf("cannot make new keys: %w", err)
	}
	return nil, nil
}

type revokeArgs struct {
	Preserve bool `salt:"preserve_minion_cache" doc:"keep what the masters know of the minion" default:"false"`
}

func (s saltutil) revokeAuth(ctx context.Context, c *fn.Call, a revokeArgs) (bool, error) {
	err := s.Masters.Send(ctx, value.DictOf("cmd", "revoke_auth", "id", c.ID, "preserve_minion_cache", a.Preserve))
	if err != nil {
		c.Log.Error("cannot revoke the minion key", "err", err)
	}
	return err == nil, nil
}

type mmoduleArgs struct {
	Saltenv string    `salt:"saltenv" ignored:"modules are part of the program"`
	Fun     string    `salt:"fun" doc:"function to call"`
	Args    fn.Args   `salt:"args"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (saltutil) mmodule(ctx context.Context, c *fn.Call, a mmoduleArgs) (any, error) {
	return c.Funcs.Call(ctx, c, a.Fun, a.Args, a.Kwargs.Clean())
}
