// Package extmods manages the user's own modules on disk: it copies them from the directories
// _modules, _states and others of a file server to the directory extension_modules, as Salt
// does, and lists them. It does not run them.
package extmods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"brine/internal/base/atomicfile"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
)

// Query says what to copy.
type Query struct {
	// Kind is the kind of module: "modules", "states".
	Kind string
	// Envs are the environments of the file server, in order.
	Envs []string
	// Whitelist names the only modules to copy, and Blacklist those to skip: the entries for
	// this kind, nil for none.
	Whitelist, Blacklist []string
	// Clean removes modules that the file server lacks.
	Clean bool
}

// extensions selects the files that are copied.
var extensions = fileclient.Filter{Include: []string{`E@\.(pyx?|so|zip)$`}}

// Files are the methods of *fileclient.Client that fetch modules.
type Files interface {
	CacheDir() string
	CacheTree(ctx context.Context, url, saltenv string, withEmpty bool, f fileclient.Filter) ([]string, error)
	List(ctx context.Context, what fileclient.Listing, saltenv, prefix string) ([]string, error)
}

// Sync copies modules of one kind to dir, which has a directory for each kind. It returns
// the names of new and changed ones, such as "modules.mine", and whether anything at all has
// changed.
func Sync(ctx context.Context, c Files, dir string, q Query, log *slog.Logger) (names []string, changed bool, err error) {
	to := filepath.Join(dir, q.Kind)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return nil, false, fmt.Errorf("cannot create the directory of modules: %w", err)
	}
	there := map[string]bool{}
	for _, env := range q.Envs {
		paths, err := c.CacheTree(ctx, "salt://_"+q.Kind, env, false, extensions)
		if err != nil {
			return names, changed, fmt.Errorf("cannot fetch _%s of the environment %s: %w", q.Kind, env, err)
		}
		base := filepath.Join(c.CacheDir(), "files", env, "_"+q.Kind)
		for _, path := range paths {
			rel, err := filepath.Rel(base, path)
			if err != nil || !filepath.IsLocal(rel) {
				log.Warn("a file is not copied: it is not in the cache of its environment", "path", path)
				continue
			}
			name := strings.ReplaceAll(strings.TrimSuffix(rel, filepath.Ext(rel)), string(filepath.Separator), ".")
			if q.Whitelist != nil && !slices.Contains(q.Whitelist, name) || slices.Contains(q.Blacklist, name) {
				continue
			}
			there[rel] = true
			copied, err := place(path, filepath.Join(to, rel))
			if err != nil {
				return names, changed, err
			}
			if copied {
				changed = true
				names = append(names, q.Kind+"."+name)
			}
		}
	}
	if !q.Clean {
		return names, changed, nil
	}
	removed, err := clean(to, there)
	return names, changed || removed, err
}

// place copies a file unless an equal one exists, and reports whether it did.
func place(from, to string) (copied bool, err error) {
	data, err := os.ReadFile(from)
	if err != nil {
		return false, err
	}
	if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, data) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return false, err
	}
	return true, atomicfile.Write(to, data, 0o600, false)
}

