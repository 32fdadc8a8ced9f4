// Package usermodules makes the user's own Python modules available to a minion or a
// master: execution modules, states, grains, renderers, runners, and sources of pillar and
// top data. Package call/python runs them, and package files/extmods stores them on disk.
// Registries, renderers and the pillar use this package (Source, Pillar), and so do the
// functions saltutil.sync_*.
//
// No helper process is started for a function that no module of the user claims.
package usermodules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/files/extmods"
	"brine/internal/py/value"
)

// The kinds of modules that this package runs.
const (
	kindModules   = "modules"
	kindStates    = "states"
	kindGrains    = "grains"
	kindRenderers = "renderers"
	kindRunners   = "runners"
	kindPillar    = "pillar"
	kindTops      = "tops"
	kindReturners = "returners"
	kindWheel     = "wheel"
	kindAuth      = "auth"
	kindBeacons   = "beacons"
	kindOutput    = "output"
	kindExecutors = "executors"
	kindEngines   = "engines"
	kindSDB       = "sdb"

	kindFileserver = "fileserver"

	// kindBuiltin names functions for Python, not modules of the user.
	kindBuiltin = "builtin"
)

// MinionKinds are all kinds that a helper of a minion loads, MasterKinds those that a
// helper of a master loads for requests of minions, and RunnerKinds those for its runners.
// Each has its own helpers, so that requests of minions cannot delay an operator.
var (
	MinionKinds = []string{kindModules, kindStates, kindGrains, kindRenderers, kindPillar, kindReturners, kindOutput, kindExecutors, kindSDB, "utils",
		"serializers"}
	MasterKinds = []string{kindModules, kindRenderers, kindPillar, kindTops, kindSDB, "utils", "serializers"}
	RunnerKinds = []string{kindRunners, kindWheel, kindModules, kindRenderers, kindReturners, kindSDB, "utils", "serializers"}
)

// Config is the configuration of Modules.
type Config struct {
	// Kinds are the kinds of modules that can be used: MinionKinds, MasterKinds or RunnerKinds.
	Kinds   []string
	Options python.Options
	// Stock is the package directory of a stock Salt if these are its modules, otherwise
	// "".
	Stock string
	// One means that one process makes all calls; see python.Config.
	One  bool
	Sync extmods.Options
	// Every is the interval after which a look-up scans for changed files; 0 means that
	// only Rescan does.
	Every time.Duration
	// CacheDir is the directory of the daemon's cache, ExtensionModules that of its modules.
	CacheDir, ExtensionModules string
	// ID is the id of the minion or master.
	ID string
	// Opts are all options under their names, OwnGrains the grains that the configuration
	// sets.
	Opts, OwnGrains *value.Dict
	// Disabled are the execution modules that are not used. If Only has any, no other ones
	// are used. Both accept names of files and of modules.
	Disabled, Only []string
	// SaltFile returns the name of the file that has an execution module in Salt, or "" if
	// it is the name of the module. A user's file of that name replaces the module.
	SaltFile func(module string) string
	// Wheel are the master's own wheel functions, for runners and wheel modules, or nil.
	Wheel python.Functions
	// Runners returns the runners of a master, for modules while they are loaded, or is nil.
	Runners func() *fn.Registry
	// Bus and Commander are those of a running master, or nil. OnMinion means that the bus is that
	// of a minion.
	Bus       python.Bus
	Commander python.Commander
	OnMinion  bool
	// Call returns a call for work outside of jobs, such as whether a module can be used.
	Call func() *fn.Call
	// Funcs returns the execution functions that grains modules may call, or is nil.
	Funcs func() *fn.Registry
	Log   *slog.Logger
}

// Modules are the user's modules of one minion or master.
type Modules struct {
	cfg  Config
	pool *python.Pool

	// closings are calls in the background that Close waits for.
	closings sync.WaitGroup

	mu       sync.Mutex
	scanned  bool
	looked   time.Time // when the files were last listed
	listings map[string]extmods.Listing
	version  uint64
	found    map[query]*fn.Func
	lists    map[string]*list
}

// query is the key of a cached look-up.
type query struct {
	kind, name string
	own        bool
}

// list has the names of all functions of a kind, and why modules are missing.
type list struct {
	names   []string
	missing map[string]string
}

