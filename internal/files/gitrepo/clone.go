package gitrepo

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/log/redact"
	"brine/internal/base/steady"
	"brine/internal/py/value"
)

// Config locates a Clone.
type Config struct {
	// Dir is the directory of the copy, Work that of its lock.
	Dir, Work string
	Leases    *Leases
	Log       *slog.Logger
}

// Clone is a copy of a remote. Any number of goroutines may use it.
type Clone struct {
	remote Remote
	c      Config
	log    *slog.Logger

	mu      sync.Mutex
	snap    *Snapshot
	stamp   os.FileInfo // of the file from which snap was read
	trees   *treeCache
	objects map[string]*objects // by directory
	broken  bool                // a reader found required data missing
	fault   Status
	rebuilt time.Time // last time that the copy was fetched again because it was broken
}

// Open returns the copy of a remote without fetching it. The settings must have
// passed Check.
func Open(r Remote, c Config) *Clone {
	if r.Refspecs == nil {
		r.Refspecs = UsualRefspecs()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Clone{remote: r, c: c, log: c.Log, trees: newTreeCache(), objects: map[string]*objects{}}
}

// Remote returns the settings of the remote.
func (c *Clone) Remote() Remote { return c.remote }

// Snapshot is the served state of a remote at one time. It does not change.
type Snapshot struct {
	// Refs maps references, whose names lack the prefix refs/, to commits:
	// remotes/origin/main, tags/v1.
	Refs map[string]string `json:"refs"`
	// Directory is the directory of the objects, within the Clone's.
	Directory string `json:"folder"`
	// Serial is incremented with each change.
	Serial int64 `json:"serial"`
	// Time is when it was fetched.
	Time time.Time `json:"time"`
	// By names the process that fetched it.
	By string `json:"by"`
}

// Branch returns the commit of a branch of the remote.
func (s *Snapshot) Branch(name string) (commit string, ok bool) {
	return s.ref("remotes/origin/" + name)
}

// Tag returns the commit of a tag.
func (s *Snapshot) Tag(name string) (commit string, ok bool) { return s.ref("tags/" + name) }

func (s *Snapshot) ref(name string) (string, bool) {
	if s == nil {
		return "", false
	}
	commit, ok := s.Refs[name]
	return commit, ok
}

// State returns a string that is equal for snapshots with the same references,
// "" for none.
func (s *Snapshot) State() string {
	if s == nil {
		return ""
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.Refs)) {
		fmt.Fprintf(h, "%s %s\n", name, s.Refs[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Status is the status of fetching a remote.
type Status struct {
	// Tried and Fetched are the times of the last attempt and of the last
	// success.
	Tried   time.Time `json:"tried"`
	Fetched time.Time `json:"fetched"`
	// Error is the error of the last attempt, "" if it succeeded.
	Error string `json:"error,omitempty"`
	// Since is the time of the first of these errors.
	Since time.Time `json:"since,omitzero"`
	// By names the process of the last attempt.
	By string `json:"by"`
}

const (
	servedFile = "served.json"
	statusFile = "status.json"
	// maxServed bounds the size of served.json, in bytes.
	maxServed = 256 << 20
)

// Snapshot returns the state that is served now, nil if nothing has been
// fetched yet.
func (c *Clone) Snapshot() *Snapshot {
	st, err := os.Stat(filepath.Join(c.c.Dir, servedFile))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			c.snap, c.stamp = nil, nil // the cache was cleared
		}
		return c.snap
	}
	if c.stamp != nil && os.SameFile(st, c.stamp) && st.ModTime().Equal(c.stamp.ModTime()) && st.Size() == c.stamp.Size() {
		return c.snap
	}
	var s Snapshot
	if err := c.read(servedFile, &s); err != nil {
		c.log.Error("cannot read the served copy of a git remote", "remote", redact.Text(c.remote.ID), "err", err)
		return c.snap // keep the last valid one
	}
	for dir, o := range c.objects {
		if dir != s.Directory {
			o.close()
			delete(c.objects, dir)
		}
	}
	c.snap, c.stamp = &s, st
	return c.snap
}

var directoryName = regexp.MustCompile(`^repo-[A-Z0-9]+\.git$`)

func (c *Clone) read(name string, into any) error {
	f, err := os.Open(filepath.Join(c.c.Dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxServed))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	if s, ok := into.(*Snapshot); ok && !directoryName.MatchString(s.Directory) {
		return fmt.Errorf("%s names no directory of a copy", f.Name())
	}
	return nil
}

func (c *Clone) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(c.c.Dir, name), b, 0o600, name == servedFile)
}

