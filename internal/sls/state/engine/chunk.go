package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// maxDepth bounds how often a state is checked again after its requisites have
// run, and recursively through its requisites. Once is enough except for loops.
const maxDepth = 20

// chunk runs a state after its requisites, and stores its result.
func (r *run) chunk(u *unit, depth int) {
	if u.entered >= maxDepth {
		r.set(u.tag, r.recursive(u))
		r.finish(u)
		return
	}
	u.entered++
	defer func() { u.entered-- }()
	if err := r.aggregate(u); err != nil {
		r.set(u.tag, r.skipped(u, false, err.Error()))
		r.finish(u)
		return
	}
	if !value.Truth(u.low.At("prerequired")) {
		r.active[u.tag] = true
	}
	status, found, err := r.check(u, !u.prereq)
	switch {
	case err != nil:
		r.set(u.tag, r.skipped(u, false, err.Error()))
	case status == unmet:
		if !r.runRequired(u, depth) {
			return
		}
	case status == failed:
		r.requisiteFailed(u, found)
	case status == changed && !u.prereq:
		r.set(u.tag, r.watched(u, found))
	case status == noPrereq:
		res := r.skipped(u, true, "No changes detected")
		r.set(u.tag, res)
		r.pre.Set(u.tag, res)
	case status == noFailure:
		r.set(u.tag, r.notRun(u, "State was not run because onfail req did not change"))
	case status == noChange:
		r.set(u.tag, r.notRun(u, "State was not run because none of the onchanges reqs changed"))
	case u.prereq:
		r.pre.Set(u.tag, r.call(u, u.low, 1))
	default:
		r.set(u.tag, r.call(u, u.low, 1))
	}
	r.finish(u)
}

// finish reports a result, and creates separate results of the parts that a
// state lists.
func (r *run) finish(u *unit) {
	res, ok := r.results.At(u.tag).(*value.Dict)
	if !ok {
		return
	}
	r.event(u, res)
	subs := res.List("sub_state_run")
	if res.Has("sub_state_run") {
		res = res.Clone()
		res.Delete("sub_state_run")
		r.set(u.tag, res)
	}
	for _, it := range subs {
		sub, _ := it.(*value.Dict)
		low := sub.Dict("low")
		start, duration := r.noTime()
		one := value.DictOf("name", low.At("name"), "changes", sub.At("changes"), "result", sub.At("result"),
			"duration", or(sub.At("duration"), duration), "start_time", or(sub.At("start_time"), start),
			"comment", or(sub.At("comment"), ""), "__state_ran__", true, "__run_num__", r.next())
		r.label(one, u)
		r.set(value.Str(low.At("state"))+"_|-"+value.Str(low.At("__id__"))+"_|-"+value.Str(low.At("name"))+"_|-"+value.Str(low.At("fun")), one)
	}
}

func or(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}

// label sets which state a result belongs to.
func (r *run) label(res *value.Dict, u *unit) {
	for _, k := range []string{"__sls__", "__id__", "name"} {
		res.Set(k, u.low.At(k))
	}
}

// noTime sets start and duration of a state that does not run.
func (r *run) noTime() (start string, milliseconds float64) {
	return clock(r.now()), 0.0
}

