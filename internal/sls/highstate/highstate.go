// Package highstate compiles and runs states from a minion's file server,
// pillar and grains: top file to SLS names (package top), SLS files to data
// (render), data to chunks (sls), chunks to results (state/engine). It connects
// these packages to their files and data.
//
// A Session is one run, or one query of what a run would do. It has its own
// pillar and options, so that overrides affect no other session.
package highstate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"brine/internal/base/field"
	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
	"brine/internal/sls/render"
	"brine/internal/sls/sls"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
	"brine/internal/sls/top"
)

// Options are the options of state runs. Those in a master's answer to
// _master_opts override the minion's.
type Options struct {
	sls.Options
	Renderer          string      `salt:"renderer" default:"jinja|yaml" doc:"renderers of SLS files that do not name others" change:"live"`
	RendererBlacklist []string    `salt:"renderer_blacklist" default:"[]" doc:"renderers that are left out" change:"live"`
	RendererWhitelist []string    `salt:"renderer_whitelist" default:"[]" doc:"the only renderers; empty: all" change:"live"`
	Test              bool        `salt:"test" default:"false" doc:"state runs only show what they would do" change:"live"`
	Failhard          bool        `salt:"failhard" default:"false" doc:"end a state run at the first failure" change:"live"`
	StateEvents       bool        `salt:"state_events" default:"false" doc:"tell the master of every state as it is done" change:"live"`
	Aggregate         any         `salt:"state_aggregate" default:"false" doc:"put states together that can be done at once: true, or a list of state modules" change:"live"`
	Conditions        any         `salt:"global_state_conditions" default:"null" doc:"map of states to targets: the minions on which they may run" change:"live"`
	LockSaltenv       bool        `salt:"lock_saltenv" default:"false" doc:"state runs cannot choose another environment" change:"live"`
	Queue             any         `salt:"state_queue" default:"false" doc:"state runs wait for others instead of being refused: true, or how many may wait" change:"live"`
	Data              string      `salt:"state_data" default:"" doc:"terse: results without those that changed nothing" change:"live"`
	TopsFirst         bool        `salt:"master_tops_first" default:"false" doc:"what master_tops give comes before the top file" change:"live"`
	Nodegroups        *value.Dict `salt:"-"`
}

// Deps are the shared dependencies of a minion's sessions.
type Deps struct {
	// Renderer renders SLS files and templates.
	Renderer *render.Renderer
	// States are the state functions.
	States *state.Registry
	// Fire sends an event to the masters. It may be nil.
	Fire func(ctx context.Context, tag string, data *value.Dict)
	// Reload collects "grains" or "modules" again. It may be nil.
	Reload func(ctx context.Context, what string) error
	// Grains returns the current grains, which Reload changes.
	Grains func() *value.Dict
	// Watch receives the progress of runs. It may be nil.
	Watch engine.Observer
	// PillarIsFresh means that a Call's pillar has just been compiled, as by
	// salt-call, and need not be compiled again for a run.
	PillarIsFresh bool
}

// Request describes a session.
type Request struct {
	// Saltenv and Pillarenv name environments; "" means the options.
	Saltenv, Pillarenv string
	// Pillar is merged over the minion's pillar. It may be nil.
	Pillar *value.Dict
	// Test sets test mode; nil means the option.
	Test *bool
	// Mock runs all requisites and conditions, but no state.
	Mock bool
	// StateEvents replaces the option, unless nil.
	StateEvents *bool
	// StateTop replaces the name of the top file, unless "".
	StateTop string
	// Hold waits while the run is paused; see engine.Deps.
	Hold func(ctx context.Context, id string) (end bool)
}

// Files are the files of a session. *fileclient.Client implements it.
type Files interface {
	fn.Fetcher
	Envs(ctx context.Context) ([]string, error)
	MasterOpts(ctx context.Context) (*value.Dict, error)
	MasterTops(ctx context.Context, id string, opts *value.Dict) (*value.Dict, error)
	State(ctx context.Context, sls, saltenv string) (fileclient.State, error)
	States(ctx context.Context, saltenv string) ([]string, error)
}

// Session is one run. It is used by one goroutine.
type Session struct {
	deps   Deps
	call   *fn.Call
	req    Request
	opts   *value.Dict // all options, as templates see them
	o      Options
	top    top.Options
	env    string // saltenv, "" for all environments of the top file
	pillar *value.Dict
	grains *value.Dict
	avail  map[string][]string
	envs   map[string]bool

	stateConf render.StateConf
	files     Files
	compiler  fn.PillarCompiler // nil if the pillar cannot be compiled again
}

