// Package engine runs low chunks: it decides by requisites which states run, in
// which order and how, requests the plan of each, and executes or, in test
// mode, shows it. The results have Salt's structure: for every chunk a mapping
// under the key "module_|-id_|-name_|-function".
//
// The engine implements everything that all states have in common: require,
// watch, onchanges, onfail, prereq, listen, unless, onlyif, creates, check_cmd,
// retry, parallel, failhard, aggregate, slots, umask, runas, fire_event,
// reload_grains, reload_pillar and reload_modules. States see only their own
// arguments.
//
// It knows nothing of SLS files, masters or minions: Deps has its dependencies.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// Options of a run.
type Options struct {
	// Test shows what would change and changes nothing.
	Test bool
	// Mock calls no state: all succeed without changes.
	Mock bool
	// Failhard ends the run at the first failure.
	Failhard bool
	// Events fires an event for every state that has run.
	Events bool
	// Aggregate names the modules whose chunks are merged, or is true for all: the
	// option state_aggregate.
	Aggregate any
	// DisabledRequisites are requisites that are ignored.
	DisabledRequisites []string
	// DisabledStates are globs of "module.function" that must not run here:
	// the grain state_runs_disabled.
	DisabledStates []string
	// Conditions are the option global_state_conditions.
	Conditions *value.Dict
}

// Observer receives the progress of the run, from one goroutine.
type Observer interface {
	// Started is called with a state that starts.
	Started(low *value.Dict)
	// Done is called with the result of a state, the number of results, and the
	// number of chunks.
	Done(low, result *value.Dict, n, total int)
}

// Deps are the dependencies of a run. Only Call and States are required.
type Deps struct {
	// States are the state functions.
	States *state.Registry
	// Call prepares a state's view of the minion: the current grains and pillar.
	Call func() *fn.Call
	// Template renders text with a template engine.
	Template func(ctx context.Context, c *fn.Call, t state.Template) (string, error)
	// Fire sends an event to the master.
	Fire func(ctx context.Context, tag string, data *value.Dict)
	// Reload collects "grains", "pillar" or "modules" again.
	Reload func(ctx context.Context, what string) error
	// Hold waits while the run is paused before the state with an id, and reports
	// whether to end the run instead.
	Hold func(ctx context.Context, id string) (end bool)
	// Where, if set, returns "(file, line n)" for a chunk's ID, or "". Then errors
	// for unknown states include the location.
	Where func(ctx context.Context, low *value.Dict) string
	// Watch receives the progress.
	Watch Observer
	// Log is never nil after New.
	Log *slog.Logger
}

// Engine runs chunks.
type Engine struct {
	deps Deps
	opts Options
	now  func() time.Time
}

// New returns an engine.
func New(d Deps, o Options) *Engine {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	return &Engine{deps: d, opts: o, now: time.Now}
}

// Run runs the chunks in order, then those that listen to changes, and returns
// the results. It modifies the chunks. When the context ends, no further state
// starts.
func (e *Engine) Run(ctx context.Context, chunks []*value.Dict) *value.Dict {
	r := e.newRun(ctx, chunks)
	defer r.shared.End()
	disabled := r.disable()
	r.all(r.units)
	results := r.results
	if disabled.Len() > 0 {
		results = disabled
		results.Update(r.results)
	}
	r.listen(results)
	return results
}

// RunID runs the chunks with an id, and their requisites, and returns the
// results.
func (e *Engine) RunID(ctx context.Context, chunks []*value.Dict, id string) *value.Dict {
	r := e.newRun(ctx, chunks)
	defer r.shared.End()
	for _, u := range r.units {
		if u.id == id {
			r.chunk(u, 0)
			r.settle(nil)
			clear(r.active)
		}
	}
	return r.results
}

// Single runs one chunk alone, without requisites.
func (e *Engine) Single(ctx context.Context, low *value.Dict) *value.Dict {
	r := e.newRun(ctx, []*value.Dict{low})
	defer r.shared.End()
	u := r.units[0]
	r.set(u.tag, r.call(u, low, 1))
	r.settle(nil)
	return r.results.Dict(u.tag)
}

// Verify returns why a chunk cannot be called, in Salt's words.
func (e *Engine) Verify(ctx context.Context, low *value.Dict) []string {
	v := verifier{ctx, e.deps.States, e.deps.Where}
	_, _, faults := v.verify(low)
	return faults
}

// unit is a chunk with its state in the engine.
type unit struct {
	low                        *value.Dict
	tag, id, name, module, sls string
	includedFrom               []string
	prereq                     bool // must predict its changes
	prerequired                bool // a state that it requires has it as prereq
	entered                    int  // nested checks in progress
	refused                    bool // lacked a function when its prediction was requested; as in Salt, it has no result
}

func newUnit(low *value.Dict) *unit {
	u := &unit{low: low, tag: state.Tag(low), id: value.Str(low.At("__id__")), name: value.Str(low.At("name")),
		module: value.Str(low.At("state")), sls: value.Str(low.At("__sls__"))}
	for _, f := range low.List("__sls_included_from__") {
		u.includedFrom = append(u.includedFrom, value.Str(f))
	}
	return u
}