// clean removes files that are not in keep, and empty directories.
func clean(dir string, keep map[string]bool) (removed bool, err error) {
	var dirs []string
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if e.IsDir() {
			dirs = append(dirs, path)
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || keep[rel] {
			return err
		}
		removed = true
		return os.Remove(path)
	})
	for _, d := range slices.Backward(dirs) { // nested ones first
		if os.Remove(d) == nil { // fails for directories with files
			removed = true
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return removed, err
}

// Names reads a whitelist or blacklist of extension modules: a list, comma-separated names,
// or a map of lists by kind. It returns nil if there is none for this kind.
func Names(v any, kind string) []string {
	switch x := v.(type) {
	case string:
		return strings.Split(x, ",")
	case *value.Dict:
		if list, ok := x.Get(kind); ok {
			return value.Texts(list)
		}
	}
	return nil
}

// Listing lists the modules of one kind on disk.
type Listing struct {
	// Paths are the files of modules, by name.
	Paths map[string]string
	// Claims are the modules that provide functions under another name, by that name.
	Claims map[string][]string
	// Stamp changes if any file changes.
	Stamp string
}

// Dirs returns the directories of a kind in order of precedence: those of the option
// module_dirs, those of the kind's own option, those of installed extensions, and
// extension_modules.
func Dirs(opts *value.Dict, extensionModules, kind string) []string {
	var dirs []string
	for _, d := range value.Texts(opts.At("module_dirs")) {
		dirs = append(dirs, filepath.Join(d, kind), filepath.Join(d, "_"+kind))
	}
	if option := dirOptions[kind]; option != "" {
		dirs = append(dirs, value.Texts(opts.At(option))...)
	}
	program, _ := opts.At("python").(string)
	for _, d := range installed(program) {
		dirs = append(dirs, filepath.Join(d, kind))
	}
	return append(dirs, filepath.Join(extensionModules, kind))
}

// dirOptions lists the options with directories for one kind only.
var dirOptions = map[string]string{
	"modules": "module_dirs", "states": "states_dirs", "grains": "grains_dirs", "renderers": "render_dirs", "utils": "utils_dirs",
	"returners": "returner_dirs", "runners": "runner_dirs", "pillar": "pillar_dirs", "tops": "top_dirs", "wheel": "wheel_dirs", "auth": "auth_dirs",
	"output":     "outputter_dirs",
	"beacons":    "beacons_dirs",
	"executors":  "executor_dirs",
	"engines":    "engines_dirs",
	"sdb":        "sdb_dirs",
	"fileserver": "fileserver_dirs",
}

// maxScan bounds how much of a file is searched for its names, in bytes.
const maxScan = 1 << 20

// Scan lists the modules in directories. A module in an earlier directory hides one of the
// same name in a later one. Missing directories count as empty.
func Scan(dirs []string) Listing {
	l := Listing{Paths: map[string]string{}, Claims: map[string][]string{}}
	var stamp strings.Builder
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			name, path := e.Name(), filepath.Join(dir, e.Name())
			if isDir(e, path) {
				path = filepath.Join(path, "__init__.py")
			} else {
				ext := filepath.Ext(name)
				if ext != ".py" && ext != ".so" && ext != ".zip" {
					continue
				}
				name = strings.TrimSuffix(name, ext)
				if ext == ".so" {
					name, _, _ = strings.Cut(name, ".") // mine.cpython-311.so
				}
			}
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(name, "_") || strings.Contains(name, ".") {
				continue
			}
			if _, hidden := l.Paths[name]; hidden {
				continue
			}
			l.Paths[name] = path
			fmt.Fprintln(&stamp, path, info.Size(), info.ModTime().UnixNano())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Paths)) {
		for _, claimed := range append([]string{name}, virtualNames(l.Paths[name])...) {
			if !slices.Contains(l.Claims[claimed], name) {
				l.Claims[claimed] = append(l.Claims[claimed], name)
			}
		}
	}
	l.Stamp = stamp.String()
	return l
}

// isDir reports whether an entry is a directory or a link to one.
func isDir(e fs.DirEntry, path string) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// The ways in which a module can set its name.
var (
	virtualName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^__virtualname__\s*=\s*['"]([\w.-]+)['"]`) })
	virtualAlias = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^__virtual_aliases__\s*=\s*[(\[]?([^)\]\n]*)`) })
	virtualFunc  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^def __virtual__\(.*\n(?:(?:[ \t]+.*)?\n)*`) })
	returned     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`return\s+['"]([\w.-]+)['"]`) })
	quoted       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`['"]([\w.-]+)['"]`) })
)

