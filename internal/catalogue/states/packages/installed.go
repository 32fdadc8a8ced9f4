package packages

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

type installArgs struct {
	words
	Refresh      any  `salt:"refresh" doc:"fetch the lists of packages first; null: once in a run" default:"null"`
	From         any  `salt:"fromrepo" doc:"only repository, with apt the release that is preferred" default:"null"`
	SkipVerify   any  `salt:"skip_verify" doc:"do without signatures" default:"false"`
	NoSuggest    bool `salt:"skip_suggestions" doc:"do not look for names that are alike if there is no such package" default:"false"`
	Sources      any  `salt:"sources" doc:"list of maps from name to a file or URL of the package" default:"null"`
	AllowUpdates bool `salt:"allow_updates" doc:"a newer version than the wanted one will do" default:"false"`
	Verify       any  `salt:"pkg_verify" doc:"install again what has altered files: true, or a list with maps ignore_types and verify_options" default:"false"`
	Reinstall    bool `salt:"reinstall" doc:"install again what is there" default:"false"`
	UpdateHolds  bool `salt:"update_holds" doc:"also change packages that keep their version" default:"false"`
}

// install is a state that installs packages, with what it has found out.
type install struct {
	pkg
	a       installArgs
	refresh bool

	sources   *value.List // nil if not given
	desired   *value.Dict // wanted version, or source, by name
	targets   *value.Dict // those that must be installed
	unpurge   []string    // packages marked for removal that must stay
	reinstall *value.Dict // those that must be reinstalled
	altered   *value.Dict // the reason, if files were altered
	spec      bool        // a version was compared
	warnings  []string
}

// settled means that there is nothing to install.
type settled struct{ comment string }

func (s *settled) Error() string { return s.comment }

func (in *install) settle(format string, args ...any) error {
	return &settled{fmt.Sprintf(format, args...)}
}

func installed(ctx context.Context, e *state.Env, a installArgs) (state.Plan, error) {
	if a.none() {
		return state.Plan{Comment: "No packages to install provided"}, nil
	}
	in := &install{pkg: a.pkg(e), a: a}
	if value.Truth(a.Verify) && !in.can("verify") {
		return state.Plan{}, fn.Errorf("pkg.verify not implemented")
	}
	in.options.Set("allow_updates", a.AllowUpdates)
	in.refresh = due(e, a.Refresh, true)
	err := in.look(ctx)
	if s, ok := errors.AsType[*settled](err); ok {
		return in.onlyHold(ctx, s.comment)
	}
	if err == nil && len(in.unpurge) > 0 && !e.Can("lowpkg.unpurge") {
		err = fn.Errorf("lowpkg.unpurge not implemented")
	}
	if err != nil {
		return state.Plan{Warnings: in.warnings}, err
	}
	return state.Plan{Warnings: in.warnings, Steps: []state.Step{{Change: in.predict(ctx), Do: in.do}}}, nil
}

// look determines what must be installed. The error is a *settled if nothing
// must be.
func (in *install) look(ctx context.Context) error {
	a := in.a
	if value.Truth(a.Pkgs) && value.Truth(a.Sources) {
		return fn.Errorf(`Only one of "pkgs" and "sources" is permitted.`)
	}
	have, err := in.installed(ctx, "fromrepo", a.From)
	if err != nil {
		return err
	}
	if err := in.want(ctx); err != nil {
		return err
	}
	waiting, err := in.exec(ctx, "list_pkgs", value.DictOf("purge_desired", true))
	if err != nil {
		return err
	}
	for _, name := range keys(in.desired) {
		if d, _ := waiting.(*value.Dict); d.Has(name) {
			in.unpurge = append(in.unpurge, name)
		}
	}
	if in.sources == nil {
		if err := in.preflight(ctx, have); err != nil {
			return err
		}
		if err := in.newest(ctx, have); err != nil {
			return err
		}
	}
	in.targets, in.reinstall, in.altered = value.NewDict(0), value.NewDict(0), value.NewDict(0)
	var problems []string
	for name, wanted := range in.desired.All() {
		if err := in.compare(ctx, value.Str(name), wanted, value.Texts(have.At(name))); err != nil {
			problems = append(problems, err.Error())
		}
	}
	switch {
	case len(problems) > 0:
		return fn.Errorf("%s", strings.Join(problems, " "))
	case in.targets.Len()+in.reinstall.Len()+len(in.unpurge) > 0:
		return nil
	case in.spec && in.sources == nil:
		return in.settle("All specified packages are already installed and are at the desired version")
	}
	return in.settle("All specified packages are already installed")
}

