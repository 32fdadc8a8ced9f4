// Package gitfs is the file server backend for git repositories: each branch and tag
// is an environment. It fetches with internal/files/gitrepo. It stores the content of
// each requested file once, under its git object id, so that equal files of all
// branches and repositories share one copy.
//
// The served content of a repository changes atomically for all masters that share
// the cachedir. A failed fetch changes nothing.
package gitfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/base/target"
	"brine/internal/files/fetch"
	"brine/internal/files/fileserver"
	"brine/internal/files/gitrepo"
	"brine/internal/py/value"
)

// Config is the configuration of gitfs besides its options.
type Config struct {
	// Name is the name in fileserver_backend: gitfs or git.
	Name string
	// CacheDir is the cachedir; everything is stored in its directory gitfs.
	CacheDir string
	// HashType is the option hash_type, which determines directory names.
	HashType string
	// Alone means that Due is not called: a request for files fetches first, if the
	// interval has passed. Minions without a master work this way.
	Alone bool
	Log   *slog.Logger
}

func (c Config) dir() string { return filepath.Join(c.CacheDir, "gitfs") }

// FS is the file server backend.
type FS struct {
	c       Config
	remotes []*remote
	log     *slog.Logger
	faults  sync.Map // last reported error, by the remote's id

	mu    sync.Mutex
	lists map[string]*listed
	sums  sums

	extract group
}

var _ fileserver.Fetcher = (*FS)(nil)

// New returns the backend; nothing is fetched yet. The error names the remote whose
// configuration is invalid.
func New(o Options, c Config) (*FS, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	entries, err := o.entries()
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		if err := gitrepo.Available(); err != nil {
			return nil, err
		}
	}
	f := &FS{c: c, log: c.Log, lists: map[string]*listed{}}
	f.sums = sums{env: map[string]*envSums{}, of: map[string]string{}}
	leases := &gitrepo.Leases{Global: o.GlobalLock}
	directories := map[string]string{}
	for _, e := range entries {
		r, err := newRemote(e, o, c, leases)
		if err != nil {
			return nil, err
		}
		if other, ok := directories[r.directory]; ok {
			return nil, salt.Errorf(salt.Invalid, "the git remotes %s and %s have the same directory in the cache: give each a name of its own, by "+
				"the parameter name", redact.Text(other), redact.Text(r.id))
		}
		directories[r.directory] = r.id
		f.remotes = append(f.remotes, r)
	}
	return f, nil
}

// Name implements fileserver.Backend.
func (f *FS) Name() string { return f.c.Name }

// fresh updates remotes before a request for files, if no other process does.
func (f *FS) fresh(ctx context.Context) {
	if !f.c.Alone {
		return
	}
	if _, _, err := f.Due(ctx, true); err != nil {
		f.log.Error("cannot update gitfs", "err", err)
	}
}

// Envs implements fileserver.Backend.
func (f *FS) Envs() []string {
	f.fresh(context.Background())
	return f.envs()
}

