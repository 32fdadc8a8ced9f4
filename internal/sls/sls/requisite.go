package sls

import (
	"fmt"
	"strings"

	"brine/internal/py/value"
)

// requisitesIn lists the requisites that change other states, or copy arguments.
var requisitesIn = map[string]bool{
	"require_in": true, "watch_in": true, "onfail_in": true, "onchanges_in": true,
	"use": true, "use_in": true, "prereq": true, "prereq_in": true,
}

// notUsed reports whether use and use_in do not copy an argument.
func notUsed(key any) bool {
	s, _ := key.(string)
	switch s {
	case "require", "watch", "onfail", "onfail_stop", "onchanges", "name", "names":
		return true
	}
	return requisitesIn[s]
}

// RequisiteIn adds the corresponding requisites to the states that require_in
// and similar requisites name, and marks the states that prereq names.
func (o Options) RequisiteIn(high *value.Dict) []*Error {
	r := &reqIn{opts: o, high: high, extend: value.NewDict(0)}
	for id, v := range high.All() {
		body, ok := v.(*value.Dict)
		if !ok {
			continue
		}
		for mod, run := range body.All() {
			if hidden(mod) {
				continue
			}
			l, _ := run.(*value.List)
			for i := range l.Len() {
				if arg, ok := l.Items[i].(*value.Dict); ok {
					r.arg(origin{id, mod, body}, arg)
				}
			}
		}
	}
	ext := &value.List{}
	for k, v := range r.extend.All() {
		d := value.NewDict(1)
		d.Set(k, v)
		ext.Append(d)
	}
	high.Set("__extend__", ext)
	return append(r.errs, Extend(high, true)...)
}

// origin is the state whose requisites are being processed.
type origin struct {
	id, module any
	body       *value.Dict
}

// reqIn collects the effects of requisites on other states as extensions.
type reqIn struct {
	opts   Options
	high   *value.Dict
	ix     *index // nil before the first of these requisites
	extend *value.Dict
	errs   []*Error
}

func (r *reqIn) arg(o origin, arg *value.Dict) {
	key, v := firstKey(arg)
	name, _ := key.(string)
	if !requisitesIn[name] || r.opts.disabled(name) {
		return
	}
	if r.ix == nil { // built from the declarations, before the first requisite adds to them
		r.ix = newIndex(r.high)
	}
	switch items := v.(type) {
	case *value.Dict:
		for module, id := range items.All() {
			m := r.undotted(o, name, module, id)
			r.addRequisite(o, name, ref{id, m})
		}
	case *value.List:
		r.list(o, name, items)
	}
}

// list handles a requisite that is a list. As in Salt, it processes the states
// of an earlier item again with every later item.
func (r *reqIn) list(o origin, name string, items *value.List) {
	var hinges []ref
	for _, it := range items.Items {
		ind, ok := it.(*value.Dict)
		if !ok {
			if ind = r.named(it); ind == nil {
				continue
			}
		}
		if ind.Len() == 0 {
			continue
		}
		module, id := firstKey(ind)
		if module == "sls" {
			hinges = r.ofSLS(id)
		} else {
			hinges = append(hinges, ref{id, module})
		}
		r.undotted(o, name, module, id)
		for _, h := range hinges {
			r.hinge(o, name, h)
		}
	}
}

// named finds the state with an id or name.
func (r *reqIn) named(it any) *value.Dict {
	if value.Hashable(it) {
		if body, ok := r.high.At(it).(*value.Dict); ok {
			if mod, ok := firstState(body); ok {
				d := value.NewDict(1)
				d.Set(mod, it)
				return d
			}
		}
	}
	var found *value.Dict
	for id, v := range r.high.All() {
		body, _ := v.(*value.Dict)
		for mod, run := range body.All() {
			if hidden(mod) || found != nil {
				continue
			}
			l, _ := run.(*value.List)
			for i := range l.Len() {
				d, _ := l.Items[i].(*value.Dict)
				if n, ok := d.Get("name"); ok && value.Equal(n, it) {
					found = value.NewDict(1)
					found.Set(mod, id)
					break
				}
			}
		}
	}
	return found
}

func (r *reqIn) ofSLS(name any) []ref {
	var out []ref
	for id, v := range r.high.All() {
		body, _ := v.(*value.Dict)
		if !value.Equal(body.At("__sls__"), name) {
			continue
		}
		for mod := range body.All() {
			if !hidden(mod) {
				out = append(out, ref{id, mod})
			}
		}
	}
	return out
}

