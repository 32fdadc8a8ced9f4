package vcs

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(g git) []state.Func {
		return []state.Func{
			state.Of("config_set", g.configSet, `Keep a setting of a repository or user at a value, or a list of values; the keyword global makes it the user's.`),
			state.Of("config_unset", g.configUnset, `Remove settings whose names a pattern fits; the keyword all removes several values, global makes it the user's.`),
		}
	})
}

type configSetArgs struct {
	Name     string `salt:"name" doc:"name of the setting"`
	Value    any    `salt:"value" doc:"value" default:"null"`
	Multivar any    `salt:"multivar" doc:"list of values" default:"null"`
	Repo     string `salt:"repo" doc:"directory of the checkout or repository; not with global" default:"null"`
	as
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// settings accesses the settings of a repository or of a user.
type settings struct {
	repo
	global bool
}

func (g git) settings(dir string, a as, k fn.Kwargs) (settings, error) {
	s := settings{g.local(dir, a), k.Bool("global")}
	if !s.global && dir == "" {
		return s, fn.Errorf("Non-global config options require the 'repo' argument to be set")
	}
	return s, nil
}

func (s settings) args(more ...string) []string {
	if s.global {
		return append([]string{"config", "--global"}, more...)
	}
	return append([]string{"config"}, more...)
}

// get returns all values of a setting, nil if there is none.
func (s settings) get(ctx context.Context, name string) []string {
	out, err := s.Run(ctx, s.args("--get-all", name)...)
	if err != nil {
		return nil
	}
	return strings.Split(out, "\n")
}

// match returns the values of all settings that match a pattern: a dict of
// lists.
func (s settings) match(ctx context.Context, pattern, valueRegex string) *value.Dict {
	args := s.args("--get-regexp", pattern)
	if valueRegex != "" {
		args = append(args, valueRegex)
	}
	out := value.NewDict(0)
	for line := range strings.SplitSeq(s.word(ctx, args...), "\n") {
		k, v, ok := strings.Cut(line, " ")
		if !ok {
			continue
		}
		if !out.Has(k) {
			out.Set(k, &value.List{})
		}
		out.At(k).(*value.List).Append(v)
	}
	return out
}

func (g git) configSet(ctx context.Context, _ *state.Env, a configSetArgs) (state.Plan, error) {
	if a.Value != nil && a.Multivar != nil {
		return state.Plan{}, fn.Errorf("Only one of 'value' and 'multivar' is permitted")
	}
	if err := known(a.Kwargs, "global"); err != nil {
		return state.Plan{}, err
	}
	s, err := g.settings(a.Repo, a.as, a.Kwargs)
	if err != nil {
		return state.Plan{}, err
	}
	want, shown := a.values()
	if want == nil {
		return state.Plan{}, fn.Errorf("one of 'value' and 'multivar' is needed")
	}
	key := "'" + a.Name + "'"
	if s.global {
		key = "Global key " + key
	}
	pre := s.get(ctx, a.Name)
	if pre != nil && slices.Equal(pre, want) {
		return state.Plan{Comment: key + " is already set to " + shown}, nil
	}
	verb := "set to "
	if pre == nil {
		verb = "added as "
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: value.DictOf("old", listOrNil(pre), "new", value.Strings(want)), Comment: key + " would be " + verb + shown},
		Do: func(ctx context.Context) (state.Change, error) {
			failed := "Failed to set " + strings.Replace(key, "Global", "global", 1) + " to " + shown
			how := "--replace-all"
			for _, v := range want {
				if _, err := s.Run(ctx, s.args(how, a.Name, v)...); err != nil {
					return state.Change{}, fn.Errorf("%s: %s", failed, said(err))
				}
				how = "--add"
			}
			post := s.get(ctx, a.Name)
			c := state.Change{}
			if !slices.Equal(pre, post) {
				c.Diff = value.DictOf(a.Name, value.DictOf("old", listOrNil(pre), "new", listOrNil(post)))
			}
			if post == nil || !slices.Equal(post, want) {
				return c, fn.Errorf("%s", failed)
			}
			c.Comment = key + " was " + verb + shown
			return c, nil
		},
	}}}, nil
}

