// Package fileserver serves the files of a master to its minions, or those of its
// own machine to a masterless minion. It answers the commands of Salt's protocol
// from a table (Request). A Backend is a source of files; each is one file or
// package. roots.go has the backend for the directories of the option file_roots.
//
// # Contract
//
// Every request is hostile: for any path, environment, offset or prefix, nothing
// outside of the environments' directories is revealed or served. With
// fileserver_followsymlinks (Salt's default), symbolic links in these directories
// are followed to any target, because users who may write there are trusted.
// Without it, only links that stay inside are followed.
//
// A Server is safe for concurrent use. Lists and hashes are cached, and compared
// with the time stamps of directories and files at each request, so that changes
// are seen immediately.
package fileserver

import (
	"container/list"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/files/fetch"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Backend is one kind of source of files.
type Backend interface {
	// Name returns the name in the option fileserver_backend.
	Name() string
	// Envs returns the names of the environments, sorted.
	Envs() []string
	// Find looks up a file. name is relative, clean and without "..". env is a
	// name that does not lead out of a directory. query has the parameters after
	// the question mark in the URL.
	Find(env, name string, query map[string]string) (Found, bool)
	// Lists returns the content of an environment, which must not be changed.
	Lists(ctx context.Context, env string) (*Lists, error)
	// Update looks for changes and returns them.
	Update(ctx context.Context) (Changes, error)
	// Forget drops the cached lists of some environments, or of all if envs is
	// nil, and returns the environments whose lists were dropped.
	Forget(envs []string) []string
}

// Fetcher is a Backend that copies files from elsewhere.
type Fetcher interface {
	Backend
	// UpdateOnly updates only the remotes with these ids or names.
	UpdateOnly(ctx context.Context, names []string) (Changes, error)
	// Due updates the remotes that are due; any reports whether there were any.
	// leads means that this master fetches for others, too; see fetch.Turn.
	Due(ctx context.Context, leads bool) (c Changes, any bool, err error)
	// Told handles a message that another master has fetched and now serves these
	// states. regular means that it fetches for this master, too.
	Told(states fetch.States, regular bool)
	// ClearCache removes all copies, and returns error messages.
	ClearCache() (failed []string)
	// Lock prevents updates of remotes, and ClearLock removes locks, for the URLs
	// that match a pattern, or all if it is empty. kind is update, checkout or
	// mountpoint. Both return Salt's messages.
	Lock(glob string) (done, failed []string)
	ClearLock(glob, kind string) (done, failed []string)
	// Remotes returns the status of each remote, by id.
	Remotes() *value.Dict
}

// Asked is a Backend by code of the user. Its files need not be on disk, and each answer
// can fail. After a failed answer the file of a later backend must not be served in its
// place, and a list without its files is not complete. So these are errors, as in Salt.
type Asked interface {
	Backend
	// FindFile is Find with an error.
	FindFile(ctx context.Context, env, name string, query map[string]string) (Found, bool, error)
	// Hash answers _file_hash for a file: a map with hash_type and hsum, or "".
	Hash(ctx context.Context, load *value.Dict, f Found) (any, error)
	// Serve answers _serve_file with a part of a file: a map with data and dest.
	Serve(ctx context.Context, load *value.Dict, f Found) (*value.Dict, error)
	// Content returns the path of a file on disk with the content of f, which has the
	// hash. The error is ErrOther if the content has another one.
	Content(ctx context.Context, load *value.Dict, f Found, form, sum string) (string, error)
	// List answers one of the commands that list files or directories.
	List(ctx context.Context, load *value.Dict) ([]string, error)
	// Links answers _symlink_list.
	Links(ctx context.Context, load *value.Dict) (map[string]string, error)
}

// Partial is a Fetcher that has only some of the functions.
type Partial interface {
	Fetcher
	// Has reports whether it has a function, by Salt's name.
	Has(function string) bool
}

// Found is a file that can be served.
type Found struct {
	// Path is the local path of the file, Rel its name in the environment.
	Path, Rel string
	// Mode, if not 0, is reported to clients instead of the whole stat(2) of Path.
	Mode uint32
	// Backend names the backend.
	Backend string
	// Answer is the answer of a backend that is asked, and asked that backend.
	Answer *value.Dict
	asked  Asked
	// stamp is the version of the file at Path that was found, if known.
	stamp host.Stamp
}

// Lists is the content of an environment; the names are relative and sorted.
type Lists struct {
	Files, Dirs, EmptyDirs []string
	// Links maps symbolic links to their targets.
	Links map[string]string
}

// Changes is what has changed in a backend's files since the last update.
type Changes struct {
	Backend                 string
	Changed, Removed, Added []string
	// Any reports whether anything changed.
	Any bool
	// Faults are new errors by remote or other cause; an empty string means that
	// an error has ended.
	Faults map[string]string
	// Fetched has the state of everything that was fetched without an error.
	Fetched fetch.States
}

// Event returns the changes as the data of Salt's event. The three lists are nil
// for a backend that does not report single files.
func (c Changes) Event() *value.Dict {
	if c.Changed == nil && c.Removed == nil && c.Added == nil {
		return value.DictOf("changed", c.Any, "backend", c.Backend)
	}
	return value.DictOf("changed", c.Any, "files", value.DictOf("changed", value.Strings(c.Changed),
		"removed", value.Strings(c.Removed), "added", value.Strings(c.Added)), "backend", c.Backend)
}

// Server serves the files of all backends in the option fileserver_backend. If
// several have a file, the first one wins.
type Server struct {
	backends []Backend
	part     int64 // bytes

	hashes *hashCache
	trees  trees
	parts  parts
	log    *slog.Logger
}

// Config is what a Server needs besides its options.
type Config struct {
	// CacheDir is the directory where Update records the files that it has seen.
	CacheDir string
	// HashType is the option hash_type. BufferSize is the maximum size of a part
	// of a file, in bytes (file_buffer_size); 0 means 1 MiB.
	HashType   string
	BufferSize int
	// More has constructors of backends in other packages, by their names in
	// fileserver_backend.
	More map[string]func(name string) (Backend, error)
	// Own returns the constructor of a backend of the user, or nil. Such a backend
	// replaces another one of its name.
	Own func(name string) func() (Backend, error)
}

// New returns a file server.
func New(o Options, c Config, log *slog.Logger) *Server {
	s := &Server{log: log, hashes: newHashCache(strings.ToLower(c.HashType)), part: int64(min(c.BufferSize, maxPart))}
	if s.part <= 0 {
		s.part = 1 << 20
	}
	s.trees = trees{seed: maphash.MakeSeed(), env: map[string]*envTree{}}
	s.parts.m = map[partKey]*list.Element{}
	ignore := newIgnore(o, log)
	for _, name := range o.Backends {
		mk, ok := c.More[name]
		if c.Own != nil {
			if own := c.Own(name); own != nil {
				mk, ok = func(string) (Backend, error) { return own() }, true
			}
		}
		if name == "roots" && !ok {
			s.backends = append(s.backends, newRoots(o, ignore, filepath.Join(c.CacheDir, "roots"), log))
			continue
		}
		if !ok {
			log.Error("no such file server backend; not serving its files", "fileserver_backend", name)
			continue
		}
		b, err := mk(name)
		if err != nil {
			log.Error("cannot start file server backend; not serving its files", "fileserver_backend", name, "err", err)
			continue
		}
		s.backends = append(s.backends, b)
	}
	return s
}

// WithRoots returns a server with other directories of file_roots that is otherwise
// the same. Cached hashes are kept.
func (s *Server) WithRoots(o Options, c Config) *Server {
	out := &Server{backends: slices.Clone(s.backends), part: s.part, log: s.log, hashes: s.hashes}
	out.trees = trees{seed: maphash.MakeSeed(), env: map[string]*envTree{}}
	out.parts.m = map[partKey]*list.Element{}
	for i, b := range out.backends {
		if _, ok := b.(*roots); ok {
			out.backends[i] = newRoots(o, newIgnore(o, s.log), filepath.Join(c.CacheDir, "roots"), s.log)
		}
	}
	return out
}

// maxPart bounds a part of a file, in bytes: it must fit into a message.
const maxPart = 16 << 20

// Backends returns the names of the existing backends in a list. A name that
// begins with - removes one; nil means all.
func (s *Server) Backends(names []string) []string {
	var out []string
	names = slices.Clone(names)
	for i, n := range names {
		names[i] = s.named(n)
	}
	subtract := len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "-") })
	for _, b := range s.backends {
		if len(names) == 0 || slices.Contains(names, b.Name()) || subtract && !slices.Contains(names, "-"+b.Name()) {
			out = append(out, b.Name())
		}
	}
	return out
}

