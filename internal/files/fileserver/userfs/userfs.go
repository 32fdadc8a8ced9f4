// Package userfs is the file server backend for modules in Python that users have written for Salt. It calls
// the functions that Salt calls, with the same arguments, and serves what they return. The contents of
// files that it serves to Brine minions are stored by their hash, so that a module makes them once.
//
// A module can raise exceptions, hang and end its process. Each call has a limit of time; after a call that
// took longer, the backend answers with errors for a while, so that requests do not pile up behind it.
// Updates run in a process of their own and in the background.
package userfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
)

// Modules calls the user's backends.
type Modules interface {
	// Off returns why no module runs, or nil.
	Off() error
	// Params returns the parameters of a function of a module; ok is false if the module cannot be used or
	// does not have it.
	Params(name, function string) (params []string, ok bool)
	// Why returns why a module cannot be used.
	Why(name string) error
	// Call calls a function. An error of kind salt.Timeout means that it took too long.
	Call(ctx context.Context, name, function string, args []any, kwargs *value.Dict) (any, error)
	// Update does the same in a process for long calls.
	Update(ctx context.Context, name, function string, args []any, kwargs *value.Dict) (any, error)
}

// Config configures a backend.
type Config struct {
	Name    string
	Modules Modules
	// CacheDir is the daemon's cachedir.
	CacheDir string
	// Interval is the interval of updates, by NAME_update_interval.
	Interval time.Duration
	// Alone means that nothing updates the file server periodically, as on a masterless minion.
	Alone bool
	Log   *slog.Logger
}

const (
	// usualInterval is Salt's interval of updates.
	usualInterval = time.Minute
	// pause is how long a backend is not asked after a call that took too long.
	pause = 30 * time.Second
	// maxCalls bounds the requests that wait for a module.
	maxCalls = 64
)

// FS is the file server backend.
type FS struct {
	c       Config
	waiting chan struct{} // one token for each request that may wait for the module
	store   store

	mu     sync.Mutex
	envs   []string  // those of the last answer
	until  time.Time // when the module is asked again after a call that took too long
	slow   error     // that call's error
	warned bool      // the log says why the module cannot be used
	up     updates
}

// updates is the state of updates.
type updates struct {
	begun   bool // init was called
	running bool
	done    *result
	last    map[string]time.Time // start of the last update, by id, "" for all
	every   map[string]time.Duration
	good    time.Time
	fault   string
	first   sync.Mutex // held during an update of a masterless minion
}

type result struct{ err error }

var (
	_ fileserver.Asked   = (*FS)(nil)
	_ fileserver.Fetcher = (*FS)(nil)
	_ fileserver.Partial = (*FS)(nil)
)

// New returns the backend of a module.
func New(c Config) (*FS, error) {
	if err := c.Modules.Off(); err != nil {
		return nil, err
	}
	f := &FS{c: c, waiting: make(chan struct{}, maxCalls), store: newStore(c.CacheDir, c.Name)}
	f.up.last = map[string]time.Time{}
	return f, nil
}

// Name implements fileserver.Backend.
func (f *FS) Name() string { return f.c.Name }

// Has implements fileserver.Partial.
func (f *FS) Has(function string) bool {
	_, ok := f.c.Modules.Params(f.c.Name, function)
	return ok
}

// usable reports whether the module can be used: as in Salt, one without the function envs is none.
func (f *FS) usable() bool {
	ok := f.Has("envs")
	f.mu.Lock()
	warn := !ok && !f.warned
	f.warned = !ok
	f.mu.Unlock()
	if warn {
		f.c.Log.Error("not serving files of a backend in Python", "fileserver_backend", f.c.Name, "err", f.c.Modules.Why(f.c.Name))
	}
	return ok
}

// call calls a function for a request.
func (f *FS) call(ctx context.Context, function string, kwargs *value.Dict, args ...any) (any, error) {
	if err := f.paused(); err != nil {
		return nil, err
	}
	select {
	case f.waiting <- struct{}{}:
		defer func() { <-f.waiting }()
	default:
		return nil, salt.Errorf(salt.Unavailable, "the file server backend %s: %d requests wait for it already", f.c.Name, maxCalls)
	}
	v, err := f.c.Modules.Call(ctx, f.c.Name, function, args, kwargs)
	if err == nil {
		return v, nil
	}
	if salt.KindOf(err) == salt.Timeout {
		f.mu.Lock()
		f.until, f.slow = time.Now().Add(pause), err
		f.mu.Unlock()
		f.c.Log.Error("a file server backend in Python hangs; not asking it for a while", "fileserver_backend", f.c.Name, "function", function,
			"seconds", int(pause.Seconds()), "err", err)
	}
	return nil, fmt.Errorf("the file server backend %s: %w", f.c.Name, err)
}