// virtualNames returns the names that a module's source sets. Other names may only be known
// by running it.
func virtualNames(path string) []string {
	if filepath.Ext(path) != ".py" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxScan+1))
	if err != nil || len(data) > maxScan {
		return nil
	}
	var names []string
	for _, m := range virtualName().FindAllSubmatch(data, -1) {
		names = append(names, string(m[1]))
	}
	for _, m := range virtualAlias().FindAllSubmatch(data, -1) {
		for _, q := range quoted().FindAllSubmatch(m[1], -1) {
			names = append(names, string(q[1]))
		}
	}
	for _, body := range virtualFunc().FindAll(append(data, '\n'), -1) {
		for _, m := range returned().FindAllSubmatch(body, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// Options are the options of a minion's own modules.
type Options struct {
	Autoload   bool     `salt:"autoload_dynamic_modules" default:"true" doc:"fetch modules of the user from the file server at the start of a highstate" change:"restart"`
	Clean      bool     `salt:"clean_dynamic_modules" default:"true" doc:"remove fetched modules that the file server no longer has" change:"restart"`
	Whitelist  any      `salt:"extmod_whitelist" default:"{}" doc:"by kind, the only modules to fetch" change:"restart"`
	Blacklist  any      `salt:"extmod_blacklist" default:"{}" doc:"by kind, modules that are not fetched" change:"restart"`
	Dirs       []string `salt:"module_dirs" default:"[]" doc:"directories with modules of the user, in a directory for each kind" change:"restart"`
	StatesDirs []string `salt:"states_dirs" default:"[]" doc:"directories of state modules" change:"restart"`
	GrainsDirs []string `salt:"grains_dirs" default:"[]" doc:"directories of grains modules" change:"restart"`
	RenderDirs []string `salt:"render_dirs" default:"[]" doc:"directories of renderers" change:"restart"`
	UtilsDirs  []string `salt:"utils_dirs" default:"[]" doc:"directories of modules for __utils__" change:"restart"`
	ReturnDirs []string `salt:"returner_dirs" default:"[]" doc:"directories of returners" change:"restart"`
	OutputDirs []string `salt:"outputter_dirs" default:"[]" doc:"directories of outputters" change:"restart"`
	BeaconDirs []string `salt:"beacons_dirs" default:"[]" doc:"directories of beacons" change:"restart"`
	ExecDirs   []string `salt:"executor_dirs" default:"[]" doc:"directories of executors" change:"restart"`
	EngineDirs []string `salt:"engines_dirs" default:"[]" doc:"directories of engines" change:"restart"`
	SDBDirs    []string `salt:"sdb_dirs" default:"[]" doc:"directories of drivers for sdb:// references" change:"restart"`
	FileDirs   []string `salt:"fileserver_dirs" default:"[]" doc:"directories of file server backends, with file_client: local" change:"restart"`
}

// MasterOptions are the options of a master's own modules.
type MasterOptions struct {
	Clean      bool     `salt:"clean_dynamic_modules" default:"true" doc:"let the runner saltutil remove fetched modules that the file server no longer has" change:"restart"`
	Whitelist  any      `salt:"extmod_whitelist" default:"{}" doc:"by kind, the only modules to fetch" change:"restart"`
	Blacklist  any      `salt:"extmod_blacklist" default:"{}" doc:"by kind, modules that are not fetched" change:"restart"`
	Dirs       []string `salt:"module_dirs" default:"[]" doc:"directories with modules of the user, in a directory for each kind" change:"restart"`
	RenderDirs []string `salt:"render_dirs" default:"[]" doc:"directories of renderers" change:"restart"`
	UtilsDirs  []string `salt:"utils_dirs" default:"[]" doc:"directories of modules for __utils__" change:"restart"`
	RunnerDirs []string `salt:"runner_dirs" default:"[]" doc:"directories of runners in Python" change:"restart"`
	PillarDirs []string `salt:"pillar_dirs" default:"[]" doc:"directories of modules in Python that ext_pillar may name" change:"restart"`
	TopDirs    []string `salt:"top_dirs" default:"[]" doc:"directories of modules in Python that master_tops may name" change:"restart"`
	ReturnDirs []string `salt:"returner_dirs" default:"[]" doc:"directories of returners in Python, for master_job_cache and event_return" change:"restart"`
	OutputDirs []string `salt:"outputter_dirs" default:"[]" doc:"directories of outputters in Python" change:"restart"`
	AuthDirs   []string `salt:"auth_dirs" default:"[]" doc:"directories of modules in Python that external_auth may name" change:"restart"`
	FileDirs   []string `salt:"fileserver_dirs" default:"[]" doc:"directories of modules in Python that fileserver_backend may name" change:"restart"`
	WheelDirs  []string `salt:"wheel_dirs" default:"[]" doc:"directories of wheel modules in Python" change:"restart"`
	EngineDirs []string `salt:"engines_dirs" default:"[]" doc:"directories of engines in Python" change:"restart"`
	SDBDirs    []string `salt:"sdb_dirs" default:"[]" doc:"directories of drivers in Python for sdb:// references" change:"restart"`
}

// Sync returns the options for fetching.
func (o MasterOptions) Sync() Options {
	return Options{Clean: o.Clean, Whitelist: o.Whitelist, Blacklist: o.Blacklist, Dirs: o.Dirs}
}

// Kinds returns the kinds of modules that some environment of the file server has.
func Kinds(ctx context.Context, c Files, envs []string) (map[string]bool, error) {
	kinds := map[string]bool{}
	for _, env := range envs {
		files, err := c.List(ctx, fileclient.Files, env, "")
		if err != nil {
			return nil, fmt.Errorf("cannot list the files of the environment %s: %w", env, err)
		}
		for _, name := range files {
			if kind, _, ok := strings.Cut(name, "/"); ok && strings.HasPrefix(kind, "_") {
				kinds[kind[1:]] = true
			}
		}
	}
	return kinds, nil
}

// Holds reports whether the directory of a kind exists and is not empty.
func Holds(dir, kind string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, kind))
	return err == nil && len(entries) > 0
}

// Present returns the kinds of modules whose directory exists.
func Present(dir string) []string {
	var kinds []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			kinds = append(kinds, e.Name())
		}
	}
	return kinds
}
