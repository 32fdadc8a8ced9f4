package pillar

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"brine/internal/base/target"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/top"
)

func found(path string) fileserver.Found { return fileserver.Found{Path: path} }

// find looks for the file of an SLS.
func (r *run) find(sls, env string) (fileserver.Found, bool) {
	if !r.known(env) {
		return fileserver.Found{}, false
	}
	base := strings.ReplaceAll(sls, ".", "/")
	for _, p := range []string{base + ".sls", base + "/init.sls"} {
		if f, ok := r.files.Find("|"+p, env); ok {
			return f, true
		}
	}
	return fileserver.Found{}, false
}

// known reports whether an environment has pillar files.
func (r *run) known(env string) bool { return slices.Contains(r.envs, env) }

// match returns the SLS files of an environment that match a name or glob.
func (r *run) match(ctx context.Context, pattern, env string) []string {
	if !strings.ContainsAny(pattern, "*?[") {
		if _, ok := r.find(pattern, env); ok && !strings.ContainsAny(pattern, "/") {
			return []string{pattern}
		}
		return nil
	}
	l, err := r.files.Lists(ctx, env)
	if err != nil {
		r.fail(err.Error())
		return nil
	}
	g := target.ParseGlob(pattern)
	return slices.DeleteFunc(fileclient.StateNames(l.Files), func(n string) bool { return !g.Match(n) })
}

// render compiles the pillar of the SLS files.
func (r *run) render(ctx context.Context, matches []top.Match) *value.Dict {
	pillar := orEmpty(r.q.Override)
	for _, m := range matches {
		s := slsRun{run: r, env: m.Saltenv, mods: map[string]any{}}
		var names []string
		for _, n := range m.SLS {
			if !r.known(m.Saltenv) {
				r.fail(noEnv(m.Saltenv))
			}
			if got := r.match(ctx, n, m.Saltenv); len(got) > 0 {
				names = append(names, got...)
			} else {
				names = append(names, n)
			}
		}
		for _, n := range names {
			state := s.sls(ctx, n, nil, 0)
			switch d := state.(type) {
			case nil:
			case *value.Dict:
				pillar = r.merge(pillar, d)
			}
		}
	}
	return pillar
}

func noEnv(env string) string {
	return fmt.Sprintf("No matching pillar environment for environment '%s' found", env)
}

// slsRun renders the SLS files of one environment.
type slsRun struct {
	run  *run
	env  string
	mods map[string]any // rendered data of each file, without its includes
}

// maxDepth bounds the nesting of includes, maxFiles the files of one pillar.
const (
	maxDepth = 200
	maxFiles = 20_000
)

// sls renders one file with its includes. nil means that there is none.
func (s *slsRun) sls(ctx context.Context, sls string, defaults *value.Dict, depth int) any {
	if depth > maxDepth || len(s.mods) > maxFiles {
		s.run.fail(fmt.Sprintf("SLS '%s' is included more than %d levels deep, or there are more than %d files", sls, maxDepth, maxFiles))
		return nil
	}
	f, ok := s.run.find(sls, s.env)
	if !ok {
		return s.missing(sls)
	}
	state, err := s.file(ctx, f, sls, defaults)
	if err != nil {
		s.broken(sls, err)
		state = nil
	}
	s.mods[sls] = state
	if !value.Truth(state) {
		return state
	}
	d, ok := state.(*value.Dict)
	if !ok {
		s.run.fail(fmt.Sprintf("SLS '%s' does not render to a dictionary", sls))
		return nil
	}
	include, ok := d.Get("include")
	if !ok {
		return d
	}
	l, ok := include.(*value.List)
	if !ok {
		s.run.fail(fmt.Sprintf("Include Declaration in SLS '%s' is not formed as a list", sls))
		return d
	}
	d = d.Clone()
	d.Delete("include")
	s.mods[sls] = d
	return s.include(ctx, sls, f, d, l.Items, defaults, depth)
}

func (s *slsRun) file(ctx context.Context, f fileserver.Found, sls string, defaults *value.Dict) (any, error) {
	source, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, err
	}
	return s.run.text(ctx, f, source, s.env, sls, defaults)
}

// hasDirectories reports whether pillar_roots has directories for an environment.
func (r *run) hasDirectories(env string) bool {
	return slices.ContainsFunc(r.roots, func(o fileserver.Root) bool { return (o.Env == env || o.Env == "__env__") && len(o.Dirs) > 0 })
}

