package usermodules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/call/python"
	"brine/internal/files/extmods"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/userfs"
	"brine/internal/py/value"
)

// FileKinds are the kinds that the helpers of a file server backend load.
var FileKinds = []string{kindFileserver, "utils", "serializers"}

const (
	// fileLimit bounds a call for a request, updateLimit an update.
	fileLimit   = time.Minute
	updateLimit = time.Hour
)

// Files are the user's file server backends. Each has helpers of its own, so that one that hangs delays no
// other, and others again for updates, which may take long.
type Files struct {
	cfg Config
	log *ratelimit.Log

	mu     sync.Mutex
	of     map[string]*backendModules
	closed bool
}

type backendModules struct{ serve, update *Modules }

// NewFiles returns the backends. It starts no helper. The kinds of the configuration do not count.
func NewFiles(c Config) *Files {
	c.Kinds = FileKinds
	return &Files{cfg: c, log: ratelimit.NewLog(c.Log, 5, time.Minute), of: map[string]*backendModules{}}
}

// Close ends the helpers.
func (f *Files) Close() {
	f.mu.Lock()
	all := f.of
	f.of, f.closed = map[string]*backendModules{}, true
	f.mu.Unlock()
	for _, b := range all {
		b.serve.Close()
		b.update.Close()
	}
}

// Rescan makes later calls use the modules as they are now, and reports whether any has changed.
func (f *Files) Rescan() (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.of {
		serve, update := b.serve.Rescan(), b.update.Rescan()
		changed = changed || serve || update
	}
	return changed
}

// Has reports whether there is a backend of a name. It reads the sources of the modules only.
func (f *Files) Has(name string) bool {
	if f == nil {
		return false
	}
	return len(extmods.Scan(extmods.Dirs(f.cfg.Opts, f.cfg.ExtensionModules, kindFileserver)).Claims[name]) > 0
}

// modules returns the modules of a backend.
func (f *Files) modules(name string) (*backendModules, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, salt.Errorf(salt.Unavailable, "this process ends")
	}
	b := f.of[name]
	if b == nil {
		b = &backendModules{New(f.cfg), New(f.cfg)}
		f.of[name] = b
	}
	return b, nil
}

// Off implements userfs.Modules.
func (f *Files) Off() error {
	if !f.cfg.Options.Helper {
		return python.ErrOff
	}
	return nil
}

// Params implements userfs.Modules.
func (f *Files) Params(name, function string) (params []string, ok bool) {
	b, err := f.modules(name)
	if err != nil {
		return nil, false
	}
	found := source{b.serve, kindFileserver}.Find(name+"."+function, true)
	if found == nil {
		return nil, false
	}
	for _, p := range found.Params() {
		params = append(params, p.Name)
	}
	return params, true
}

// Why implements userfs.Modules.
func (f *Files) Why(name string) error {
	b, err := f.modules(name)
	if err != nil {
		return err
	}
	all, _ := source{b.serve, kindFileserver}.list()
	if reason, ok := all.missing[name]; ok {
		if reason == "" {
			reason = "its function __virtual__ returned False"
		}
		return salt.Errorf(salt.Unavailable, "%s", reason)
	}
	return salt.Errorf(salt.Unavailable, "it has no function envs")
}

// Call implements userfs.Modules.
func (f *Files) Call(ctx context.Context, name, function string, args []any, kwargs *value.Dict) (any, error) {
	b, err := f.modules(name)
	if err != nil {
		return nil, err
	}
	return f.call(ctx, b.serve, fileLimit, name+"."+function, args, kwargs)
}

// Update implements userfs.Modules.
func (f *Files) Update(ctx context.Context, name, function string, args []any, kwargs *value.Dict) (any, error) {
	b, err := f.modules(name)
	if err != nil {
		return nil, err
	}
	return f.call(ctx, b.update, updateLimit, name+"."+function, args, kwargs)
}

func (f *Files) call(ctx context.Context, m *Modules, limit time.Duration, full string, args []any, kwargs *value.Dict) (any, error) {
	slow := &python.TimeoutError{Limit: limit}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, slow)
	defer cancel()
	v, _, err := m.pool.Call(ctx, &python.Env{Call: m.call(), Bus: m.cfg.Bus}, kindFileserver, full, args, kwargs)
	if err == nil {
		return v, nil
	}
	var late *python.TimeoutError
	if errors.As(err, &late) {
		return nil, salt.Errorf(salt.Timeout, "%s does not end: %w", full, err)
	}
	var raised *python.Error
	if errors.As(err, &raised) {
		trace := python.Trace(err)
		f.log.Log(slog.LevelError, "a Python module raised an exception", "function", full, "traceback", trace)
		class := ""
		if len(raised.Names) > 0 {
			class = strings.TrimPrefix(raised.Names[0], "builtins.")
		}
		return nil, fmt.Errorf("%s raised %s: %s%s", full, class, raised.Text, place(trace))
	}
	f.log.Log(slog.LevelError, "a call of a Python module failed", "function", full, "err", err)
	return nil, err
}

// inTrace matches a file and a line in a traceback.
var inTrace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^ *File "([^"]+)", line (\d+)`) })

// place returns the place where an exception was raised, by its traceback.
func place(trace string) string {
	all := inTrace().FindAllStringSubmatch(trace, -1)
	if len(all) == 0 {
		return ""
	}
	last := all[len(all)-1]
	return fmt.Sprintf(" (%s, line %s)", last[1], last[2])
}

var _ userfs.Modules = (*Files)(nil)

// Backend returns the constructor of a backend for a file server, or nil if the user has none of that name.
// alone means that nothing updates the file server periodically.
func (f *Files) Backend(name string, alone bool) func() (fileserver.Backend, error) {
	if !f.Has(name) {
		return nil
	}
	return func() (fileserver.Backend, error) {
		return userfs.New(userfs.Config{Name: name, Modules: f, CacheDir: f.cfg.CacheDir, Interval: userfs.Interval(f.cfg.Opts, name),
			Alone: alone, Log: f.cfg.Log})
	}
}