// clock formats a time of day like Python.
func clock(t time.Time) string {
	if t.Nanosecond()/1000 == 0 {
		return t.Format("15:04:05")
	}
	return t.Format("15:04:05.000000")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// skipped is the result of a state that was not called.
func (r *run) skipped(u *unit, result bool, comment string) *value.Dict {
	start, duration := r.noTime()
	res := value.DictOf("changes", value.NewDict(0), "result", result, "duration", duration, "start_time", start,
		"comment", comment, "__run_num__", r.next())
	r.label(res, u)
	return res
}

func (r *run) notRun(u *unit, comment string) *value.Dict {
	start, duration := r.noTime()
	res := value.DictOf("changes", value.NewDict(0), "result", true, "duration", duration, "start_time", start,
		"comment", comment, "__state_ran__", false, "__run_num__", r.next())
	r.label(res, u)
	return res
}

func (r *run) recursive(u *unit) *value.Dict {
	r.deps.Log.Error("recursive requisite found", "id", u.id, "sls", u.sls)
	res := value.DictOf("changes", value.NewDict(0), "result", false, "comment", "Recursive requisite found", "__run_num__", r.next())
	r.label(res, u)
	return res
}

// wanted lists the requisites whose states run first.
var wanted = []string{"require", "require_any", "watch", "watch_any", "prereq", "onfail", "onfail_any", "onfail_all", "onchanges", "onchanges_any"}

// runRequired runs the requisites of a state that have not run yet, and then
// the state. It reports false if the result is already reported.
func (r *run) runRequired(u *unit, depth int) bool {
	units, lost := r.required(u)
	if lost != "" {
		res := r.skipped(u, false, "The following requisites were not found:\n"+lost)
		if u.prereq {
			r.pre.Set(u.tag, res)
		} else {
			r.set(u.tag, res)
		}
		r.event(u, res)
		return false
	}
	var last *unit
	for _, need := range units {
		last = need
		if r.results.Has(need.tag) {
			continue
		}
		if r.active[need.tag] {
			return r.loop(u, need)
		}
		r.chunk(need, 0)
		if r.failedHard(need) {
			r.stop = true
			return false
		}
		if r.stop || r.ctx.Err() != nil {
			return false
		}
	}
	switch {
	case u.prereq:
		r.predict(u)
	case depth+1 >= maxDepth:
		r.set(u.tag, r.recursive(u))
	default:
		r.chunk(u, depth+1)
		if last != nil && r.failedHard(last) {
			r.stop = true
		}
		return false // reported by the call
	}
	if last != nil && r.failedHard(last) {
		r.stop = true
		return false
	}
	return true
}

// required finds the states that a state requires. lost lists missing ones.
func (r *run) required(u *unit) (units []*unit, lost string) {
	list := wanted
	if !u.prereq {
		list = append(slices.Clone(wanted), "prerequired")
	}
	var text strings.Builder
	for _, kind := range list {
		all, err := requirements(u.low, kind)
		if err != nil || slices.Contains(r.opts.DisabledRequisites, kind) {
			continue
		}
		named := false
		for _, q := range all {
			found := r.find(q)
			if q.val == nil {
				found = nil
			}
			for _, f := range found {
				switch {
				case kind == "prereq":
					f.prereq = true
				case kind == "prerequired" && q.key != "sls":
					f.prerequired = true
				}
			}
			units = append(units, found...)
			if len(found) > 0 {
				continue
			}
			if !named {
				fmt.Fprintf(&text, "%19s%s:\n", "", kind)
				named = true
			}
			fmt.Fprintf(&text, "%23s%s\n", "", q)
		}
	}
	return units, text.String()
}

// loop handles a state that requires one that is waiting for it: that is how
// prereq starts, and an error otherwise.
func (r *run) loop(u, need *unit) bool {
	if need.prerequired {
		if !r.pre.Has(u.tag) {
			u.prereq = true
			r.pre.Set(need.tag, r.call(u, u.low, 1))
		}
		return false
	}
	r.set(u.tag, r.recursive(u))
	r.event(u, r.results.Dict(u.tag))
	return false
}

// predict stores the predicted changes of a state, for states that have it as
// prereq.
func (r *run) predict(u *unit) {
	status, _, _ := r.check(u, false)
	res := r.call(u, u.low, 1)
	if !value.Truth(res.At("changes")) && status == changed {
		res.Set("changes", value.DictOf("watch", "watch"))
		res.Set("result", nil)
	}
	r.pre.Set(u.tag, res)
}

// requisiteFailed handles a state that cannot run because another one failed.
func (r *run) requisiteFailed(u *unit, found reqs) {
	if res, ok := r.pre.At(u.tag).(*value.Dict); ok {
		// Predicted changes are not actual changes.
		res.Set("changes", value.NewDict(0))
		res.Set("__run_num__", r.next())
		r.label(res, u)
		r.set(u.tag, res)
		return
	}
	var names []string
	for _, kind := range append(slices.Clone(kinds), "prerequired") {
		for _, f := range found[kind] {
			res, ok := r.pre.At(f.tag).(*value.Dict)
			if !ok {
				res, ok = r.results.At(f.tag).(*value.Dict)
			}
			name := value.Str(f.low.At("__sls__")) + "." + f.id
			if ok && res.At("result") == false && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	res := r.skipped(u, false, "One or more requisite failed: "+strings.Join(names, ", "))
	r.set(u.tag, res)
	r.pre.Set(u.tag, res)
}

// watched runs a state whose watched states have changed: the state itself, and
// if that changes nothing, its mod_watch.
func (r *run) watched(u *unit, found reqs) *value.Dict {
	res := r.call(u, u.low, 1)
	if _, ok := r.pending[u.tag]; ok {
		r.set(u.tag, res)
		r.settle([]*unit{u})
		res = r.results.Dict(u.tag)
	}
	if value.Truth(res.At("changes")) || value.Truth(res.At("skip_watch")) {
		return res
	}
	low := u.low.Clone()
	low.Set("sfun", u.low.At("fun"))
	low.Set("fun", "mod_watch")
	low.Set("__reqs__", found.lows())
	return r.call(u, low, 1)
}

// aggregate merges further chunks into this one, if the run enables it.
func (r *run) aggregate(u *unit) error {
	opt := r.opts.Aggregate
	if v, ok := u.low.Get("aggregate"); ok {
		opt = v
	}
	if value.Truth(u.low.At(state.Aggregated)) {
		return nil
	}
	switch x := opt.(type) {
	case bool:
		if !x {
			return nil
		}
	case *value.List:
		if !slices.ContainsFunc(x.Items, func(it any) bool { return it == u.module }) {
			return nil
		}
	default:
		return nil
	}
	merge := r.deps.States.Aggregate(u.module)
	if merge == nil {
		return nil
	}
	u.low.Set(state.Aggregated, true)
	lows := make([]*value.Dict, len(r.units))
	for i, o := range r.units {
		lows[i] = o.low
	}
	c := r.deps.Call().Prepare()
	low, replaced, err := merge(r.ctx, r.performer.env(c, u.low), lows, r.opts.Test || u.prereq)
	var wrong *fn.ArgumentError
	switch {
	case errors.As(err, &wrong): // as in Salt, the state runs as it is
		r.deps.Log.Error("cannot aggregate states", "state", u.module, "id", u.id, "err", err)
		return nil
	case err != nil:
		return err
	}
	for i, changed := range replaced {
		if i >= 0 && i < len(r.units) {
			r.units[i].low = changed
		}
	}
	u.low = low
	r.mergeRequisites(low)
	return nil
}

// mergeRequisites gives an aggregated chunk the requisites of all merged
// chunks.
func (r *run) mergeRequisites(low *value.Dict) {
	for _, kind := range allRequisites {
		var items []any
		for _, o := range r.units {
			if o.low.At("state") == low.At("state") && value.Truth(o.low.At(state.Aggregated)) && !value.Equal(o.low.At("name"), low.At("name")) {
				items = append(items, o.low.List(kind)...)
			}
		}
		if len(items) > 0 {
			low.Set(kind, &value.List{Items: items})
		}
	}
}
