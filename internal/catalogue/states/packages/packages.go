// Package packages holds the state modules pkg, pkgrepo, pip, alternatives and
// others: installed software, its versions and sources, and the programs that
// common names refer to.
//
// The states are independent of the package manager. They call the minion's
// execution module pkg, whatever its implementation, and omit what it does not
// support.
package packages

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/catalogue/states"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// pkg calls the execution module pkg for a running state.
type pkg struct {
	e *state.Env
	// options are the keywords passed to the execution functions.
	options *value.Dict
}

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the modules of this family.
func Modules() []state.Module { return units.Modules(nil) }

func init() { units.Declare("pkg", pkgModule) }

func pkgModule() state.Module {
	return state.Module{Name: "pkg", Doc: `Keep software packages installed, or not.`, Aggregate: aggregate, Funcs: []state.Func{
		state.Of("installed", installed, `Have packages installed, possibly in a version.`),
		state.Of("latest", latest, `Have the newest version of packages installed.`),
		state.Of("removed", uninstalled("remove"), `Have packages not installed.`),
		state.Of("purged", uninstalled("purge"), `Have packages not installed, nor their configuration left.`),
		state.Of("uptodate", uptodate, `Have the newest version of all installed packages.`),
		state.Of("held", held, `Have packages keep their version.`),
		state.Of("unheld", unheld, `Let packages be upgraded again.`),
		state.Of("downloaded", downloaded, `Have packages fetched, but not installed.`),
		state.Of("patch_installed", patchInstalled, `Have the packages of advisories installed.`),
		state.Of("patch_downloaded", patchDownloaded, `Have the packages of advisories fetched.`),
		state.Of("group_installed", groupInstalled, `Have a group of packages installed.`),
		state.Of("mod_watch", watch, `Do what the state that watches is about.`),
	}}
}

