package pillar

import (
	"context"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/sls/pillar/gitpillar"
)

// GitDirs provides the directories of git repositories; see gitpillar.Source.
type GitDirs interface {
	Dirs(ctx context.Context, entry any, pillarenv, saltenv string) ([]gitpillar.Dir, error)
	Includes() bool
}

var _ GitDirs = (*gitpillar.Source)(nil)

// Entries returns the entries of one source in ext_pillar, in order.
func Entries(o Options, source string) []any {
	var out []any
	l, _ := o.External.(*value.List)
	if l == nil {
		return nil
	}
	for _, it := range l.Items {
		d, _ := it.(*value.Dict)
		for k, v := range d.All() {
			if k == source {
				out = append(out, v)
			}
		}
	}
	return out
}

func init() { externals.Register("git", gitRepositories) }

// gitRepositories compiles the pillar of each repository that is not mounted
// into others, by its own top file, and merges them.
func gitRepositories(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	if r.c.Git == nil {
		return nil, salt.Errorf(salt.Unavailable, "git repositories cannot be used here")
	}
	if a.named != nil {
		return nil, salt.Errorf(salt.Invalid, "git has a map, not a list of repositories")
	}
	dirs, err := r.c.Git.Dirs(ctx, &value.List{Items: a.list}, r.env, r.q.Saltenv)
	if err != nil && len(dirs) == 0 {
		return nil, err
	}
	out := value.NewDict(8)
	for _, d := range dirs {
		if r.env != "" && d.Env != r.env || d.Mounted {
			continue
		}
		roots := value.ListOf(d.Path)
		if r.c.Git.Includes() {
			for _, o := range dirs {
				if o.Env == d.Env && o.Path != d.Path {
					roots.Append(o.Path)
				}
			}
		}
		c := r.c
		c.Options.Roots, c.Options.External, c.Options.Cache = value.DictOf(d.Env, roots), nil, false
		c.Options.WithOpts, c.Options.Decrypt = false, nil
		q := r.q
		q.Grains, q.Saltenv, q.Pillarenv, q.External, q.Override = value.DeepCopy(r.q.Grains).(*value.Dict), d.Env, r.env, nil, nil
		got, e := New(c).Compile(ctx, q)
		if e != nil {
			return nil, e
		}
		if l, ok := got.At("_errors").(*value.List); ok {
			for _, it := range l.Items {
				r.errors = append(r.errors, value.Str(it))
			}
			got.Delete("_errors")
		}
		out = r.merge(out, got)
	}
	if err != nil { // available data is better than none, but incomplete
		r.fail("Failed to load ext_pillar git: " + err.Error())
	}
	return out, nil
}
