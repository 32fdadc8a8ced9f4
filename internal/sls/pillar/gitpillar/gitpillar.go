// Package gitpillar manages the git repositories of the external pillar git.
// Each commit in use is a separate directory, so that a running compilation
// continues with its commit while another one arrives.
package gitpillar

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/files/fetch"
	"brine/internal/files/gitrepo"
	"brine/internal/py/value"
)

// Options are Salt's options of git_pillar, the defaults of all repositories.
type Options struct {
	Base     string `salt:"git_pillar_base" default:"master" doc:"branch that is the environment base" change:"live"`
	Branch   string `salt:"git_pillar_branch" default:"master" doc:"branch of repositories that are named without one" change:"live"`
	Env      string `salt:"git_pillar_env" default:"" doc:"environment of the pillar in place of the one that follows from the branch" change:"live"`
	Root     string `salt:"git_pillar_root" default:"" doc:"directory of the repository that has the pillar's files; empty: all of it" change:"live"`
	Fallback string `salt:"git_pillar_fallback" default:"" doc:"branch for environments that there is none of in a repository" change:"live"`
	Includes bool   `salt:"git_pillar_includes" default:"true" doc:"let the files of all repositories of an environment see each other" change:"live"`

	Refspecs []string      `salt:"git_pillar_refspecs" default:"[+refs/heads/*:refs/remotes/origin/*, +refs/tags/*:refs/tags/*]" doc:"what is fetched, and where to" change:"live" list:"comma"`
	Interval time.Duration `salt:"git_pillar_update_interval" default:"60" doc:"seconds between fetches" change:"live"`

	User         string `salt:"git_pillar_user" default:"" doc:"user for http and https" change:"live"`
	Password     string `salt:"git_pillar_password" default:"" doc:"password or token of this user" change:"live"`
	InsecureAuth bool   `salt:"git_pillar_insecure_auth" default:"false" doc:"send the password without encryption, over http" change:"live"`
	PubKey       string `salt:"git_pillar_pubkey" default:"" doc:"file of the public key for ssh; it need not be given" change:"live"`
	PrivKey      string `salt:"git_pillar_privkey" default:"" doc:"file of the private key for ssh" change:"live"`
	Passphrase   string `salt:"git_pillar_passphrase" default:"" doc:"passphrase of the private key" change:"live"`
	SSLVerify    bool   `salt:"git_pillar_ssl_verify" default:"true" doc:"refuse https servers whose certificate is not known" change:"live"`

	GlobalLock bool   `salt:"git_pillar_global_lock" default:"true" doc:"honour locks whose process is not on this machine, for masters that share a cachedir; a dead owner's lock ends by itself" change:"live"`
	Verify     bool   `salt:"git_pillar_verify_config" default:"true" doc:"say at the start of a master which repositories are not configured well" change:"live"`
	Provider   string `salt:"git_pillar_provider" default:"" doc:"pygit2 or gitpython, which both mean the git program here" change:"live"`
}

func (o Options) all() map[string]any {
	return map[string]any{
		"base": o.Base, "env": o.Env, "root": o.Root, "fallback": o.Fallback, "refspecs": o.Refspecs, "user": o.User, "password": o.Password,
		"insecure_auth": o.InsecureAuth,
		"pubkey":        o.PubKey, "privkey": o.PrivKey, "passphrase": o.Passphrase, "ssl_verify": o.SSLVerify, "update_interval": o.Interval,
	}
}

func parameters() []string {
	return []string{
		"base", "env", "root", "ssl_verify", "refspecs", "fallback", "update_interval", "name", "mountpoint", "all_saltenvs", "user", "password", "pubkey",
		"privkey", "passphrase", "insecure_auth",
	}
}

// anyEnv is the branch name that stands for the environment's branch.
const anyEnv = "__env__"

// Config is the further configuration of a Source.
type Config struct {
	// CacheDir is the cachedir; everything is stored in its directory git_pillar.
	CacheDir string
	// HashType is the option hash_type, which determines directory names.
	HashType string
	// Alone means that Due is not called; see gitfs.
	Alone bool
	Log   *slog.Logger
}

// Source manages the repositories of one configuration.
type Source struct {
	o      Options
	c      Config
	log    *slog.Logger
	leases *gitrepo.Leases

	mu      sync.Mutex
	remotes map[string]*Remote // by their configuration
	order   []*Remote
}

// New returns the source. Add or Dirs register the repositories of an entry of
// ext_pillar.
func New(o Options, c Config) *Source {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{o: o, c: c, log: c.Log, leases: &gitrepo.Leases{Global: o.GlobalLock}, remotes: map[string]*Remote{}}
}

