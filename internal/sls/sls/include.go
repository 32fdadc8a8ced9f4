package sls

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/py/value"
)

// xenv stands for any of the minion's environments that has the SLS.
const xenv = "_xenv"

// include renders one item of an include: a name or glob, a name relative to
// the SLS, or a mapping of an environment to one of these.
func (c *Compiler) include(ctx context.Context, state *value.Dict, f place, path string, item any, depth int) {
	env := f.env
	if d, ok := item.(*value.Dict); ok {
		if d.Len() == 0 {
			c.faultf(f, "include", "Badly formatted include {} found in include in SLS '%s'", f)
			return
		}
		var key any
		for k, v := range d.All() { // the last one counts
			key, item = k, v
		}
		env = value.Str(key)
	}
	name, ok := item.(string)
	if !ok {
		c.faultf(f, "include", "Badly formatted include %s found in include in SLS '%s': it is not a name but a %s", value.Repr(item), f, value.TypeName(item))
		return
	}
	if env != xenv && c.listing(ctx, env) == nil {
		c.faultf(f, "include", "Nonexistent saltenv '%s' found in include of '%s' within SLS '%s'", env, name, f)
		return
	}
	if strings.HasPrefix(name, ".") {
		abs, ok := relative(name, f.sls, path)
		if !ok {
			c.faultf(f, "include", "Attempted relative include of '%s' within SLS '%s' goes beyond top level package ", name, f)
			return
		}
		name = abs
	}
	env, ok = c.resolve(ctx, f, env, name)
	if !ok {
		return
	}
	names := c.listing(ctx, f.env).filter(name)
	if len(names) == 0 {
		names = []string{name}
	}
	for _, n := range names {
		c.includeOne(ctx, state, f, place{env, n}, depth)
	}
}

// relative resolves a name with leading dots: one dot is the directory of the
// SLS.
func relative(name, sls, path string) (string, bool) {
	rest := strings.TrimLeft(name, ".")
	levels := len(name) - len(rest)
	comps := strings.Split(sls, ".")
	if strings.HasSuffix("/"+path, "/init.sls") {
		comps = append(comps, "init")
	}
	if levels > len(comps) {
		return "", false
	}
	return strings.Join(append(comps[:len(comps)-levels:len(comps)-levels], rest), "."), true
}

// resolve determines the environment of an include.
func (c *Compiler) resolve(ctx context.Context, f place, env, name string) (string, bool) {
	var found []string
	if env != xenv {
		if c.match[env] || len(c.listing(ctx, env).filter(name)) > 0 {
			found = []string{env}
		}
	} else {
		for _, e := range c.order {
			if len(c.listing(ctx, e).filter(name)) > 0 {
				found = append(found, e)
			}
		}
	}
	if len(found) == 1 {
		return found[0], true
	}
	for _, e := range found {
		if e == f.env {
			return e, true
		}
	}
	if len(found) == 0 {
		in := env
		if env == xenv {
			in = strings.Join(c.order, ", ")
		}
		c.faultf(f, "include", "Unknown include: Specified SLS %s: %s is not available on the salt master in saltenv(s): %s ", env, name, in)
	} else {
		c.faultf(f, "include", "Ambiguous include: Specified SLS %s: %s is available on the salt master in multiple available saltenvs: %s",
			env, name, strings.Join(found, ", "))
	}
	return "", false
}

func (c *Compiler) includeOne(ctx context.Context, state *value.Dict, f, inc place, depth int) {
	if c.done[inc.String()] {
		return
	}
	before := len(c.errs)
	nested := c.render(ctx, inc, depth+1)
	for _, e := range c.errs[before:] {
		if e.SLS == "" && e.missing == inc.sls {
			e.Text += fmt.Sprintf("\n(included by SLS '%s')", f)
			e.SLS, e.Saltenv, e.ID = f.sls, f.env, "include"
		}
	}
	for id, body := range nested.All() {
		if d, ok := body.(*value.Dict); ok && !hidden(id) {
			sublist(d, "__sls_included_from__").Append(f.sls)
		}
	}
	c.merge(state, nested)
}
