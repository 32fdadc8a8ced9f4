// Package helm implements the execution module and the states helm: it runs
// helm(1), the package manager of Kubernetes.
package helm

import (
	"context"
	"errors"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// Flags are the flags that every function has.
type Flags struct {
	Flags   any `salt:"flags" doc:"list of flags without values" default:"null"`
	KVFlags any `salt:"kvflags" doc:"map of flags with values" default:"null"`
}

// Release names a release and what is installed for it.
type Release struct {
	Release   string `salt:"release" doc:"name of the release"`
	Chart     string `salt:"chart" doc:"chart, or its directory"`
	Values    any    `salt:"values" doc:"path of a file with values" default:"null"`
	Version   any    `salt:"version" doc:"version of the chart" default:"null"`
	Namespace any    `salt:"namespace" doc:"namespace" default:"null"`
	Set       any    `salt:"set" doc:"value, or list of values, as NAME=VALUE" default:"null"`
	Flags
}

// With returns the flags with further ones, of which pairs has names and
// values. Those without a value are left out.
func (f Flags) With(pairs ...any) Flags {
	all := value.NewDict(8)
	if d, ok := f.KVFlags.(*value.Dict); ok {
		all.Update(d)
	}
	for p := range slices.Chunk(pairs, 2) {
		if value.Truth(p[1]) {
			all.Set(p[0], p[1])
		}
	}
	f.KVFlags = all
	return f
}

// words returns the command line of helm.
func (f Flags) words(commands []string) []string {
	long := func(name string) string {
		if strings.HasPrefix(name, "--") {
			return name
		}
		return "--" + name
	}
	// What could be taken for an option follows the flags and "--".
	var last []string
	if i := slices.IndexFunc(commands, func(w string) bool { return strings.HasPrefix(w, "-") }); i >= 0 {
		commands, last = commands[:i], host.Operands(commands[i:]...)
	}
	words := append([]string{"helm"}, commands...)
	for _, flag := range value.Texts(f.Flags) {
		words = append(words, long(flag))
	}
	d, _ := f.KVFlags.(*value.Dict)
	for k, v := range d.All() {
		name := long(value.Str(k))
		if l, ok := v.(*value.List); ok && name == "--set" {
			for _, set := range value.Texts(l) {
				words = append(words, name, set)
			}
			continue
		}
		words = append(words, name, value.Str(v))
	}
	return append(words, last...)
}

// run runs helm. failed is what it prints to stderr if it fails.
func (f Flags) run(ctx context.Context, c *fn.Call, commands ...string) (stdout string, failed any, err error) {
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(f.words(commands))}, nil)
	var missing *fn.CommandError
	if errors.As(err, &missing) { // as in Salt, the error is the result
		return "", missing.Error(), nil
	}
	if err != nil {
		return "", nil, err
	}
	d, _ := v.(*value.Dict)
	if d.Int("retcode") != 0 {
		return "", d.Str("stderr"), nil
	}
	return d.Str("stdout"), nil, nil
}

// Succeeds runs helm and returns true, or what is wrong.
func (f Flags) Succeeds(ctx context.Context, c *fn.Call, commands ...string) (any, error) {
	_, failed, err := f.run(ctx, c, commands...)
	if err != nil || failed != nil {
		return failed, err
	}
	return true, nil
}

// Text runs helm and returns its output, or what is wrong.
func (f Flags) Text(ctx context.Context, c *fn.Call, commands ...string) (any, error) {
	out, failed, err := f.run(ctx, c, commands...)
	if err != nil || failed != nil {
		return failed, err
	}
	return out, nil
}

// Data runs helm and returns the data that it prints, or what is wrong.
func (f Flags) Data(ctx context.Context, c *fn.Call, commands ...string) (any, error) {
	f = f.With()
	all := f.KVFlags.(*value.Dict)
	if !all.Has("output") && !all.Has("--output") {
		all.Set("output", "json")
	}
	out, failed, err := f.run(ctx, c, commands...)
	if err != nil || failed != nil {
		return failed, err
	}
	if all.At("output") != "json" && all.At("--output") != "json" {
		return out, nil
	}
	return json.Load(out)
}