// want reads the wanted packages.
func (in *install) want(ctx context.Context) (err error) {
	if !value.Truth(in.a.Sources) {
		l, err := in.a.list()
		if err == nil {
			in.desired, err = in.named(ctx, l, in.a.Plain)
		}
		return err
	}
	l, ok := in.a.Sources.(*value.List)
	if !ok {
		return fn.Errorf("Invalidly formatted 'sources' parameter. It must be a list of maps from name to file, not %s", value.Repr(in.a.Sources))
	}
	in.sources = l
	in.desired = value.NewDict(l.Len())
	for _, it := range l.Items {
		d, ok := it.(*value.Dict)
		if !ok || d.Len() != 1 {
			return fn.Errorf("Invalidly formatted 'sources' parameter. Each item must be a map from one name to a file, not %s", value.Repr(it))
		}
		k, src := d.Entry(0)
		name, err := in.normal(ctx, value.Str(k), in.a.Plain)
		if err != nil {
			return err
		}
		in.desired.Set(name, src)
	}
	return nil
}

// preflight checks for packages that the package manager does not know.
func (in *install) preflight(ctx context.Context, have *value.Dict) error {
	if in.a.NoSuggest || !in.can("check_db") {
		return nil
	}
	var names []string
	for name, version := range in.desired.All() {
		ok := have.Has(name)
		if ok && version != nil {
			var err error
			if ok, err = in.fulfills(ctx, value.Texts(have.At(name)), value.Str(version), in.a.Epoch, false); err != nil {
				return err
			}
		}
		if !ok {
			names = append(names, value.Str(name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	v, err := in.exec(ctx, "check_db", value.DictOf("fromrepo", in.a.From), anys(names)...)
	if err != nil {
		return nil // without the check, the packages may still exist
	}
	var unknown, comments []string
	d, _ := v.(*value.Dict)
	for name, it := range d.All() {
		one, _ := it.(*value.Dict)
		switch like := value.Texts(one.At("suggestions")); {
		case one.At("found") != false:
		case len(like) == 0:
			unknown = append(unknown, value.Str(name))
		default:
			comments = append(comments, fmt.Sprintf("Package '%s' not found (possible matches: %s)", value.Str(name), strings.Join(like, ", ")))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		comments = slices.Insert(comments, 0, "The following package(s) were not found, and no possible matches were found in the package db: "+
			strings.Join(unknown, ", "))
	}
	if len(comments) > 1 {
		comments = append(comments, "")
	}
	if len(comments) > 0 {
		return fn.Errorf("%s", strings.TrimRight(strings.Join(comments, ". "), " "))
	}
	return nil
}

// newest replaces "latest" by versions.
func (in *install) newest(ctx context.Context, have *value.Dict) error {
	var names []string
	for name, v := range in.desired.All() {
		if v == "latest" {
			names = append(names, value.Str(name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	latest, err := in.latest(ctx, in.exec, value.DictOf("refresh", in.refresh, "fromrepo", in.a.From), names)
	if err != nil {
		return err
	}
	in.refresh = false
	for name, version := range latest.All() {
		switch old := value.Texts(have.At(name)); {
		case value.Truth(version):
		case len(old) > 0:
			version = old[len(old)-1]
		default:
			version = nil
		}
		in.desired.Set(name, version)
	}
	return nil
}

// latest returns the newest versions. apt's module returns a bare version if
// only one of several packages is known; then each is queried alone.
func (p pkg) latest(ctx context.Context, ask func(context.Context, string, *value.Dict, ...any) (any, error), kw *value.Dict, names []string) (*value.Dict,
	error) {
	v, err := ask(ctx, "latest_version", kw, anys(names)...)
	if err != nil {
		return nil, err
	}
	if _, ok := v.(*value.Dict); ok || len(names) == 1 {
		return byName(v, names), nil
	}
	kw = kw.Clone()
	kw.Set("refresh", false)
	all := value.NewDict(len(names))
	for _, name := range names {
		if v, err = ask(ctx, "latest_version", kw, name); err != nil {
			return nil, err
		}
		all.Update(byName(v, []string{name}))
	}
	return all, nil
}

// byName converts the result of functions that return a bare value for a
// single name to a map.
func byName(v any, names []string) *value.Dict {
	if d, ok := v.(*value.Dict); ok {
		return d
	}
	return value.DictOf(names[0], v)
}

// compare decides whether one package must be installed.
func (in *install) compare(ctx context.Context, name string, wanted any, have []string) error {
	if len(have) == 0 {
		in.targets.Set(name, wanted)
		return nil
	}
	version := wanted
	if in.a.Reinstall {
		in.reinstall.Set(name, wanted)
		return nil
	}
	if in.sources != nil {
		v, known, err := in.fileVersion(ctx, value.Str(wanted))
		if !known || err != nil {
			return err
		}
		version = v
	} else {
		if value.Truth(wanted) && in.can("check_extra_requirements") {
			if ok, err := in.bare(ctx, "check_extra_requirements", nil, name, wanted); err != nil || !value.Truth(ok) {
				in.targets.Set(name, wanted)
				return err
			}
		}
		v, err := in.clean(ctx, wanted)
		if err != nil {
			return err
		}
		if v == nil {
			return in.checkFiles(ctx, name, wanted)
		}
	}
	ok, err := in.fulfills(ctx, have, value.Str(version), in.a.Epoch, in.sources == nil && in.a.AllowUpdates)
	if err != nil {
		return err
	}
	in.spec = true
	if ok {
		return nil
	}
	if value.Truth(in.a.Verify) && slices.ContainsFunc(conditions(value.Str(wanted)), func(c condition) bool { return c.op == "==" }) {
		return in.checkFiles(ctx, name, wanted)
	}
	in.targets.Set(name, wanted)
	return nil
}

// fileVersion returns the version of a package file. known is false if it
// cannot be determined.
func (in *install) fileVersion(ctx context.Context, src string) (version any, known bool, err error) {
	if !in.e.Can("lowpkg.bin_pkg_info") {
		return nil, false, nil
	}
	path := src
	if strings.Contains(src, "://") {
		if path, err = in.e.Files.CacheFile(ctx, src, in.e.Saltenv); err != nil {
			return nil, false, fn.Errorf("Unable to cache %s: %w", src, err)
		}
	}
	if !filepath.IsAbs(path) {
		return nil, false, fn.Errorf("%s does not exist on minion", src)
	}
	v, err := in.e.Exec(ctx, "lowpkg.bin_pkg_info", nil, path)
	if err != nil {
		return nil, false, err
	}
	d, ok := v.(*value.Dict)
	if !ok {
		in.warnings = append(in.warnings, "Failed to parse metadata for "+src)
		return nil, false, nil
	}
	return d.At("version"), true, nil
}

// verify returns the altered files of a package.
func (in *install) verify(ctx context.Context, name string) (any, error) {
	kw := value.DictOf("ignore_types", value.ListOf(), "verify_options", value.ListOf())
	if l, ok := in.a.Verify.(*value.List); ok {
		for _, it := range l.Items {
			if d, ok := it.(*value.Dict); ok {
				kw.Update(d)
			}
		}
	}
	return in.exec(ctx, "verify", kw, name)
}

// checkFiles marks a package for reinstallation if files were altered.
func (in *install) checkFiles(ctx context.Context, name string, wanted any) error {
	if !value.Truth(in.a.Verify) {
		return nil
	}
	v, err := in.verify(ctx, name)
	if err == nil && value.Truth(v) {
		in.reinstall.Set(name, wanted)
		in.altered.Set(name, v)
	}
	return err
}

// predict returns the predicted changes.
func (in *install) predict(ctx context.Context) state.Change {
	c := state.Change{Diff: value.NewDict(4)}
	var comments []string
	soon := func() *value.Dict { return value.DictOf("new", "installed", "old", "") }
	if in.targets.Len() > 0 {
		names := keys(in.targets)
		if in.sources != nil {
			for _, n := range names {
				c.Diff.Set(n, soon())
			}
		} else {
			c.Diff.Update(in.installable(ctx, in.targets, nil, in.refresh))
		}
		comments = append(comments, "The following packages would be installed/updated: "+strings.Join(names, ", "))
	}
	if len(in.unpurge) > 0 {
		comments = append(comments, "The following packages would have their selection status changed from 'purge' to 'install': "+
			strings.Join(in.unpurge, ", "))
		for _, n := range in.unpurge {
			c.Diff.Set(n, soon())
		}
	}
	again := in.label(keys(in.reinstall), in.reinstall)
	switch {
	case len(again) == 0:
	case in.a.Reinstall:
		for _, n := range again {
			c.Diff.Set(n, soon())
		}
		comments = append(comments, "The following packages would be reinstalled: "+strings.Join(again, ", "))
	default:
		for i, name := range keys(in.reinstall) {
			comments = append(comments, "Package '"+again[i]+"' would be reinstalled because the following files have been altered:",
				output.Nested(in.altered.At(name)))
			c.Diff.Set(name, value.NewDict(0))
		}
	}
	c.Comment = strings.Join(comments, "\n")
	return c
}

// label formats packages with their versions. Packages from files have only
// the name.
func (in *install) label(names []string, versions *value.Dict) []string {
	if in.sources != nil {
		return names
	}
	return shown(names, versions)
}

// installable predicts the versions of packages.
func (p pkg) installable(ctx context.Context, targets, have *value.Dict, refresh bool) *value.Dict {
	var plain, exact []string
	for name, v := range targets.All() {
		if value.Truth(v) {
			exact = append(exact, withVersion(value.Str(name), v))
		} else {
			plain = append(plain, value.Str(name))
		}
	}
	found := value.NewDict(targets.Len())
	if len(plain) > 0 {
		if d, err := p.latest(ctx, p.bare, value.DictOf("refresh", refresh), plain); err == nil {
			found.Update(d)
		}
	}
	if len(exact) > 0 && p.can("list_repo_pkgs") {
		if v, err := p.bare(ctx, "list_repo_pkgs", nil, anys(exact)...); err == nil {
			d, _ := v.(*value.Dict)
			for name, versions := range d.All() {
				if all := value.Texts(versions); len(all) > 0 {
					found.Set(name, all[0])
				}
			}
		}
	}
	out := value.NewDict(targets.Len())
	for _, name := range keys(targets) {
		version, old := found.At(name), have.At(name)
		if !value.Truth(version) {
			version = "installed"
		}
		if old == nil {
			old = ""
		}
		out.Set(name, value.DictOf("new", version, "old", old))
	}
	return out
}

// do installs the packages and verifies the result.
func (in *install) do(ctx context.Context) (state.Change, error) {
	c := state.Change{Diff: value.NewDict(4)}
	var comments []string
	done := value.NewDict(0)
	if in.targets.Len()+in.reinstall.Len() > 0 {
		v, err := in.exec(ctx, "install", in.keywords())
		if err != nil {
			return failure(err, "An error was encountered while installing package(s)")
		}
		if d, ok := v.(*value.Dict); ok {
			done = d
			c.Diff.Update(d)
		} else if s, ok := v.(string); ok {
			comments = append(comments, s)
		}
	}
	h, err := in.hold(ctx)
	if err != nil {
		return c, fn.Errorf("%s", strings.Join(append(comments, err.Error()), "\n"))
	}
	if len(in.unpurge) > 0 {
		v, err := in.e.Exec(ctx, "lowpkg.unpurge", nil, anys(in.unpurge)...)
		if err != nil {
			return c, err
		}
		c.Diff.Set("purge_desired", v)
	}
	more, failed, err := in.outcome(ctx, c.Diff, h)
	if err != nil {
		return c, err
	}
	comments = append(comments, more...)
	if len(failed) > 0 {
		comments = slices.Insert(comments, 0, "The following packages failed to install/update: "+strings.Join(in.label(failed, in.desired), ", "))
	}
	for _, r := range h.failed {
		comments = append(comments, r.Str("comment"))
	}
	more, good, err := in.again(ctx, done)
	if err != nil {
		return c, err
	}
	c.Comment = strings.Join(append(comments, more...), "\n")
	if len(failed)+len(h.failed) > 0 || !good {
		err = fn.Errorf("%s", c.Comment)
		c.Comment = ""
	}
	return c, err
}

// keywords returns the keywords for pkg.install.
func (in *install) keywords() *value.Dict {
	kw := value.DictOf("name", nil, "refresh", in.refresh, "fromrepo", in.a.From, "skip_verify", in.a.SkipVerify, "pkgs", nil, "sources", nil,
		"reinstall", in.reinstall.Len() > 0, "normalize", in.a.Plain, "update_holds", in.a.UpdateHolds, "ignore_epoch", in.a.Epoch)
	l := &value.List{}
	if in.sources == nil {
		for _, d := range []*value.Dict{in.targets, in.reinstall} {
			for name, version := range d.All() {
				l.Append(value.DictOf(name, version))
			}
		}
		kw.Set("pkgs", l)
		return kw
	}
	for _, d := range []*value.Dict{in.targets, in.reinstall} {
		for _, it := range in.sources.Items {
			src, _ := it.(*value.Dict)
			if k, _ := src.Entry(0); d.Has(k) {
				l.Append(src)
			}
		}
	}
	kw.Set("sources", l)
	return kw
}

// outcome compares the installed packages with the wanted ones.
func (in *install) outcome(ctx context.Context, changes *value.Dict, h heldNow) (comments, failed []string, err error) {
	var modified, unmodified []string
	if in.sources != nil {
		for _, name := range keys(changes) {
			if in.targets.Has(name) {
				modified = append(modified, name)
			}
		}
		for _, name := range keys(in.desired) {
			switch {
			case in.targets.Has(name) && !changes.Has(name):
				failed = append(failed, name)
			case !in.targets.Has(name) && !in.reinstall.Has(name):
				unmodified = append(unmodified, name)
			}
		}
	} else {
		have, err := in.installed(ctx)
		if err != nil {
			return nil, nil, err
		}
		for name, wanted := range in.desired.All() {
			n := value.Str(name)
			ok, err := in.verified(ctx, n, wanted, have)
			switch {
			case err != nil:
				return nil, nil, err
			case ok && in.targets.Has(n):
				modified = append(modified, n)
			case ok && !in.reinstall.Has(n):
				unmodified = append(unmodified, n)
			case !ok && in.targets.Has(n):
				failed = append(failed, n)
			}
		}
	}
	if len(modified) > 0 {
		summary := strings.Join(in.label(modified, in.desired), ", ")
		switch {
		case len(summary) < 20:
			comments = append(comments, "The following packages were installed/updated: "+summary)
		case len(modified) > 1:
			comments = append(comments, fmt.Sprintf("%d targeted packages were installed/updated.", len(modified)))
		default:
			comments = append(comments, "1 targeted package was installed/updated.")
		}
	}
	comments = append(comments, h.merge(changes)...)
	switch n := len(unmodified); {
	case n > 20:
		comments = append(comments, fmt.Sprintf("%d targeted packages were already installed", n))
	case n > 0:
		comments = append(comments, "The following packages were already installed: "+strings.Join(in.label(unmodified, in.desired), ", "))
	}
	for _, r := range h.same {
		comments = append(comments, r.Str("comment"))
	}
	return comments, failed, nil
}

// verified reports whether a package is installed as wanted.
func (p pkg) verified(ctx context.Context, name string, wanted any, have *value.Dict) (bool, error) {
	plain, _, _ := strings.Cut(name, "=")
	versions := value.Texts(have.At(plain))
	if len(versions) == 0 {
		versions = value.Texts(have.At(name))
	}
	if len(versions) == 0 || wanted == "latest" {
		return len(versions) > 0, nil
	}
	v, err := p.clean(ctx, wanted)
	if err != nil || !value.Truth(v) {
		return err == nil, err
	}
	text := value.Str(wanted)
	if start, ok := strings.CutSuffix(text, "*"); ok && strings.HasPrefix(versions[0], start) {
		return true, nil
	}
	return p.fulfills(ctx, versions, text, nil, false)
}

// again reports the packages that were reinstalled.
func (in *install) again(ctx context.Context, done *value.Dict) (comments []string, good bool, err error) {
	good = true
	var bad []string
	for _, name := range keys(in.reinstall) {
		label := in.label([]string{name}, in.desired)[0]
		failed := !done.Has(name)
		if !in.a.Reinstall {
			v, err := in.verify(ctx, name)
			if err != nil {
				return nil, false, err
			}
			if failed = value.Truth(v); failed {
				in.altered.Set(name, v)
			}
		}
		list, text, files := &comments, "Package "+label+" was reinstalled.", " The following files were remediated:"
		if failed {
			good = false
			list, text, files = &bad, "Reinstall was not successful for package "+label+".", " The following files could not be remediated:"
		}
		if v, ok := in.altered.Get(name); ok {
			*list = append(*list, text+files, output.Nested(v))
		} else {
			*list = append(*list, text)
		}
	}
	return append(comments, bad...), good, nil
}

// heldNow has the results of the argument hold, as pkg.hold returns them.
type heldNow struct{ changed, same, failed []*value.Dict }

// merge adds the changes of holds to those of packages, and returns comments.
func (h heldNow) merge(changes *value.Dict) (comments []string) {
	for _, r := range h.changed {
		name, own := r.Str("name"), r.Dict("changes")
		comments = append(comments, r.Str("comment"))
		if !changes.Has(name) {
			changes.Set(name, value.DictOf("new", own.Str("new")))
			continue
		}
		both := changes.Dict(name).Clone()
		for _, k := range []string{"new", "old"} {
			text := both.Str(k)
			if text != "" {
				text += "\n"
			}
			both.Set(k, text+own.Str(k))
		}
		changes.Set(name, both)
	}
	return comments
}

// hold holds or unholds the packages if the state declares it.
func (in *install) hold(ctx context.Context) (h heldNow, err error) {
	on, ok := in.options.Get("hold")
	if !ok || !in.can("hold") {
		return h, nil
	}
	fun := "unhold"
	if value.Truth(on) {
		fun = "hold"
	}
	l := &value.List{}
	for name, version := range in.desired.All() {
		if value.Truth(version) && in.sources == nil {
			l.Append(value.DictOf(name, version))
		} else {
			l.Append(name)
		}
	}
	v, err := in.bare(ctx, fun, value.DictOf("name", given(in.a.Name), "pkgs", l))
	if err != nil {
		return h, err
	}
	d, _ := v.(*value.Dict)
	if ok, has := d.Get("result"); has && !value.Truth(ok) {
		return h, fn.Errorf("An error was encountered while holding/unholding package(s): %s", d.Str("comment"))
	}
	for _, it := range d.All() {
		switch r, _ := it.(*value.Dict); {
		case r == nil:
		case value.Truth(r.At("changes")):
			h.changed = append(h.changed, r)
		case value.Truth(r.At("result")):
			h.same = append(h.same, r)
		default:
			h.failed = append(h.failed, r)
		}
	}
	return h, nil
}

// onlyHold returns the plan for packages that are installed as wanted, but may
// have to be held or unheld.
func (in *install) onlyHold(ctx context.Context, comment string) (state.Plan, error) {
	p := state.Plan{Comment: comment, Warnings: in.warnings}
	on, ok := in.options.Get("hold")
	if !ok || !in.can("hold") {
		return p, nil
	}
	locks, _, err := in.holds(ctx)
	if err != nil {
		return p, err
	}
	text := map[bool][2]string{true: {"is set to be held", "is already set to be held"},
		false: {"is set not to be held", "is already set not to be held"}}[value.Truth(on)]
	predicted, change := comment, false
	for _, name := range keys(in.desired) {
		if locks.Has(name) == value.Truth(on) {
			predicted += ".\nPackage " + name + " " + text[1] + "."
			continue
		}
		predicted += ".\nPackage " + name + " " + text[0] + "."
		change = true
	}
	if !change {
		p.Comment = predicted
		return p, nil
	}
	p.Steps = []state.Step{{Change: state.Change{Comment: predicted}, Do: func(ctx context.Context) (state.Change, error) {
		h, err := in.hold(ctx)
		if err != nil {
			return state.Change{}, err
		}
		c := state.Change{Diff: value.NewDict(1), Comment: comment}
		for _, r := range slices.Concat(h.changed, h.same, h.failed) {
			c.Comment += ".\n" + r.Str("comment")
		}
		for _, r := range h.changed {
			c.Diff.Set(r.Str("name"), r.At("changes"))
		}
		if len(h.failed) > 0 {
			err = fn.Errorf("%s", c.Comment)
			c.Comment = ""
		}
		return c, err
	}}}
	return p, nil
}
