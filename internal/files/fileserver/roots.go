package fileserver

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"brine/internal/host"
)

// roots serves the directories of file_roots.
type roots struct {
	roots  []Root
	o      Options
	ignore *ignore
	noted  string // directory where Update stores its data
	log    *slog.Logger

	mu    sync.Mutex
	lists map[string]*envLists
}

var _ Backend = (*roots)(nil)

func newRoots(o Options, ig *ignore, noted string, log *slog.Logger) *roots {
	return &roots{roots: Roots(o.FileRoots, "/srv/salt"), o: o, ignore: ig, noted: noted, log: log, lists: map[string]*envLists{}}
}

func (r *roots) Name() string { return "roots" }

func (r *roots) Envs() []string {
	var out []string
	for _, root := range r.roots {
		out = append(out, root.Env)
	}
	return sortedSet(out)
}

// Find searches the directories of an environment in order. The query index selects one of them.
func (r *roots) Find(env, name string, query map[string]string) (Found, bool) {
	dirs, ok := dirsOf(r.roots, env)
	if !ok {
		return Found{}, false
	}
	if text, ok := query["index"]; ok {
		i, err := strconv.Atoi(text)
		if i < 0 {
			i += len(dirs)
		}
		if err != nil || i < 0 || i >= len(dirs) {
			return Found{}, false
		}
		dirs = dirs[i : i+1]
	}
	for _, dir := range dirs {
		if full, stamp, ok := r.inside(dir, name); ok && !r.ignore.has(full) {
			return Found{Path: full, Rel: name, stamp: stamp}, true
		}
	}
	return Found{}, false
}

// findLocal searches the directories of an environment for a file with an absolute path.
func (r *roots) findLocal(env, name string) (Found, bool) {
	dirs, _ := dirsOf(r.roots, env)
	for _, dir := range dirs {
		rel, err := filepath.Rel(dir, name)
		if err != nil || !filepath.IsLocal(rel) || strings.ContainsRune(rel, 0) {
			continue
		}
		if full, stamp, ok := r.inside(dir, rel); ok && !r.ignore.has(full) {
			return Found{Path: full, Rel: rel, stamp: stamp}, true
		}
	}
	return Found{}, false
}

// inside returns the path and the version of a regular file below a directory. If links are not followed, it
// rejects a path that leads out of the directory through a symbolic link.
func (r *roots) inside(dir, name string) (string, host.Stamp, bool) {
	full := filepath.Join(dir, name)
	if !r.o.FollowSymlinks {
		real, err := filepath.EvalSymlinks(full)
		if err != nil {
			return "", host.Stamp{}, false
		}
		top, err := filepath.EvalSymlinks(dir)
		if err != nil || !below(top, real) {
			return "", host.Stamp{}, false
		}
	}
	stamp, regular, err := host.StampAndType(full)
	return full, stamp, err == nil && regular
}

// below reports whether a path is in a directory; both are clean, and absolute or relative to the same
// directory.
func below(dir, p string) bool {
	rel, err := filepath.Rel(dir, p)
	return err == nil && filepath.IsLocal(rel)
}

// envLists holds the lists of one environment with the state of its directories. mu is held while they are
// computed.
type envLists struct {
	mu          sync.Mutex
	lists       *Lists
	directories []seenDir
}

// seenDir is a directory with its stamp when it was read.
type seenDir struct {
	path  string
	stamp host.Stamp
}

// Lists walks the directories of an environment, unless none of them has changed since the last walk.
func (r *roots) Lists(ctx context.Context, env string) (*Lists, error) {
	dirs, ok := dirsOf(r.roots, env)
	if !ok {
		return &Lists{}, nil
	}
	r.mu.Lock()
	e := r.lists[env]
	if e == nil {
		if len(r.lists) > 1000 { // minions can invent names of environments
			clear(r.lists)
		}
		e = &envLists{}
		r.lists[env] = e
	}
	r.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lists != nil && unchanged(e.directories) {
		return e.lists, nil
	}
	w := &walk{r: r, ctx: ctx, files: map[string]bool{}, dirs: map[string]bool{}, empty: map[string]bool{}, links: map[string]string{}}
	for _, dir := range dirs {
		if err := w.root(dir); err != nil {
			return nil, err
		}
	}
	e.lists, e.directories = w.lists(), w.seen
	if w.unsettled {
		e.directories = nil // a directory has just changed; a further change may have the same stamp
		lists := e.lists
		e.lists = nil
		return lists, nil
	}
	return e.lists, nil
}