// New returns the modules that are on disk. It starts no helper.
func New(c Config) *Modules {
	m := &Modules{cfg: c}
	m.pool = python.New(python.Config{
		Options: c.Options, One: c.One, Stock: c.Stock, Dir: filepath.Join(c.CacheDir, "brine", "python"), Loaders: m.files, Log: c.Log,
		// Modules import the user's utils by their names, too.
		Path: append(slices.Clone(c.Sync.Dirs), extmods.Dirs(c.Opts, c.ExtensionModules, "utils")...),
	})
	return m
}

// Close ends the helpers after the calls in the background.
func (m *Modules) Close() {
	m.closings.Wait()
	m.pool.Close()
}

// Rescan scans for modules that were added, changed or removed, and reports whether there
// are any. Later calls use the modules as they are now.
func (m *Modules) Rescan() bool {
	m.mu.Lock()
	changed := m.scan()
	m.mu.Unlock()
	if changed {
		m.pool.Reload()
	}
	return changed
}

// scan lists the modules; m.mu is held.
func (m *Modules) scan() (changed bool) {
	now := make(map[string]extmods.Listing, len(m.cfg.Kinds))
	for _, kind := range m.cfg.Kinds {
		dirs := extmods.Dirs(m.cfg.Opts, m.cfg.ExtensionModules, kind)
		if m.cfg.Stock != "" {
			dirs = []string{filepath.Join(m.cfg.Stock, "salt", kind)}
		}
		l := extmods.Scan(dirs)
		if kind == kindModules {
			l = only(without(l, m.cfg.Disabled), m.cfg.Only)
		}
		now[kind] = l
		changed = changed || l.Stamp != m.listings[kind].Stamp
	}
	if changed = changed && m.scanned; changed || !m.scanned {
		m.version++
		m.listings, m.found, m.lists = now, map[query]*fn.Func{}, map[string]*list{}
	}
	m.scanned, m.looked = true, time.Now()
	return changed
}

// without removes modules, by the names of their files or of their functions.
func without(l extmods.Listing, off []string) extmods.Listing {
	for _, name := range off {
		for _, stem := range append(slices.Clone(l.Claims[name]), name) {
			remove(l, stem)
		}
	}
	return l
}

// only removes all other files, if any names are given.
func only(l extmods.Listing, names []string) extmods.Listing {
	if len(names) == 0 {
		return l
	}
	keep := slices.Clone(names)
	for _, name := range names {
		keep = append(keep, l.Claims[name]...)
	}
	for stem := range l.Paths {
		if !slices.Contains(keep, stem) {
			remove(l, stem)
		}
	}
	return l
}

// remove removes a file and its claims.
func remove(l extmods.Listing, stem string) {
	delete(l.Paths, stem)
	for claim, stems := range l.Claims {
		if stems = slices.DeleteFunc(slices.Clone(stems), func(s string) bool { return s == stem }); len(stems) == 0 {
			delete(l.Claims, claim)
		} else {
			l.Claims[claim] = stems
		}
	}
}

// listing returns the modules of a kind, and the version of all listings.
func (m *Modules) listing(kind string) (extmods.Listing, uint64) {
	m.mu.Lock()
	changed := false
	if !m.scanned || m.cfg.Every > 0 && time.Since(m.looked) > m.cfg.Every {
		changed = m.scan()
	}
	l, version := m.listings[kind], m.version
	m.mu.Unlock()
	if changed {
		m.pool.Reload()
	}
	return l, version
}

// files returns the files that a helper loads.
func (m *Modules) files() map[string]python.Files {
	out := map[string]python.Files{}
	for _, kind := range m.cfg.Kinds {
		if l, _ := m.listing(kind); len(l.Paths) > 0 {
			out[kind] = python.Files{Paths: l.Paths, Claims: l.Claims}
		}
	}
	return out
}

// env returns the environment of a call of Python.
func env(c *fn.Call, vars *value.Dict) *python.Env {
	return &python.Env{Call: c, Vars: vars, Functions: map[string]python.Functions{kindModules: ownFunctions{c}, kindBuiltin: allFunctions{ownFunctions{c}}}}
}

// allFunctions are all execution functions of Brine, also those of modules that the user's modules
// replace: what salt.modules.x has for them.
type allFunctions struct{ ownFunctions }

// Has implements python.Functions.
func (b allFunctions) Has(name string) bool {
	_, ok := b.c.Funcs.Builtin(name)
	return ok
}

