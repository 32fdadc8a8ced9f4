package acl

import (
	"fmt"
	"strings"

	"brine/internal/base/field"
	"brine/internal/base/target"
	"brine/internal/py/value"
)

// Named reports whether a pattern matches a name: as an equal string, as a shell glob, or as a
// regular expression for the whole name.
//
// A pattern whose only special character is a dot is a literal: as a regular expression, as in
// Salt, john.doe would also match johnxdoe.
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

// listed reports whether a pattern, or one in a list, matches name.
func listed(patterns any, name string) bool {
	for _, p := range several(patterns) {
		if s, ok := p.(string); ok && Named(s, name) {
			return true
		}
	}
	return false
}

// Users collects the entries of publisher_acl for a local user.
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

// External collects the permissions that the map of one system of external_auth grants a user and
// the user's groups. Keys that begin with ^ are settings of the system, keys that end with % are
// group names, all others are patterns for user names. The key * applies to users whom no other
// pattern matches, or, if permissive (option permissive_acl), to all.
//
// Salt 3007 swaps pattern and string, so that a user who signs in as * gets the permissions of
// everyone. Here the key is the pattern, as Salt's manual documents it.
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

// CheckBlacklist returns an error for a part of the option publisher_acl_blacklist that would forbid
// nothing.
func CheckBlacklist(blacklist *value.Dict) error {
	for k, v := range blacklist.All() {
		if k != "users" && k != "modules" {
			return fmt.Errorf("there is no key %.80q that forbids something; use users or modules", value.Str(k))
		}
		for _, pattern := range several(v) {
			s, ok := pattern.(string)
			if !ok {
				return fmt.Errorf("%v: expected a name or pattern, or a list of them, got %s", k, field.Describe(pattern))
			}
			if _, err := target.CompileFullRegexp(s); err != nil && !strings.ContainsAny(s, "*?[") {
				return fmt.Errorf("%v: the pattern %.80q is malformed: %w", k, s, err)
			}
		}
	}
	return nil
}

// Blacklisted reports whether the option publisher_acl_blacklist forbids a user or one of the functions.
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

// The forms of functions that the master itself runs.
const (
	Runner = "runner"
	Wheel  = "wheel"
)

// OnMaster reports whether a list allows a function of the master. form is Runner or Wheel. Only
// entries that begin with @ count: the form (@runner or @runners) or a module name (@jobs). An
// entry alone allows all functions; as the key of a map it has conditions on the full name or on
// the function's name in the module.
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