func (f *FS) envs() []string {
	var out []string
	for _, r := range f.remotes {
		out = append(out, r.envs()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// known reports whether a remote can have files for an environment.
func (f *FS) known(env string, r *remote) bool {
	return isHex(env) || r.fallback != "" || slices.ContainsFunc(f.remotes, func(r *remote) bool {
		_, ok := slices.BinarySearch(r.envs(), env)
		return ok
	})
}

// Find implements fileserver.Backend.
func (f *FS) Find(env, name string, _ map[string]string) (fileserver.Found, bool) {
	ctx := context.Background()
	f.fresh(ctx)
	for _, r := range f.remotes {
		if !f.known(env, r) {
			continue
		}
		e, s, err := r.find(ctx, env, name)
		if err == nil && s != nil {
			var path string
			if path, err = f.content(ctx, r, s, e); err == nil {
				return fileserver.Found{Path: path, Rel: name, Mode: e.Kind.Mode()}, true
			}
		}
		if err != nil {
			f.log.Error("cannot serve a file of gitfs", "path", name, "saltenv", env, "err", err)
			// Another remote's file of the same name would be the wrong one.
			return fileserver.Found{}, false
		}
	}
	return fileserver.Found{}, false
}

// renewal is the age at which the time stamp of a used content is updated.
const renewal = 24 * time.Hour

// unused is the maximum age of contents that are not requested.
const unused = 30 * 24 * time.Hour

// content returns the path of a file with the content of an entry, and creates it on
// the first request.
func (f *FS) content(ctx context.Context, r *remote, s *gitrepo.Snapshot, e gitrepo.Entry) (string, error) {
	dir := filepath.Join(f.c.dir(), "objects", e.ID[:2])
	full := filepath.Join(dir, e.ID[2:])
	whole := func() bool {
		st, err := os.Lstat(full)
		if err != nil || !st.Mode().IsRegular() || st.Size() != e.Size {
			return false
		}
		if now := time.Now(); now.Sub(st.ModTime()) > renewal {
			_ = os.Chtimes(full, now, now) // marks it as used, so that it is not removed
		}
		return true
	}
	if whole() {
		return full, nil
	}
	return full, f.extract.do(e.ID, func() error {
		if whole() {
			return nil
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return atomicfile.Replace(full, 0o600, func(w io.Writer) error { return r.clone.Copy(context.WithoutCancel(ctx), s, e.ID, w) })
	})
}

// group runs a function once for concurrent callers with the same key.
type group struct {
	mu sync.Mutex
	m  map[string]*call
}

type call struct {
	done chan struct{}
	err  error
}

func (g *group) do(key string, f func() error) error {
	g.mu.Lock()
	if c, ok := g.m[key]; ok {
		g.mu.Unlock()
		<-c.done
		return c.err
	}
	if g.m == nil {
		g.m = map[string]*call{}
	}
	c := &call{done: make(chan struct{})}
	g.m[key] = c
	g.mu.Unlock()
	c.err = f()
	g.mu.Lock()
	delete(g.m, key)
	g.mu.Unlock()
	close(c.done)
	return c.err
}

// listed holds the cached lists of an environment and the commits that they were made
// from.
type listed struct {
	of    []*gitrepo.Snapshot
	lists *fileserver.Lists
}

// maxListed bounds the environments with cached lists.
const maxListed = 200

// Lists implements fileserver.Backend. git has no empty directories.
func (f *FS) Lists(ctx context.Context, env string) (*fileserver.Lists, error) {
	f.fresh(ctx)
	of := make([]*gitrepo.Snapshot, len(f.remotes))
	for i, r := range f.remotes {
		of[i] = r.clone.Snapshot()
	}
	f.mu.Lock()
	kept, ok := f.lists[env]
	f.mu.Unlock()
	if ok && slices.Equal(kept.of, of) {
		return kept.lists, nil
	}
	b := builder{files: map[string]bool{}, dirs: map[string]bool{}, links: map[string]string{}}
	for i, r := range f.remotes {
		if !f.known(env, r) {
			continue
		}
		if err := b.add(ctx, r, of[i], env); err != nil {
			return nil, err
		}
	}
	l := &fileserver.Lists{Files: sorted(b.files), Dirs: sorted(b.dirs), Links: b.links}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lists) >= maxListed {
		clear(f.lists)
	}
	f.lists[env] = &listed{of, l}
	return l, nil
}

type builder struct {
	files, dirs map[string]bool
	links       map[string]string
}

func (b *builder) add(ctx context.Context, r *remote, s *gitrepo.Snapshot, env string) error {
	t, err := r.tree(ctx, s, env)
	if err != nil || t == nil {
		return err
	}
	p := r.at(env)
	if p.root != "" {
		if e, ok := t.Find(p.root); !ok || e.Kind != gitrepo.Directory {
			return nil
		}
	}
	if p.mount != "" {
		b.dirs[p.mount] = true
	}
	for _, e := range t.Entries {
		name := e.Path
		if p.root != "" {
			var ok bool
			if name, ok = strings.CutPrefix(name, p.root+"/"); !ok {
				continue
			}
		}
		if p.mount != "" {
			name = p.mount + "/" + name
		}
		switch e.Kind {
		case gitrepo.Directory:
			b.dirs[name] = true
		case gitrepo.Submodule:
		case gitrepo.Symlink:
			to, err := r.clone.Text(ctx, s, e.ID)
			if err != nil {
				return err
			}
			b.links[name] = to
			b.files[name] = true
		default:
			b.files[name] = true
		}
	}
	return nil
}

func sorted(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Forget implements fileserver.Backend.
func (f *FS) Forget(envs []string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sums.forget(envs)
	var gone []string
	for env := range f.lists {
		if envs == nil || slices.Contains(envs, env) {
			gone = append(gone, env)
			delete(f.lists, env)
		}
	}
	slices.Sort(gone)
	return gone
}

// waitForOther is how long an update waits for that of another master.
const waitForOther = 30 * time.Second

// Update implements fileserver.Backend.
func (f *FS) Update(ctx context.Context) (fileserver.Changes, error) { return f.UpdateOnly(ctx, nil) }

// UpdateOnly implements fileserver.Fetcher.
func (f *FS) UpdateOnly(ctx context.Context, names []string) (fileserver.Changes, error) {
	var on []*remote
	for _, r := range f.remotes {
		if len(names) == 0 || slices.Contains(names, r.id) || r.name != "" && slices.Contains(names, r.name) {
			on = append(on, r)
		}
	}
	if len(names) > 0 && len(on) == 0 {
		return fileserver.Changes{Backend: "gitfs"}, salt.Errorf(salt.NotFound, "there is no git remote %s", strings.Join(names, ", "))
	}
	return f.update(ctx, on, waitForOther)
}

// Due implements fileserver.Fetcher.
func (f *FS) Due(ctx context.Context, leads bool) (fileserver.Changes, bool, error) {
	var on []*remote
	for _, r := range f.remotes {
		if r.turn.Due(r.interval, leads) || r.clone.Broken() && r.turn.Since() > time.Second {
			on = append(on, r)
		}
	}
	if len(on) == 0 {
		return fileserver.Changes{}, false, nil
	}
	wait := time.Duration(0)
	if f.c.Alone {
		wait = waitForOther
	}
	c, err := f.update(ctx, on, wait)
	return c, true, err
}

// told returns the name that identifies the remote for other masters.
func (r *remote) told() string { return "gitfs/" + r.directory }

// Told implements fileserver.Fetcher.
func (f *FS) Told(states fetch.States, regular bool) {
	for _, r := range f.remotes {
		if state, ok := states[r.told()]; ok {
			r.turn.Told(state == r.clone.Snapshot().State(), regular)
		}
	}
}

// atOnce bounds concurrent fetches.
const atOnce = 4

func (f *FS) update(ctx context.Context, on []*remote, wait time.Duration) (fileserver.Changes, error) {
	c := fileserver.Changes{Backend: "gitfs", Faults: map[string]string{}, Fetched: fetch.States{}}
	before := make([]*gitrepo.Snapshot, len(f.remotes))
	for i, r := range f.remotes {
		before[i] = r.clone.Snapshot()
	}
	results := make([]gitrepo.Result, len(on))
	errs := make([]error, len(on))
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, r := range on {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r.turn.Take()
			results[i], errs[i] = r.clone.Update(ctx, wait)
		})
	}
	wg.Wait()
	for i, r := range on {
		c.Any = c.Any || results[i].Changed
		id := redact.Text(r.id)
		was, told := f.faults.Load(r.id)
		switch {
		case errs[i] != nil:
			if was != errs[i].Error() {
				c.Faults[id] = errs[i].Error()
			}
			f.faults.Store(r.id, errs[i].Error())
		case told:
			f.faults.Delete(r.id)
			c.Faults[id] = ""
		}
		if results[i].Held == "" && errs[i] == nil {
			c.Fetched[r.told()] = r.clone.Snapshot().State()
		}
		if results[i].Held != "" && errs[i] == nil {
			f.log.Debug("git remote is locked; not fetching it now", "remote", id, "by", results[i].Held)
		}
	}
	err := errors.Join(errs...)
	if f.tidyUp() {
		c.Any = true
	}
	if err == nil {
		f.dropUnused()
	}
	return c, err
}

// tidyUp removes the copies of remotes that are no longer configured, and writes the
// map of directories to remotes. changed reports whether any were removed.
func (f *FS) tidyUp() (changed bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "# gitfs_remote map\n")
	directories := map[string]bool{"hash": true, "refs": true, "links": true, "work": true, "objects": true}
	for _, r := range f.remotes {
		directories[r.directory] = true
		fmt.Fprintf(&b, "%s = %s\n", r.directory, redact.Text(r.id))
	}
	entries, err := os.ReadDir(f.c.dir())
	if err != nil {
		return false
	}
	for _, e := range entries {
		dir := filepath.Join(f.c.dir(), e.Name())
		if !e.IsDir() || directories[e.Name()] || !abandoned(filepath.Join(dir, "_")) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			f.log.Error("cannot remove the copy of a git remote that is no longer configured", "err", err)
			continue
		}
		changed = true
	}
	file := filepath.Join(f.c.dir(), "remote_map.txt")
	if old, err := os.ReadFile(file); err != nil || string(old) != b.String() {
		if err := atomicfile.Write(file, []byte(b.String()), 0o644, false); err != nil {
			f.log.Debug("cannot write the list of remotes", "err", err)
		}
	}
	return changed
}