// named returns the name under which a backend is configured: Salt has two names
// for some, with and without the suffix fs.
func (s *Server) named(name string) string {
	rest, minus := strings.CutPrefix(name, "-")
	for _, b := range s.backends {
		if strings.TrimSuffix(b.Name(), "fs") == strings.TrimSuffix(rest, "fs") {
			rest = b.Name()
		}
	}
	if minus {
		rest = "-" + rest
	}
	return rest
}

func (s *Server) chosen(names []string) []Backend {
	on := s.Backends(names)
	return slices.DeleteFunc(slices.Clone(s.backends), func(b Backend) bool { return !slices.Contains(on, b.Name()) })
}

// Envs returns the names of all environments, sorted.
func (s *Server) Envs(backends ...string) []string {
	var out []string
	for _, b := range s.chosen(backends) {
		out = append(out, b.Envs()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Find looks up a file by the path in a request: a relative path, optionally with
// a query after a question mark. A leading | means that there is no query.
func (s *Server) Find(name, env string) (Found, bool) {
	f, ok, err := s.lookup(context.Background(), name, env)
	if err != nil {
		s.log.Error("cannot look up a file", "path", name, "saltenv", env, "err", err)
	}
	return f, ok
}

func (s *Server) lookup(ctx context.Context, name, env string) (Found, bool, error) {
	var query map[string]string
	if rest, escaped := strings.CutPrefix(name, "|"); escaped {
		name = strings.TrimLeft(rest, "|")
	} else if name, query = splitQuery(name); query["saltenv"] != "" {
		env = query["saltenv"]
	}
	name, ok := cleanName(name)
	if !ok || !validEnv(env) {
		return Found{}, false, nil
	}
	for _, b := range s.backends {
		var f Found
		var err error
		a, asked := b.(Asked)
		if asked {
			f, ok, err = a.FindFile(ctx, env, name, query)
			f.asked = a
		} else {
			f, ok = b.Find(env, name, query)
		}
		if err != nil {
			return Found{}, false, err
		}
		if ok {
			f.Backend = b.Name()
			return f, true, nil
		}
	}
	return Found{}, false, nil
}

// FindLocal looks up a file by its absolute path. It must be below a directory of
// file_roots, of the given environment or, if that is "", of any environment
// configured by name.
func (s *Server) FindLocal(name, env string) (Found, bool) {
	envs := []string{env}
	if env == "" {
		envs = s.Envs("roots")
	}
	for _, b := range s.backends {
		r, ok := b.(*roots)
		if !ok {
			continue
		}
		for _, env := range envs {
			if !validEnv(env) {
				continue
			}
			if f, ok := r.findLocal(env, filepath.Clean(name)); ok {
				f.Backend = r.Name()
				return f, true
			}
		}
	}
	return Found{}, false
}

func splitQuery(name string) (string, map[string]string) {
	name, rest, ok := strings.Cut(name, "?")
	if !ok {
		return name, nil
	}
	rest, _, _ = strings.Cut(rest, "?")
	query := map[string]string{}
	for part := range strings.SplitSeq(rest, "&") {
		if k, v, ok := strings.Cut(part, "="); ok {
			query[k] = v
		}
	}
	return name, query
}

// cleanName rejects names that are not those of a file below a directory.
func cleanName(name string) (string, bool) {
	if name == "" || path.IsAbs(name) || strings.Contains(name, "../") || strings.ContainsRune(name, 0) {
		return "", false
	}
	name = path.Clean(name)
	return name, name != "." && filepath.IsLocal(name)
}

// validEnv rejects environments that would lead out of a directory if used in a
// path.
func validEnv(env string) bool {
	return env != "" && filepath.IsLocal(env) && path.Clean(env) == env && !strings.ContainsRune(env, 0)
}

// Lists returns the content of an environment, from some backends or all.
func (s *Server) Lists(ctx context.Context, env string, backends ...string) (*Lists, error) {
	if !validEnv(env) {
		return &Lists{}, nil
	}
	on := s.chosen(backends)
	if len(on) == 1 {
		return on[0].Lists(ctx, env)
	}
	out := &Lists{Links: map[string]string{}}
	for _, b := range on {
		l, err := b.Lists(ctx, env)
		if err != nil {
			return nil, err
		}
		out.Files, out.Dirs, out.EmptyDirs = append(out.Files, l.Files...), append(out.Dirs, l.Dirs...), append(out.EmptyDirs, l.EmptyDirs...)
		for k, v := range l.Links {
			out.Links[k] = v
		}
	}
	for _, p := range []*[]string{&out.Files, &out.Dirs, &out.EmptyDirs} {
		slices.Sort(*p)
		*p = slices.Compact(*p)
	}
	return out, nil
}

// listOf returns one of the lists of an environment, sorted.
func (s *Server) listOf(ctx context.Context, load *value.Dict, env string, choose func(*Lists) []string) ([]string, error) {
	on := s.chosen(value.Texts(load.At("fsbackend")))
	if !validEnv(env) || len(on) == 0 {
		return nil, nil
	}
	var out []string
	for _, b := range on {
		var part []string
		var l *Lists
		var err error
		if a, ok := b.(Asked); ok {
			part, err = a.List(ctx, load)
		} else if l, err = b.Lists(ctx, env); err == nil {
			part = choose(l)
		}
		switch {
		case err != nil:
			return nil, err
		case len(on) == 1:
			return part, nil
		}
		out = append(out, part...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// linksOf returns the symbolic links of an environment and their targets.
func (s *Server) linksOf(ctx context.Context, load *value.Dict, env string) (map[string]string, error) {
	out := map[string]string{}
	if !validEnv(env) {
		return out, nil
	}
	for _, b := range s.chosen(value.Texts(load.At("fsbackend"))) {
		var part map[string]string
		var err error
		if a, ok := b.(Asked); ok {
			part, err = a.Links(ctx, load)
		} else if l, e := b.Lists(ctx, env); e == nil {
			part = l.Links
		} else {
			err = e
		}
		if err != nil {
			return nil, err
		}
		for k, v := range part {
			out[k] = v
		}
	}
	return out, nil
}

// Forget drops cached hashes, and the cached lists of some environments (nil:
// all). It returns the environments by backend whose lists were dropped.
func (s *Server) Forget(envs []string, backends ...string) map[string][]string {
	out := map[string][]string{}
	for _, b := range s.chosen(backends) {
		if gone := b.Forget(envs); len(gone) > 0 {
			out[b.Name()] = gone
		}
	}
	s.hashes.forget()
	s.trees.forget()
	return out
}

// Update updates some backends, or all. An error of one backend does not stop the
// others.
func (s *Server) Update(ctx context.Context, backends ...string) ([]Changes, error) {
	return s.UpdateOnly(ctx, nil, backends...)
}

// UpdateOnly updates only some remotes of backends; backends without remotes
// ignore the names.
func (s *Server) UpdateOnly(ctx context.Context, names []string, backends ...string) ([]Changes, error) {
	var out []Changes
	var errs []error
	for _, b := range s.chosen(backends) {
		var c Changes
		var err error
		if f, ok := b.(Fetcher); ok {
			c, err = f.UpdateOnly(ctx, names)
		} else {
			c, err = b.Update(ctx)
		}
		if err != nil {
			errs = append(errs, salt.Errorf(salt.Internal, "the file server %s: %w", b.Name(), err))
		}
		out = append(out, c)
	}
	return out, errors.Join(errs...)
}

// Fetchers returns those backends, of some or of all, that copy files from
// elsewhere.
func (s *Server) Fetchers(backends ...string) []Fetcher {
	var out []Fetcher
	for _, b := range s.chosen(backends) {
		if f, ok := b.(Fetcher); ok {
			out = append(out, f)
		}
	}
	return out
}
