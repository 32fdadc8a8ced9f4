package gitfs

import (
	"context"
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/files/fileserver"
	"brine/internal/files/gitrepo"
	"brine/internal/net/crypt"
)

var (
	_ fileserver.Summed = (*FS)(nil)
	_ fileserver.Older  = (*FS)(nil)
)

const (
	// maxSummed bounds the size of files whose hash is reported before it is requested, in bytes.
	maxSummed = 4 << 20
	// maxTold bounds the reported hashes of an environment.
	maxTold = 20000
	// maxSums bounds the contents with cached hashes, and maxSumEnvs the environments.
	maxSums    = 1 << 18
	maxSumEnvs = 64
	// remembered is how long an outdated tree is still served: the maximum duration of a run that began
	// with it.
	remembered = 15 * time.Minute
)

// sums caches the hashes of requested files. They never change, since git names contents by their hash.
type sums struct {
	mu  sync.Mutex
	env map[string]*envSums

	ofMu sync.Mutex
	form string
	of   map[string]string // by git object id
}

// envSums are the hashes of an environment, and of its earlier commits.
type envSums struct {
	mu     sync.Mutex // held during their computation
	now    *madeSums
	before []*madeSums
}

// madeSums are the hashes of the files of some commits.
type madeSums struct {
	of    []*gitrepo.Snapshot
	files map[string]summed
	told  fileserver.Sums
	until time.Time // when they were replaced
}

// summed is a file of a commit.
type summed struct {
	sum string
	r   *remote
	s   *gitrepo.Snapshot
	e   gitrepo.Entry
}

func (s *sums) at(env string) *envSums {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.env[env]
	if e == nil {
		if len(s.env) >= maxSumEnvs {
			clear(s.env)
		}
		e = &envSums{}
		s.env[env] = e
	}
	return e
}

func (s *sums) forget(envs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for env := range s.env {
		if envs == nil || slices.Contains(envs, env) {
			delete(s.env, env)
		}
	}
}

// Sums implements fileserver.Summed. It is cheap while the commits are the same.
func (f *FS) Sums(ctx context.Context, env string, by fileserver.Summer) (fileserver.Sums, error) {
	f.fresh(ctx)
	of := make([]*gitrepo.Snapshot, len(f.remotes))
	for i, r := range f.remotes {
		of[i] = r.clone.Snapshot()
	}
	e := f.sums.at(env)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now != nil && slices.Equal(e.now.of, of) {
		return e.now.told, nil
	}
	m := &madeSums{of: of, files: map[string]summed{}, told: fileserver.Sums{Files: map[string]string{}, Complete: true}}
	for i, r := range f.remotes {
		if !f.known(env, r) {
			continue
		}
		if err := f.addSums(ctx, m, r, of[i], env, by.Form); err != nil {
			return fileserver.Sums{}, err
		}
	}
	if e.now != nil {
		e.now.until = time.Now()
		e.before = append(e.before, e.now)
	}
	e.before = slices.DeleteFunc(e.before, func(old *madeSums) bool { return time.Since(old.until) > remembered })
	e.before = e.before[max(0, len(e.before)-4):]
	e.now = m
	return m.told, nil
}

func (f *FS) addSums(ctx context.Context, m *madeSums, r *remote, s *gitrepo.Snapshot, env, form string) error {
	t, err := r.tree(ctx, s, env)
	if err != nil || t == nil {
		return err
	}
	p := r.at(env)
	for _, e := range t.Entries {
		name := e.Path
		if p.root != "" {
			var ok bool
			if name, ok = strings.CutPrefix(name, p.root+"/"); !ok {
				continue
			}
		}
		name = path.Join(p.mount, name)
		if _, ok := m.files[name]; ok || e.Kind == gitrepo.Directory || e.Kind == gitrepo.Submodule {
			continue
		}
		if e.Kind == gitrepo.Symlink {
			var found *gitrepo.Snapshot
			if e, found, err = r.find(ctx, env, name); err != nil || found != s {
				continue // a dangling link, or changed in the meantime
			}
		}
		sum := ""
		if len(m.files) < maxTold {
			if sum, err = f.sumOf(ctx, r, s, e, form); err != nil {
				return err
			}
		}
		m.files[name] = summed{sum, r, s, e}
		m.told.Files[name] = sum
	}
	return nil
}

// sumOf returns the hash of a content, "" for a large one.
func (f *FS) sumOf(ctx context.Context, r *remote, s *gitrepo.Snapshot, e gitrepo.Entry, form string) (string, error) {
	if e.Size > maxSummed {
		return "", nil
	}
	f.sums.ofMu.Lock()
	if f.sums.form != form || len(f.sums.of) >= maxSums {
		f.sums.form = form
		clear(f.sums.of)
	}
	sum, ok := f.sums.of[e.ID]
	f.sums.ofMu.Unlock()
	if ok {
		return sum, nil
	}
	h := crypt.NewHash(form)
	if h == nil {
		return "", salt.Errorf(salt.Invalid, "%q is not a known hash_type", form)
	}
	if err := r.clone.Copy(ctx, s, e.ID, h); err != nil {
		return "", err
	}
	sum = hex.EncodeToString(h.Sum(nil))
	f.sums.ofMu.Lock()
	f.sums.of[e.ID] = sum
	f.sums.ofMu.Unlock()
	return sum, nil
}

// Older implements fileserver.Older.
func (f *FS) Older(env, name, sum string) (string, bool) {
	f.sums.mu.Lock()
	e := f.sums.env[env]
	f.sums.mu.Unlock()
	if e == nil {
		return "", false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.before {
		got, ok := m.files[name]
		if !ok || sum == "" || got.sum != sum || time.Since(m.until) > remembered {
			continue
		}
		path, err := f.content(context.Background(), got.r, got.s, got.e)
		if err == nil {
			return path, true
		}
		f.log.Debug("cannot serve the version of a file from before the last update", "path", name, "saltenv", env, "err", err)
	}
	return "", false
}