// paused returns the error of a backend that is not asked at the moment, or nil.
func (f *FS) paused() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.until) {
		return salt.Errorf(salt.Unavailable, "the file server backend %s is not asked until %s, since a call took too long: %w",
			f.c.Name, f.until.UTC().Format(time.RFC3339), f.slow)
	}
	return nil
}

// Envs implements fileserver.Backend. While the module fails, the environments are those of its last answer.
func (f *FS) Envs() []string {
	ctx := context.Background()
	if !f.usable() {
		return nil
	}
	f.alone(ctx)
	v, err := f.call(ctx, "envs", f.ignoreCache())
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.c.Log.Warn("cannot list the environments of a file server backend; using the last known ones", "fileserver_backend", f.c.Name, "err", err)
		return slices.Clone(f.envs)
	}
	f.envs = names(v)
	return slices.Clone(f.envs)
}

// ignoreCache returns the keyword that Salt passes to envs on a masterless minion.
func (f *FS) ignoreCache() *value.Dict {
	params, _ := f.c.Modules.Params(f.c.Name, "envs")
	if f.c.Alone && slices.Contains(params, "ignore_cache") {
		return value.DictOf("ignore_cache", true)
	}
	return nil
}

// Find implements fileserver.Backend.
func (f *FS) Find(env, name string, query map[string]string) (fileserver.Found, bool) {
	found, ok, err := f.FindFile(context.Background(), env, name, query)
	if err != nil {
		f.c.Log.Error("cannot look up a file", "path", name, "saltenv", env, "err", err)
	}
	return found, ok
}

// FindFile implements fileserver.Asked.
func (f *FS) FindFile(ctx context.Context, env, name string, query map[string]string) (found fileserver.Found, ok bool, err error) {
	if !f.usable() || !f.Has("find_file") {
		return found, false, nil
	}
	f.alone(ctx)
	kwargs := value.NewDict(len(query))
	for k, v := range query {
		if k != "saltenv" && k != "env" {
			kwargs.Set(k, v)
		}
	}
	v, err := f.call(ctx, "find_file", kwargs, name, env)
	if err != nil {
		return found, false, err
	}
	d, isDict := v.(*value.Dict)
	if !isDict {
		return found, false, salt.Errorf(salt.Invalid, "the file server backend %s: find_file returned a %s, not a map", f.c.Name, value.TypeName(v))
	}
	if !value.Truth(d.At("path")) {
		return found, false, nil
	}
	return fileserver.Found{Path: value.Str(d.At("path")), Rel: value.Str(d.At("rel")), Answer: d}, true, nil
}

// answer returns the argument fnd of Salt's functions.
func (f *FS) answer(found fileserver.Found) *value.Dict {
	d := found.Answer.Clone()
	d.Set("back", f.c.Name)
	return d
}

// Hash implements fileserver.Asked.
func (f *FS) Hash(ctx context.Context, load *value.Dict, found fileserver.Found) (any, error) {
	if !f.Has("file_hash") {
		return "", nil
	}
	return f.call(ctx, "file_hash", nil, load, f.answer(found))
}

// Serve implements fileserver.Asked.
func (f *FS) Serve(ctx context.Context, load *value.Dict, found fileserver.Found) (*value.Dict, error) {
	if !f.Has("serve_file") {
		return value.DictOf("data", "", "dest", ""), nil
	}
	v, err := f.call(ctx, "serve_file", nil, load, f.answer(found))
	if err != nil {
		return nil, err
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "the file server backend %s: serve_file returned a %s, not a map", f.c.Name, value.TypeName(v))
	}
	return d, nil
}

// lists maps commands to the functions that Salt calls.
var lists = map[string]string{"_file_list": "file_list", "_dir_list": "dir_list", "_file_list_emptydirs": "file_list_emptydirs"}