// abandoned reports whether no master has fetched a copy for an hour: another
// master with the same cachedir may have other remotes.
func abandoned(dir string) bool {
	st, err := os.Stat(filepath.Join(dir, "status.json"))
	return err != nil || steady.Removal().Sub(st.ModTime()) > time.Hour
}

// dropUnused removes, once a day, contents that are not requested.
func (f *FS) dropUnused() {
	dir := filepath.Join(f.c.dir(), "objects")
	mark := filepath.Join(dir, ".swept")
	if st, err := os.Stat(mark); err == nil && time.Since(st.ModTime()) < renewal {
		return
	}
	directories, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return
	}
	for _, d := range directories {
		files, err := os.ReadDir(filepath.Join(dir, d.Name()))
		if err != nil {
			continue
		}
		for _, e := range files {
			if st, err := e.Info(); err == nil && steady.Removal().Sub(st.ModTime()) > unused {
				_ = os.Remove(filepath.Join(dir, d.Name(), e.Name()))
			}
		}
	}
}

// ClearCache implements fileserver.Fetcher.
func (f *FS) ClearCache() (failed []string) {
	f.Forget(nil)
	for _, r := range f.remotes {
		if err := r.clone.Clear(); err != nil {
			failed = append(failed, fmt.Sprintf("Unable to delete %s: %v", f.c.dir(), err))
		}
		r.turn.Reset()
	}
	if err := os.RemoveAll(f.c.dir()); err != nil {
		failed = append(failed, fmt.Sprintf("Unable to delete %s: %v", f.c.dir(), err))
	}
	return failed
}

