// Package top reads top files, which assign SLS files of environments to minions.
// It collects the top files of all environments with their includes, merges them
// by the option top_file_merging_strategy, and matches the result against one
// minion.
//
//	files, err := top.Gather(ctx, src, opts, saltenv)
//	merged, err := top.Merge(files, opts, log)
//	matches, err := top.Matches(merged, saltenv, subject, nodegroups, avail)
//
// It reads no file and knows no template language: a Source provides the data
// of each file, which it does not modify.
//
// Package pillar merges its top files by other rules; it shares Confirm.
package top

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/py/value"
)

// Options are the options for finding and merging top files.
type Options struct {
	StateTop        string   `salt:"state_top" default:"top.sls" doc:"name of the top file" change:"live"`
	StateTopSaltenv any      `salt:"state_top_saltenv" default:"null" doc:"the only environment whose top file is used; null: all" change:"live"`
	Strategy        string   `salt:"top_file_merging_strategy" default:"merge" doc:"how the top files of several environments become one: merge, same or merge_all" change:"live"`
	EnvOrder        []string `salt:"env_order" default:"[]" doc:"order of the environments' top files" change:"live"`
	DefaultTop      string   `salt:"default_top" default:"base" doc:"with the strategy same: environment whose top file is used by those without one" change:"live"`
}

// FromMaster returns the options in a master's answer to _master_opts, which
// apply to the minion's states.
func FromMaster(d *value.Dict) Options {
	o := Options{StateTop: d.Str("state_top"), StateTopSaltenv: d.At("state_top_saltenv"), Strategy: d.Str("top_file_merging_strategy"),
		DefaultTop: d.Str("default_top")}
	for _, e := range d.List("env_order") {
		o.EnvOrder = append(o.EnvOrder, value.Str(e))
	}
	if o.StateTop == "" {
		o.StateTop = "top.sls"
	}
	return o
}

// File returns the path of the top file in an environment.
func (o Options) File() string {
	return strings.TrimLeft(strings.TrimPrefix(o.StateTop, "salt://"), "/")
}

// Source provides the data of top files.
type Source interface {
	// Envs returns the names of the environments in order.
	Envs(ctx context.Context) ([]string, error)
	// States returns the sorted names of the SLS files of an environment.
	States(ctx context.Context, saltenv string) ([]string, error)
	// Top renders the top file of an environment; ok is false if there is
	// none.
	Top(ctx context.Context, saltenv string) (data any, ok bool, err error)
	// SLS renders a file that a top file includes.
	SLS(ctx context.Context, name, saltenv string) (any, error)
}

// Files are the top files of one environment: its own and included ones.
type Files struct {
	Saltenv string
	Tops    []*value.Dict
}