// Call implements python.Functions.
func (b allFunctions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	f, ok := b.c.Funcs.Builtin(name)
	if !ok {
		return nil, fn.Errorf("'%s' is not available.", name)
	}
	return f.Call(ctx, b.c, args, kwargs)
}

// ownFunctions are Brine's functions without those of the user's modules, which the helper
// has itself.
type ownFunctions struct{ c *fn.Call }

// Has implements python.Functions.
func (o ownFunctions) Has(name string) bool {
	_, ok := o.c.Funcs.Own(name)
	return ok
}

// Names implements python.Functions.
func (o ownFunctions) Names() []string { return o.c.Funcs.OwnNames() }

// Call implements python.Functions.
func (o ownFunctions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	f, ok := o.c.Funcs.Own(name)
	if !ok {
		return nil, fn.Errorf("'%s' is not available.", name)
	}
	return f.Call(ctx, o.c, args, kwargs)
}

// early are the modules whose functions need nothing but the machine. While grains are collected
// no other function can be called: it could wait for the grains.
var early = []string{"cmd", "disk", "environ", "file", "group", "hashutil", "hosts", "ini", "kmod", "mount", "network", "random", "smbios",
	"status", "sysctl", "system", "test", "user"}

// earlyFunctions are Brine's functions for grains modules.
type earlyFunctions struct {
	c     *fn.Call
	funcs *fn.Registry
}

// find returns a function, or nil.
func (e earlyFunctions) find(name string) *fn.Func {
	if module, _, _ := strings.Cut(name, "."); slices.Contains(early, module) {
		return e.funcs.Early(name)
	}
	return nil
}

// Has implements python.Functions.
func (e earlyFunctions) Has(name string) bool { return e.find(name) != nil }

// Names implements python.Functions.
func (e earlyFunctions) Names() []string {
	return slices.DeleteFunc(e.funcs.EarlyNames(), func(name string) bool { return e.find(name) == nil })
}

// Call implements python.Functions.
func (e earlyFunctions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	f := e.find(name)
	if f == nil {
		return nil, fn.Errorf("'%s' cannot be called while grains are collected", name)
	}
	return f.Call(ctx, e.c, args, kwargs)
}

// Source returns the user's execution modules, for a registry.
func (m *Modules) Source() fn.Source { return source{m, kindModules} }

// Runners returns the user's runners, for a registry. In a runner, __salt__ has runners.
func (m *Modules) Runners() fn.Source { return source{m, kindRunners} }

// Wheels returns the user's wheel modules, for a registry. As in Salt they have no
// __salt__.
func (m *Modules) Wheels() fn.Source { return source{m, kindWheel} }

// source is the modules of one kind.
type source struct {
	m    *Modules
	kind string
}

// Find implements fn.Source.
func (s source) Find(full string, own bool) *fn.Func {
	l, version := s.m.listing(s.kind)
	module, _, ok := strings.Cut(full, ".")
	claimed := len(l.Claims[module]) > 0
	if len(l.Paths) == 0 || !ok || !claimed && own || s.m.pool.Off() != nil && (own || !claimed) {
		return nil
	}
	q := query{s.kind, full, own}
	s.m.mu.Lock()
	f, known := s.m.found[q]
	s.m.mu.Unlock()
	if known {
		return f
	}
	f, keep := s.find(full, own, claimed)
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if keep && version == s.m.version {
		if len(s.m.found) >= maxFound {
			clear(s.m.found)
		}
		s.m.found[q] = f
	}
	return f
}

// maxFound bounds the cached look-ups, because callers choose the names.
const maxFound = 1 << 12

// loadLimit bounds the loading of modules: a look-up belongs to no job that could be
// killed.
const loadLimit = time.Minute

func loading() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), loadLimit, fmt.Errorf("modules were not loaded within %v", loadLimit))
}

// loading returns the environment of modules while they are loaded. The function
// __virtual__ of a state module may ask which states exist.
func (s source) loading() *python.Env {
	e := env(s.m.call(), nil)
	if s.m.cfg.Runners != nil && (s.kind == kindRunners || s.kind == kindWheel) {
		c := s.m.call()
		c.Funcs = s.m.cfg.Runners()
		return s.m.onMaster(c, s.kind)
	}
	if s.kind == kindStates && e.Call.Funcs != nil {
		if declared := e.Call.Funcs.Kind(kindStates); declared != nil {
			e.Functions[kindStates] = declaredStates{declared}
		}
	}
	return e
}

// declaredStates are the names of Brine's states outside of a run, where none can be
// called.
type declaredStates struct{ registry *fn.Registry }

