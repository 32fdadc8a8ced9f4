package state

import "brine/internal/py/value"

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

// Internal reports whether a key of a chunk belongs to the engine: it is not
// given to a state that does not declare it.
func Internal(key any) bool {
	s, ok := key.(string)
	return ok && internal[s]
}

// Arguments picks from a chunk what the function takes. extra are the unknown keys,
// for a warning.
func (f *Func) Arguments(low *value.Dict) (kwargs *value.Dict, extra []string) {
	kwargs = value.NewDict(low.Len())
	for k, v := range low.All() {
		name, ok := k.(string)
		_, declared := f.Param(name)
		switch {
		case ok && declared, f.TakesKwargs() && !Internal(k):
			kwargs.Set(k, v)
		case !Internal(k):
			extra = append(extra, value.Str(k))
		}
	}
	return kwargs, extra
}