// run is the state of one run. One goroutine works on it; parallel states
// report through pending.
type run struct {
	deps *Deps
	opts *Options
	now  func() time.Time
	ctx  context.Context
	// The components that states use, each with its part of deps.
	verifier   verifier
	conditions conditions
	performer  performer

	shared  *state.Run
	units   []*unit
	byName  map[string][]*unit // by id and by name; nil until the first use
	results *value.Dict        // by tag; those of shared, or only those of listeners
	pre     *value.Dict        // predicted changes, by tag
	active  map[string]bool
	pending map[string]*pending
	num     int64
	total   int
	stop    bool // set by failhard
}

func (e *Engine) newRun(ctx context.Context, chunks []*value.Dict) *run {
	shared := state.NewRun(chunks)
	fills := slots{e.deps.Log}
	r := &run{deps: &e.deps, opts: &e.opts, now: e.now, ctx: ctx,
		verifier:   verifier{ctx, e.deps.States, e.deps.Where},
		conditions: conditions{ctx, e.deps.Log, fills, e.deps.Call, e.opts.Conditions},
		performer:  performer{e.deps.Log, e.deps.States, fills, shared, e.deps.Template},
		shared:     shared, results: shared.Results(), pre: value.NewDict(0),
		active: map[string]bool{}, pending: map[string]*pending{}, total: len(chunks), units: make([]*unit, 0, len(chunks))}
	for _, low := range chunks {
		r.units = append(r.units, newUnit(low))
	}
	return r
}

// named returns the units with an id or name. Only runs with requisites need
// it.
func (r *run) named(name string) []*unit {
	if r.byName == nil {
		r.byName = make(map[string][]*unit, len(r.units))
		for _, u := range r.units {
			r.byName[u.id] = append(r.byName[u.id], u)
			if u.name != u.id {
				r.byName[u.name] = append(r.byName[u.name], u)
			}
		}
	}
	return r.byName[name]
}

// all runs the units in order, and then handles those whose requisites form a
// circle, so that none is silently skipped.
func (r *run) all(units []*unit) {
	if r.inOrder(units) {
		for _, u := range units {
			if !r.results.Has(u.tag) && !u.refused {
				r.set(u.tag, r.recursive(u))
				r.finish(u)
			}
		}
	}
	r.settle(nil)
}

// inOrder runs the units. It reports false if it was stopped.
func (r *run) inOrder(units []*unit) bool {
	for _, u := range units {
		if r.stop || r.ctx.Err() != nil {
			return false
		}
		if r.results.Has(u.tag) {
			continue
		}
		if r.deps.Hold != nil && r.deps.Hold(r.ctx, u.id) {
			return false
		}
		r.chunk(u, 0)
		if r.failedHard(u) {
			return false
		}
		clear(r.active)
	}
	return !r.stop && r.ctx.Err() == nil
}

// set stores a result, also where states can see it.
func (r *run) set(tag string, result *value.Dict) {
	r.shared.SetResult(tag, result)
	if r.results != r.shared.Results() { // those of listeners
		r.results.Set(tag, result)
	}
}

// disable removes what must not run on this minion.
func (r *run) disable() *value.Dict {
	out := value.NewDict(0)
	if len(r.opts.DisabledStates) == 0 {
		return out
	}
	var left []*unit
	for _, u := range r.units {
		fun := u.module + "." + value.Str(u.low.At("fun"))
		pattern := ""
		for _, p := range r.opts.DisabledStates {
			if target.ParseGlob(p).Match(fun) {
				pattern = p
				break
			}
		}
		if pattern == "" {
			left = append(left, u)
			continue
		}
		out.Set(u.tag, value.DictOf("changes", value.NewDict(0), "result", false, "comment", fmt.Sprintf(
			"The state function \"%s\" is currently disabled by \"%[2]s\", to re-enable, run state.enable %[2]s.", fun, pattern),
			"__run_num__", r.next(), "__sls__", u.low.At("__sls__")))
	}
	r.units = left
	return out
}

func (r *run) next() int64 {
	n := r.num
	r.num++
	return n
}

// failedHard reports whether a failure of the unit ends the run.
func (r *run) failedHard(u *unit) bool {
	if r.opts.Test {
		return false
	}
	hard := r.opts.Failhard
	if v, ok := u.low.Get("failhard"); ok {
		hard = value.Truth(v)
	}
	res, ok := r.results.At(u.tag).(*value.Dict)
	return hard && ok && res.At("result") != nil && !value.Truth(res.At("result"))
}

// event fires the event for the end of one state.
func (r *run) event(u *unit, result *value.Dict) {
	if r.deps.Watch != nil {
		r.deps.Watch.Done(u.low, result, r.results.Len(), r.total)
	}
	fire := u.low.At("fire_event")
	if r.deps.Fire == nil || !r.opts.Events && !value.Truth(fire) {
		return
	}
	c := r.deps.Call().Prepare()
	data := value.DictOf("ret", result)
	tag := ""
	switch x := fire.(type) {
	case string:
		tag = fmt.Sprintf("salt/state_result/%s/%s/%s", c.JID, c.ID, x)
	case bool:
		if x {
			tag = fmt.Sprintf("salt/state_result/%s/%s/%s", c.JID, c.ID, value.Str(result.At("name")))
		}
	}
	if tag == "" {
		tag = fmt.Sprintf("salt/job/%s/prog/%s/%s", c.JID, c.ID, value.Str(result.At("__run_num__")))
		data.Set("len", int64(r.total))
	}
	r.deps.Fire(r.ctx, tag, data)
}