func (s *Source) dir() string { return filepath.Join(s.c.CacheDir, "git_pillar") }

// Includes reports whether repositories of an environment see each other.
func (s *Source) Includes() bool { return s.o.Includes }

// Remote is one repository with its branch.
type Remote struct {
	// ID is the entry in the configuration: BRANCH URL, or only a URL.
	ID, Branch, URL, Name string

	base, env, root, fallback, mount string
	allSaltenvs                      string
	interval                         time.Duration
	directory                        string
	clone                            *gitrepo.Clone

	turn fetch.Turn

	mu    sync.Mutex
	fault string
}

// Add registers the repositories of an entry of ext_pillar, and returns them.
func (s *Source) Add(entry any) ([]*Remote, error) {
	var items []any
	switch x := entry.(type) {
	case *value.List:
		items = x.Items
	case string, *value.Dict:
		items = []any{x}
	default:
		return nil, salt.Errorf(salt.Invalid, "git has a %s, not a list of repositories", value.TypeName(entry))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Remote
	directories := map[string]string{}
	for _, it := range items {
		key := value.Repr(it)
		r, ok := s.remotes[key]
		if !ok {
			var err error
			if r, err = s.remote(it); err != nil {
				return nil, err
			}
			for _, o := range s.order {
				if o.directory == r.directory {
					r.clone = o.clone // the same clone, in another entry with other parameters
				}
			}
			s.remotes[key] = r
			s.order = append(s.order, r)
		}
		if other, ok := directories[r.directory]; ok {
			return nil, salt.Errorf(salt.Invalid, "the git remotes %s and %s have the same directory in the cache: give each a name of its own, by "+
				"the parameter name", redact.Text(other), redact.Text(r.ID))
		}
		directories[r.directory] = r.ID
		out = append(out, r)
	}
	return out, nil
}

func (s *Source) remote(entry any) (*Remote, error) {
	if err := gitrepo.Available(); err != nil {
		return nil, err
	}
	c, err := gitrepo.ReadSettings(entry, s.o.all(), parameters()...)
	if err != nil {
		return nil, err
	}
	r := &Remote{ID: c.ID, Branch: s.o.Branch, URL: c.ID, Name: c.Text("name")}
	if branch, address, ok := strings.Cut(c.ID, " "); ok {
		r.Branch, r.URL = branch, strings.TrimSpace(address)
	}
	if r.Branch != anyEnv && c.Set.Has("base") {
		return nil, salt.Errorf(salt.Invalid, "the git remote %s has a base, which only those with the branch __env__ can have", redact.Text(r.ID))
	}
	r.base, r.env, r.root, r.fallback, r.allSaltenvs = c.Text("base"), c.Text("env"), strings.Trim(c.Text("root"), "/"), c.Text("fallback"),
		c.Text("all_saltenvs")
	r.interval = max(c.Seconds("update_interval"), time.Second)
	_, mount, ok := strings.Cut(c.Text("mountpoint"), "://")
	if !ok {
		mount = c.Text("mountpoint")
	}
	r.mount = strings.Trim(mount, "/")
	for _, p := range []string{r.root, r.mount} {
		if p != "" && (!filepath.IsLocal(p) || filepath.Clean(p) != p) {
			return nil, salt.Errorf(salt.Invalid, "%q of the git remote %s is no directory", p, redact.Text(r.ID))
		}
	}
	if r.directory, err = c.DirectoryName(s.c.HashType); err != nil {
		return nil, err
	}
	settings, err := c.Remote(r.URL)
	if err != nil {
		return nil, err
	}
	r.clone = gitrepo.Open(settings, gitrepo.Config{
		Dir: filepath.Join(s.dir(), r.directory, "_"), Work: filepath.Join(s.dir(), "work", r.directory, "_"), Leases: s.leases, Log: s.log,
	})
	return r, nil
}

// Dir is a directory of pillar files.
type Dir struct {
	// Path is the directory, Env the environment of the pillar that uses it.
	Path, Env string
	// Mounted means that its top file is ignored: it is included by others.
	Mounted bool
}

// Dirs returns the directories of an entry of ext_pillar for an environment. It
// fetches repositories that were never fetched. Missing branches are skipped, as
// in Salt; the error is about unavailable repositories, and the directories are
// those of the others.
func (s *Source) Dirs(ctx context.Context, entry any, pillarenv, saltenv string) ([]Dir, error) {
	remotes, err := s.Add(entry)
	if err != nil {
		return nil, err
	}
	var out []Dir
	var errs []error
	for _, r := range remotes {
		d, err := s.dirOf(ctx, r, pillarenv, saltenv)
		if err != nil {
			errs = append(errs, err)
		}
		if d != nil {
			out = append(out, *d)
		}
	}
	return out, errors.Join(errs...)
}

// target returns the branch or tag of an environment.
func (r *Remote) target(pillarenv, saltenv string) string {
	if r.Branch != anyEnv {
		return r.Branch
	}
	if r.allSaltenvs != "" {
		return r.allSaltenvs
	}
	env := asked(pillarenv, saltenv)
	if env == "base" {
		return r.base
	}
	return env
}

func asked(envs ...string) string {
	for _, e := range envs {
		if e != "" {
			return e
		}
	}
	return "base"
}

// envOf returns the environment of the pillar that uses a repository.
func (s *Source) envOf(r *Remote, pillarenv, saltenv string) string {
	env := r.env
	switch t := r.target(pillarenv, saltenv); {
	case r.Branch == anyEnv && r.allSaltenvs != "":
		env = asked(pillarenv, saltenv)
	case env != "":
	case r.Branch == r.base || t == r.base:
		env = "base"
	default:
		env = t
	}
	if env == anyEnv {
		for _, e := range []string{pillarenv, saltenv, s.o.Base} {
			if e != "" {
				return e
			}
		}
	}
	return env
}

// firstWait bounds the wait for the first fetch of a repository.
const firstWait = 5 * time.Minute

func (s *Source) dirOf(ctx context.Context, r *Remote, pillarenv, saltenv string) (*Dir, error) {
	snap := r.clone.Snapshot()
	if s.c.Alone && r.turn.Due(r.interval, true) || snap == nil && r.turn.Since() >= 10*time.Second {
		limited, cancel := context.WithTimeout(ctx, firstWait)
		_, _, err := s.fetch(limited, r, firstWait)
		cancel()
		if err != nil && r.clone.Snapshot() == nil {
			return nil, err
		}
		snap = r.clone.Snapshot()
	}
	if snap == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return nil, salt.Errorf(salt.Unavailable, "the git remote %s has not been fetched yet: %s", redact.Text(r.ID), r.fault)
	}
	commit := ""
	for _, ref := range []string{r.target(pillarenv, saltenv), r.fallback} {
		if ref == "" || commit != "" {
			continue
		}
		var ok bool
		if commit, ok = snap.Branch(ref); !ok {
			commit, _ = snap.Tag(ref)
		}
	}
	if commit == "" {
		s.log.Error("pillar repository has no such branch or tag", "remote", redact.Text(r.ID), "ref", r.target(pillarenv, saltenv))
		return nil, nil
	}
	top, err := s.checkedOut(ctx, r, snap, commit)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: filepath.Join(top, "tree", r.root), Env: s.envOf(r, pillarenv, saltenv)}
	if st, err := os.Stat(d.Path); err != nil || !st.IsDir() {
		s.log.Error("pillar repository has no such directory", "remote", redact.Text(r.ID), "root", r.root)
		return nil, nil
	}
	if r.mount != "" {
		d.Mounted = true
		if d.Path, err = mounted(top, d.Path, r.mount); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// checkedOut returns the directory of a commit, with its files in the directory tree.
func (s *Source) checkedOut(ctx context.Context, r *Remote, snap *gitrepo.Snapshot, commit string) (string, error) {
	top := filepath.Join(s.dir(), r.directory, "commits", commit)
	if st, err := os.Stat(top); err == nil {
		if now := time.Now(); now.Sub(st.ModTime()) > time.Hour {
			_ = os.Chtimes(top, now, now) // marks it as used
		}
		if _, err := os.Stat(filepath.Join(top, "tree")); err == nil {
			return top, nil
		}
	}
	if err := os.MkdirAll(top, 0o700); err != nil {
		return "", err
	}
	if err := r.clone.Export(ctx, snap, commit, filepath.Join(top, "tree")); err != nil {
		return "", err
	}
	return top, nil
}

// mounted returns a directory that contains another one at a path below.
func mounted(top, dir, mount string) (string, error) {
	links := filepath.Join(top, "mounts", strings.ReplaceAll(mount, "/", "|")+"@"+strings.ReplaceAll(strings.TrimPrefix(dir, top), "/", "|"))
	link := filepath.Join(links, mount)
	if to, err := os.Readlink(link); err == nil && to == dir {
		return links, nil
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return "", err
	}
	if err := os.Symlink(dir, link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return links, nil
}

// keepCommits is how long the unused directory of a commit is kept.
const keepCommits = 24 * time.Hour

// tidyUp removes the directories of unused commits.
func (s *Source) tidyUp(r *Remote) {
	snap := r.clone.Snapshot()
	dir := filepath.Join(s.dir(), r.directory, "commits")
	entries, err := os.ReadDir(dir)
	if err != nil || snap == nil {
		return
	}
	used := map[string]bool{}
	for _, commit := range snap.Refs {
		used[commit] = true
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil && !used[e.Name()] && steady.Removal().Sub(st.ModTime()) > keepCommits {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				s.log.Warn("cannot remove an old pillar commit", "err", err)
			}
		}
	}
}

// told returns the name that identifies the repository for other masters.
func (r *Remote) told() string { return "git_pillar/" + r.directory }

// Told handles a message that another master has fetched and now serves other
// commits; see fileserver.Fetcher.
func (s *Source) Told(states fetch.States, regular bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.order {
		if state, ok := states[r.told()]; ok {
			r.turn.Told(state == r.clone.Snapshot().State(), regular)
		}
	}
}

// served adds the state of a fetched repository.
func (r *Remote) served(to fetch.States) { to[r.told()] = r.clone.Snapshot().State() }

func (s *Source) fetch(ctx context.Context, r *Remote, wait time.Duration) (changed, held bool, err error) {
	r.turn.Take()
	res, err := r.clone.Update(ctx, wait)
	r.mu.Lock()
	r.fault = ""
	if err != nil {
		r.fault = err.Error()
	}
	r.mu.Unlock()
	if err == nil {
		s.tidyUp(r)
	}
	return res.Changed, res.Held != "", err
}

// Fault is a new error of a repository, or "" if it has ended.
type Fault struct{ Remote, Error string }

// Due fetches what is due, and returns whether anything changed, what was
// fetched without an error, and errors that begin or end. leads means that it
// fetches for other masters, too; see fetch.Turn.
func (s *Source) Due(ctx context.Context, leads bool) (changed bool, fetched fetch.States, faults []Fault) {
	fetched = fetch.States{}
	s.mu.Lock()
	on := slices.Clone(s.order)
	s.mu.Unlock()
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, 4)
	for _, r := range on {
		if !r.turn.Due(r.interval, leads) && !(r.clone.Broken() && r.turn.Since() >= time.Second) {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r.mu.Lock()
			before := r.fault
			r.mu.Unlock()
			c, held, err := s.fetch(ctx, r, 0)
			mu.Lock()
			defer mu.Unlock()
			changed = changed || c
			if err == nil && !held {
				r.served(fetched)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != before {
				faults = append(faults, Fault{redact.Text(r.ID), text})
			}
		})
	}
	wg.Wait()
	return changed, fetched, faults
}

