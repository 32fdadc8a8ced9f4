package sls

import (
	"fmt"
	"slices"

	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// Low compiles high data into chunks with all passes in order. It modifies
// high. If there are errors, the chunks are nil.
func (o Options) Low(high *value.Dict) ([]*value.Dict, []*Error) {
	errs := Extend(high, false)
	errs = append(errs, Verify(high)...)
	if len(errs) > 0 {
		return nil, errs
	}
	if errs = o.RequisiteIn(high); len(errs) > 0 {
		return nil, errs
	}
	Exclude(high)
	return Chunks(high, nil)
}

// Extend merges the collected extensions into their states. strict means that
// an id stands only for its states of the module.
func Extend(high *value.Dict, strict bool) []*Error {
	l, ok := high.At("__extend__").(*value.List)
	if !ok {
		return nil
	}
	high.Delete("__extend__")
	e := extender{high: high, strict: strict, excluded: excludedSLS(high)}
	for _, it := range l.Items {
		d, _ := it.(*value.Dict)
		for name, body := range d.All() {
			e.extend(name, body)
		}
	}
	return e.errs
}

type extender struct {
	high     *value.Dict
	strict   bool
	excluded []string
	errs     []*Error
	ix       *index
}

func (e *extender) fault(body *value.Dict, id any, text string) {
	p := placeOf(body)
	e.errs = append(e.errs, &Error{Text: text, SLS: p.sls, Saltenv: p.env, ID: value.Str(id)})
}

func (e *extender) extend(name, v any) {
	body, ok := v.(*value.Dict)
	if !ok {
		return // reported as an error when it was read
	}
	module, ok := firstState(body)
	if !ok {
		e.fault(body, name, fmt.Sprintf("Extension of '%s' in SLS '%s' names no state", value.Str(name), body.Str("__sls__")))
		return
	}
	target, _ := e.high.At(name).(*value.Dict)
	if !target.Has(module) {
		if e.ix == nil {
			e.ix = newIndex(e.high)
		}
		ids := e.ix.find(name, module, e.strict)
		if len(ids) != 1 {
			e.fault(body, name, cannotExtend(name, body))
			return
		}
		name = ids[0].id
		if target, ok = e.high.At(name).(*value.Dict); !ok {
			e.fault(body, name, cannotExtend(name, body))
			return
		}
	}
	if slices.Contains(e.excluded, body.Str("__sls__")) {
		return
	}
	for mod, v := range body.All() {
		if hidden(mod) {
			continue
		}
		e.merge(body, name, target, mod, v)
	}
}

// merge extends the arguments of one state.
func (e *extender) merge(body *value.Dict, name any, target *value.Dict, mod, v any) {
	old, ok := target.Get(mod)
	if !ok {
		target.Set(mod, v)
		if e.ix != nil {
			e.ix = newIndex(e.high)
		}
		return
	}
	run, ok := v.(*value.List)
	have, okOld := old.(*value.List)
	if !ok || !okOld {
		e.fault(body, name, fmt.Sprintf("State '%s' in SLS '%s' is not formed as a list", value.Str(name), body.Str("__sls__")))
		return
	}
	for _, arg := range run.Items {
		if err := extendArg(have, arg); err != "" {
			e.fault(body, name, fmt.Sprintf("Extension of '%s' in SLS '%s': %s", value.Str(name), body.Str("__sls__"), err))
		}
	}
}

// extendArg replaces an argument of the same name in run, but adds to
// requisites.
func extendArg(run *value.List, arg any) (fault string) {
	found := false
	_, isFun := arg.(string)
	d, isDict := arg.(*value.Dict)
	key, val := firstKey(d)
	for i, have := range run.Items {
		if _, ok := have.(string); ok && isFun {
			run.Items[i] = arg
			found = true
			continue
		}
		old, ok := have.(*value.Dict)
		if !ok || !isDict {
			continue
		}
		oldKey, oldVal := firstKey(old)
		if value.Equal(key, oldKey) {
			if name, _ := key.(string); slices.Contains(state.Requisites, name) {
				a, okA := oldVal.(*value.List)
				b, okB := val.(*value.List)
				if !okA || !okB {
					return fmt.Sprintf("the %s statement needs to be formed as a list", name)
				}
				a.Append(b.Items...)
			} else {
				run.Items[i] = arg
			}
			found = true
		}
		if newKey, _ := firstKey(asDict(run.Items[i])); key == "name" && newKey == "names" {
			run.Items[i] = arg
		}
	}
	if !found {
		run.Append(arg)
	}
	return ""
}

func asDict(v any) *value.Dict {
	d, _ := v.(*value.Dict)
	return d
}

func firstState(body *value.Dict) (any, bool) {
	for k := range body.All() {
		if !hidden(k) {
			return k, true
		}
	}
	return nil, false
}

func cannotExtend(name any, body *value.Dict) string {
	env, sls := "base", "base"
	if v, ok := body.Get("__env__"); ok {
		env = value.Str(v)
	}
	if v, ok := body.Get("__sls__"); ok {
		sls = value.Str(v)
	}
	return fmt.Sprintf("Cannot extend ID '%[1]s' in '%[2]s:%[3]s'. It is not part of the high state.\n"+
		"This is likely due to a missing include statement or an incorrectly typed ID.\n"+
		"Ensure that a state with an ID of '%[1]s' is available\nin environment '%[2]s' and to SLS '%[3]s'", value.Str(name), env, sls)
}

// excludedSLS returns the excluded SLS names, which then extend nothing.
func excludedSLS(high *value.Dict) []string {
	var out []string
	for _, it := range high.List("__exclude__") {
		switch x := it.(type) {
		case string:
			out = append(out, x)
		case *value.Dict:
			if s, ok := x.At("sls").(string); ok && s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

// Exclude removes the collected exclusions.
func Exclude(high *value.Dict) {
	l, ok := high.At("__exclude__").(*value.List)
	if !ok {
		return
	}
	high.Delete("__exclude__")
	var globs []target.Glob
	gone := map[any]bool{}
	for _, it := range l.Items {
		switch x := it.(type) {
		case string:
			globs = append(globs, target.ParseGlob(x))
		case *value.Dict:
			if x.Len() != 1 {
				continue
			}
			if s, ok := x.At("sls").(string); ok {
				globs = append(globs, target.ParseGlob(s))
			}
			if s, ok := x.At("id").(string); ok {
				gone[s] = true
			}
		}
	}
	for id, v := range high.All() {
		body, _ := v.(*value.Dict)
		name := body.Str("__sls__")
		if !hidden(id) && name != "" && slices.ContainsFunc(globs, func(g target.Glob) bool { return g.Match(name) }) {
			gone[id] = true
		}
	}
	for id := range gone {
		high.Delete(id)
	}
}

// ref is a state of high data: its id and module.
type ref struct{ id, module any }

// index finds states by the names in requisites.
type index struct {
	high *value.Dict
	// byArg has for every module the ids with an argument whose value is the key,
	// which Salt accepts as a name.
	byArg map[any]map[any][]any
}

func newIndex(high *value.Dict) *index {
	ix := &index{high: high, byArg: map[any]map[any][]any{}}
	for id, v := range high.All() {
		body, _ := v.(*value.Dict)
		for mod, run := range body.All() {
			m, isText := mod.(string)
			l, ok := run.(*value.List)
			if !ok || !isText {
				continue
			}
			for _, arg := range l.Items {
				d, ok := arg.(*value.Dict)
				if !ok || d.Len() != 1 {
					continue
				}
				_, val := firstKey(d)
				s, ok := val.(string)
				if !ok {
					continue
				}
				if ix.byArg[m] == nil {
					ix.byArg[m] = map[any][]any{}
				}
				ix.byArg[m][s] = append(ix.byArg[m][s], id)
			}
		}
	}
	return ix
}

// find returns the states for a name: an id, an SLS, or the value of any
// argument of a state of the module.
func (ix *index) find(name, module any, strict bool) []ref {
	body, ok := ix.high.Get(name)
	if ok && strict {
		d, _ := body.(*value.Dict)
		ok = d.Has(module)
	}
	if ok {
		return []ref{{name, module}}
	}
	var out []ref
	if module == "sls" {
		for id, v := range ix.high.All() {
			body, _ := v.(*value.Dict)
			if value.Equal(body.At("__sls__"), name) {
				first, _ := firstKey(body)
				out = append(out, ref{id, first})
			}
		}
		return out
	}
	mod, isMod := module.(string)
	s, isText := name.(string)
	if !isMod || !isText {
		return nil
	}
	for _, id := range ix.byArg[mod][s] {
		out = append(out, ref{id, module})
	}
	return out
}
