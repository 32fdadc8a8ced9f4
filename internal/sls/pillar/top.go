package pillar

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/internal/sls/top"
)

// envTop is the part of the top files for one environment, in order of
// application.
type envTop struct {
	env     string
	targets []targetTop
}

// targetTop is one target: how it matches, and names of SLS files.
type targetTop struct {
	tgt   any
	data  []any
	order int64
}

// listEnvs returns the environments, base first. With a pillarenv, __env__
// stands for it.
func (r *run) listEnvs() []string {
	out := []string{"base"}
	for _, root := range r.roots {
		if root.Env != "base" && root.Env != "__env__" {
			out = append(out, root.Env)
		}
	}
	if r.hasRoot("__env__") {
		if env := r.dynamic(); !slices.Contains(out, env) {
			out = append(out, env)
		}
	}
	return out
}

// dynamic returns the environment that __env__ stands for.
func (r *run) dynamic() string {
	for _, env := range []string{r.env, r.q.Saltenv} {
		if env != "" {
			return env
		}
	}
	return "base"
}

func (r *run) hasRoot(env string) bool {
	for _, root := range r.roots {
		if root.Env == env {
			return true
		}
	}
	return false
}

// topEnvs returns the environments whose top files are read.
func (r *run) topEnvs() []string {
	switch {
	case r.env != "":
		if r.known(r.env) {
			return []string{r.env}
		}
		return nil
	case r.o.Strategy == "none":
		env := r.q.Saltenv
		if env == "" {
			env = "base"
		}
		if r.known(env) {
			return []string{env}
		}
		return nil
	}
	return r.envs
}

// top renders and merges the top files.
func (r *run) top(ctx context.Context) []envTop {
	files, errs := r.topFiles(ctx)
	defer func() { r.topErrors = errs }()
	merged, ok := r.mergeTops(files)
	if !ok {
		errs = append(errs, "Error encountered while rendering pillar top file.")
		return nil
	}
	return merged
}

// topFile is a rendered top file of an environment.
type topFile struct {
	env  string
	data *value.Dict
}

func (r *run) topFiles(ctx context.Context) (files []topFile, errs []string) {
	include := map[string][]any{}
	var envs []string
	for _, env := range r.topEnvs() {
		f, ok := r.files.Find("|"+r.c.Top.File(), env)
		if !ok {
			continue
		}
		data, err := r.topText(ctx, f.Path, env)
		if err != nil {
			errs = append(errs, "Rendering Primary Top file failed, render error:\n"+err.Error())
			break
		}
		include[env] = top.Items(data.At("include"))
		data.Delete("include")
		files = append(files, topFile{env, data})
		envs = append(envs, env)
	}
	for _, env := range envs {
		done := map[string]bool{}
		for _, it := range include[env] {
			name := value.Str(it)
			if done[name] {
				continue
			}
			done[name] = true
			f, ok := r.find(name, env)
			if !ok {
				r.log.Error("pillar top file includes a missing file", "sls", name, "pillarenv", env)
				continue
			}
			data, err := r.topText(ctx, f.Path, env)
			if err != nil {
				errs = append(errs, fmt.Sprintf("Rendering Top file %s failed, render error:\n%v", name, err))
				continue
			}
			data.Delete("include")
			files = append(files, topFile{env, data})
		}
	}
	return files, errs
}

// topText renders a top file; the caller owns the result.
func (r *run) topText(ctx context.Context, path, env string) (*value.Dict, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	data, err := r.text(ctx, found(path), source, env, "", nil)
	if err != nil {
		return nil, err
	}
	switch d := data.(type) {
	case *value.Dict:
		return d.Clone(), nil
	case nil:
		return value.NewDict(0), nil
	}
	return nil, fmt.Errorf("the top file %s renders to a %s, not to a map of environments", path, value.TypeName(data))
}

// mergeTops merges the files: if two have the same target, the later one wins.
// ok is false if a file has an invalid structure.
func (r *run) mergeTops(files []topFile) (out []envTop, ok bool) {
	for _, f := range files {
		for env, body := range f.data.All() {
			targets, isMap := body.(*value.Dict)
			if !isMap {
				return nil, false
			}
			name := value.Str(env)
			i := slices.IndexFunc(out, func(t envTop) bool { return t.env == name })
			if i < 0 {
				i = len(out)
				out = append(out, envTop{env: name})
			}
			for tgt, data := range targets.All() {
				t, ok := r.readTarget(name, tgt, data)
				if !ok {
					return nil, false
				}
				if j := slices.IndexFunc(out[i].targets, func(o targetTop) bool { return value.Equal(o.tgt, tgt) }); j >= 0 {
					out[i].targets[j] = t
				} else {
					out[i].targets = append(out[i].targets, t)
				}
			}
		}
	}
	for _, t := range out {
		slices.SortStableFunc(t.targets, func(a, b targetTop) int { return int(a.order - b.order) })
	}
	return out, true
}

// readTarget splits the list of a target. A string counts as a list of its
// characters, as in Python.
func (r *run) readTarget(env string, tgt, data any) (targetTop, bool) {
	t := targetTop{tgt: tgt}
	items := top.Items(data)
	switch x := data.(type) {
	case *value.List, value.Tuple:
	case string:
		items = nil
		for _, c := range x {
			items = append(items, string(c))
		}
	case *value.Dict:
		items = x.Keys()
	default:
		return t, false
	}
	var names []any
	ignore := false
	for _, it := range items {
		switch x := it.(type) {
		case *value.Dict:
			if x.Has("match") {
				t.data = append(t.data, x)
			}
			if v, ok := x.Get("order"); ok {
				t.order = orderOf(v)
			}
			ignore = ignore || x.Bool("ignore_missing")
		case string:
			if !slices.Contains(names, any(x)) {
				names = append(names, x)
			}
		}
	}
	if ignore {
		if r.ignored[env] == nil {
			r.ignored[env] = map[string]bool{}
		}
		for _, n := range names {
			r.ignored[env][n.(string)] = true
		}
	}
	t.data = append(t.data, names...)
	return t, true
}

func orderOf(v any) int64 {
	switch x := v.(type) {
	case int64:
		return x
	case float64:
		return int64(x)
	case string:
		n, _ := strconv.ParseInt(strings.TrimSpace(x), 10, 64)
		return n
	}
	return 0
}

// matches returns the SLS files for the minion.
func (r *run) matches(tops []envTop) []top.Match {
	subject := target.Data{MinionID: r.q.ID, GrainData: r.q.Grains, PillarData: r.pillar}
	var out []top.Match
	for _, t := range tops {
		if r.env != "" && t.env != r.env {
			continue
		}
		for _, g := range t.targets {
			ok, err := top.Confirm(g.tgt, &value.List{Items: g.data}, subject, r.c.Nodegroups, r.log)
			if err != nil {
				r.fail(err.Error())
				continue
			}
			if ok {
				out = add(out, t.env, g.data)
			}
		}
	}
	return out
}

func add(out []top.Match, env string, data []any) []top.Match {
	i := slices.IndexFunc(out, func(m top.Match) bool { return m.Saltenv == env })
	if i < 0 {
		i = len(out)
		out = append(out, top.Match{Saltenv: env})
	}
	for _, it := range data {
		if s, ok := it.(string); ok && !slices.Contains(out[i].SLS, s) {
			out[i].SLS = append(out[i].SLS, s)
		}
	}
	return out
}
