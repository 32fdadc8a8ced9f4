package engine

import (
	"fmt"

	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// listener is a state that reacts at the end of the run to changes of others.
type listener struct {
	module, id string
	// lookup means that id may be an id or a name of any state of the module.
	name string
	to   []any
}

// listen runs mod_watch of the states that listen to changed ones, and adds
// their results.
func (r *run) listen(results *value.Dict) {
	listeners := r.listeners()
	if len(listeners) == 0 {
		return
	}
	byKey := map[[3]string]*unit{}
	var units []*unit
	for _, u := range r.units {
		k := [3]string{u.module, u.id, u.name}
		if byKey[k] == nil {
			units = append(units, u)
		}
		byKey[k] = u
	}
	find := func(module, ref string) []*unit {
		var out []*unit
		for _, u := range units {
			if u.module == module && (u.id == ref || u.name == ref || u.module == ref) {
				out = append(out, byKey[[3]string{u.module, u.id, u.name}])
			}
		}
		return out
	}
	faults := value.NewDict(0)
	var watchers []*unit
	for _, l := range listeners {
		for _, it := range l.to {
			watchers = append(watchers, r.heard(l, it, find, results, faults)...)
		}
	}
	watching := &run{deps: r.deps, opts: r.opts, now: r.now, ctx: r.ctx,
		verifier: r.verifier, conditions: r.conditions, performer: r.performer,
		shared: r.shared, units: watchers, results: value.NewDict(0), pre: value.NewDict(0),
		active: map[string]bool{}, pending: map[string]*pending{}, num: r.num, total: r.total + len(watchers)}
	watching.all(watchers)
	results.Update(watching.results)
	for _, v := range faults.All() {
		v.(*value.Dict).Set("__run_num__", watching.next())
	}
	results.Update(faults)
	r.num = watching.num
}

// listeners collects listen and listen_in.
func (r *run) listeners() []listener {
	var out []listener
	for _, u := range r.units {
		if l := u.low.List("listen"); len(l) > 0 {
			out = append(out, listener{u.module, u.id, u.name, l})
		}
		for _, it := range u.low.List("listen_in") {
			d, _ := it.(*value.Dict)
			for k, v := range d.All() {
				self := value.NewDict(1)
				self.Set(u.module, u.id)
				out = append(out, listener{value.Str(k), value.Str(v), "lookup", []any{self}})
			}
		}
	}
	return out
}

// heard returns the mod_watch calls for one item of a listen.
func (r *run) heard(l listener, it any, find func(module, ref string) []*unit, results, faults *value.Dict) []*unit {
	d, ok := it.(*value.Dict)
	if !ok {
		ref := value.Str(it)
		for _, u := range r.units {
			if u.id == ref || u.name == ref {
				d = value.NewDict(1)
				d.Set(u.module, u.id)
			}
		}
	}
	var out []*unit
	for k, v := range d.All() {
		module, ref := value.Str(k), value.Str(v)
		sources := find(module, ref)
		if len(sources) == 0 {
			missing(faults, module, ref)
			continue
		}
		for _, s := range sources {
			res, ok := results.At(s.tag).(*value.Dict)
			if !ok || !value.Truth(res.At("changes")) {
				continue
			}
			targets := find(l.module, l.id)
			if len(targets) == 0 {
				missing(faults, l.module, l.id)
			}
			for _, t := range targets {
				out = append(out, newUnit(watchLow(t.low)))
			}
		}
	}
	return out
}

func watchLow(low *value.Dict) *value.Dict {
	w := low.Clone()
	w.Set("sfun", low.At("fun"))
	w.Set("fun", "mod_watch")
	w.Set("__id__", "listener_"+value.Str(low.At("__id__")))
	for _, k := range state.Requisites {
		w.Delete(k)
	}
	return w
}

// missing reports a missing state.
func missing(faults *value.Dict, module, ref string) {
	faults.Set(fmt.Sprintf("Listen_Error_|-listen_%s_|-listen_%s_|-Listen_Error", ref, module), value.DictOf(
		"comment", fmt.Sprintf("Referenced state %s: %s does not exist", module, ref),
		"name", fmt.Sprintf("listen_%s:%s", module, ref), "result", false, "changes", value.NewDict(0)))
}