// words are the common arguments of states for packages.
type words struct {
	Name    *string   `salt:"name" doc:"name of the package; null if pkgs is given"`
	Version any       `salt:"version" doc:"version, or condition such as >=1.2; null for any, latest for the newest" default:"null"`
	Pkgs    any       `salt:"pkgs" doc:"list of names, or of maps from name to version" default:"null"`
	Plain   bool      `salt:"normalize" doc:"leave the machine's own architecture out of names" default:"true"`
	Epoch   any       `salt:"ignore_epoch" doc:"compare versions without epochs; null decides by the version that is wanted" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

// pkg returns the pkg for the keywords of a state.
func (w words) pkg(e *state.Env) pkg {
	kw := w.Kwargs.Clone()
	kw.Set("saltenv", e.Saltenv)
	return pkg{e, kw}
}

// none reports whether pkgs is an empty list.
func (w words) none() bool {
	l, ok := w.Pkgs.(*value.List)
	return ok && l.Len() == 0
}

// list returns pkgs, or name and version as such a list.
func (w words) list() (*value.List, error) {
	switch v := w.Pkgs.(type) {
	case *value.List:
		if v.Len() > 0 {
			return v, nil
		}
	case nil:
	default:
		return nil, fn.Errorf("pkgs must be a list, not %s", value.Repr(v))
	}
	if w.Name == nil {
		return nil, errNoName
	}
	if value.Truth(w.Version) {
		return value.ListOf(value.DictOf(*w.Name, value.Str(w.Version))), nil
	}
	return value.ListOf(*w.Name), nil
}

// errNoName means that neither name nor pkgs names a package.
var errNoName = fn.Errorf("the name of the package is null: give the argument name or pkgs")

// given returns an optional name as an argument: null if there is none.
func given(name *string) any {
	if name == nil {
		return nil
	}
	return *name
}

// exec calls a function of the execution module with the state's keywords and
// those in more.
func (p pkg) exec(ctx context.Context, fun string, more *value.Dict, args ...any) (any, error) {
	kw := p.options.Clone()
	kw.Update(more)
	return p.e.Exec(ctx, "pkg."+fun, kw, args...)
}

// bare calls a function with only the keywords in kw.
func (p pkg) bare(ctx context.Context, fun string, kw *value.Dict, args ...any) (any, error) {
	return p.e.Exec(ctx, "pkg."+fun, kw, args...)
}

func (p pkg) can(fun string) bool { return p.e.Can("pkg." + fun) }

// installed returns the versions of packages as lists, by name.
func (p pkg) installed(ctx context.Context, kw ...any) (*value.Dict, error) {
	more := value.DictOf(append([]any{"versions_as_list", true}, kw...)...)
	v, err := p.exec(ctx, "list_pkgs", more)
	d, _ := v.(*value.Dict)
	return d, err
}

// refreshed records whether the package lists were fetched in this run.
type refreshed struct {
	mu   sync.Mutex
	done bool
}

// due reports whether a state must fetch the package lists: if refresh is true,
// or, if refresh is not given and mayBeFirst is set, if no state of the run
// has.
func due(e *state.Env, refresh any, mayBeFirst bool) bool {
	r := e.Run.Shared("pkg.refreshed", func() any { return new(refreshed) }).(*refreshed)
	r.mu.Lock()
	defer r.mu.Unlock()
	if refresh == nil && mayBeFirst && !r.done {
		r.done = true
		return true
	}
	on := salt.IsTrue(refresh)
	r.done = r.done || on
	return on
}

// normal strips the machine's own architecture from a name.
func (p pkg) normal(ctx context.Context, name string, wanted bool) (string, error) {
	if !wanted || !p.can("normalize_name") {
		return name, nil
	}
	v, err := p.bare(ctx, "normalize_name", nil, name)
	return value.Str(v), err
}

// named returns the packages of a list as a map from names to versions or nil.
func (p pkg) named(ctx context.Context, l *value.List, normalize bool) (*value.Dict, error) {
	out := value.NewDict(l.Len())
	n := 0
	add := func(k, version any) error {
		name, err := p.normal(ctx, value.Str(k), normalize)
		if version != nil {
			version = value.Str(version)
		}
		out.Set(name, version)
		n++
		return err
	}
	for _, it := range l.Items {
		d, ok := it.(*value.Dict)
		if !ok {
			if err := add(it, nil); err != nil {
				return nil, err
			}
		}
		for k, v := range d.All() {
			if err := add(k, v); err != nil {
				return nil, err
			}
		}
	}
	if out.Len() != n {
		return nil, fn.Errorf("You are passing a list of packages that contains duplicated packages names: %s. This cannot be processed. "+
			"In case you are targeting different versions of the same package, please target them individually", value.Repr(l))
	}
	return out, nil
}

var conditionForm = regexp.MustCompile(`^(<=>|!=|>=|<=|>>|<<|<>|>|<|=)?\s?([^<>=]+)$`)

// condition is a requirement on a version.
type condition struct{ op, version string }

// conditions parses comma-separated requirements.
func conditions(text string) []condition {
	var out []condition
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		c := condition{"==", strings.TrimSpace(part)}
		if m := conditionForm.FindStringSubmatch(c.version); m != nil {
			c.version = m[2]
			if m[1] != "" && m[1] != "=" {
				c.op = m[1]
			}
		}
		out = append(out, c)
	}
	return out
}

// fulfills reports whether one of the installed versions meets all
// requirements.
func (p pkg) fulfills(ctx context.Context, have []string, wanted string, ignoreEpoch any, newerToo bool) (bool, error) {
	all := conditions(wanted)
	if newerToo && len(all) == 1 && all[0].op == "==" {
		all[0].op = ">="
	}
	for _, v := range have {
		good := true
		for _, c := range all {
			ok, err := p.meets(ctx, v, c, ignoreEpoch)
			if err != nil {
				return false, err
			}
			good = good && ok
		}
		if good {
			return true, nil
		}
	}
	return false, nil
}

func (p pkg) meets(ctx context.Context, version string, c condition, ignoreEpoch any) (bool, error) {
	if c.op == "==" && target.ParseGlob(c.version).Match(version) {
		return true, nil
	}
	ignore := value.Truth(ignoreEpoch)
	if ignoreEpoch == nil {
		ignore = !strings.ContainsAny(c.op, "<>") && !strings.Contains(c.version, ":")
	}
	v, err := p.bare(ctx, "version_cmp", value.DictOf("ignore_epoch", ignore), version, c.version)
	if err != nil {
		return false, err
	}
	order, ok := value.Compare(v, int64(0))
	if !ok {
		return false, nil
	}
	switch c.op {
	case "<":
		return order < 0, nil
	case "<=":
		return order <= 0, nil
	case "==":
		return order == 0, nil
	case ">=":
		return order >= 0, nil
	case ">":
		return order > 0, nil
	case "!=":
		return order != 0, nil
	}
	return false, nil
}

// clean returns a version in the package manager's form, nil for none.
func (p pkg) clean(ctx context.Context, version any) (any, error) {
	if !value.Truth(version) || !p.can("version_clean") {
		return version, nil
	}
	return p.bare(ctx, "version_clean", nil, version)
}

func keys(d *value.Dict) []string {
	out := make([]string, 0, d.Len())
	for k := range d.All() {
		out = append(out, value.Str(k))
	}
	return out
}

func anys(names []string) []any {
	out := make([]any, len(names))
	for i, n := range names {
		out[i] = n
	}
	return out
}

// withVersion formats a package with its wanted version.
func withVersion(name string, version any) string {
	v := value.Str(version)
	switch {
	case !value.Truth(version):
		return name
	case strings.ContainsRune("<>=", rune(v[0])):
		return name + v
	}
	return name + "=" + v
}

func shown(names []string, desired *value.Dict) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = withVersion(n, desired.At(n))
	}
	return out
}

// failure splits an error into the change that was made before it and the error
// itself. An error without details gets an introduction.
func failure(err error, introduction string) (state.Change, error) {
	var command *fn.CommandError
	if !errors.As(err, &command) || command.Info == nil {
		return state.Change{}, fn.Errorf("%s: %w", introduction, err)
	}
	info := command.Info.Clone()
	changes := info.Dict("changes")
	info.Delete("changes")
	text := command.Summary
	if info.Len() > 0 {
		if !strings.HasSuffix(text, ".") {
			text += "."
		}
		text += " Additional info follows:\n\n" + output.Nested(info)
	}
	return state.Change{Diff: changes}, fn.Errorf("%s", text)
}

// holds returns the held packages, with the held version if there is one. exact
// says that the package manager holds versions.
func (p pkg) holds(ctx context.Context) (locks *value.Dict, exact bool, err error) {
	locks = value.NewDict(4)
	var v any
	switch {
	case p.can("list_locks"):
		v, err = p.bare(ctx, "list_locks", nil)
		d, _ := v.(*value.Dict)
		for k, it := range d.All() {
			one, _ := it.(*value.Dict)
			if kind, ok := one.Get("type"); !ok || kind == "package" {
				locks.Set(k, strings.TrimLeft(one.Str("version"), "= "))
			}
		}
		return locks, true, err
	case p.can("list_holds"):
		v, err = p.bare(ctx, "list_holds", value.DictOf("full", true))
		for _, lock := range value.Texts(v) {
			if m := lockForm.FindStringSubmatch(lock); m != nil {
				lock = m[1]
			}
			locks.Set(lock, "")
		}
	case p.can("get_selections"):
		v, err = p.bare(ctx, "get_selections", value.DictOf("state", "hold"))
		d, _ := v.(*value.Dict)
		for _, name := range value.Texts(d.At("hold")) {
			locks.Set(name, "")
		}
	default:
		err = fn.Errorf("No any function to get the list of held packages available.\nCheck if the package manager supports package locking.")
	}
	return locks, false, err
}

var lockForm = regexp.MustCompile(`^(.+)-(\d+):(.*)\.\*`)

// contribution returns what a state adds to an aggregated one: the argument and
// its items.
func contribution(low *value.Dict) (kind string, items []any) {
	for _, kind := range []string{"sources", "pkgs"} {
		if l, ok := low.At(kind).(*value.List); ok {
			return kind, l.Items
		}
	}
	if v := low.At("version"); v != nil {
		return "pkgs", []any{value.DictOf(low.At("name"), v)}
	}
	return "pkgs", []any{low.At("name")}
}

// aggregate merges into low the packages of other states of the run with the
// same function.
func aggregate(low *value.Dict, chunks []*value.Dict, running *value.Dict) *value.Dict {
	kind, all := contribution(low)
	if !slices.Contains([]string{"installed", "latest", "removed", "purged"}, low.Str("fun")) || low.Has("hold") {
		return low
	}
	merged := low.Clone()
	for _, c := range chunks {
		own, items := contribution(c)
		if c.At("state") != "pkg" || c.At("fun") != low.At("fun") || own != kind || c.Has("hold") || c.Has(state.Aggregated) || running.Has(state.Tag(c)) ||
			!value.Equal(c.At("fromrepo"), low.At("fromrepo")) {
			continue
		}
		all = append(slices.Clip(all), items...)
		c.Set(state.Aggregated, true)
	}
	merged.Set(state.Aggregated, true)
	merged.Set(kind, unique(all))
	merged.Delete("version")
	return merged
}

// unique returns a list without duplicates.
func unique(items []any) *value.List {
	l := &value.List{}
	for _, it := range items {
		if !slices.ContainsFunc(l.Items, func(v any) bool { return value.Equal(v, it) }) {
			l.Append(it)
		}
	}
	return l
}

type watchArgs struct {
	Name   string    `salt:"name" doc:"name of the package"`
	Sfun   string    `salt:"sfun" doc:"function of the state that watches" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func watch(ctx context.Context, e *state.Env, a watchArgs) (state.Plan, error) {
	if !slices.Contains([]string{"installed", "latest", "removed", "purged"}, a.Sfun) {
		return state.Plan{}, fn.Errorf("pkg.%s does not work with the watch requisite", a.Sfun)
	}
	kw := a.Kwargs.Clone()
	kw.Set("name", a.Name)
	for _, f := range pkgModule().Funcs {
		if f.Name() == a.Sfun {
			return f.Plan(ctx, e, kw)
		}
	}
	return state.Plan{}, nil
}
