// Package python runs the Python modules of users in helper processes: the system's python3 with
// the files of shim, which replace the package salt. See docs/adr/0036.
//
// A Pool starts a helper when a function needs one, lets one call use it at a time, and ends it
// when it has been idle for a while. Calls nest both ways: a Python function may call a function of
// Brine (Env), which may call Python again. Nested calls use the same helper, whose main thread
// serves requests while it waits for an answer.
//
// A helper gets two pipes besides its output, and no other descriptor of this process: no sockets,
// no keys. The output and log records of its modules go to the log. If a helper ends, hangs until
// its call is cancelled, or sends an unreadable message, only its call fails. The package does not
// depend on SLS files, masters or minions.
package python

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Options are the options of Python modules, on minions and masters.
type Options struct {
	Helper  bool          `salt:"python_helper" default:"true" doc:"run Python modules of users, in a helper process that is started when one is needed; off: refuse them (Brine only)" change:"restart"`
	Program string        `salt:"python" default:"" doc:"Python that runs them, also one of a virtual environment; empty: the system's python3 (Brine only)" change:"restart"`
	Helpers int           `salt:"python_helpers" default:"4" least:"1" doc:"calls of Python modules that may run at the same time, each in a helper of its own; further ones wait (Brine only)" change:"restart"`
	Idle    time.Duration `salt:"python_helper_idle" default:"60" least:"0" doc:"seconds without a call after which a helper is ended (Brine only)" change:"restart"`
	Memory  int64         `salt:"python_helper_memory" default:"536870912" least:"0" doc:"bytes of memory with which a helper is replaced after its call (Brine only)" change:"restart"`
	Engines any           `salt:"engines" default:"[]" doc:"modules of the user in Python whose function start runs as long as the daemon, each in a process of its own: names, or maps of a name to arguments" change:"restart"`
	Timeout time.Duration `salt:"python_call_timeout" default:"0" least:"0" doc:"seconds that a call of a Python module may take before its helper is killed; 0 is no limit (Brine only)" change:"restart"`
}

// Files are the modules of one kind.
type Files struct {
	// Paths are the files by the name of their module.
	Paths map[string]string
	// Claims are, by name, the modules that are likely to provide functions under that name:
	// modules with the name as file name, or whose source declares it.
	Claims map[string][]string
}

// Config configures a Pool.
type Config struct {
	Options Options
	// Dir is a directory of this process, in which the shim is installed.
	Dir string
	// Loaders returns the modules by kind ("modules", "states"). It is called for each helper.
	Loaders func() map[string]Files
	// Stock is the directory with the package of a stock Salt. The helpers load its modules and use
	// that package instead of the shim. "" means none.
	Stock string
	// One means that a single helper makes all calls and is not ended while idle, because its
	// modules keep state in memory for later calls.
	One bool
	// Path is added to Python's import path.
	Path []string
	Log  *slog.Logger
}

// ErrOff is the cause if the option python_helper is off.
var ErrOff = errors.New("the option python_helper is off, so that no Python module runs; set it to true")

// TimeoutError means that a call took too long.
type TimeoutError struct {
	Limit time.Duration
	// configured means that the option python_call_timeout is the limit.
	configured bool
}

func (e *TimeoutError) Error() string {
	if e.configured {
		return fmt.Sprintf("it took more than %v, the limit by the option python_call_timeout", e.Limit)
	}
	return fmt.Sprintf("it took more than %v", e.Limit)
}

// Pool manages the helpers of a process.
type Pool struct {
	cfg  Config
	free chan struct{} // one token for each call that may start

	mu         sync.Mutex
	idle       []*helper // the most recently used one is last
	generation uint64
	closed     bool
	all        map[*helper]bool // those that have not ended
	alive      sync.WaitGroup
	numbers    trees
}