// Status returns the status of fetching the remote.
func (c *Clone) Status() Status {
	var s Status
	if err := c.read(statusFile, &s); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.fault
	}
	return s
}

// LockFile returns the path of the lock for updates.
func (c *Clone) LockFile() string { return filepath.Join(c.c.Work, "update.lk") }

// Lock prevents all processes from fetching; see Leases.Set. role is what
// Salt's messages call the use of the Clone.
func (c *Clone) Lock(role string) (done, failed []string) {
	if err := c.c.Leases.Set(c.LockFile()); err != nil {
		return nil, []string{fmt.Sprintf("Unable to set update lock for %s remote '%s': %v", role, redact.Text(c.remote.ID), err)}
	}
	return []string{fmt.Sprintf("Set update lock for %s remote '%s' on machine_id '%s'", role, redact.Text(c.remote.ID), MachineID())}, nil
}

// ClearLock removes a lock of a kind: update, checkout or mountpoint.
func (c *Clone) ClearLock(role, kind string) (done, failed []string) {
	was, err := c.c.Leases.Clear(filepath.Join(c.c.Work, kind+".lk"))
	if err != nil {
		return nil, []string{fmt.Sprintf("Unable to remove %s lock for %s: %v", kind, redact.Text(c.remote.URL), err)}
	}
	if !was {
		return nil, nil
	}
	return []string{fmt.Sprintf("Removed %s lock for %s remote '%s' on machine_id '%s'", kind, role, redact.Text(c.remote.ID), MachineID())}, nil
}

// Result is what an Update has done.
type Result struct {
	// Changed means that other commits, branches or tags are served than
	// before.
	Changed bool
	// Held names the owner of the lock if nothing was fetched because of it.
	Held string
}

// Update fetches the remote. If another process is fetching it, Update waits up
// to the given time and uses that result. After an error, the old state is
// still served.
func (c *Clone) Update(ctx context.Context, wait time.Duration) (Result, error) {
	var before int64
	if s := c.Snapshot(); s != nil {
		before = s.Serial
	}
	if err := os.MkdirAll(c.c.Dir, 0o700); err != nil {
		return Result{}, err
	}
	lease, inner, err := c.c.Leases.Take(ctx, c.LockFile(), wait)
	var other *HeldError
	if errors.As(err, &other) {
		s := c.Snapshot()
		return Result{Changed: s != nil && s.Serial != before, Held: other.owner.String()}, nil
	}
	if err != nil {
		return Result{}, &Error{c.remote.ID, "fetch", err}
	}
	defer func() {
		if err := lease.Release(); err != nil {
			c.log.Warn("cannot release the lock of a git remote", "remote", redact.Text(c.remote.ID), "err", err)
		}
	}()
	err = c.fetch(inner, lease)
	if cause := context.Cause(inner); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		err = &Error{c.remote.ID, "fetch", err}
	}
	if e := lease.Guarded(func() error { return c.note(err) }); e != nil && err == nil {
		err = &Error{c.remote.ID, "fetch", e}
	}
	s := c.Snapshot()
	return Result{Changed: s != nil && s.Serial != before}, err
}

// note stores the result of an update.
func (c *Clone) note(err error) error {
	s, now := c.Status(), time.Now().UTC()
	s.Tried, s.By = now, me().String()
	switch {
	case err == nil:
		s.Fetched, s.Error, s.Since = now, "", time.Time{}
	case s.Error == "":
		s.Since = now
		fallthrough
	default:
		s.Error = err.Error()
	}
	c.mu.Lock()
	c.fault = s
	c.mu.Unlock()
	return c.write(statusFile, s)
}

// rebuildPause is the minimum time between two complete fetches of a broken
// copy.
const rebuildPause = 10 * time.Minute

// fetch updates the copy and serves the new state.
func (c *Clone) fetch(ctx context.Context, lease *Lease) error {
	old := c.Snapshot()
	c.clean(old)
	c.mu.Lock()
	broken, recent := c.broken, time.Since(c.rebuilt) < rebuildPause
	c.mu.Unlock()
	if old == nil || broken {
		return c.anew(ctx, lease, old, broken)
	}
	dir := filepath.Join(c.c.Dir, old.Directory)
	removeLocks(dir)
	err := c.fetchInto(ctx, dir)
	var refs map[string]string
	if err == nil {
		if refs, err = refsOf(ctx, dir); err == nil {
			err = c.whole(ctx, dir, old.Refs, refs)
		}
	}
	if err == nil {
		err = c.serve(lease, old, old.Directory, refs)
	}
	if err == nil {
		if !maps.Equal(old.Refs, refs) {
			c.tidy(ctx, dir)
		}
		return nil
	}
	if errors.Is(err, ErrNoGit) || ctx.Err() != nil || recent {
		return err
	}
	// The error may be caused by the remote or by the copy. A complete fetch is
	// only useful if the remote answers.
	if c.reach(ctx) != nil {
		return err
	}
	c.log.Warn("cannot update the copy of a git remote; fetching it again", "remote", redact.Text(c.remote.ID), "err", err)
	if e := c.anew(ctx, lease, old, true); e != nil {
		return fmt.Errorf("%w; fetching all of it again: %v", err, e)
	}
	return nil
}

