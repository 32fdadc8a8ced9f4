package engine

import (
	"fmt"
	"slices"
	"strings"

	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// verdict is the result of checking a state's requisites.
type verdict int

const (
	met       verdict = iota
	unmet             // something has to run first, or does not exist
	failed            // a required state failed
	changed           // a watched state changed
	noPrereq          // nothing that prereq names would change
	noFailure         // nothing that onfail names failed
	noChange          // nothing that onchanges names changed
)

// kinds lists the requisites that decide whether a state runs, in the order in
// which they are checked.
var kinds = []string{"require", "require_any", "watch", "watch_any", "prereq", "onfail", "onfail_any", "onfail_all", "onchanges", "onchanges_any"}

// kindsAndPrerequired are kinds, and the marker of a state that another one has as
// prereq.
var kindsAndPrerequired = append(slices.Clone(kinds), "prerequired")

// adoptWatch turns watch into require if the module has no mod_watch.
func adoptWatch(states *state.Registry, low *value.Dict) {
	for _, s := range []string{"", "_any"} {
		v, ok := low.Get("watch" + s)
		if !ok || states.Has(value.Str(low.At("state"))+".mod_watch") {
			continue
		}
		low.Delete("watch" + s)
		watch, _ := v.(*value.List)
		if have, ok := low.At("require" + s).(*value.List); ok && watch != nil {
			low.Set("require"+s, &value.List{Items: append(slices.Clone(have.Items), watch.Items...)})
		} else {
			low.Set("require"+s, v)
		}
	}
}

// requirement is one item of a requisite.
type requirement struct {
	key string
	val any
}

func (q requirement) String() string { return q.key + ": " + value.Str(q.val) }

// requirements parses a requisite of a chunk.
func requirements(low *value.Dict, kind string) ([]requirement, error) {
	v, ok := low.Get(kind)
	if !ok || v == nil {
		return nil, nil
	}
	l, ok := v.(*value.List)
	if !ok {
		return nil, fmt.Errorf("the %s statement of '%s' needs to be formed as a list", kind, value.Str(low.At("__id__")))
	}
	out := make([]requirement, 0, len(l.Items))
	for _, it := range l.Items {
		switch x := it.(type) {
		case string:
			out = append(out, requirement{"id", x})
		case *value.Dict:
			if x.Len() == 0 {
				return nil, fmt.Errorf("the %s statement of '%s' has an empty item", kind, value.Str(low.At("__id__")))
			}
			k, val := x.Entry(0)
			key, _, _ := strings.Cut(value.Str(k), ".")
			if _, isText := val.(string); !isText && val != nil {
				return nil, state.Errorf("Could not locate requisite of [%s] present in state with name [%s]", key, value.Str(low.At("name")))
			}
			out = append(out, requirement{key, val})
		default:
			return nil, fmt.Errorf("%s is no requisite: expected an id, or a mapping such as pkg: nginx", value.Repr(it))
		}
	}
	return out, nil
}

// find returns the units that a requirement names, in order.
func (r *run) find(q requirement) []*unit {
	want, _ := q.val.(string)
	if q.key == "sls" {
		g := target.ParseGlob(want)
		var out []*unit
		for _, u := range r.units {
			if g.Match(u.sls) || slices.Contains(u.includedFrom, want) {
				out = append(out, u)
			}
		}
		return out
	}
	ofKey := func(u *unit) bool { return q.key == "id" || u.module == q.key }
	var out []*unit
	if !strings.ContainsAny(want, "*?[") {
		for _, u := range r.named(want) {
			if ofKey(u) {
				out = append(out, u)
			}
		}
		return out
	}
	g := target.ParseGlob(want)
	for _, u := range r.units {
		if ofKey(u) && (g.Match(u.name) || g.Match(u.id)) {
			out = append(out, u)
		}
	}
	return out
}

// reqs are the units that the requisites of a state name.
type reqs map[string][]*unit

// lows returns the chunks, as passed to mod_watch.
func (q reqs) lows() *value.Dict {
	d := value.NewDict(len(kinds))
	for _, k := range kinds {
		l := &value.List{}
		for _, u := range q[k] {
			l.Append(u.low)
		}
		d.Set(k, l)
	}
	return d
}

// check checks the requisites of a state. With pre it also checks the states
// that have it as prereq.
func (r *run) check(u *unit, pre bool) (verdict, reqs, error) {
	adoptWatch(r.deps.States, u.low)
	list := kinds
	if pre {
		list = kindsAndPrerequired
	}
	var found reqs // most states have none
	for _, kind := range list {
		if slices.Contains(r.opts.DisabledRequisites, kind) {
			continue
		}
		all, err := requirements(u.low, kind)
		if err != nil {
			return failed, nil, err
		}
		for _, q := range all {
			if q.val == nil {
				continue
			}
			units := r.find(q)
			if len(units) == 0 {
				return unmet, nil, nil
			}
			if found == nil {
				found = reqs{}
			}
			found[kind] = append(found[kind], units...)
		}
	}
	if len(found) == 0 {
		return met, found, nil
	}
	all := marks{}
	for _, kind := range list {
		if len(found[kind]) > 0 {
			all.add(r.marksOf(kind, found[kind]))
		}
	}
	return all.verdict(), found, nil
}

// marks summarizes the results of the states that a requisite names.
type marks struct {
	unmet, fail, pre, premet, onfail, onchanges, changesMet, change, met bool
}

func (m *marks) add(o marks) {
	m.unmet = m.unmet || o.unmet
	m.fail = m.fail || o.fail
	m.pre = m.pre || o.pre
	m.premet = m.premet || o.premet
	m.onfail = m.onfail || o.onfail
	m.onchanges = m.onchanges || o.onchanges
	m.changesMet = m.changesMet || o.changesMet
	m.change = m.change || o.change
	m.met = m.met || o.met
}

func (m marks) verdict() verdict {
	switch {
	case m.unmet:
		return unmet
	case m.fail:
		return failed
	case m.pre && m.premet:
		return met
	case m.pre:
		return noPrereq
	case m.onfail && !m.changesMet:
		return noFailure
	case m.onchanges && !m.changesMet:
		return noChange
	case m.change:
		return changed
	case m.onfail:
		return noFailure
	}
	return met
}

// marksOf checks the results of the states that one requisite names.
func (r *run) marksOf(kind string, units []*unit) marks {
	var m marks
	from := r.results
	if kind == "prereq" {
		from = r.pre
	}
	r.settle(units)
	for _, u := range units {
		res, ok := from.At(u.tag).(*value.Dict)
		if !ok {
			m.unmet = true
			continue
		}
		m.look(kind, res)
	}
	if strings.HasSuffix(kind, "_any") || kind == "onfail" {
		if m.met || m.change || m.changesMet {
			m.fail = false
		}
		if m.changesMet {
			m.onchanges = false
		}
		if m.met {
			m.onfail = false
		}
	}
	if strings.HasSuffix(kind, "_all") && m.onfail {
		m.met = false
	}
	return m
}

func (m *marks) look(kind string, res *value.Dict) {
	result, changes := res.At("result"), value.Truth(res.At("changes"))
	ran := true
	if v, ok := res.Get("__state_ran__"); ok {
		ran = value.Truth(v)
	}
	switch {
	case strings.HasPrefix(kind, "onfail"):
		if result == true {
			m.onfail = true
			return
		}
	case result == false:
		m.fail = true
		return
	}
	switch {
	case strings.HasPrefix(kind, "onchanges"):
		if changes {
			m.changesMet = true
		} else {
			m.onchanges = true
		}
	case strings.HasPrefix(kind, "watch") && changes:
		m.change = true
	case kind == "prereq" && result == nil:
		m.premet = true
		m.met = m.met || ran
	case kind == "prereq":
		m.pre = true
	case kind == "prerequired" && result != nil: // ignored in both cases, as in Salt
	default:
		m.met = m.met || ran
	}
}