// missing reports a missing SLS, unless that is permitted.
func (s *slsRun) missing(sls string) any {
	switch {
	case s.run.ignored[s.env][sls]:
		s.run.log.Debug("ignoring a missing pillar SLS", "sls", sls, "pillarenv", s.env)
	case s.run.known(s.env) && s.run.hasDirectories(s.env): // Salt reports nothing for an environment without directories
		s.run.fail(fmt.Sprintf("Specified SLS '%s' in environment '%s' is not available on the salt master", sls, s.env))
		s.mods[sls] = nil
	default:
		s.run.log.Debug("pillar SLS is in an environment that pillar_roots lacks", "sls", sls, "pillarenv", s.env)
	}
	return nil
}

// broken reports an SLS that could not be rendered; why is only logged, unless
// minions may see it.
func (s *slsRun) broken(sls string, err error) {
	why := fmt.Sprintf("Rendering SLS '%s' failed, render error:\n%v", sls, err)
	if s.run.o.SafeErrors {
		s.run.log.Error(why, "minion", s.run.q.ID)
		why = fmt.Sprintf("Rendering SLS '%s' failed. Please see master log for details.", sls)
	}
	s.run.fail(why)
}

// include merges an SLS with those that it includes.
func (s *slsRun) include(ctx context.Context, sls string, f fileserver.Found, state *value.Dict, items []any, defaults *value.Dict, depth int) any {
	var included []*value.Dict
	for _, it := range items {
		name, key, known := "", "", true
		if name, key, defaults, known = readInclude(it, defaults); !known {
			s.run.fail(fmt.Sprintf("Include Declaration in SLS '%s' has an item that is no name: %s", sls, value.Repr(it)))
			continue
		}
		for _, n := range s.included(ctx, sls, f, name) {
			data, done := s.mods[n]
			if !done {
				data = s.sls(ctx, n, defaults, depth+1)
			}
			d, ok := data.(*value.Dict)
			if !ok || d.Len() == 0 {
				continue
			}
			d = nest(d, key)
			if s.run.o.IncludesOverride {
				state = s.run.merge(state, d)
			} else {
				included = append(included, d)
			}
		}
	}
	if s.run.o.IncludesOverride || len(included) == 0 {
		return state
	}
	all := included[0]
	for _, d := range append(included[1:], state) {
		all = s.run.merge(all, d)
	}
	return all
}

// readInclude reads an item: a name, or a map of a name to its key and
// defaults. Defaults apply until another item has some, as in Salt.
func readInclude(it any, before *value.Dict) (name, key string, defaults *value.Dict, ok bool) {
	switch x := it.(type) {
	case string:
		return x, "", before, true
	case *value.Dict:
		if x.Len() == 0 {
			return "", "", before, false
		}
		k, v := x.Entry(0)
		name, isText := k.(string)
		o, _ := v.(*value.Dict)
		defaults, _ = o.At("defaults").(*value.Dict)
		if kv := o.At("key"); kv != nil {
			key = value.Str(kv)
		}
		return name, key, defaults, isText
	}
	return "", "", before, false
}

// nest puts data under a key such as a:b.
func nest(d *value.Dict, key string) *value.Dict {
	if key == "" {
		return d
	}
	parts := strings.Split(key, ":")
	for i := len(parts) - 1; i >= 0; i-- {
		d = value.DictOf(parts[i], d)
	}
	return d
}

// included returns the names that match an item. A name that begins with a dot
// is searched both at the top and beside the SLS, as in Salt.
func (s *slsRun) included(ctx context.Context, sls string, f fileserver.Found, name string) []string {
	if !s.run.known(s.env) {
		s.run.fail(noEnv(s.env))
		return []string{name}
	}
	out := s.run.match(ctx, strings.ReplaceAll(strings.TrimLeft(name, "."), "/", "."), s.env)
	if strings.HasPrefix(name, ".") {
		parts := strings.Split(sls, ".")
		if !strings.HasSuffix(f.Rel, "/init.sls") {
			parts = parts[:len(parts)-1]
		}
		name = strings.Join(append(parts, name[1:]), ".")
	}
	out = append(out, s.run.match(ctx, name, s.env)...)
	if len(out) == 0 {
		return []string{name}
	}
	return out
}