// again fetches everything into a new directory and serves it from there.
func (c *Clone) anew(ctx context.Context, lease *Lease, old *Snapshot, repair bool) error {
	directory := "repo-" + rand.Text() + ".git"
	dir := filepath.Join(c.c.Dir, directory)
	if repair {
		c.mu.Lock()
		c.rebuilt = time.Now()
		c.mu.Unlock()
	}
	err := c.fill(ctx, lease, old, directory)
	if err != nil {
		if e := os.RemoveAll(dir); e != nil {
			c.log.Warn("cannot remove a directory", "err", e)
		}
		return err
	}
	c.mu.Lock()
	c.broken = false
	c.mu.Unlock()
	return nil
}

func (c *Clone) fill(ctx context.Context, lease *Lease, old *Snapshot, directory string) error {
	dir := filepath.Join(c.c.Dir, directory)
	if _, err := runGit(ctx, dir, nil, "init", "--quiet", "--bare", "--template="); err != nil {
		return err
	}
	if err := c.fetchInto(ctx, dir); err != nil {
		return err
	}
	refs, err := refsOf(ctx, dir)
	if err != nil {
		return err
	}
	return c.serve(lease, old, directory, refs)
}

func (c *Clone) fetchInto(ctx context.Context, dir string) error {
	address, s, vars, err := c.remote.toRemote(c.c.Dir)
	if err != nil {
		return err
	}
	args := []string{"fetch", "--quiet", "--prune", "--force", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-gc", "--", address}
	_, err = runWith(ctx, environment(dir, s, vars...), fetchLimit, nil, append(args, c.remote.Refspecs...)...)
	return err
}

// reach requests the references of the remote.
func (c *Clone) reach(ctx context.Context) error {
	address, s, vars, err := c.remote.toRemote(c.c.Dir)
	if err != nil {
		return err
	}
	_, err = runWith(ctx, environment(c.c.Dir, s, vars...), localLimit, nil, "ls-remote", "--quiet", "--", address)
	return err
}

// refsOf returns the commits of all tags and of all branches of the remote. It
// omits references to other objects.
func refsOf(ctx context.Context, dir string) (map[string]string, error) {
	out, err := runGit(ctx, dir, nil, "for-each-ref", "--format=%(objecttype) %(objectname) %(*objecttype) %(*objectname) %(refname)", "refs/remotes/origin/",
		"refs/tags/")
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.SplitSeq(string(out), "\n") {
		f := strings.SplitN(line, " ", 5)
		if len(f) < 5 {
			continue
		}
		kind, id := f[0], f[1]
		if kind == "tag" {
			kind, id = f[2], f[3]
		}
		name, ok := strings.CutPrefix(f[4], "refs/")
		if kind == "tag" { // a tag of a tag
			b, err := runGit(ctx, dir, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", id+"^{commit}")
			if err != nil {
				continue
			}
			kind, id = "commit", strings.TrimSpace(string(b))
		}
		if ok && kind == "commit" && isObjectID(id) {
			refs[name] = id
		}
	}
	return refs, nil
}

// isObjectID reports whether s is the full id of an object, in SHA-1 or
// SHA-256.
func isObjectID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// whole checks that the served objects that did not change are still readable;
// git has checked the fetched ones.
func (c *Clone) whole(ctx context.Context, dir string, old, now map[string]string) error {
	var ask strings.Builder
	for name, id := range old {
		if now[name] == id {
			ask.WriteString(id + "^{tree}\n")
		}
	}
	if ask.Len() == 0 {
		return nil
	}
	out, err := runGit(ctx, dir, []byte(ask.String()), "cat-file", "--batch-check=%(objecttype)")
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		if line != "tree" {
			return fmt.Errorf("%w: %s", errBroken, line)
		}
	}
	return nil
}

// serve makes a state of the copy the served one, unless it already is.
func (c *Clone) serve(lease *Lease, old *Snapshot, directory string, refs map[string]string) error {
	if old != nil && old.Directory == directory && maps.Equal(old.Refs, refs) {
		return nil
	}
	s := Snapshot{Refs: refs, Directory: directory, Time: time.Now().UTC(), By: me().String(), Serial: 1}
	if old != nil {
		s.Serial = old.Serial + 1
	}
	return lease.Guarded(func() error { return c.write(servedFile, s) })
}

// stale is the age at which files are removed because they can no longer be in use.
const stale = 15 * time.Minute

// clean removes files of dead processes and earlier copies. It requires the
// lease.
func (c *Clone) clean(now *Snapshot) {
	atomicfile.RemoveTemps(c.c.Dir)
	entries, err := os.ReadDir(c.c.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !directoryName.MatchString(e.Name()) || now != nil && e.Name() == now.Directory {
			continue
		}
		// Another process may still read the copy that was served before. A
		// copy that was never served can be removed immediately.
		served := filepath.Join(c.c.Dir, e.Name(), "served")
		if st, err := os.Stat(served); err == nil && steady.Removal().Sub(st.ModTime()) < stale {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.c.Dir, e.Name())); err != nil {
			c.log.Warn("cannot remove a directory", "err", err)
		}
	}
	if now != nil {
		// Record the time at which this copy was last served, for its removal
		// later.
		if err := os.WriteFile(filepath.Join(c.c.Dir, now.Directory, "served"), nil, 0o600); err != nil {
			c.log.Debug("cannot mark a copy as served", "err", err)
		}
	}
}

