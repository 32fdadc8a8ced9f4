package gitfs

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/files/fetch"
	"brine/internal/files/fileserver"
	"brine/internal/files/gitrepo"
	"brine/internal/py/value"
)

// remote is one entry of gitfs_remotes.
type remote struct {
	id, url, name string
	directory     string // directory in the cache
	base          string
	fallback      string
	allSaltenvs   string
	types         []string
	noMapping     bool
	interval      time.Duration
	filter        fileserver.Filter
	place         place
	own, global   map[string]map[string]string // parameters by environment
	byRef         map[string][]string          // environments by the ref configured for them
	clone         *gitrepo.Clone

	turn fetch.Turn

	envsMu   sync.Mutex
	envsOf   *gitrepo.Snapshot
	envsList []string
}

// place is the served directory of a repository (root), and where it appears
// (mount).
type place struct{ root, mount string }

func newRemote(entry any, o Options, c Config, leases *gitrepo.Leases) (*remote, error) {
	s, err := gitrepo.ReadSettings(entry, o.all(), parameters()...)
	if err != nil {
		return nil, err
	}
	r := &remote{
		id: s.ID, url: s.ID, name: s.Text("name"), base: s.Text("base"), fallback: s.Text("fallback"), allSaltenvs: s.Text("all_saltenvs"),
		noMapping: s.Bool("disable_saltenv_mapping"),
		interval:  max(s.Seconds("update_interval"), time.Second), filter: fileserver.NewFilter(s.Texts("saltenv_whitelist"), s.Texts("saltenv_blacklist")),
		place: place{clean(s.Text("root")), clean(withoutScheme(s.Text("mountpoint")))}, byRef: map[string][]string{},
	}
	for _, t := range s.Texts("ref_types") {
		t = strings.ToLower(t)
		if !slices.Contains([]string{"branch", "tag", "sha"}, t) {
			return nil, salt.Errorf(salt.Invalid, "the git remote %s has the ref_type %s: there are branch, tag and sha", redact.Text(s.ID), t)
		}
		r.types = append(r.types, t)
	}
	if r.own, err = envParameters(s.Set.At("saltenv")); err != nil {
		return nil, salt.Errorf(salt.Invalid, "the git remote %s: saltenv: %w", redact.Text(s.ID), err)
	}
	if r.global, err = envParameters(o.Saltenv); err != nil {
		return nil, salt.Errorf(salt.Invalid, "gitfs_saltenv: %w", err)
	}
	r.mapEnvs()
	if r.directory, err = s.DirectoryName(c.HashType); err != nil {
		return nil, err
	}
	settings, err := s.Remote(r.url)
	if err != nil {
		return nil, err
	}
	r.clone = gitrepo.Open(settings, gitrepo.Config{
		Dir: filepath.Join(c.dir(), r.directory, "_"), Work: filepath.Join(c.dir(), "work", r.directory, "_"), Leases: leases, Log: c.Log,
	})
	return r, nil
}

func withoutScheme(s string) string {
	_, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	return rest
}

func clean(s string) string {
	s = strings.Trim(path.Clean("/"+s), "/")
	return s
}

// mapEnvs finds the environments of refs in the parameters for single environments.
func (r *remote) mapEnvs() {
	mapped := map[string]bool{}
	for env, p := range r.own {
		if ref, ok := p["ref"]; ok {
			r.byRef[ref] = append(r.byRef[ref], env)
			mapped[env] = true
			if env == "base" {
				r.base = ref
			}
		}
	}
	for env, p := range r.global {
		if ref, ok := p["ref"]; ok && !mapped[env] {
			r.byRef[ref] = append(r.byRef[ref], env)
		}
	}
}

// envParameters reads the parameters for single environments.
func envParameters(v any) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	for env, conf := range gitrepo.Repack(v).All() {
		p := map[string]string{}
		d, _ := conf.(*value.Dict)
		for k, x := range d.All() {
			switch name := value.Str(k); name {
			case "ref":
				p[name] = value.Str(x)
			case "root":
				p[name] = clean(value.Str(x))
			case "mountpoint":
				p[name] = clean(withoutScheme(value.Str(x)))
			default:
				return nil, fmt.Errorf("the environment %s has the parameter %s: there are ref, root and mountpoint", value.Str(env), name)
			}
		}
		out[value.Str(env)] = p
	}
	return out, nil
}

