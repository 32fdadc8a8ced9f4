package state

import (
	"context"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Env is what a state can access besides its arguments. The Call has the
// minion's id, the job, grains, pillar, configuration, a logger, the files of
// file servers and the web, and the execution functions by name (for states
// such as module.run, whose purpose is to call them; others use the packages
// under host).
type Env struct {
	*fn.Call
	// Saltenv is the environment of the state's SLS, unless the state has an
	// argument saltenv.
	Saltenv string
	// Low is the state's chunk: arguments, requisites, "__id__", "__sls__". It must
	// not be modified.
	Low *value.Dict
	// Run is shared by all states of a run. It is never nil.
	Run *Run
	// Template renders text with a template engine ("jinja" …).
	Template func(ctx context.Context, t Template) (string, error)
	// State runs another state function with these arguments, or with test finds out what
	// it would do, and returns its result. States of users' Python modules call each other.
	State func(ctx context.Context, full string, args []any, kwargs *value.Dict, test bool) (*value.Dict, error)
}

// Exec calls an execution function with positional arguments and, if kw is not
// nil, keywords. States whose implementation depends on the system, such as
// packages and services, use it: the minion decides which module implements
// "pkg".
func (e *Env) Exec(ctx context.Context, fun string, kw *value.Dict, args ...any) (any, error) {
	return e.Funcs.Call(ctx, e.Call, fun, args, kw)
}

// Can reports whether an execution function exists.
func (e *Env) Can(fun string) bool {
	_, err := e.Funcs.Lookup(fun)
	return err == nil
}

// Template is a text to render.
type Template struct {
	// Engine is the engine's name in the SLS, usually "jinja".
	Engine string
	// Source is the text, Name its name in errors and the base of relative imports:
	// the path on the file server.
	Source, Name string
	// Saltenv is the environment of imports.
	Saltenv string
	// Context has the template's variables besides the global ones.
	Context *value.Dict
}

// Run is shared by the states of one run.
type Run struct {
	// Chunks are all chunks of the run in order. They must not be modified.
	Chunks []*value.Dict

	mu      sync.Mutex
	results *value.Dict
	vars    map[string]any
	atEnd   []func()
}

// NewRun returns a new run of these chunks.
func NewRun(chunks []*value.Dict) *Run {
	return &Run{Chunks: chunks, results: value.NewDict(len(chunks)), vars: map[string]any{}}
}

// Result returns the result of a state of this run by its tag (see Tag); nil if
// it has not run yet.
func (r *Run) Result(tag string) *value.Dict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results.Dict(tag)
}

// SetResult stores the result of a state.
func (r *Run) SetResult(tag string, result *value.Dict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results.Set(tag, result)
}

// Results are the results by tag. Only the engine sets them, and only its
// goroutine may read them; other goroutines call Result.
func (r *Run) Results() *value.Dict { return r.results }

// Shared returns the value of a key that states of one run share, such as
// whether package lists were refreshed. The first call creates it. States may
// run in parallel: the value itself must be safe for that.
func (r *Run) Shared(key string, make func() any) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.vars[key]
	if !ok {
		v = make()
		r.vars[key] = v
	}
	return v
}

// AtEnd registers a function that is called at the end of the run, even after
// errors.
func (r *Run) AtEnd(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atEnd = append(r.atEnd, f)
}

// End calls the registered functions. The engine calls it after the last state.
func (r *Run) End() {
	r.mu.Lock()
	all := r.atEnd
	r.atEnd = nil
	r.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// SaltenvOf returns the file server environment of a chunk's files.
func SaltenvOf(low *value.Dict) string {
	env := "base"
	for _, k := range []string{"__env__", "saltenv"} {
		if v, ok := low.Get(k); ok && v != nil {
			env = value.Str(v)
		}
	}
	return env
}

// Tag is the key of a chunk's result: "module_|-id_|-name_|-function".
func Tag(low *value.Dict) string {
	return value.Str(low.At("state")) + "_|-" + value.Str(low.At("__id__")) + "_|-" + value.Str(low.At("name")) + "_|-" + value.Str(low.At("fun"))
}