// all returns the flags of a release.
func (r Release) all() Flags {
	return r.With("values", r.Values, "version", r.Version, "namespace", r.Namespace, "set", r.Set)
}

// Install implements helm.install.
func Install(ctx context.Context, c *fn.Call, r Release) (any, error) {
	return r.all().Succeeds(ctx, c, "install", r.Release, r.Chart)
}

// Upgrade implements helm.upgrade.
func Upgrade(ctx context.Context, c *fn.Call, r Release) (any, error) {
	return r.all().Succeeds(ctx, c, "upgrade", r.Release, r.Chart)
}

// Status implements helm.status.
func Status(ctx context.Context, c *fn.Call, release string, namespace any, f Flags) (any, error) {
	return f.With("namespace", namespace).Data(ctx, c, "status", release)
}

// Uninstall implements helm.uninstall.
func Uninstall(ctx context.Context, c *fn.Call, release string, namespace any, f Flags) (any, error) {
	return f.With("namespace", namespace).Succeeds(ctx, c, "uninstall", release)
}

// UpdateRepos implements helm.repo_update.
func UpdateRepos(ctx context.Context, c *fn.Call, namespace any, f Flags) (any, error) {
	return f.With("namespace", namespace).Succeeds(ctx, c, "repo", "update")
}

// Repos are repositories to add and to remove.
type Repos struct {
	Present   any  `salt:"present" doc:"list of repositories to have, each a map of name and url" default:"null"`
	Absent    any  `salt:"absent" doc:"list of names of repositories not to have" default:"null"`
	Prune     bool `salt:"prune" doc:"remove all others" default:"false"`
	Namespace any  `salt:"namespace" doc:"namespace" default:"null"`
	Flags
}

// ManageRepos implements helm.repo_manage.
func ManageRepos(ctx context.Context, c *fn.Call, r Repos) (*value.Dict, error) {
	f := r.With("namespace", r.Namespace)
	listed, err := f.Data(ctx, c, "repo", "list")
	if err != nil {
		return nil, err
	}
	have := value.Items(listed)
	if _, ok := listed.(*value.List); !ok {
		have = nil
	}
	ret := value.NewDict(5)
	for _, k := range []string{"present", "added", "absent", "removed", "failed"} {
		ret.Set(k, &value.List{})
	}
	put := func(key string, v any) { ret.At(key).(*value.List).Append(v) }
	same := func(a, b *value.Dict) bool { return a.Str("name") == b.Str("name") && a.Str("url") == b.Str("url") }
	for _, it := range value.Items(r.Present) {
		repo, ok := it.(*value.Dict)
		if !ok || !repo.Has("name") || !repo.Has("url") {
			return nil, fn.Errorf("Parameter present have to be formatted like [{'name': '<myRepoName>', 'url': '<myRepoUrl>'}]")
		}
		i := slices.IndexFunc(have, func(h any) bool { d, ok := h.(*value.Dict); return ok && same(d, repo) })
		if i >= 0 {
			put("present", repo)
			have = slices.Delete(slices.Clone(have), i, i+1)
			continue
		}
		done, err := f.Succeeds(ctx, c, "repo", "add", repo.Str("name"), repo.Str("url"))
		switch {
		case err != nil:
			return nil, err
		case done == true:
			put("added", repo)
		default:
			put("failed", repo)
		}
	}
	absent := value.Texts(r.Absent)
	for _, it := range have {
		repo, _ := it.(*value.Dict)
		if r.Prune {
			absent = append(absent, repo.Str("name"))
		} else if !slices.Contains(absent, repo.Str("name")) {
			put("present", repo)
		}
	}
	for _, name := range absent {
		done, err := (Flags{}).With("namespace", r.Namespace).Succeeds(ctx, c, "repo", "remove", name)
		switch {
		case err != nil:
			return nil, err
		case done == true:
			put("removed", name)
		default:
			put("absent", name)
		}
	}
	return ret, nil
}