// Open prepares a session: it requests the options of the file server and
// compiles the pillar. The error is for the user.
func Open(ctx context.Context, d Deps, c *fn.Call, req Request) (*Session, error) {
	s := &Session{deps: d, call: c, req: req, opts: c.Config.All().Clone(), grains: c.Grains.All(), avail: map[string][]string{}}
	s.compiler, _ = c.Pillar.(fn.PillarCompiler)
	var ok bool
	if s.files, ok = c.Files.(Files); !ok {
		return nil, errors.New("there is no file server to get states from")
	}
	if err := s.readOptions(ctx); err != nil {
		return nil, err
	}
	if err := s.environments(); err != nil {
		return nil, err
	}
	if err := s.compilePillar(ctx); err != nil {
		return nil, err
	}
	for k, v := range map[string]any{"grains": s.grains, "pillar": s.pillar, "test": s.o.Test} {
		s.opts.Set(k, v)
	}
	return s, nil
}

// fromMaster are the options that the file server decides.
var fromMaster = []string{"renderer", "failhard", "state_auto_order", "jinja_env", "jinja_sls_env", "jinja_lstrip_blocks", "jinja_trim_blocks"}

func (s *Session) readOptions(ctx context.Context) error {
	master, err := s.files.MasterOpts(ctx)
	if err != nil {
		return fmt.Errorf("cannot get the options of the file server: %w", err)
	}
	for _, k := range fromMaster {
		if v, ok := master.Get(k); ok && s.opts.Str("file_client") != "local" {
			s.opts.Set(k, v)
		}
	}
	for _, k := range []string{"state_events", "state_aggregate"} {
		if !value.Truth(s.opts.At(k)) && master.Has(k) {
			s.opts.Set(k, master.At(k))
		}
	}
	s.opts.Set("nodegroups", master.At("nodegroups"))
	s.top = top.FromMaster(master)
	if s.req.StateTop != "" {
		s.top.StateTop = strings.TrimPrefix(s.req.StateTop, "salt://")
		if s.req.Saltenv != "" {
			s.top.StateTopSaltenv = s.req.Saltenv
		}
	}
	if err := decode(s.opts, &s.o); err != nil {
		return err
	}
	s.o.Nodegroups = master.Dict("nodegroups")
	if s.req.Test != nil {
		s.o.Test = *s.req.Test
	}
	if s.req.StateEvents != nil {
		s.o.StateEvents = *s.req.StateEvents
	}
	return nil
}

// decode fills a struct of options from a tree.
func decode(from *value.Dict, ptr any) error {
	st := reflect.ValueOf(ptr).Elem()
	fields, err := field.Of(st.Type())
	if err != nil {
		return err
	}
	for _, f := range fields {
		if err := f.SetDefault(st); err != nil {
			return err
		}
		v, ok := from.Get(f.Name)
		if !ok {
			continue
		}
		if err := f.Set(st, v); err != nil {
			return fmt.Errorf("option %s: %w", f.Name, err)
		}
	}
	return nil
}

// environments determines saltenv and pillarenv.
func (s *Session) environments() error {
	s.env = value.Str(s.opts.At("saltenv"))
	if s.opts.At("saltenv") == nil {
		s.env = ""
	}
	if e := s.req.Saltenv; e != "" {
		if s.o.LockSaltenv && e != s.env {
			return fn.Errorf("lock_saltenv is enabled, saltenv cannot be changed")
		}
		s.env = e
		s.opts.Set("saltenv", e)
	}
	switch {
	case s.req.Pillarenv != "":
		s.opts.Set("pillarenv", s.req.Pillarenv)
	case s.opts.Bool("pillarenv_from_saltenv") && s.req.Saltenv != "":
		s.opts.Set("pillarenv", s.req.Saltenv)
	}
	return nil
}

func (s *Session) compilePillar(ctx context.Context) error {
	s.pillar = s.call.Pillar.All()
	pillarenv := text(s.opts.At("pillarenv"))
	same := pillarenv == text(s.call.Config.Get("pillarenv"))
	if s.compiler != nil && (!s.deps.PillarIsFresh || s.req.Pillar != nil || !same) {
		p, err := s.compiler.Compile(ctx, fn.PillarQuery{Saltenv: s.env, Pillarenv: pillarenv, Override: s.req.Pillar})
		if err != nil {
			return fmt.Errorf("cannot compile the pillar: %w", err)
		}
		s.pillar = p
	}
	if s.pillar == nil {
		s.pillar = value.NewDict(0)
	}
	if s.req.Pillar != nil {
		s.pillar = value.DeepCopy(s.pillar).(*value.Dict)
		merge(s.pillar, s.req.Pillar, s.opts.Str("pillar_source_merging_strategy"), s.opts.Bool("pillar_merge_lists"))
	}
	return nil
}