// New returns a Pool without helpers.
func New(c Config) *Pool {
	if c.Options.Helpers < 1 || c.One {
		c.Options.Helpers = 1
	}
	p := &Pool{cfg: c, free: make(chan struct{}, c.Options.Helpers), all: map[*helper]bool{}}
	for range c.Options.Helpers {
		p.free <- struct{}{}
	}
	return p
}

// Slots returns how many calls may run at the same time.
func (p *Pool) Slots() int { return cap(p.free) }

// Off returns ErrOff if Python modules must not run.
func (p *Pool) Off() error {
	if !p.cfg.Options.Helper {
		return ErrOff
	}
	return nil
}

// Reload makes later calls use new helpers, which have not loaded any module yet.
func (p *Pool) Reload() {
	p.mu.Lock()
	p.generation++
	old := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, h := range old {
		h.retire()
	}
}

// Close ends the helpers and waits for them. It kills helpers that are still busy after a grace
// period.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Reload()
	ended := make(chan struct{})
	go func() { p.alive.Wait(); close(ended) }()
	select {
	case <-ended:
		return
	case <-time.After(farewell):
	}
	p.mu.Lock()
	busy := slices.Collect(maps.Keys(p.all))
	p.mu.Unlock()
	for _, h := range busy {
		h.kill(errEnds)
	}
	<-ended
}

var errEnds = errors.New("this process ends")

// enter records a helper that is being started, unless the pool is closed.
func (p *Pool) enter(h *helper) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errEnds
	}
	p.alive.Add(1)
	p.all[h] = true
	return nil
}

// leave removes a helper that has ended.
func (p *Pool) leave(h *helper) {
	p.mu.Lock()
	delete(p.all, h)
	p.mu.Unlock()
	p.alive.Done()
}

type helperKey struct{}

// use is the helper of a call in progress, for calls nested in it.
type use struct {
	pool *Pool
	h    *helper
}

