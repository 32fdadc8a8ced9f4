package state

import (
	"fmt"
	"slices"
	"strings"

	"brine/internal/base/textedit"
	"brine/internal/py/value"
)

// Requisites are the keywords that relate a state to others.
var Requisites = []string{
	"onchanges", "onchanges_any", "onfail", "onfail_any", "onfail_all", "onfail_stop", "prereq", "prerequired",
	"watch", "watch_any", "require", "require_any", "listen",
}

// RequisitesIn are the keywords that relate other states to the one that has
// them.
var RequisitesIn = []string{"onchanges_in", "onfail_in", "prereq_in", "watch_in", "require_in", "listen_in"}

var internal = func() map[string]bool {
	m := map[string]bool{}
	for _, list := range [][]string{Requisites, RequisitesIn, {
		"fun", "state", "check_cmd", "cmd_opts_exclude", "failhard", "onlyif", "unless", "creates", "retry", "order", "parallel",
		"reload_modules", "reload_grains", "reload_pillar", "runas", "runas_password", "fire_event", "saltenv", "umask", "use", "use_in",
		"__env__", "__sls__", "__id__", "__sls_included_from__", "__orchestration_jid__",
		"__pub_user", "__pub_arg", "__pub_jid", "__pub_fun", "__pub_tgt", "__pub_ret", "__pub_pid", "__pub_tgt_type",
		"__prereq__", "__prerequired__", "__umask__",
	}} {
		for _, k := range list {
			m[k] = true
		}
	}
	return m
}()

// Aggregated is the key that marks a chunk that has been merged with others, or into another one.
const Aggregated = "__agg__"

// Internal reports whether a key of a chunk belongs to the engine: it is not
// given to a state that does not declare it.
func Internal(key any) bool {
	s, ok := key.(string)
	return ok && internal[s]
}

// Arguments extracts the function's arguments from a chunk. extra are the unknown
// keys, for a warning.
func (f *Func) Arguments(low *value.Dict) (kwargs *value.Dict, extra []string) {
	kwargs = value.NewDict(low.Len())
	for k, v := range low.All() {
		name, ok := k.(string)
		_, declared := f.Param(name)
		switch {
		case ok && declared, f.TakesKwargs() && !Internal(k):
			kwargs.Set(k, v)
		case !Internal(k) && name != Aggregated:
			extra = append(extra, value.Str(k))
		}
	}
	return kwargs, extra
}

// Knows returns the function with further keywords that it reads without declaring
// them, for example to reject them with its own message. They are not reported as
// misspelt.
func (f Func) Knows(keywords ...string) Func {
	f.known = append(slices.Clip(f.known), keywords...)
	return f
}

// Misspelt returns a warning for each key of a chunk that the function does not
// declare and that is similar to an argument that it declares and the chunk lacks. A
// function that takes any keyword ignores such a key otherwise.
func (f *Func) Misspelt(low *value.Dict) (warnings []string) {
	var free []string // arguments that are not given
	for k := range low.All() {
		name, ok := k.(string)
		if _, declared := f.Param(name); !ok || declared || Internal(k) || strings.HasPrefix(name, "__") || strings.Contains(name, ".") ||
			slices.Contains(f.known, name) {
			continue
		}
		if free == nil {
			for _, p := range f.Params() {
				if !low.Has(p.Name) {
					free = append(free, p.Name)
				}
			}
		}
		if near := textedit.Nearest(name, free); len(near) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s is no argument of this state and has no effect; did you mean %s?", name, near[0]))
		}
	}
	return warnings
}
