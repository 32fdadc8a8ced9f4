package acl

import (
	"strings"

	"brine/internal/base/target"
	"brine/internal/py/value"
)

// Named reports whether a pattern means a text: it is equal to it, or a shell
// glob for it, or a regular expression for the whole of it.
//
// A pattern without any sign but a dot is a name and no expression: Salt's
// regular expression john.doe would let johnxdoe in as well.
func Named(pattern, text string) bool {
	if pattern == text {
		return true
	}
	if !strings.ContainsAny(pattern, `*?[](){}|^$+\`) {
		return false
	}
	if target.ParseGlob(pattern).Match(text) {
		return true
	}
	re, err := target.CompileFullRegexp(pattern)
	return err == nil && re.MatchString(text)
}

// listed reports whether a text, or one of a list, means name.
func listed(patterns any, name string) bool {
	for _, p := range several(patterns) {
		if s, ok := p.(string); ok && Named(s, name) {
			return true
		}
	}
	return false
}

// Users collects the entries of publisher_acl for a user of this machine.
func Users(m *value.Dict, name string) []any {
	var all []any
	for k, v := range m.All() {
		if pattern, ok := k.(string); ok && Named(pattern, name) {
			if l, ok := v.(*value.List); ok {
				all = append(all, l.Items...)
			}
		}
	}
	return all
}

// External collects what the map of one system of external_auth grants a user
// and the groups that the user is in. Keys that begin with ^ are settings of
// the system, those that end with % are names of groups, all others are
// patterns for names. The key * holds for those whom no other pattern means,
// or, if permissive (option permissive_acl), for all.
//
// Salt 3007 takes the name for the pattern and the key for the text, so that
// somebody who signs in as * gets everybody's rights. Here it is the other way
// round, as its manual has it.
func External(m *value.Dict, name string, groups []string, permissive bool) []any {
	var all []any
	add := func(v any) {
		if l, ok := v.(*value.List); ok {
			all = append(all, l.Items...)
		}
	}
	meant := false
	for k, v := range m.All() {
		key, ok := k.(string)
		switch {
		case !ok || strings.HasPrefix(key, "^"):
		case key == "*":
			if permissive {
				add(v)
			}
		case strings.HasSuffix(key, "%"):
			for _, g := range groups {
				if g == strings.TrimRight(key, "%") {
					add(v)
					break
				}
			}
		case Named(key, name):
			meant = true
			add(v)
		}
	}
	if !permissive && !meant {
		add(m.At("*"))
	}
	return all
}

// Blacklisted reports whether the option publisher_acl_blacklist forbids a
// user or one of the functions.
func Blacklisted(blacklist *value.Dict, user string, calls []Call) bool {
	if listed(blacklist.At("users"), user) {
		return true
	}
	for _, c := range calls {
		if listed(blacklist.At("modules"), c.Fun) {
			return true
		}
	}
	return false
}

// The forms of functions that masters run themselves.
const (
	Runner = "runner"
	Wheel  = "wheel"
)

// OnMaster reports whether a list allows a function of the master. form is
// Runner or Wheel. Of the entries only those count that begin with @: the form
// (@runner or @runners) or the name of a module (@jobs), alone for all its
// functions, or as the key of a map to conditions, on the whole name or on
// that of the function in the module.
func OnMaster(list []any, form string, c Call) bool {
	mod, fun, ok := strings.Cut(c.Fun, ".")
	if !ok || mod == "" || strings.Contains(fun, ".") {
		return false
	}
	inModule := Call{Fun: fun, Args: c.Args, Kwargs: c.Kwargs}
	for _, entry := range list {
		switch e := entry.(type) {
		case string:
			if e == "@"+form || e == "@"+form+"s" || e == "@"+mod {
				return true
			}
		case *value.Dict:
			key, conditions, ok := only(e)
			if !ok {
				continue
			}
			if key == "@"+mod && inModule.fulfils(conditions) ||
				(key == "@"+form || key == "@"+form+"s") && c.fulfils(conditions) {
				return true
			}
		}
	}
	return false
}