// Has implements python.Functions.
func (d declaredStates) Has(name string) bool {
	_, ok := d.registry.Own(name)
	return ok
}

// Names implements python.Functions.
func (d declaredStates) Names() []string { return d.registry.OwnNames() }

// Call implements python.Functions.
func (d declaredStates) Call(_ context.Context, name string, _ []any, _ *value.Dict) (any, error) {
	return nil, fn.Errorf("the state %s can be called in a run of states only, not while modules are loaded", name)
}

// find asks Python for a function. keep reports that the result can be cached.
func (s source) find(full string, own, claimed bool) (f *fn.Func, keep bool) {
	ctx, cancel := loading()
	defer cancel()
	spec, err := s.m.pool.Find(ctx, s.loading(), s.kind, full, !own)
	if err != nil {
		s.m.cfg.Log.Error("cannot load Python modules", "function", full, "err", err)
		if !claimed || own {
			return nil, false
		}
		_, name, _ := strings.Cut(full, ".")
		failing := &fn.Foreign{Name: name, VarArgs: "args", Keywords: "kwargs",
			Call: func(context.Context, *fn.Call, []any, *value.Dict) (any, error) { return nil, err }}
		return failing.Func(), false
	}
	if spec == nil {
		// Do not cache it: a state may install what the module needs.
		return nil, own
	}
	spec.Call = func(ctx context.Context, c *fn.Call, args []any, kwargs *value.Dict) (any, error) {
		e := env(c, nil)
		if s.kind == kindRunners || s.kind == kindWheel {
			e = s.m.onMaster(c, s.kind)
		}
		v, code, err := s.m.pool.Call(ctx, e, s.kind, full, args, kwargs)
		switch {
		case code != 0 && s.kind == kindRunners:
			c.SetFailed() // as in Salt, salt-run exits with 0
		case code != 0:
			c.SetRetcode(code)
		}
		return v, err
	}
	return spec.Func(), true
}

// env returns the environment of a call. On a running master it has its runners, by which the
// helper's package salt reads caches and finds minions, and its bus.
func (m *Modules) env(c *fn.Call, vars *value.Dict) *python.Env {
	e := env(c, vars)
	if m.cfg.Runners != nil {
		runners := m.call()
		if runners.Funcs = m.cfg.Runners(); runners.Funcs != nil {
			e.Functions[kindRunners] = ownFunctions{runners}
		}
		if m.cfg.Wheel != nil {
			e.Functions[kindWheel] = m.cfg.Wheel
		}
		e.Bus, e.Commander = m.cfg.Bus, m.cfg.Commander
	}
	return e
}