func (r *reqIn) undotted(o origin, name string, module, id any) any {
	m, ok := module.(string)
	first, _, dotted := strings.Cut(m, ".")
	if !ok || !dotted {
		return module
	}
	kind, _, _ := strings.Cut(name, "_")
	p := placeOf(o.body)
	r.errs = append(r.errs, &Error{SLS: p.sls, Saltenv: p.env, ID: value.Str(o.id), Text: fmt.Sprintf(
		"Invalid requisite in %s: %s for %s, in SLS '%s'. Requisites must not contain dots, did you mean '%s'?",
		kind, m, value.Str(id), p.sls, first)})
	return first
}

// hinge applies a requisite to one state that it names.
func (r *reqIn) hinge(o origin, name string, h ref) {
	if !value.Hashable(h.id) || !value.Hashable(h.module) {
		p := placeOf(o.body)
		r.errs = append(r.errs, &Error{SLS: p.sls, Saltenv: p.env, ID: value.Str(o.id),
			Text: fmt.Sprintf("Illegal requisite \"%s\", please check your syntax.\n", value.Str(h.id))})
		return
	}
	switch name {
	case "prereq_in":
		r.run(o.id, o.module).Append(prerequired(h.module, h.id))
		r.addRequisite(o, name, h)
	case "prereq":
		for _, t := range r.ix.find(h.id, h.module, true) {
			r.run(t.id, t.module).Append(prerequired(o.module, o.id))
		}
	case "use_in":
		for _, t := range r.ix.find(h.id, h.module, true) {
			r.copyArgs(ref{o.id, o.module}, t, r.args(ref{t.id, h.module}))
		}
	case "use":
		for _, t := range r.ix.find(h.id, h.module, true) {
			r.copyArgs(t, ref{o.id, o.module}, r.args(ref{o.id, o.module}))
		}
	default:
		r.addRequisite(o, name, h)
	}
}

func prerequired(module, id any) *value.Dict {
	one := value.NewDict(1)
	one.Set(module, id)
	return value.DictOf("prerequired", value.ListOf(one))
}

// run returns the list of additions to a state.
func (r *reqIn) run(id, module any) *value.List {
	body, ok := r.extend.At(id).(*value.Dict)
	if !ok {
		body = value.NewDict(2)
		r.extend.Set(id, body)
	}
	l, ok := body.At(module).(*value.List)
	if !ok {
		l = &value.List{}
		body.Set(module, l)
	}
	return l
}

// addRequisite makes h require (or watch, and so on) the origin.
func (r *reqIn) addRequisite(o origin, name string, h ref) {
	if !value.Hashable(h.id) {
		return
	}
	kind, _, _ := strings.Cut(name, "_")
	l := r.run(h.id, h.module)
	body := asDict(r.extend.At(h.id))
	body.Set("__env__", o.body.At("__env__"))
	body.Set("__sls__", o.body.At("__sls__"))
	one := value.NewDict(1)
	one.Set(o.module, o.id)
	found := false
	for _, it := range l.Items {
		if k, v := firstKey(asDict(it)); k == kind {
			if reqs, ok := v.(*value.List); ok {
				reqs.Append(one)
				found = true
			}
		}
	}
	if !found {
		l.Append(value.DictOf(kind, value.ListOf(one)))
	}
}

// args returns the names of a state's own arguments.
func (r *reqIn) args(s ref) map[any]bool {
	out := map[any]bool{}
	body, _ := r.high.At(s.id).(*value.Dict)
	l, _ := body.At(s.module).(*value.List)
	for i := range l.Len() {
		if d, ok := l.Items[i].(*value.Dict); ok && d.Len() == 1 {
			k, _ := firstKey(d)
			out[k] = true
		}
	}
	return out
}

// copyArgs copies to a state the arguments of another that it lacks.
func (r *reqIn) copyArgs(from, to ref, own map[any]bool) {
	body, _ := r.high.At(from.id).(*value.Dict)
	l, _ := body.At(from.module).(*value.List)
	dst := r.run(to.id, to.module)
	for i := range l.Len() {
		d, ok := l.Items[i].(*value.Dict)
		if !ok || d.Len() != 1 {
			continue
		}
		if k, _ := firstKey(d); !notUsed(k) && !own[k] {
			dst.Append(d)
		}
	}
}