// Gather renders the top files; with a saltenv only those of that environment.
func Gather(ctx context.Context, src Source, o Options, saltenv string) ([]Files, error) {
	if o.Strategy == "same" && saltenv == "" && o.DefaultTop == "" {
		return nil, salt.Errorf(salt.Invalid, "top_file_merging_strategy set to 'same', but no default_top configuration option was set")
	}
	envs := []string{saltenv}
	if saltenv == "" {
		var err error
		if envs, err = o.envs(ctx, src); err != nil {
			return nil, err
		}
	}
	var out []Files
	for _, env := range envs {
		f := Files{Saltenv: env}
		data, ok, err := src.Top(ctx, env)
		if err != nil {
			return nil, err
		}
		if !ok {
			data = value.NewDict(0)
		}
		if err := f.add(ctx, src, data, map[string]bool{}); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// envs returns the environments whose top files are used.
func (o Options) envs(ctx context.Context, src Source) ([]string, error) {
	if value.Truth(o.StateTopSaltenv) {
		return []string{value.Str(o.StateTopSaltenv)}, nil
	}
	have, err := src.Envs(ctx)
	if err != nil {
		return nil, err
	}
	if len(o.EnvOrder) == 0 {
		if !slices.Contains(have, "base") {
			have = append([]string{"base"}, have...)
		}
		// base comes first, the others in the master's order.
		slices.SortStableFunc(have, func(a, b string) int { return rank(a) - rank(b) })
		return have, nil
	}
	var out []string
	for _, e := range o.EnvOrder {
		if !slices.Contains(out, e) && (len(have) == 0 || slices.Contains(have, e)) {
			out = append(out, e)
		}
	}
	return out, nil
}

func rank(env string) int {
	if env == "base" {
		return 0
	}
	return 1
}

// add adds a rendered top file with its includes.
func (f *Files) add(ctx context.Context, src Source, data any, done map[string]bool) error {
	d, ok := data.(*value.Dict)
	if !ok {
		if data == nil {
			d = value.NewDict(0)
		} else {
			return salt.Errorf(salt.Invalid, "the top file of the environment %s is a %s, not a map of environments", f.Saltenv, value.TypeName(data))
		}
	}
	d = d.Clone()
	include := d.List("include")
	d.Delete("include")
	f.Tops = append(f.Tops, d)
	if len(include) == 0 {
		return nil
	}
	avail, err := src.States(ctx, f.Saltenv)
	if err != nil {
		return err
	}
	for _, it := range include {
		for _, name := range match(avail, value.Str(it)) {
			if done[name] {
				continue
			}
			done[name] = true
			data, err := src.SLS(ctx, name, f.Saltenv)
			if err != nil {
				return err
			}
			included, _ := data.(*value.Dict)
			included = included.Clone()
			included.Delete("include") // Salt includes only one level
			f.Tops = append(f.Tops, included)
		}
	}
	return nil
}

// match returns the names that match a glob.
func match(names []string, pattern string) []string {
	g := target.ParseGlob(pattern)
	var out []string
	for _, n := range names {
		if g.Match(n) {
			out = append(out, n)
		}
	}
	return out
}

// errNoTargets is Salt's message for an environment that is not a map.
var errNoTargets = salt.Errorf(salt.Invalid, "Unable to render top file. No targets found.")

// Merge merges all files into one top file: a map of environments to maps of
// targets.
func Merge(files []Files, o Options, log *slog.Logger) (*value.Dict, error) {
	m := merger{top: value.NewDict(4), log: log}
	switch o.Strategy {
	case "same":
		return m.top, m.same(files, o.DefaultTop)
	case "merge_all":
		return m.top, m.mergeAll(files)
	case "merge":
	default:
		log.Warn("Invalid top_file_merging_strategy '" + o.Strategy + "', falling back to 'merge'")
	}
	return m.top, m.merge(files)
}

type merger struct {
	top *value.Dict
	log *slog.Logger
}

// take adds an environment's targets to the merged file.
func (m merger) take(env any, targets any) error {
	d, ok := targets.(*value.Dict)
	if !ok {
		return errNoTargets
	}
	into, ok := m.top.At(env).(*value.Dict)
	if !ok {
		into = value.NewDict(d.Len())
		m.top.Set(env, into)
	}
	for tgt, data := range d.All() {
		into.Set(tgt, data)
	}
	return nil
}

// merge: base takes precedence; another environment's file counts only for that
// environment, and only if base does not mention it.
func (m merger) merge(files []Files) error {
	for _, f := range files {
		if f.Saltenv != "base" {
			continue
		}
		for _, t := range f.Tops {
			for env, targets := range t.All() {
				if err := m.take(env, targets); err != nil {
					return err
				}
			}
		}
	}
	for _, f := range files {
		if f.Saltenv == "base" {
			continue
		}
		for _, t := range f.Tops {
			// An earlier file of the same environment counts like base, as in Salt.
			if targets, ok := t.Get(f.Saltenv); ok && !m.top.Has(f.Saltenv) {
				if err := m.take(f.Saltenv, targets); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// same: each environment's file counts only for that environment; one without a
// file has that of usual.
func (m merger) same(files []Files, usual string) error {
	for _, f := range files {
		tops := f.Tops
		if empty(tops) {
			i := slices.IndexFunc(files, func(o Files) bool { return o.Saltenv == usual })
			if i < 0 || empty(files[i].Tops) {
				m.log.Error("environment has no top file, nor has the environment of default_top", "saltenv", f.Saltenv, "default_top", usual)
				continue
			}
			tops = files[i].Tops
		}
		for _, t := range tops {
			if targets, ok := t.Get(f.Saltenv); ok {
				if err := m.take(f.Saltenv, targets); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func empty(tops []*value.Dict) bool {
	return !slices.ContainsFunc(tops, func(t *value.Dict) bool { return t.Len() > 0 })
}

// mergeAll joins the lists of each target from all files.
func (m merger) mergeAll(files []Files) error {
	for _, f := range files {
		for _, t := range f.Tops {
			for env, targets := range t.All() {
				if err := m.takeAll(env, targets); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (m merger) takeAll(env, targets any) error {
	d, ok := targets.(*value.Dict)
	if !ok {
		return errNoTargets
	}
	into, ok := m.top.At(env).(*value.Dict)
	if !ok {
		into = value.NewDict(d.Len())
		m.top.Set(env, into)
	}
	for tgt, data := range d.All() {
		old, ok := into.Get(tgt)
		if !ok {
			into.Set(tgt, data)
			continue
		}
		how1, states1 := split(old)
		how2, states2 := split(data)
		if how2 == nil {
			how2 = how1
		}
		l := &value.List{}
		if how2 != nil {
			l.Append(how2)
		}
		l.Append(states1...)
		for _, s := range states2 {
			if !slices.ContainsFunc(l.Items, func(x any) bool { return value.Equal(x, s) }) {
				l.Append(s)
			}
		}
		into.Set(tgt, l)
	}
	return nil
}

// split splits a target's list: how it matches, and the names.
func split(v any) (how any, states []any) {
	for _, it := range Items(v) {
		switch it.(type) {
		case *value.Dict:
			how = it
		case string:
			states = append(states, it)
		}
	}
	return how, states
}

// Items returns the list of a target; a single name is a list of one.
func Items(v any) []any {
	switch x := v.(type) {
	case *value.List:
		if x == nil {
			return nil
		}
		return x.Items
	case value.Tuple:
		return x
	case string:
		return []any{x}
	}
	return nil
}

// Match is what applies to a minion in one environment.
type Match struct {
	Saltenv string
	SLS     []string
}

// Matcher matches a merged top file against one minion.
type Matcher struct {
	Subject    target.Subject
	Nodegroups target.Nodegroups
	// Avail reports whether an environment exists.
	Avail func(saltenv string) bool
	// Log logs invalid targets; it may be nil.
	Log *slog.Logger

	out []Match
}

// Matches returns what applies to the minion; with a saltenv only that
// environment's part of the file.
func (m *Matcher) Matches(merged *value.Dict, saltenv string) ([]Match, error) {
	m.out = nil
	for env, body := range merged.All() {
		name := value.Str(env)
		if saltenv != "" && name != saltenv {
			continue
		}
		targets, _ := body.(*value.Dict)
		for tgt, data := range targets.All() {
			if err := m.target(name, tgt, data, 0); err != nil {
				return nil, err
			}
		}
	}
	return m.out, nil
}

// maxDepth bounds the nesting of subfilters.
const maxDepth = 50

func (m *Matcher) target(env string, tgt, data any, depth int) error {
	ok, err := Confirm(tgt, data, m.Subject, m.Nodegroups, m.Log)
	if err != nil || !ok {
		return err
	}
	if depth > maxDepth {
		return salt.Errorf(salt.Invalid, "the subfilters of a top file are more than %d levels deep", maxDepth)
	}
	m.add(env)
	for _, it := range Items(data) {
		switch x := it.(type) {
		case string:
			m.add(env, x)
		case *value.Dict:
			if sub, ok := x.At("subfilter").(*value.Dict); ok {
				for t, d := range sub.All() {
					if err := m.target(env, t, d, depth+1); err != nil {
						return err
					}
				}
				continue
			}
			if x.Len() == 0 {
				continue
			}
			k, v := x.Entry(x.Len() - 1)
			name, isName := v.(string)
			if other := value.Str(k); isName && m.Avail != nil && m.Avail(other) {
				m.add(other, name)
			}
		}
	}
	return nil
}

func (m *Matcher) add(env string, names ...string) {
	i := slices.IndexFunc(m.out, func(x Match) bool { return x.Saltenv == env })
	if i < 0 {
		i = len(m.out)
		m.out = append(m.out, Match{Saltenv: env})
	}
	m.out[i].SLS = append(m.out[i].SLS, names...)
}

// Confirm reports whether a target of a top file matches a minion. The type of
// the target is compound unless an item {match: TYPE} of the list sets another.
// As in Salt, an invalid target matches no minion, and the other targets of the
// file still apply; log records the reason. An error means that Salt's matchers
// would stop.
func Confirm(tgt, data any, s target.Subject, groups target.Nodegroups, log *slog.Logger) (bool, error) {
	kind := "compound"
	for _, it := range Items(data) {
		if d, ok := it.(*value.Dict); ok && d.Has("match") {
			kind = value.Str(d.At("match"))
		}
	}
	m, err := groups.Parse(kind, asTarget(tgt), "")
	if err == nil {
		return m.Match(s), nil
	}
	err = salt.Errorf(salt.Invalid, "the target %s of a top file (match: %s): %w", value.Repr(tgt), kind, err)
	if target.Raises(err) {
		return false, err
	}
	if log != nil {
		log.Error("invalid target of a top file; it matches no minion: " + err.Error())
	}
	return false, nil
}

// asTarget converts a key of a top file, such as a number, to a target.
func asTarget(tgt any) any {
	switch tgt.(type) {
	case string, *value.List, value.Tuple:
		return tgt
	}
	return value.Str(tgt)
}

// Verify returns the errors in the structure of a merged top file, in Salt's
// words.
func Verify(merged any) []string {
	d, ok := merged.(*value.Dict)
	if !ok {
		return []string{"Top data was not formed as a dict"}
	}
	var faults []string
	for env, body := range d.All() {
		if value.Equal(env, "include") {
			continue
		}
		if _, ok := env.(string); !ok {
			faults = append(faults, fmt.Sprintf("Environment %s in top file is not formed as a string", value.Str(env)))
		}
		if value.Equal(env, "") {
			faults = append(faults, "Empty saltenv statement in top file")
		}
		targets, ok := body.(*value.Dict)
		if !ok {
			faults = append(faults, fmt.Sprintf("The top file matches for saltenv %s are not formatted as a dict", value.Str(env)))
		}
		for _, data := range targets.All() {
			faults = append(faults, verifyTarget(env, data)...)
		}
	}
	return faults
}

func verifyTarget(env, data any) []string {
	l, ok := data.(*value.List)
	if !ok {
		return []string{"Malformed topfile (state declarations not formed as a list)"}
	}
	var faults []string
	for _, it := range l.Items {
		switch x := it.(type) {
		case *value.Dict:
			for _, v := range x.All() {
				if !value.Truth(v) {
					faults = append(faults, fmt.Sprintf("Improperly formatted top file matcher in saltenv %s: %s file", value.Str(x), value.Str(v)))
				}
			}
		case string:
			if x == "" {
				faults = append(faults, fmt.Sprintf("Environment %s contains an empty sls index", value.Str(env)))
			}
		}
	}
	return faults
}
