package packages

import (
	"context"
	"maps"
	"slices"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/packages"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("pkgrepo", repoModule) }

func repoModule() state.Module {
	return state.Module{Name: "pkgrepo", Doc: `Keep repositories of packages.`, Funcs: []state.Func{
		state.Of("managed", repoManaged, `Have a repository: with apt a line of its sources, with dnf a section of a file and its options as keywords.`),
		state.Of("absent", repoAbsent, `Have no such repository.`),
	}}
}

type repoArgs struct {
	Name   string    `salt:"name" doc:"with apt the line of its sources, with dnf the name of the repository"`
	PPA    any       `salt:"ppa" doc:"archive on Launchpad (Ubuntu)" default:"null"`
	Copr   any       `salt:"copr" doc:"project on Copr (dnf)" default:"null"`
	AptKey bool      `salt:"aptkey" doc:"keys without signed-by go to apt-key(8), if there is such a program" default:"true"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// repo is a declared repository.
type repo struct {
	pkg
	a    repoArgs
	id   string // id in the execution module
	want *value.Dict
}

func debian(e *state.Env) bool { return e.Grains.Get("os_family") == "Debian" }

func repoManaged(ctx context.Context, e *state.Env, a repoArgs) (state.Plan, error) {
	r := &repo{pkg: pkg{e, a.Kwargs.Clone()}, a: a, id: a.Name}
	if err := r.read(); err != nil {
		return state.Plan{}, err
	}
	v, err := r.exec(ctx, "get_repo", nil, r.id)
	if err != nil {
		return state.Plan{}, fn.Errorf("Failed to examine repo '%s': %w", a.Name, err)
	}
	have, _ := v.(*value.Dict)
	diff := r.differs(have)
	if diff.Len() == 0 {
		return state.Plan{Comment: "Package repo '" + a.Name + "' already configured"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: diff, Comment: "Package repo '" + a.Name +
			"' would be configured. This may cause pkg states to behave differently than stated if this action is repeated without test=True, " +
			"due to the differences in the configured repositories."},
		Do: func(ctx context.Context) (state.Change, error) { return r.do(ctx, have) },
	}}}, nil
}

// read validates the arguments and determines the wanted repository. If
// several arguments name a key, the first of keyid, key_url and key_text is
// used; Salt complains, but does the same.
func (r *repo) read() error {
	kw := r.options
	if !r.can("get_repo") {
		return fn.Errorf("Repo management not implemented on this platform")
	}
	if kw.Has("repo") {
		return fn.Errorf("'repo' is not a supported argument for this state. The 'name' argument is probably what was intended.")
	}
	enabled, hasEnabled := take(kw, "enabled")
	disabled, hasDisabled := take(kw, "disabled")
	if hasEnabled && hasDisabled {
		return fn.Errorf("Only one of enabled/disabled is allowed")
	}
	on := true
	if hasEnabled {
		on = salt.IsTrue(enabled)
	} else if hasDisabled {
		on = !salt.IsTrue(disabled)
	}
	if secure, ok := take(kw, "allow_insecure_key"); ok && !salt.IsTrue(secure) && strings.HasPrefix(strings.TrimSpace(kw.Str("key_url")), "http:") {
		return fn.Errorf("Cannot have 'key_url' using http with 'allow_insecure_key' set to True")
	}
	if debian(r.e) {
		return r.readLine(on)
	}
	if r.a.Copr != nil {
		r.id = "copr:" + value.Str(r.a.Copr)
	}
	kw.Set("name", r.a.Name)
	if v, ok := take(kw, "humanname"); ok {
		kw.Set("name", v)
	}
	kw.Set("enabled", on)
	r.want = kw
	return nil
}

func take(d *value.Dict, key string) (v any, ok bool) {
	v, ok = d.Get(key)
	d.Delete(key)
	return v, ok && v != nil
}

// readLine parses a line of apt's sources. Keywords override its parts.
func (r *repo) readLine(on bool) error {
	if r.a.PPA != nil {
		r.id = "ppa:" + value.Str(r.a.PPA)
	}
	kw := r.options
	if strings.HasPrefix(r.id, "ppa:") {
		r.want = value.NewDict(0) // an existing PPA is not compared
		return nil
	}
	line, err := packages.ParseRepo(r.id)
	if err != nil {
		return fn.Errorf("Failed to examine repo '%s': %w", r.a.Name, err)
	}
	for key, part := range map[string]*string{"uri": &line.URI, "dist": &line.Dist, "type": &line.Type, "signedby": &line.SignedBy} {
		if v, ok := take(kw, key); ok {
			*part = value.Str(v)
		}
	}
	for key, part := range map[string]*[]string{"comps": &line.Comps, "architectures": &line.Architectures} {
		if v, ok := take(kw, key); ok {
			*part = value.Words(v)
		}
	}
	if !on {
		line.Disabled = true
	}
	kw.Set("disabled", line.Disabled)
	bare := line
	bare.Disabled, bare.Comment = false, ""
	r.id = bare.String()
	if v, ok := kw.Get("comments"); ok {
		line.Comment = strings.Join(value.Words(v), " ")
	}
	r.want = value.DictOf("architectures", value.Strings(line.Architectures), "comps", value.Strings(line.Comps), "disabled", line.Disabled, "dist",
		line.Dist,
		"line", line.String(), "signedby", line.SignedBy, "type", line.Type, "uri", line.URI)
	return nil
}

// aside lists keywords that are not compared with an existing repository.
var aside = []string{"file", "key_url", "key_text", "keyid", "keyserver", "clean_file", "refresh", "refresh_db", "consolidate", "keyid_ppa", "ppa_auth",
	"basedir", "saltenv", "strict_config"}

// differs returns the old and new values of a repository that differ.
func (r *repo) differs(have *value.Dict) *value.Dict {
	diff := value.NewDict(2)
	if have.Len() == 0 {
		diff.Set("repo", redact.Text(r.a.Name))
		return diff
	}
	for key, want := range r.want.All() {
		k := value.Str(key)
		now, known := have.Get(k)
		switch {
		case slices.Contains(aside, k) || r.same(k, now, known, want):
		default:
			diff.Set(k, value.DictOf("new", masked(want), "old", masked(now)))
		}
	}
	return diff
}

func (r *repo) same(key string, now any, known bool, want any) bool {
	switch {
	case debian(r.e) && key == "line":
		return sameLine(value.Str(now), value.Str(want), r.options.Has("comments"))
	case key == "comps" || key == "architectures":
		return sameSet(value.Texts(now), value.Texts(want))
	case key == "enabled":
		return salt.IsTrue(want) == (!known || salt.IsTrue(now))
	case key == "comments":
		return slices.Equal(comments(now), comments(want))
	case !known:
		return want == nil || want == ""
	case value.TypeName(want) == "bool" || value.TypeName(now) == "bool":
		return salt.IsTrue(want) == salt.IsTrue(now)
	case value.TypeName(want) == "list":
		return value.Str(now) == strings.Join(value.Texts(want), "\n")
	}
	return value.Str(now) == value.Str(want)
}

func comments(v any) []string {
	out := value.Words(v)
	for i := range out {
		out[i] = strings.TrimSpace(strings.TrimLeft(out[i], "# "))
	}
	return out
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// sameLine compares lines of apt's sources except the order of components.
func sameLine(a, b string, withComment bool) bool {
	x, errX := packages.ParseRepo(a)
	y, errY := packages.ParseRepo(b)
	if errX != nil || errY != nil {
		return a == b
	}
	if !withComment {
		x.Comment, y.Comment = "", ""
	}
	slices.Sort(x.Comps)
	slices.Sort(y.Comps)
	return x.String() == y.String()
}

// do writes the repository, and compares it with the former one.
func (r *repo) do(ctx context.Context, have *value.Dict) (state.Change, error) {
	if path := r.options.Str("file"); path != "" && salt.IsTrue(r.options.At("clean_file")) {
		if err := new(host.Machine).WriteFile(path, nil); err != nil {
			return state.Change{}, fn.Errorf("Failed to configure repo '%s': %w", r.a.Name, err)
		}
	}
	kw := value.NewDict(2)
	if debian(r.e) {
		kw = value.DictOf("saltenv", r.e.Saltenv, "aptkey", r.a.AptKey)
		if v, ok := r.options.Get("refresh_db"); ok {
			kw.Set("refresh", v)
		}
	}
	if _, err := r.exec(ctx, "mod_repo", kw, r.id); err != nil {
		return state.Change{}, fn.Errorf("Failed to configure repo '%s': %w", r.a.Name, err)
	}
	v, err := r.exec(ctx, "get_repo", nil, r.id)
	if err != nil {
		return state.Change{}, fn.Errorf("Failed to confirm config of repo '%s': %w", r.a.Name, err)
	}
	now, _ := v.(*value.Dict)
	c := state.Change{Diff: value.NewDict(2), Comment: "Configured package repo '" + r.a.Name + "'"}
	if have.Len() == 0 {
		c.Diff.Set("repo", redact.Text(r.a.Name))
		return c, nil
	}
	for _, k := range slices.Sorted(maps.Keys(texted(r.want))) {
		if !slices.Contains(aside, k) && !value.Equal(now.At(k), have.At(k)) {
			c.Diff.Set(k, value.DictOf("new", masked(now.At(k)), "old", masked(have.At(k))))
		}
	}
	return c, nil
}

func texted(d *value.Dict) map[string]bool {
	out := map[string]bool{}
	for _, k := range keys(d) {
		out[k] = true
	}
	return out
}

type repoAbsentArgs struct {
	Name   string    `salt:"name" doc:"with apt the line of its sources, with dnf the name of the repository"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func repoAbsent(ctx context.Context, e *state.Env, a repoAbsentArgs) (state.Plan, error) {
	p := pkg{e, a.Kwargs.Clone()}
	name := a.Name
	for _, kind := range []string{"ppa", "copr"} {
		if v, ok := take(p.options, kind); ok {
			name = kind + ":" + strings.TrimPrefix(value.Str(v), kind+":")
		}
	}
	removeKey := p.options.At("keyid") != nil || p.options.At("keyid_ppa") != nil
	if removeKey && !p.can("del_repo_key") {
		return state.Plan{}, fn.Errorf("Repo key management is not implemented for this platform")
	}
	v, err := p.exec(ctx, "get_repo", nil, name)
	if err != nil {
		return state.Plan{}, fn.Errorf("Failed to configure repo '%s': %w", name, err)
	}
	have, _ := v.(*value.Dict)
	if debian(e) && have.Len() > 0 {
		if line, err := packages.ParseRepo(name); err == nil && !sameSet(line.Architectures, value.Texts(have.At("architectures"))) {
			have = nil
		}
	}
	if have.Len() == 0 {
		return state.Plan{Comment: "Package repo " + name + " is absent"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Package repo '" + name +
			"' will be removed. This may cause pkg states to behave differently than stated if this action is repeated without test=True, " +
			"due to the differences in the configured repositories."},
		Do: func(ctx context.Context) (state.Change, error) {
			if _, err := p.exec(ctx, "del_repo", nil, name); err != nil {
				return state.Change{}, err
			}
			left, err := p.exec(ctx, "get_repo", nil, name)
			if err != nil {
				return state.Change{}, err
			}
			if d, _ := left.(*value.Dict); d.Len() > 0 {
				return state.Change{}, fn.Errorf("Failed to remove repo %s", name)
			}
			c := state.Change{Diff: value.DictOf("repo", redact.Text(name)), Comment: "Removed repo " + name}
			if !removeKey {
				return c, nil
			}
			key, err := p.exec(ctx, "del_repo_key", nil, name)
			if err != nil {
				c.Comment = ""
				return c, fn.Errorf("Removed repo %s, but failed to remove key: %w", name, err)
			}
			c.Diff.Set("keyid", key)
			c.Comment += ", and keyid " + value.Str(key)
			return c, nil
		},
	}}}, nil
}

// masked returns a property of a repository without the passwords in its URLs.
func masked(v any) any {
	switch v := v.(type) {
	case string:
		return redact.Text(v)
	case *value.List:
		out := &value.List{}
		for _, it := range v.Items {
			out.Append(masked(it))
		}
		return out
	}
	return v
}