// acquire returns the helper of the call that ctx belongs to, or an idle one, or a new one. Without
// queue it does not wait for other calls to end: a function lookup must not wait for calls that
// wait for the lookup.
func (p *Pool) acquire(ctx context.Context, queue bool) (h *helper, release func(), err error) {
	if err := p.Off(); err != nil {
		return nil, nil, err
	}
	if u, ok := ctx.Value(helperKey{}).(use); ok && u.pool == p && !u.h.ended() {
		return u.h, func() {}, nil
	}
	token := func() {}
	if queue {
		select {
		case <-p.free:
			token = func() { p.free <- struct{}{} }
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	if h, err = p.take(ctx); err != nil {
		token()
		return nil, nil, err
	}
	return h, func() { p.give(h); token() }, nil
}

func (p *Pool) take(ctx context.Context) (*helper, error) {
	p.mu.Lock()
	generation, closed := p.generation, p.closed
	for !closed && len(p.idle) > 0 {
		h := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if h.rest.Stop() && !h.ended() {
			p.mu.Unlock()
			return h, nil
		}
	}
	p.mu.Unlock()
	if closed {
		return nil, errEnds
	}
	h, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	h.generation = generation
	return h, nil
}

// give returns a helper to the pool after a call.
func (p *Pool) give(h *helper) {
	if h.ended() {
		return
	}
	large := h.memory() > p.cfg.Options.Memory && p.cfg.Options.Memory > 0
	if large {
		p.cfg.Log.Info("replacing a Python helper that uses much memory", "pid", h.pid, "bytes", h.memory(), "limit", p.cfg.Options.Memory)
	}
	p.mu.Lock()
	keep := !p.closed && !large && h.generation == p.generation
	if keep {
		idle := p.cfg.Options.Idle
		if p.cfg.One {
			idle = math.MaxInt64
		}
		h.rest = time.AfterFunc(idle, func() { p.expire(h) })
		p.idle = append(p.idle, h)
	}
	p.mu.Unlock()
	if !keep {
		h.retire()
	}
}

// expire ends a helper that has been idle too long.
func (p *Pool) expire(h *helper) {
	p.mu.Lock()
	found := false
	for i, other := range p.idle {
		if other == h {
			p.idle = append(p.idle[:i:i], p.idle[i+1:]...)
			found = true
			break
		}
	}
	p.mu.Unlock()
	if found {
		h.retire()
	}
}

// call runs one operation in a helper.
func (p *Pool) call(ctx context.Context, env *Env, queue bool, operation string, args ...any) (any, int, error) {
	queue = queue || p.cfg.One
	h, release, err := p.acquire(ctx, queue)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	if limit := p.cfg.Options.Timeout; limit > 0 && queue {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, &TimeoutError{limit, true})
		defer cancel()
	}
	return h.call(ctx, env, operation, args)
}

// Find describes the function of a kind with the full name, without its Call. nil means that there
// is none. Unless everywhere is set, only modules that claim the name are loaded.
func (p *Pool) Find(ctx context.Context, env *Env, kind, name string, everywhere bool) (*fn.Foreign, error) {
	v, _, err := p.call(ctx, env, false, "find", kind, name, everywhere)
	d, ok := v.(*value.Dict)
	if err != nil || !ok {
		return nil, err
	}
	text := func(key string) string {
		s, _ := d.At(key).(string)
		return s
	}
	_, function, _ := strings.Cut(name, ".")
	f := &fn.Foreign{Name: function, Doc: text("doc"), Args: value.Texts(d.At("args")), Defaults: value.Items(d.At("defaults")),
		VarArgs: text("varargs"), Keywords: text("keywords"), Only: value.Texts(d.At("only")), OnlyDefaults: value.NewDict(0), Out: text("out")}
	if defaults, ok := d.At("onlydefaults").(*value.Dict); ok {
		f.OnlyDefaults = defaults
	}
	if len(f.Defaults) > len(f.Args) {
		return nil, errMalformed
	}
	return f, nil
}

// List loads all modules of a kind. It returns the full names of their functions, and the modules
// that cannot be used, by name with the reason or nil.
func (p *Pool) List(ctx context.Context, env *Env, kind string) (names []string, missing *value.Dict, err error) {
	v, _, err := p.call(ctx, env, false, "list", kind)
	if err != nil {
		return nil, nil, err
	}
	parts := value.Items(v)
	if len(parts) != 2 {
		return nil, nil, errMalformed
	}
	missing, _ = parts[1].(*value.Dict)
	return value.Texts(parts[0]), missing, nil
}

// Call calls a function. retcode is the value that it left in __context__["retcode"].
func (p *Pool) Call(ctx context.Context, env *Env, kind, name string, args []any, kwargs *value.Dict) (v any, retcode int, err error) {
	if kwargs == nil {
		kwargs = value.NewDict(0)
	}
	return p.call(ctx, env, true, "call", kind, name, &value.List{Items: args}, kwargs)
}

// Engine runs an engine until it ends, in a process of its own. missing is the reason if there is
// no such engine. When ctx ends, the process gets SIGTERM, with those that it has started, and
// SIGKILL after a grace period. The pool must have been made with One.
func (p *Pool) Engine(ctx context.Context, env *Env, name string, kwargs *value.Dict, grace time.Duration) (missing string, err error) {
	defer p.Reload() // the next run begins with a new process
	if kwargs == nil {
		kwargs = value.NewDict(0)
	}
	stop := make(chan struct{})
	env.Stop = stop
	run, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)
	defer context.AfterFunc(ctx, func() {
		p.signal(syscall.SIGTERM)
		close(stop)
		time.AfterFunc(grace, func() { kill(errEnds) })
	})()
	v, _, err := p.call(run, env, true, "engine", name, kwargs)
	if ctx.Err() != nil {
		p.signal(syscall.SIGKILL) // what it has started
	}
	if err != nil {
		return "", err
	}
	if parts := value.Items(v); len(parts) == 2 && parts[0] == false {
		return value.Str(parts[1]), nil
	}
	return "", nil
}