// Forget implements Backend.
func (r *roots) Forget(envs []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var gone []string
	for env := range r.lists {
		if envs == nil || slices.Contains(envs, env) {
			gone = append(gone, env)
			delete(r.lists, env)
		}
	}
	return sortedSet(gone)
}

func unchanged(dirs []seenDir) bool {
	for _, d := range dirs {
		if s, err := host.StampOf(d.path); err != nil && d.stamp != (host.Stamp{}) || s != d.stamp {
			return false
		}
	}
	return true
}

// walk collects the lists of an environment.
type walk struct {
	r                  *roots
	ctx                context.Context
	top                string // the directory of the walk
	real               string // the same without symbolic links
	files, dirs, empty map[string]bool
	links              map[string]string
	seen               []seenDir
	unsettled          bool
}

func (w *walk) lists() *Lists {
	return &Lists{Files: keys(w.files), Dirs: keys(w.dirs), EmptyDirs: keys(w.empty), Links: w.links}
}

func (w *walk) root(dir string) error {
	w.top = filepath.Clean(dir)
	w.real = w.top
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		w.real = real
	}
	return w.directory(w.top, "", false, nil)
}

// maxDepth bounds the nesting of directories.
const maxDepth = 200

// directory reads one directory and everything below. above are its parents, to which a symbolic link must not lead
// back. listed says whether the directory itself is listed.
func (w *walk) directory(path, rel string, listed bool, above []host.Stamp) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	s, err := host.StampOf(path)
	w.seen = append(w.seen, seenDir{path, s})
	if err != nil || len(above) > maxDepth {
		return nil
	}
	for _, a := range above {
		if a.SameFile(s) {
			return nil
		}
	}
	w.unsettled = w.unsettled || !s.Settled()
	entries, err := os.ReadDir(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.r.log.Debug("cannot read a directory of the file server", "err", err)
		}
		return nil
	}
	if listed && len(entries) == 0 {
		w.empty[rel] = true
	}
	above = append(above[:len(above):len(above)], s)
	for _, e := range entries {
		if err := w.entry(path, rel, e, above); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(dir, rel string, e fs.DirEntry, above []host.Stamp) error {
	full, name := dir+"/"+e.Name(), strings.TrimPrefix(rel+"/"+e.Name(), "/")
	link, isDir := e.Type()&fs.ModeSymlink != 0, e.IsDir()
	if link {
		if st, err := os.Stat(full); err == nil {
			isDir = st.IsDir()
		}
	}
	listed := !(link && w.r.o.IgnoreSymlinks) && !w.r.ignore.has(name)
	if listed && isDir {
		w.dirs[name] = true
	} else if listed {
		w.files[name] = true
	}
	if listed && link {
		w.link(full, name)
	}
	switch {
	case !isDir:
	case !link || w.r.o.FollowSymlinks:
		return w.directory(full, name, listed, above)
	case listed:
		if d, err := os.ReadDir(full); err == nil && len(d) == 0 {
			w.empty[name] = true
		}
	}
	return nil
}

// link records a symbolic link. It omits followed links that lead out of the directory, so that minions get
// their targets.
func (w *walk) link(full, name string) {
	to, err := os.Readlink(full)
	if err != nil {
		return
	}
	abs := to
	switch {
	case filepath.IsAbs(to):
	case strings.HasPrefix(to, ".."):
		abs = filepath.Join(full, to) // one level too few, as in Salt
	default:
		abs = filepath.Join(filepath.Dir(full), to)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		real = abs
	}
	rel, err := filepath.Rel(w.real, real)
	if err == nil && !strings.HasPrefix(rel, "..") || !w.r.o.FollowSymlinks {
		w.links[name] = to
	}
}

func keys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }

func sortedSet(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}