func text(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

// merge merges src over dst. All strategies but overwrite and none merge nested
// mappings.
func merge(dst, src *value.Dict, strategy string, lists bool) {
	for k, v := range src.All() {
		old := dst.At(k)
		a, okA := old.(*value.Dict)
		b, okB := v.(*value.Dict)
		if okA && okB && strategy != "overwrite" && strategy != "none" {
			merge(a, b, strategy, lists)
			continue
		}
		x, okX := old.(*value.List)
		y, okY := v.(*value.List)
		if okX && okY && lists {
			joined := &value.List{Items: append([]any(nil), x.Items...)}
			for _, it := range y.Items {
				if !containsItem(x.Items, it) {
					joined.Append(it)
				}
			}
			v = joined
		}
		dst.Set(k, v)
	}
}

func containsItem(items []any, v any) bool {
	for _, it := range items {
		if value.Equal(it, v) {
			return true
		}
	}
	return false
}

// Options returns the options of this session.
func (s *Session) Options() Options { return s.o }

// Saltenv is the environment of the session, "" for all of the top file.
func (s *Session) Saltenv() string { return s.env }

// PillarErrors returns the errors of the pillar. States must not run with an
// incomplete pillar.
func (s *Session) PillarErrors() []any { return s.pillar.List("_errors") }

// Call returns a Call for execution functions of this session: they see its
// pillar and options.
func (s *Session) Call() *fn.Call {
	c := *s.call
	if c.Pillar = (fn.Tree{Dict: s.pillar}); s.compiler != nil {
		c.Pillar = fn.NewPillar(s.pillar, s.compiler.Compile)
	}
	c.Grains, c.Config = fn.Tree{Dict: s.grains}, fn.Tree{Dict: s.opts}
	c.RunAs, c.Progress = "", nil
	c.SetRetcode(0)
	return &c
}

// Matches returns the SLS files that the top files assign to this minion.
// faults are the errors of the top files.
func (s *Session) Matches(ctx context.Context) (matches []top.Match, faults []string, err error) {
	files, err := top.Gather(ctx, topSource{s}, s.top, s.env)
	if err != nil {
		return nil, nil, err
	}
	merged, err := top.Merge(files, s.top, s.call.Log)
	if err != nil {
		return nil, nil, err
	}
	if faults = top.Verify(merged); len(faults) > 0 {
		return nil, faults, nil
	}
	groups := target.Nodegroups{}
	for k, v := range s.o.Nodegroups.All() {
		groups[value.Str(k)] = v
	}
	m := top.Matcher{Subject: target.Data{MinionID: s.call.ID, GrainData: s.grains, PillarData: s.pillar}, Nodegroups: groups,
		Avail: func(env string) bool { return s.hasEnv(ctx, env) }, Log: s.call.Log}
	if matches, err = m.Matches(merged, s.env); err != nil {
		return nil, nil, err
	}
	more, err := s.files.MasterTops(ctx, s.call.ID, s.opts)
	if err != nil {
		s.call.Log.Warn("cannot get master_tops from the master", "err", err)
	}
	return addTops(matches, more, s.o.TopsFirst), nil, nil
}

// addTops adds the SLS files of master_tops.
func addTops(matches []top.Match, tops *value.Dict, first bool) []top.Match {
	for k, v := range tops.All() {
		env := value.Str(k)
		var names []string
		for _, it := range top.Items(v) {
			names = append(names, value.Str(it))
		}
		i := 0
		for i < len(matches) && matches[i].Saltenv != env {
			i++
		}
		if i == len(matches) {
			matches = append(matches, top.Match{Saltenv: env})
		}
		a, b := matches[i].SLS, names
		if first {
			a, b = b, a
		}
		joined := append([]string(nil), a...)
		for _, n := range b {
			if !contains(a, n) {
				joined = append(joined, n)
			}
		}
		matches[i].SLS = joined
	}
	return matches
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (s *Session) hasEnv(ctx context.Context, env string) bool {
	if s.envs == nil {
		s.envs = map[string]bool{"base": true}
		list, err := s.files.Envs(ctx)
		if err != nil {
			s.call.Log.Warn("cannot list the environments", "err", err)
		}
		for _, e := range list {
			s.envs[e] = true
		}
	}
	return s.envs[env] || s.envs["__env__"]
}

// states returns the SLS names of an environment.
func (s *Session) states(ctx context.Context, env string) ([]string, error) {
	if names, ok := s.avail[env]; ok {
		return names, nil
	}
	names, err := s.files.States(ctx, env)
	if err != nil {
		return nil, err
	}
	s.avail[env] = names
	return names, nil
}

// notFound converts a file client's error into the one that other packages
// check for.
func notFound(err error, is error) error {
	if salt.KindOf(err) == salt.NotFound || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %v", is, err)
	}
	return err
}