// List implements fileserver.Asked.
func (f *FS) List(ctx context.Context, load *value.Dict) ([]string, error) {
	function := lists[load.Str("cmd")]
	if function == "" || !f.usable() || !f.Has(function) {
		return nil, nil
	}
	f.alone(ctx)
	v, err := f.call(ctx, function, nil, load)
	if err != nil {
		return nil, err
	}
	return names(v), nil
}

// names returns the strings of a list, a tuple or the keys of a map, sorted.
func names(v any) (out []string) {
	switch x := v.(type) {
	case *value.Dict:
		for k := range x.All() {
			out = append(out, value.Str(k))
		}
	default:
		for _, item := range value.Items(v) {
			out = append(out, value.Str(item))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Links implements fileserver.Asked.
func (f *FS) Links(ctx context.Context, load *value.Dict) (map[string]string, error) {
	out := map[string]string{}
	if !f.usable() || !f.Has("symlink_list") {
		return out, nil
	}
	v, err := f.call(ctx, "symlink_list", nil, load)
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	for name, target := range d.All() {
		out[value.Str(name)] = value.Str(target)
	}
	return out, nil
}

// Lists implements fileserver.Backend.
func (f *FS) Lists(ctx context.Context, env string) (*fileserver.Lists, error) {
	l := &fileserver.Lists{}
	for _, of := range []struct {
		cmd string
		to  *[]string
	}{{"_file_list", &l.Files}, {"_dir_list", &l.Dirs}, {"_file_list_emptydirs", &l.EmptyDirs}} {
		list, err := f.List(ctx, value.DictOf("cmd", of.cmd, "saltenv", env, "prefix", ""))
		if err != nil {
			return nil, err
		}
		*of.to = list
	}
	var err error
	l.Links, err = f.Links(ctx, value.DictOf("cmd", "_symlink_list", "saltenv", env, "prefix", ""))
	return l, err
}

// Forget implements fileserver.Backend. The module itself caches lists.
func (f *FS) Forget([]string) []string { return nil }

// ClearCache implements fileserver.Fetcher.
func (f *FS) ClearCache() (failed []string) {
	if err := f.store.clear(); err != nil {
		failed = append(failed, err.Error())
	}
	if !f.Has("clear_cache") {
		return failed
	}
	v, err := f.c.Modules.Update(context.Background(), f.c.Name, "clear_cache", nil, nil)
	if err != nil {
		return append(failed, err.Error())
	}
	return append(failed, messages(v)...)
}

// Lock implements fileserver.Fetcher.
func (f *FS) Lock(glob string) (done, failed []string) {
	return f.locks("lock", value.DictOf("remote", remote(glob)))
}

// ClearLock implements fileserver.Fetcher.
func (f *FS) ClearLock(glob, kind string) (done, failed []string) {
	return f.locks("clear_lock", value.DictOf("remote", remote(glob), "lock_type", kind))
}

func remote(glob string) any {
	if glob == "" {
		return nil
	}
	return glob
}

// locks calls a function that returns two lists of messages.
func (f *FS) locks(function string, kwargs *value.Dict) (done, failed []string) {
	if !f.Has(function) {
		return nil, nil
	}
	v, err := f.c.Modules.Update(context.Background(), f.c.Name, function, nil, kwargs)
	if err != nil {
		return nil, []string{err.Error()}
	}
	parts := value.Items(v)
	if len(parts) != 2 {
		return nil, []string{fmt.Sprintf("%s.%s returned a %s, not two lists", f.c.Name, function, value.TypeName(v))}
	}
	return messages(parts[0]), messages(parts[1])
}

// messages returns the items of a list or tuple as text.
func messages(v any) (out []string) {
	for _, item := range value.Items(v) {
		out = append(out, value.Str(item))
	}
	return out
}

// Content implements fileserver.Asked.
func (f *FS) Content(ctx context.Context, load *value.Dict, found fileserver.Found, form, sum string) (string, error) {
	path, err := f.store.get(form, sum, func(loc int64) ([]byte, error) {
		d, err := f.Serve(ctx, value.DictOf("cmd", "_serve_file", "path", load.At("path"), "saltenv", load.At("saltenv"), "loc", loc), found)
		if err != nil {
			return nil, err
		}
		return part(d)
	})
	if errors.Is(err, fileserver.ErrOther) {
		f.c.Log.Error("a file server backend in Python serves content with another hash than its function file_hash returns",
			"fileserver_backend", f.c.Name, "path", load.At("path"), "saltenv", load.At("saltenv"))
	}
	return path, err
}