// removeLocks removes the lock files of dead git processes.
// Under the lease no other process works there.
func removeLocks(dir string) {
	for _, top := range []string{"", "refs", "info", "objects"} {
		_ = filepath.WalkDir(filepath.Join(dir, top), func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil
			case d.IsDir() && top == "" && p != dir, d.IsDir() && top == "objects" && len(d.Name()) == 2:
				return fs.SkipDir
			case !d.IsDir() && strings.HasSuffix(p, ".lock"), !d.IsDir() && top == "objects" && strings.HasPrefix(d.Name(), "tmp_"):
				_ = os.Remove(p)
			}
			return nil
		})
	}
}

// tidy lets git repack the objects of many fetches if necessary.
func (c *Clone) tidy(ctx context.Context, dir string) {
	if _, err := runGit(ctx, dir, nil, "gc", "--auto", "--quiet"); err != nil && ctx.Err() == nil {
		c.log.Warn("cannot run git gc on the copy of a git remote", "remote", redact.Text(c.remote.ID), "err", err)
	}
}

// Clear removes the copy.
func (c *Clone) Clear() error {
	c.Close()
	err := os.RemoveAll(c.c.Dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snap, c.stamp, c.trees = nil, nil, newTreeCache()
	return err
}

// Close ends the processes that read the copy. The Clone can be used again.
func (c *Clone) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for dir, o := range c.objects {
		o.close()
		delete(c.objects, dir)
	}
}

// spoilt records that the copy is broken, which the next Update repairs.
func (c *Clone) spoilt(err error) error {
	if errors.Is(err, errBroken) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.broken {
			c.log.Error("copy of a git remote is broken; the next update fetches it again", "remote", redact.Text(c.remote.ID), "err", err)
		}
		c.broken = true
	}
	return err
}

// Broken reports whether the copy was found to be broken.
func (c *Clone) Broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// Describe returns the status and the served state of the remote, for display.
func (c *Clone) Describe() *value.Dict {
	at := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UTC().Format(time.RFC3339)
	}
	st := c.Status()
	d := value.DictOf("url", redact.Text(c.remote.URL), "tried", at(st.Tried), "fetched", at(st.Fetched), "error", nil, "failing_since", at(st.Since),
		"locked_by", nil, "serial", int64(0), "served_since", nil)
	if st.Error != "" {
		d.Set("error", st.Error)
	}
	if by := c.c.Leases.Owner(c.LockFile()); by != "" {
		d.Set("locked_by", by)
	}
	if s := c.Snapshot(); s != nil {
		d.Set("serial", s.Serial)
		d.Set("served_since", at(s.Time))
		commits := value.NewDict(len(s.Refs))
		for _, name := range slices.Sorted(maps.Keys(s.Refs)) {
			commits.Set(strings.TrimPrefix(name, "remotes/origin/"), s.Refs[name])
		}
		d.Set("commits", commits)
	}
	return d
}