// values returns the wanted values of the setting, and how they are shown.
func (a configSetArgs) values() ([]string, string) {
	switch x := a.Multivar.(type) {
	case nil:
		if a.Value == nil {
			return nil, ""
		}
		return []string{value.Str(a.Value)}, "'" + value.Str(a.Value) + "'"
	case *value.List:
		want := []string{}
		for _, it := range x.Items {
			want = append(want, value.Str(it))
		}
		return want, value.Repr(value.Strings(want))
	default:
		want := strings.Split(value.Str(x), ",")
		return want, value.Repr(value.Strings(want))
	}
}

func listOrNil(list []string) any {
	if list == nil {
		return nil
	}
	return value.Strings(list)
}

type configUnsetArgs struct {
	Name  string `salt:"name" doc:"pattern of the names of settings"`
	Regex string `salt:"value_regex" doc:"only values that this fits" default:"null"`
	Repo  string `salt:"repo" doc:"directory of the checkout or repository; not with global" default:"null"`
	as
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (g git) configUnset(ctx context.Context, _ *state.Env, a configUnsetArgs) (state.Plan, error) {
	if err := known(a.Kwargs, "global", "all"); err != nil {
		return state.Plan{}, err
	}
	s, err := g.settings(a.Repo, a.as, a.Kwargs)
	if err != nil {
		return state.Plan{}, err
	}
	if !s.global && !filesys.IsDir(a.Repo) {
		return state.Plan{}, fn.Errorf("Specified cwd '%s' either not absolute or does not exist", a.Repo)
	}
	pattern := "^" + strings.TrimRight(strings.TrimLeft(a.Name, "^"), "$") + "$"
	found := s.match(ctx, pattern, a.Regex)
	if found.Len() == 0 {
		return state.Plan{Comment: "No matching keys are set"}, nil
	}
	all := a.Kwargs.Bool("all")
	if several := shownValues(found, 2); !all && several != "" {
		if a.Regex != "" {
			return state.Plan{}, fn.Errorf("Multiple values are matched by value_regex for the following keys (set 'all' to True to force removal): %s", several)
		}
		return state.Plan{}, fn.Errorf("Multivar(s) matched by the key expression (set 'all' to True to force removal): %s", several)
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: found, Comment: strconv.Itoa(found.Len()) + " key(s) would have value(s) unset"},
		Do: func(ctx context.Context) (state.Change, error) {
			pre := s.match(ctx, pattern, "")
			how := "--unset"
			if all {
				how = "--unset-all"
			}
			var failed []string
			for k := range found.All() {
				args := s.args(how, value.Str(k))
				if a.Regex != "" {
					args = append(args, a.Regex)
				}
				if !s.does(ctx, args...) {
					failed = append(failed, value.Str(k))
				}
			}
			if len(failed) > 0 {
				return state.Change{}, fn.Errorf("Error(s) occurred unsetting values for the following keys: %s", strings.Join(failed, ", "))
			}
			diff := gone(pre, s.match(ctx, pattern, ""))
			if left := s.match(ctx, pattern, a.Regex); left.Len() > 0 {
				return state.Change{Diff: diff}, fn.Errorf("Failed to unset value(s): %s", shownValues(left, 1))
			}
			return state.Change{Diff: diff, Comment: "Value(s) successfully unset"}, nil
		},
	}}}, nil
}

// gone returns the values that were removed.
func gone(pre, post *value.Dict) *value.Dict {
	out := value.NewDict(0)
	for k, v := range pre.All() {
		left := post.List(value.Str(k))
		lost := value.ListOf()
		for _, it := range v.(*value.List).Items {
			if !slices.Contains(left, it) {
				lost.Append(it)
			}
		}
		if lost.Len() > 0 {
			out.Set(k, lost)
		}
	}
	return out
}

// shownValues lists the settings that have at least n values.
func shownValues(d *value.Dict, n int) string {
	var out []string
	for k, v := range d.All() {
		l := v.(*value.List)
		if l.Len() < n {
			continue
		}
		var values []string
		for _, it := range l.Items {
			values = append(values, value.Str(it))
		}
		out = append(out, value.Str(k)+" ("+strings.Join(values, ", ")+")")
	}
	return strings.Join(out, "; ")
}