// signal sends a signal to all helpers and the processes that their modules have started.
func (p *Pool) signal(s syscall.Signal) {
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.all))
	p.mu.Unlock()
	for _, h := range all {
		h.mu.Lock()
		if h.pid != 0 && !gone(h.gone) {
			_ = syscall.Kill(-h.pid, s) // the process may have ended meanwhile
		}
		h.mu.Unlock()
	}
}

// Execute calls an executor for the function fun. If the result is nil, moreArgs and moreKwargs are
// the arguments that the executor has left for the next one.
func (p *Pool) Execute(ctx context.Context, env *Env, name, fun string, data *value.Dict, args []any, kwargs *value.Dict) (
	v any, moreArgs []any, moreKwargs *value.Dict, retcode int, err error) {
	if kwargs == nil {
		kwargs = value.NewDict(0)
	}
	if data == nil {
		data = value.NewDict(0)
	}
	v, retcode, err = p.call(ctx, env, true, "execute", name, fun, data, &value.List{Items: args}, kwargs)
	if err != nil {
		return nil, nil, nil, retcode, err
	}
	parts := value.Items(v)
	if len(parts) != 3 {
		return nil, nil, nil, retcode, errMalformed
	}
	moreKwargs, _ = parts[2].(*value.Dict)
	return parts[0], value.Items(parts[1]), moreKwargs, retcode, nil
}

// Aggregate calls the function mod_aggregate of a state module for one of the chunks of a run.
// running are the results so far. low is nil if the function returns no dict; replaced are the
// chunks that it has changed, by their index.
func (p *Pool) Aggregate(ctx context.Context, env *Env, name string, index int, chunks []*value.Dict, running *value.Dict) (
	low *value.Dict, replaced map[int]*value.Dict, err error) {
	all := &value.List{}
	for _, c := range chunks {
		all.Append(c)
	}
	v, _, err := p.call(ctx, env, true, "aggregate", name, int64(index), all, running)
	if err != nil {
		return nil, nil, err
	}
	parts := value.Items(v)
	if len(parts) != 2 {
		return nil, nil, errMalformed
	}
	low, _ = parts[0].(*value.Dict)
	changed, _ := parts[1].(*value.Dict)
	replaced = make(map[int]*value.Dict, changed.Len())
	for k, c := range changed.All() {
		i, isInt := k.(int64)
		d, isDict := c.(*value.Dict)
		if !isInt || !isDict {
			return nil, nil, errMalformed
		}
		replaced[int(i)] = d
	}
	return low, replaced, nil
}

// Grains runs the user's grains modules. collected are the grains so far.
func (p *Pool) Grains(ctx context.Context, env *Env, collected *value.Dict) (*value.Dict, error) {
	v, _, err := p.call(ctx, env, true, "grains", collected)
	d, _ := v.(*value.Dict)
	return d, err
}

// Render runs the renderer py, or a renderer of the user, on data. first means that it is the first
// renderer of the pipe.
func (p *Pool) Render(ctx context.Context, env *Env, name string, data any, first bool, path string, values *value.Dict) (any, error) {
	v, _, err := p.call(ctx, env, true, "render", name, data, first, path, values)
	return v, err
}

// System returns the path of the machine's python3, which runs modules unless the option python names
// another one.
func System() (string, error) { return (&Options{}).program() }

// program returns the Python to start.
func (o *Options) program() (string, error) {
	if o.Program != "" {
		path, err := exec.LookPath(o.Program)
		if err != nil {
			return "", fn.Errorf("cannot run Python modules: the option python names %s: %w", o.Program, err)
		}
		return path, nil
	}
	for _, name := range []string{"/usr/bin/python3", "/usr/local/bin/python3", "/usr/libexec/platform-python", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fn.Errorf("cannot run Python modules: there is no python3; install it, or name one with the option python")
}

// memory returns the resident memory of the helper in bytes, 0 if it cannot be read.
func (h *helper) memory() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", h.pid))
	var size, resident int64
	if _, e := fmt.Sscan(string(text), &size, &resident); err != nil || e != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
