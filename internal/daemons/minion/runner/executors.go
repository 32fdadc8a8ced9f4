package runner

import (
	"context"
	"strings"
	"time"

	"brine/internal/base/registry"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Executors are executors that the user has written in Python.
type Executors interface {
	// Has reports whether there is an executor of a name. builtin says that Brine has one of that name.
	Has(name string, builtin bool) bool
	// AllowsMissing reports whether an executor also runs a function that does not exist.
	AllowsMissing(ctx context.Context, c *fn.Call, name, fun string) (bool, error)
	// Execute calls an executor for a function with the job's map data. builtin are Brine's
	// executors. If the result is nil, more is the target for the next executor.
	Execute(ctx context.Context, name, fun string, data *value.Dict, t fn.Target, builtin python.Functions) (ret any, more fn.Target, err error)
}

// execution is a call of a function that an executor makes.
type execution struct {
	r   *Runner
	fun string
	// data is the job's map.
	data   *value.Dict
	target fn.Target
}

// executor runs before the function of a job, or calls the function. If it returns nil, the
// next executor of the job runs.
type executor struct {
	run func(ctx context.Context, x *execution) (any, error)
	// missing returns why the executor cannot be used, or "". It may be nil.
	missing func(r *Runner) string
}

var executors = registry.New[executor]("executor")

// directCall only calls the function.
const directCall = "direct_call"

func init() {
	executors.Register(directCall, executor{run: func(ctx context.Context, x *execution) (any, error) { return x.call(ctx) }})
	executors.Register("splay", executor{run: func(ctx context.Context, x *execution) (any, error) { return nil, x.splay(ctx) }})
}

// ExecutorNames returns the names of the executors, sorted.
func ExecutorNames() []string { return executors.Names() }

// executorsOf reads a list of executors, or the name of one.
func executorsOf(spec any) ([]string, error) {
	var names []string
	switch x := spec.(type) {
	case string:
		names = []string{x}
	case *value.List:
		for _, it := range x.Items {
			names = append(names, value.Str(it))
		}
	}
	if len(names) == 0 {
		return nil, fn.Invalidf("Wrong executors specification: %s. String or non-empty list expected", value.Str(spec))
	}
	return names, nil
}

// direct reports whether the job's functions are called without executors.
func (r *Runner) direct(j *jobs.Job) bool {
	return j.Pub.ModuleExecutors == nil && r.plain && (r.cfg.Executors == nil || !r.cfg.Executors.Has(directCall, true))
}

// Through runs a function through the job's executors, which replace the configured ones. If
// all of them return nil, so does the job, as in Salt. Job control functions are called directly.
// With job.Missing an executor decides whether it runs a function that does not exist.
func (r *Runner) Through(ctx context.Context, j *jobs.Job, c *fn.Call, job fn.Job) fn.Outcome {
	if controls[job.Fun] || r.direct(j) {
		job.Missing = false
		return r.cfg.Funcs().Run(ctx, c, job)
	}
	return r.byExecutors(ctx, j, c, job)
}

// byExecutors runs a function through executors.
func (r *Runner) byExecutors(ctx context.Context, j *jobs.Job, c *fn.Call, job fn.Job) fn.Outcome {
	spec := j.Pub.ModuleExecutors
	if !value.Truth(spec) {
		spec = r.cfg.Options.ModuleExecutors
	}
	names, invalid := executorsOf(spec)
	if last := len(names) - 1; last >= 0 && r.cfg.Options.SudoUser != "" && !r.cfg.Once {
		names[last] = sudoName
	}
	job.Missing = job.Missing && !r.cfg.Funcs().Has(job.Fun) && r.allowsMissing(ctx, c, names, job.Fun)
	job.By = func(ctx context.Context, t fn.Target) (any, error) {
		if invalid != nil {
			return nil, invalid
		}
		x := &execution{r: r, fun: job.Fun, data: j.Load, target: t}
		for _, name := range names {
			if v, err := x.execute(ctx, name); v != nil || err != nil {
				return v, err
			}
		}
		return nil, nil
	}
	return r.cfg.Funcs().Run(ctx, c, job)
}

// allowsMissing asks the user's executors whether one runs a function that does not exist.
func (r *Runner) allowsMissing(ctx context.Context, c *fn.Call, names []string, fun string) bool {
	for _, name := range names {
		_, builtin := executors.Lookup(name)
		if r.cfg.Executors == nil || !r.cfg.Executors.Has(name, builtin) {
			continue
		}
		allowed, err := r.cfg.Executors.AllowsMissing(ctx, c.Prepare(), name, fun)
		if err != nil {
			r.cfg.Log.Error("cannot ask an executor whether it runs missing functions", "executor", name, "fun", fun, "err", err)
		}
		if allowed {
			return true
		}
	}
	return false
}

// execute calls one executor: the user's, or Brine's.
func (x *execution) execute(ctx context.Context, name string) (any, error) {
	e, builtin := executors.Lookup(name)
	if own := x.r.cfg.Executors; own != nil && own.Has(name, builtin) {
		v, more, err := own.Execute(ctx, name, x.fun, x.data, x.target, builtins{x})
		x.target = more
		return v, err
	}
	reason := "no such executor; if it is a module of your own, fetch it with saltutil.sync_executors"
	if builtin {
		reason = ""
		if e.missing != nil {
			reason = e.missing(x.r)
		}
	}
	if reason != "" {
		x.r.cfg.Log.Error("executor not available", "executor", name, "reason", reason)
		return nil, fn.Invalidf("Executor '%s' is not available", name)
	}
	return e.run(ctx, x)
}

// builtins are Brine's executors, for __executors__ of the user's ones. Their functions are called
// NAME.execute; the arguments are the job's map and the positional arguments of the function.
type builtins struct{ x *execution }

const executeSuffix = ".execute"

// Has implements python.Functions.
func (b builtins) Has(full string) bool {
	name, ok := strings.CutSuffix(full, executeSuffix)
	e, known := executors.Lookup(name)
	return ok && known && (e.missing == nil || e.missing(b.x.r) == "")
}

// Names implements python.Functions.
func (b builtins) Names() []string {
	var all []string
	for _, name := range executors.Names() {
		if b.Has(name + executeSuffix) {
			all = append(all, name+executeSuffix)
		}
	}
	return all
}

// Call implements python.Functions.
func (b builtins) Call(ctx context.Context, full string, args []any, kwargs *value.Dict) (any, error) {
	if !b.Has(full) || len(args) != 2 {
		return nil, fn.Errorf("there is no executor %s", full)
	}
	e, _ := executors.Lookup(strings.TrimSuffix(full, executeSuffix))
	data, _ := args[0].(*value.Dict)
	x := &execution{r: b.x.r, fun: value.Str(viewed(data).Fun), data: data, target: b.x.target}
	x.target.Args, x.target.Kwargs = value.Items(args[1]), kwargs
	if x.fun != b.x.fun {
		f, err := x.target.Call.Funcs.Lookup(x.fun)
		if err != nil {
			return nil, err
		}
		x.target.Func = f
	}
	return e.run(ctx, x)
}

// call calls the function.
func (x *execution) call(ctx context.Context) (any, error) {
	if x.target.Func == nil {
		return nil, fn.Errorf("there is no function %s", x.fun)
	}
	return x.target.Func.Call(ctx, x.target.Call, x.target.Args, x.target.Kwargs)
}

// viewed reads the map of a job.
func viewed(data *value.Dict) *wire.Job {
	var j wire.Job
	wire.View(data, &j)
	return &j
}

// defaultSplay is the default splay time, in seconds.
const defaultSplay = 300

// splay waits for a part of the splay time, which is in the job's executor_opts or the option
// splaytime. The part depends on the minion's id.
func (x *execution) splay(ctx context.Context) error {
	var of struct {
		Splaytime any         `wire:"splaytime,omitempty"`
		Rest      *value.Dict `wire:"*"`
	}
	if opts, ok := viewed(x.data).ExecutorOpts.(*value.Dict); ok {
		wire.View(opts, &of)
	}
	if of.Splaytime == nil {
		of.Splaytime = x.target.Call.Config.Get("splaytime")
	}
	if of.Splaytime == nil {
		of.Splaytime = int64(defaultSplay)
	}
	var seconds float64
	switch n := of.Splaytime.(type) {
	case int64:
		seconds = float64(n)
	case float64:
		seconds = n
	}
	if !(seconds > 0) {
		return fn.Invalidf("splaytime must be a positive integer")
	}
	pause := time.Duration(seconds*splayShare(x.r.cfg.ID)) * time.Second
	x.r.cfg.Log.Debug("delaying job (splay)", "jid", x.target.Call.JID, "wait", pause)
	wait.Sleep(ctx, pause)
	return context.Cause(ctx)
}

// splayShare returns that part, from 0 to below 1: Jenkins' one-at-a-time hash of the id,
// as in Salt, so that minions of both kinds spread evenly.
func splayShare(id string) float64 {
	var h uint32
	for i := range len(id) {
		h += uint32(id[i])
		h += h << 10
		h ^= h >> 6
	}
	h += h << 3
	h ^= h >> 11
	h += h << 15
	return float64(h&8191) / 8192
}