// at returns the place for an environment.
func (r *remote) at(env string) place {
	p := r.place
	for _, m := range []map[string]map[string]string{r.global, r.own} {
		if v, ok := m[env]["root"]; ok {
			p.root = v
		}
		if v, ok := m[env]["mountpoint"]; ok {
			p.mount = v
		}
	}
	return p
}

// ref returns the branch, tag or commit of an environment, "" for none.
func (r *remote) ref(env string) string {
	if r.allSaltenvs != "" {
		return r.allSaltenvs
	}
	if env == "base" {
		return r.base
	}
	ref, ok := r.own[env]["ref"]
	if !ok {
		ref, ok = r.global[env]["ref"]
	}
	if !ok && !r.noMapping {
		ref = env
	}
	return ref
}

func (r *remote) exposed(env string) bool { return r.filter.Has(env) }

// isHex reports whether Python would accept a string as a hexadecimal number.
func isHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// envs returns the environments of the remote. The list must not be changed.
func (r *remote) envs() []string {
	s := r.clone.Snapshot()
	r.envsMu.Lock()
	defer r.envsMu.Unlock()
	if s != nil && s == r.envsOf {
		return r.envsList
	}
	found := map[string]bool{}
	if s != nil {
		if isHex(r.base) {
			found["base"] = true
		}
		for ref := range s.Refs {
			r.addEnvs(found, ref)
		}
	}
	for _, envs := range r.byRef {
		for _, env := range envs {
			found[env] = true
		}
	}
	var out []string
	for env := range found {
		if r.exposed(env) {
			out = append(out, env)
		}
	}
	slices.Sort(out)
	r.envsOf, r.envsList = s, out
	return out
}

func (r *remote) addEnvs(found map[string]bool, ref string) {
	kind, name, _ := strings.Cut(ref, "/")
	switch {
	case kind == "remotes" && slices.Contains(r.types, "branch"):
		if _, rest, ok := strings.Cut(name, "/"); ok {
			name = rest
		}
	case kind == "tags" && slices.Contains(r.types, "tag"):
	default:
		return
	}
	if envs, ok := r.byRef[name]; ok {
		for _, env := range envs {
			found[env] = true
		}
	} else if name == r.base {
		found["base"] = true
	} else if !r.noMapping {
		found[name] = true
	}
}

// commit returns the commit of an environment, "" for none.
func (r *remote) commit(ctx context.Context, s *gitrepo.Snapshot, env string) string {
	if s == nil || !r.exposed(env) {
		return ""
	}
	for _, ref := range []string{r.ref(env), r.fallback} {
		if ref == "" {
			continue
		}
		for _, t := range r.types {
			var commit string
			var ok bool
			switch t {
			case "branch":
				commit, ok = s.Branch(ref)
			case "tag":
				commit, ok = s.Tag(ref)
			case "sha":
				commit, ok = r.clone.Commit(ctx, s, ref)
			}
			if ok {
				return commit
			}
		}
	}
	return ""
}

// tree returns the served tree of an environment, nil if there is none.
func (r *remote) tree(ctx context.Context, s *gitrepo.Snapshot, env string) (*gitrepo.Tree, error) {
	commit := r.commit(ctx, s, env)
	if commit == "" {
		return nil, nil
	}
	return r.clone.Tree(ctx, s, commit)
}

// maxLinks bounds how many symbolic links are followed.
const maxLinks = 100

// find looks up a file. As in Salt, symbolic links are only followed within the
// repository and at the end of the path.
func (r *remote) find(ctx context.Context, env, name string) (gitrepo.Entry, *gitrepo.Snapshot, error) {
	none := gitrepo.Entry{}
	s := r.clone.Snapshot()
	p := r.at(env)
	if p.mount != "" {
		rest, ok := strings.CutPrefix(name, p.mount+"/")
		if !ok {
			return none, nil, nil
		}
		name = rest
	}
	t, err := r.tree(ctx, s, env)
	if err != nil || t == nil {
		return none, nil, err
	}
	name = path.Join(p.root, name)
	for range maxLinks {
		e, ok := t.Find(name)
		switch {
		case !ok || e.Kind == gitrepo.Directory || e.Kind == gitrepo.Submodule:
			return none, nil, nil
		case e.Kind != gitrepo.Symlink:
			return e, s, nil
		}
		to, err := r.clone.Text(ctx, s, e.ID)
		if err != nil {
			return none, nil, err
		}
		name = path.Join(path.Dir(name), to)
	}
	return none, nil, nil
}