// onMaster returns the environment of a runner or wheel function, which have the functions of their
// kind. Execution functions run on the master's machine; modules get them from salt.loader.
func (m *Modules) onMaster(c *fn.Call, kind string) *python.Env {
	here := m.call()
	here.JID, here.Print = c.JID, c.Print
	own := *c
	if own.Templates == nil {
		own.Templates = here.Templates
	}
	if !value.Truth(c.Config.Get("skip_grains")) {
		own.Grains = here.Grains
	}
	e := env(&own, nil)
	e.Functions = map[string]python.Functions{kindModules: ownFunctions{here}, kindBuiltin: allFunctions{ownFunctions{here}}}
	if kind == kindRunners {
		e.Functions[kindRunners] = ownFunctions{c}
	}
	if m.cfg.Wheel != nil {
		e.Functions[kindWheel] = m.cfg.Wheel
	}
	e.Bus, e.Commander = m.cfg.Bus, m.cfg.Commander
	return e
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func (m *Modules) call() *fn.Call { return m.cfg.Call().Prepare() }

// Hides implements fn.Source.
func (s source) Hides(module string) bool {
	l, _ := s.m.listing(s.kind)
	if len(l.Paths) == 0 || s.m.pool.Off() != nil {
		return false
	}
	file := module
	if s.kind == kindModules {
		if other := s.m.cfg.SaltFile(module); other != "" {
			file = other
		}
	}
	return slices.Contains(l.Claims[module], file)
}

// Claims implements fn.Source.
func (s source) Claims(module string) bool {
	l, _ := s.m.listing(s.kind)
	return len(l.Claims[module]) > 0
}

// Names implements fn.Source.
func (s source) Names() ([]string, uint64) {
	all, version := s.list()
	return all.names, version
}

// Missing implements fn.Source.
func (s source) Missing() map[string]string {
	all, _ := s.list()
	return all.missing
}

func (s source) list() (*list, uint64) {
	l, version := s.m.listing(s.kind)
	if len(l.Paths) == 0 || s.m.pool.Off() != nil {
		return &list{}, version
	}
	s.m.mu.Lock()
	kept := s.m.lists[s.kind]
	s.m.mu.Unlock()
	if kept != nil {
		return kept, version
	}
	ctx, cancel := loading()
	defer cancel()
	names, missing, err := s.m.pool.List(ctx, s.loading(), s.kind)
	if err != nil {
		s.m.cfg.Log.Error("cannot list Python modules", "kind", s.kind, "err", err)
		return &list{}, version
	}
	all := &list{names: names, missing: map[string]string{}}
	slices.Sort(all.names)
	all.names = slices.Compact(all.names)
	for k, v := range missing.All() {
		all.missing[value.Str(k)] = text(v)
		for name := range maps.Keys(l.Claims) { // the reason is the same under all names of the file
			if slices.Contains(l.Claims[name], value.Str(k)) {
				all.missing[name] = text(v)
			}
		}
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if version == s.m.version {
		s.m.lists[s.kind] = all
	}
	return all, version
}

// Grains adds the grains of the user's grains modules to the collected grains. It does not
// replace grains that the configuration sets.
func (m *Modules) Grains(ctx context.Context, collected *value.Dict) {
	m.Rescan()
	l, _ := m.listing(kindGrains)
	if len(l.Paths) == 0 {
		return
	}
	if err := m.pool.Off(); err != nil {
		m.cfg.Log.Warn("the user's grains modules are not run", "err", err)
		return
	}
	c := (&fn.Call{ID: m.cfg.ID, Grains: fn.Tree{Dict: collected}, Config: fn.Tree{Dict: m.cfg.Opts}, Log: m.cfg.Log}).Prepare()
	e := env(c, nil)
	if m.cfg.Funcs != nil {
		e.Functions[kindModules] = earlyFunctions{c, m.cfg.Funcs()}
	}
	more, err := m.pool.Grains(ctx, e, collected)
	if err != nil {
		m.cfg.Log.Error("cannot run the user's grains modules", "err", err)
		return
	}
	for k, v := range more.All() {
		if !m.cfg.OwnGrains.Has(k) {
			collected.Set(k, v)
		}
	}
}

// errUnsynced is the error of Fetch if the call has no file server.
var errUnsynced = errors.New("there is no file server to fetch modules from")

// Fetch copies modules of some kinds from the file server. It returns the names of new and
// changed modules by kind. whitelist and blacklist, unless nil, replace the options.
func (m *Modules) Fetch(ctx context.Context, c *fn.Call, kinds, envs []string, whitelist, blacklist any) (map[string][]string, error) {
	files, ok := c.Files.(extmods.Files)
	if !ok {
		return nil, errUnsynced
	}
	if whitelist == nil {
		whitelist = m.cfg.Sync.Whitelist
	}
	if blacklist == nil {
		blacklist = m.cfg.Sync.Blacklist
	}
	there, err := extmods.Kinds(ctx, files, envs)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	any, errs := false, []error(nil)
	for _, kind := range kinds {
		if !there[kind] && !extmods.Holds(m.cfg.ExtensionModules, kind) {
			continue
		}
		q := extmods.Query{Kind: kind, Envs: envs, Whitelist: extmods.Names(whitelist, kind), Blacklist: extmods.Names(blacklist, kind),
			Clean: m.cfg.Sync.Clean}
		names, changed, err := extmods.Sync(ctx, files, m.cfg.ExtensionModules, q, m.cfg.Log)
		out[kind] = names
		any = any || changed
		errs = append(errs, err)
	}
	if any {
		m.Rescan()
	}
	return out, errors.Join(errs...)
}

// Autoload reports whether a highstate fetches modules at its start.
func (m *Modules) Autoload() bool { return m.cfg.Sync.Autoload }

// List returns the names of the fetched modules by kind.
func (m *Modules) List() map[string][]string {
	out := map[string][]string{}
	for _, kind := range extmods.Present(m.cfg.ExtensionModules) {
		l := extmods.Scan([]string{filepath.Join(m.cfg.ExtensionModules, kind)})
		out[kind] = slices.Sorted(maps.Keys(l.Paths))
	}
	return out
}
