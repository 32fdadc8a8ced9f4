package sls

import (
	"strings"

	"brine/internal/py/value"
)

// declare normalizes the states of an SLS: "file.managed: [...]" becomes "file:
// [..., managed]", and every id gets its origin.
func (c *Compiler) declare(state *value.Dict, f place) {
	for _, name := range state.Keys() {
		v := state.At(name)
		body, ok := v.(*value.Dict)
		if !ok {
			c.declareShort(state, f, name, v)
			continue
		}
		seen := map[string]bool{}
		for _, key := range body.Keys() {
			k, ok := key.(string)
			if !ok {
				c.faultf(f, value.Str(name), "ID '%s' in SLS '%s' has a state named %s, which is not a string but a %s. It may need to be quoted",
					value.Str(name), f.sls, value.Repr(key), value.TypeName(key))
				body.Delete(key)
				continue
			}
			run, isList := body.At(k).(*value.List)
			if strings.HasPrefix(k, "_") || !isList {
				continue
			}
			mod, fun, dotted := splitFun(k)
			if !dotted {
				seen[k] = true
				continue
			}
			if seen[mod] {
				c.faultf(f, value.Str(name), "ID '%s' in SLS '%s' contains multiple state declarations of the same type", value.Str(name), f.sls)
				continue
			}
			moveFun(body, k, mod, fun, run)
			seen[mod] = true
		}
		if !body.Has("__sls__") {
			body.Set("__sls__", f.sls)
		}
		if !body.Has("__env__") {
			body.Set("__env__", f.env)
		}
	}
}

// declareShort handles "id: module.function".
func (c *Compiler) declareShort(state *value.Dict, f place, name, v any) {
	if name == "__extend__" || name == "__exclude__" {
		return
	}
	if s, ok := v.(string); ok {
		if mod, fun, dotted := splitFun(s); dotted {
			state.Set(name, value.DictOf("__sls__", f.sls, "__env__", f.env, mod, value.ListOf(fun)))
			return
		}
	}
	c.faultf(f, value.Str(name), "ID %s in SLS %s is not a dictionary", value.Str(name), f.sls)
}

// splitFun splits "module.function"; like Salt it drops what follows a second
// dot.
func splitFun(s string) (mod, fun string, dotted bool) {
	comps := strings.Split(s, ".")
	if len(comps) < 2 {
		return s, "", false
	}
	return comps[0], comps[1], true
}

// moveFun replaces the key "module.function" by "module", with the function
// among the arguments.
func moveFun(body *value.Dict, key, mod, fun string, run *value.List) {
	body.Delete(key)
	body.Set(mod, run)
	run.Append(fun)
}

// takeExtend moves "extend" to the collected extensions of all SLS files.
func (c *Compiler) takeExtend(state *value.Dict, f place) {
	v, ok := state.Get("extend")
	if !ok {
		return
	}
	state.Delete("extend")
	ext, ok := v.(*value.Dict)
	if !ok {
		c.faultf(f, "extend", "Extension value in SLS '%s' is not a dictionary", f.sls)
		return
	}
	for name, v := range ext.All() {
		body, ok := v.(*value.Dict)
		if !ok {
			c.faultf(f, value.Str(name), "Extension name '%s' in SLS '%s' is not a dictionary", value.Str(name), f.sls)
			continue
		}
		if !body.Has("__sls__") {
			body.Set("__sls__", f.sls)
		}
		if !body.Has("__env__") {
			body.Set("__env__", f.env)
		}
		for _, key := range body.Keys() {
			k, _ := key.(string)
			run, isList := body.At(key).(*value.List)
			if mod, fun, dotted := splitFun(k); dotted && isList && !strings.HasPrefix(k, "_") {
				moveFun(body, k, mod, fun, run)
			}
		}
	}
	sublist(state, "__extend__").Append(ext)
}

// takeExclude moves "exclude" to the collected exclusions of all SLS files.
func (c *Compiler) takeExclude(state *value.Dict, f place) {
	v, ok := state.Get("exclude")
	if !ok {
		return
	}
	state.Delete("exclude")
	l, ok := v.(*value.List)
	if !ok {
		c.faultf(f, "exclude", "Exclude Declaration in SLS %s is not formed as a list", f.sls)
		return
	}
	sublist(state, "__exclude__").Append(l.Items...)
}

// giveOrder numbers the states without an order.
func (c *Compiler) giveOrder(state *value.Dict) {
	if !c.opts.AutoOrder {
		return
	}
	for _, v := range state.All() {
		body, _ := v.(*value.Dict)
		for key, v := range body.All() {
			run, ok := v.(*value.List)
			if k, isText := key.(string); !ok || !isText || strings.HasPrefix(k, "_") || hasOrder(run) {
				continue
			}
			run.Append(value.DictOf("order", c.iorder))
			c.iorder++
		}
	}
}

func hasOrder(run *value.List) bool {
	for _, arg := range run.Items {
		if d, ok := arg.(*value.Dict); ok {
			if k, _ := firstKey(d); k == "order" {
				return true
			}
		}
	}
	return false
}

// cleanExtends splits the collected extensions by id and drops duplicates.
func cleanExtends(high *value.Dict) {
	l, ok := high.At("__extend__").(*value.List)
	if !ok {
		return
	}
	type item struct{ key, val any }
	var items []item
	for _, e := range l.Items {
		d, _ := e.(*value.Dict)
	next:
		for k, v := range d.All() {
			for _, old := range items {
				if value.Equal(old.key, k) && value.Equal(old.val, v) {
					continue next
				}
			}
			items = append(items, item{k, v})
		}
	}
	out := &value.List{}
	for _, it := range items {
		d := value.NewDict(1)
		d.Set(it.key, it.val)
		out.Append(d)
	}
	high.Set("__extend__", out)
}