// Update fetches the repositories with a branch and a URL or name, "" for all.
// It returns the results by id: true for changes, null for none, false for an
// error, as in the runner git_pillar.update; and what was fetched without an
// error.
func (s *Source) Update(ctx context.Context, branch, repo string) (*value.Dict, fetch.States, error) {
	fetched := fetch.States{}
	s.mu.Lock()
	on := slices.Clone(s.order)
	s.mu.Unlock()
	out := value.NewDict(len(on))
	var errs []error
	for _, r := range on {
		if branch != "" && branch != r.Branch || repo != "" && repo != r.URL && repo != r.Name {
			continue
		}
		changed, held, err := s.fetch(ctx, r, 30*time.Second)
		if err == nil && !held {
			r.served(fetched)
		}
		id := redact.Text(r.ID)
		switch {
		case err != nil:
			errs = append(errs, err)
			out.Set(id, false)
		case changed:
			out.Set(id, true)
		default:
			out.Set(id, nil)
		}
	}
	return out, fetched, errors.Join(errs...)
}

// ClearLock removes locks of a kind, and returns Salt's message.
func (s *Source) ClearLock(match func(url string) bool, kind string) (done, failed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.order {
		if !match(r.URL) {
			continue
		}
		d, f := r.clone.ClearLock("git_pillar", kind)
		done, failed = append(done, d...), append(failed, f...)
	}
	return done, failed
}

// Remotes returns the status of each repository.
func (s *Source) Remotes() *value.Dict {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := value.NewDict(len(s.order))
	for _, r := range s.order {
		out.Set(redact.Text(r.ID), r.clone.Describe())
	}
	return out
}

// Fetched returns when each repository was last fetched with success, by its id without
// a password; the zero time means never.
func (s *Source) Fetched() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]time.Time, len(s.order))
	for _, r := range s.order {
		out[redact.Text(r.ID)] = r.clone.Status().Fetched
	}
	return out
}
