// Package acl decides whether a user or minion may run functions, by lists in the form of Salt's
// options peer, peer_run, publisher_acl and external_auth. It works on the lists alone: it reads no
// files and contacts no daemon.
//
// An entry of a list is a string, a regular expression for functions allowed on all minions, or a
// map of one target to conditions:
//
//   - test.*
//   - 'web*':
//   - pkg.list_pkgs
//   - cmd.run:
//     args: ['uptime', null]
//     kwargs: {cwd: /tmp}
//
// Expressions are Python's and are anchored at the start only, as in Salt: "test.ping" also allows
// test.ping_all. An invalid expression or entry allows nothing.
package acl

import (
	"slices"

	"brine/internal/base/target"
	"brine/internal/py/value"
)

// Call is one function with its arguments.
type Call struct {
	Fun    string
	Args   []any
	Kwargs *value.Dict
}

// Lists collects the entries of all lists whose key, a regular expression, matches name.
func Lists(m *value.Dict, name string) []any {
	var all []any
	for k, v := range m.All() {
		if expr, ok := k.(string); ok && fits(expr, name) {
			if l, ok := v.(*value.List); ok {
				all = append(all, l.Items...)
			}
		}
	}
	return all
}

// Matches reports whether a regular expression in a list matches the beginning of text.
func Matches(list []any, text string) bool {
	return slices.ContainsFunc(list, func(e any) bool { expr, ok := e.(string); return ok && fits(expr, text) })
}

// Allowed reports whether a list allows all of the calls; there must be at least one. covers
// reports whether a compound target includes all minions of the calls; it may be nil if there are
// none.
//
// Salt allows a request with several functions as soon as one of them is allowed. That is a
// security hole, so here each must be.
//
// covers is called once for each target, whatever the number of calls: it may read the data of all
// minions.
func Allowed(list []any, calls []Call, covers func(target string) bool) bool {
	if covers != nil {
		ask, known := covers, map[string]bool{}
		covers = func(tgt string) bool {
			ok, asked := known[tgt]
			if !asked {
				ok = ask(tgt)
				known[tgt] = ok
			}
			return ok
		}
	}
	for _, c := range calls {
		if !allowed(list, c, covers) {
			return false
		}
	}
	return len(calls) > 0
}

func allowed(list []any, c Call, covers func(string) bool) bool {
	for _, entry := range list {
		switch e := entry.(type) {
		case string:
			if fits(e, c.Fun) {
				return true
			}
		case *value.Dict:
			tgt, conditions, ok := only(e)
			if ok && covers != nil && covers(tgt) && c.fulfils(conditions) {
				return true
			}
		}
	}
	return false
}

// fulfils checks the function and its arguments against one condition or a list.
func (c Call) fulfils(conditions any) bool {
	for _, cond := range several(conditions) {
		switch x := cond.(type) {
		case string:
			if fits(x, c.Fun) {
				return true
			}
		case *value.Dict:
			if expr, args, ok := only(x); ok && fits(expr, c.Fun) && c.argsFulfil(args) {
				return true
			}
		}
	}
	return false
}

func (c Call) argsFulfil(conditions any) bool {
	for _, cond := range several(conditions) {
		if d, ok := cond.(*value.Dict); ok && c.positional(d.List("args")) && c.keywords(d.Dict("kwargs")) {
			return true
		}
	}
	return false
}

func (c Call) positional(want []any) bool {
	for i, w := range want {
		if i >= len(c.Args) || !suits(w, c.Args[i]) {
			return false
		}
	}
	return true
}

func (c Call) keywords(want *value.Dict) bool {
	for k, w := range want.All() {
		have, ok := c.Kwargs.Get(k)
		if !ok || !suits(w, have) {
			return false
		}
	}
	return true
}

// suits reports whether an argument matches its expression. None matches any argument.
func suits(want, have any) bool {
	if want == nil {
		return true
	}
	expr, ok := want.(string)
	return ok && fits(expr, value.Str(have))
}

func several(v any) []any {
	if l, ok := v.(*value.List); ok {
		return l.Items
	}
	return []any{v}
}

// only returns the single entry of a map.
func only(d *value.Dict) (key string, v any, ok bool) {
	if d.Len() != 1 {
		return "", nil, false
	}
	k, v := d.Entry(0)
	key, ok = k.(string)
	return key, v, ok
}

func fits(expr, text string) bool {
	re, err := target.CompileRegexp(expr)
	return err == nil && re.MatchString(text)
}
