package state

import (
	"context"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Env is what a state may know beside its arguments. The Call gives it the
// minion's id, the job, grains, pillar, configuration, a logger, the files of
// file servers and the web, and the execution functions by name (for states
// such as module.run, whose very purpose is to call them; others use the
// packages under host).
type Env struct {
	*fn.Call
	// Saltenv is the environment of the file server that the state's SLS is
	// from, unless the state has an argument saltenv.
	Saltenv string
	// Low is the state's chunk: arguments, requisites, "__id__", "__sls__".
	// It must not be changed.
	Low *value.Dict
	// Run is what all states of a run share. It is never nil.
	Run *Run
	// Template renders a text with a template engine ("jinja" …).
	Template func(ctx context.Context, t Template) (string, error)
}

// Exec calls an execution function with positional arguments and, if kw is not
// nil, keywords. States of things that many kinds of system have, such as
// packages and services, go this way: which module stands behind "pkg" is the
// minion's matter.
func (e *Env) Exec(ctx context.Context, fun string, kw *value.Dict, args ...any) (any, error) {
	return e.Funcs.Call(ctx, e.Call, fun, args, kw)
}

// Can reports whether there is an execution function.
func (e *Env) Can(fun string) bool {
	_, err := e.Funcs.Lookup(fun)
	return err == nil
}

// Template is a text to render.
type Template struct {
	// Engine is the name that the SLS gives, "jinja" for most.
	Engine string
	// Source is the text, Name what to call it in errors and where relative
	// imports start: the path on the file server.
	Source, Name string
	// Saltenv is the environment of imports.
	Saltenv string
	// Context holds the template's variables, beside those of every template.
	Context *value.Dict
}

// Run is what the states of one run share.
type Run struct {
	// Chunks are all chunks of the run in their order. They must not be
	// changed.
	Chunks []*value.Dict

	mu      sync.Mutex
	results *value.Dict
	vars    map[string]any
	atEnd   []func()
}

// NewRun returns the beginning of a run of these chunks.
func NewRun(chunks []*value.Dict) *Run {
	return &Run{Chunks: chunks, results: value.NewDict(len(chunks)), vars: map[string]any{}}
}

// Result returns what a state of this run came to, by its tag (see Tag); nil
// if it did not run yet.
func (r *Run) Result(tag string) *value.Dict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results.Dict(tag)
}

// SetResult notes what a state came to.
func (r *Run) SetResult(tag string, result *value.Dict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results.Set(tag, result)
}

// Results are what the states came to, by tag. They are the engine's, which alone
// sets any: its goroutine may read them, others ask Result.
func (r *Run) Results() *value.Dict { return r.results }

// Shared returns the value of a key that states of one run share, such as
// whether package lists were refreshed. The first call makes it. States may
// run in parallel: the value itself has to be safe for that.
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

// AtEnd has a function called when the run is over, whatever became of it.
func (r *Run) AtEnd(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atEnd = append(r.atEnd, f)
}

// End calls what AtEnd was given. The engine calls it after the last state.
func (r *Run) End() {
	r.mu.Lock()
	all := r.atEnd
	r.atEnd = nil
	r.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// SaltenvOf returns the environment of the file server that a chunk's files
// are from.
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
