package state

import (
	"strings"

	"brine/internal/py/value"
)

// AllSucceeded reports whether all results of a run succeeded, except failures
// that other states handle by onfail with onfail_stop: False; high returns those
// states and may be nil. There must be a result. nested is for results that are
// parts of others, such as the returns of many minions: an entry without the
// structure of a result counts as successful.
func AllSucceeded(results *value.Dict, nested bool, high *value.Dict) bool {
	if results.Len() == 0 {
		return false
	}
	for k, v := range results.All() {
		tag := value.Str(k)
		d, isDict := v.(*value.Dict)
		_, isList := v.(*value.List)
		ok := nested || isDict && tag != "__extend__" || isList && tag == "__extend__"
		if ok && isDict {
			if res, has := d.Get("result"); has {
				ok = res != false
			} else {
				ok = AllSucceeded(d, true, high)
			}
		}
		if !ok && !handled(tag, results, high) {
			return false
		}
	}
	return true
}

// OnFail returns the part of high data that AllSucceeded needs: the states that
// handle the failure of others. Later changes of the high data do not affect it.
func OnFail(high *value.Dict) *value.Dict {
	out := value.NewDict(0)
	for id, v := range high.All() {
		body, _ := v.(*value.Dict)
		for _, run := range body.All() {
			if l, ok := run.(*value.List); ok && goesOn(l) {
				out.Set(id, value.DeepCopy(body))
				break
			}
		}
	}
	return out
}

// handled reports whether a state that has it as onfail handled a failure.
func handled(tag string, results, high *value.Dict) bool {
	parts := strings.Split(tag, "_|-")
	id, module := tag, ""
	if len(parts) == 4 {
		module, id = parts[0], parts[1]
	}
	found, good := false, false
	for hid, v := range high.All() {
		body, _ := v.(*value.Dict)
		if hid == any(id) {
			continue
		}
		for mod, run := range body.All() {
			l, _ := run.(*value.List)
			if !handles(l, module, id) {
				continue
			}
			found = true
			for t, r := range results.All() {
				p := strings.Split(value.Str(t), "_|-")
				if len(p) != 4 || p[0] != value.Str(mod) || p[1] != value.Str(hid) {
					continue
				}
				d, _ := r.(*value.Dict)
				if res, ok := d.At("result").(bool); ok {
					good = res
				}
			}
		}
	}
	return found && good
}

// handles reports whether the arguments of a state declare that it handles the
// failure of another.
func handles(run *value.List, module, id string) bool {
	if run == nil {
		return false
	}
	if !goesOn(run) {
		return false
	}
	for _, arg := range run.Items {
		d, _ := arg.(*value.Dict)
		for _, it := range d.List("onfail") {
			req, _ := it.(*value.Dict)
			for k, v := range req.All() {
				if value.Str(v) == id && (module == "" || value.Str(k) == module) {
					return true
				}
			}
		}
	}
	return false
}

// goesOn reports whether the arguments of a state include onfail_stop: False.
func goesOn(run *value.List) bool {
	for _, arg := range run.Items {
		if d, _ := arg.(*value.Dict); d.At("onfail_stop") == false {
			return true
		}
	}
	return false
}