// meant returns the remotes whose URL matches a pattern.
func (f *FS) meant(glob string) []*remote {
	if glob == "" {
		return f.remotes
	}
	g := target.ParseGlob(glob)
	return slices.DeleteFunc(slices.Clone(f.remotes), func(r *remote) bool { return !g.Match(r.url) })
}

// Lock implements fileserver.Fetcher.
func (f *FS) Lock(glob string) (done, failed []string) {
	for _, r := range f.meant(glob) {
		d, e := r.clone.Lock("gitfs")
		done, failed = append(done, d...), append(failed, e...)
	}
	return done, failed
}

// ClearLock implements fileserver.Fetcher.
func (f *FS) ClearLock(glob, kind string) (done, failed []string) {
	for _, r := range f.meant(glob) {
		d, e := r.clone.ClearLock("gitfs", kind)
		done, failed = append(done, d...), append(failed, e...)
	}
	return done, failed
}

// Remotes implements fileserver.Fetcher.
func (f *FS) Remotes() *value.Dict {
	out := value.NewDict(len(f.remotes))
	for _, r := range f.remotes {
		d := r.clone.Describe()
		d.Set("saltenvs", value.Strings(r.envs()))
		if r.name != "" {
			d.Set("name", r.name)
		}
		out.Set(redact.Text(r.id), d)
	}
	return out
}

// Fetched returns when each remote was last fetched with success, by its id without a
// password; the zero time means never.
func (f *FS) Fetched() map[string]time.Time {
	out := make(map[string]time.Time, len(f.remotes))
	for _, r := range f.remotes {
		out[redact.Text(r.id)] = r.clone.Status().Fetched
	}
	return out
}
