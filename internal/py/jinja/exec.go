package jinja

import (
	"fmt"
	"strings"
	"time"

	"brine/internal/py/value"
)

// frame is an activation of a function.
type frame struct {
	rt     *runtime
	ctx    *Context
	tmpl   *Template
	slots  []any
	up     *frame // of the enclosing function
	caller *frame
	out    *buffer
	line   int
	// text is the input of the filter of a filter block.
	text any
	// parent is the template that this one extends.
	parent *Template
	block  *function
	escape bool
}

// buffer collects output. It doubles when it grows, since an SLS of many states
// has hundreds of kilobytes. String does not copy. A string written in one
// piece, as by a template without tags, is never copied either.
type buffer struct {
	first string
	more  strings.Builder // starts with first once in use
}

func (b *buffer) add(s string) {
	switch n := b.more.Cap(); {
	case s == "":
		return
	case b.whole() && b.first == "":
		b.first = s
		return
	case b.whole():
		b.more.Grow(2 * (len(b.first) + len(s)))
		b.more.WriteString(b.first)
	case b.more.Len()+len(s) > n:
		b.more.Grow(max(n, len(s)))
	}
	b.more.WriteString(s)
}

func (b *buffer) String() string {
	if b.whole() {
		return b.first
	}
	return b.more.String()
}

// whole reports whether all was written in one piece.
func (b *buffer) whole() bool { return b.more.Cap() == 0 }

// write appends text and counts its bytes.
func (f *frame) write(s string) {
	if s != "" {
		f.rt.spend(len(s))
		f.out.add(s)
	}
}

// missing marks a variable that has no value.
var missing any = &struct{ name string }{"missing"}

func (rt *runtime) frame(t *Template, c *Context, fn *function, up *frame, out *buffer) *frame {
	f := &frame{rt: rt, ctx: c, tmpl: t, up: up, caller: rt.cur, out: out, escape: c.escape}
	if fn.nslots > 0 {
		f.slots = make([]any, fn.nslots)
	}
	rt.enter()
	rt.ticks += 8 // a call takes longer than a loop iteration
	rt.cur = f
	return f
}

// done leaves a frame. It is not called after a failure, so that cur still
// names the frame that failed.
func (f *frame) done() {
	f.rt.cur = f.caller
	f.rt.leave()
}

func (f *frame) enter(e entry) {
	for i := range e {
		l := &e[i]
		switch l.kind {
		case loadUndefined:
			f.slots[l.idx] = missing
		case loadAlias:
			f.slots[l.idx] = f.at(l.from)
		case loadResolve:
			f.slots[l.idx] = f.ctx.resolve(l.name)
		}
	}
}

func (f *frame) at(r slotRef) any {
	for n := r.up; n > 0; n-- {
		f = f.up
	}
	return f.slots[r.idx]
}

func (f *frame) put(r slotRef, v any) {
	for n := r.up; n > 0; n-- {
		f = f.up
	}
	f.slots[r.idx] = v
}

func (f *frame) run(body []stmt) flow {
	for _, s := range body {
		if fl := s.exec(f); fl != proceed {
			return fl
		}
	}
	return proceed
}

// render executes a whole template.
func (rt *runtime) render(t *Template, c *Context, out *buffer) {
	f := rt.frame(t, c, t.root, nil, out)
	f.line = 1
	f.enter(t.root.entry)
	if t.selfSlot >= 0 {
		f.slots[t.selfSlot] = &selfObject{c}
	}
	f.run(t.root.body)
	if f.parent != nil {
		rt.render(f.parent, c, out)
	}
	f.done()
}

// capture executes a body and returns its output.
func (f *frame) capture(body []stmt) string {
	old := f.out
	var b buffer
	f.out = &b
	f.run(body)
	f.out = old
	return b.String()
}

// markup returns template output, marked as safe with autoescape.
func (f *frame) markup(s string) any {
	if f.escape {
		return Markup(s)
	}
	return s
}

func (n *outputStmt) exec(f *frame) flow {
	if n.guard && f.parent != nil {
		return proceed
	}
	f.line = n.line
	f.write(n.texts[0])
	for i, e := range n.exprs {
		f.line = n.lines[i]
		f.emit(e.eval(f))
		f.write(n.texts[i+1])
	}
	return proceed
}

// emit writes a value.
func (f *frame) emit(v any) {
	if s, ok := v.(string); ok && !f.escape {
		f.write(s)
		return
	}
	if fin := f.tmpl.env.o.Finalize; fin != nil {
		v = fin(v)
	}
	if f.escape {
		f.write(string(escape(v)))
		return
	}
	f.write(str(v))
}

func (n *ifStmt) exec(f *frame) flow {
	for i, t := range n.tests {
		f.line = n.lines[i]
		if truth(t.eval(f)) {
			return f.run(n.bodies[i])
		}
	}
	return f.run(n.els)
}

func (n *setStmt) exec(f *frame) flow {
	f.line = n.line
	f.assign(n.target, n.val.eval(f))
	f.export(n.exported)
	return proceed
}

func (f *frame) export(names []*nameExpr) {
	for _, n := range names {
		f.ctx.set(n.name, f.at(n.slot))
		if !strings.HasPrefix(n.name, "_") {
			if f.ctx.exported == nil {
				f.ctx.exported = map[string]bool{}
			}
			f.ctx.exported[n.name] = true
		}
	}
}

// assign stores a value in a target.
func (f *frame) assign(target expr, v any) {
	switch t := target.(type) {
	case *nameExpr:
		f.put(t.slot, v)
	case *tupleExpr:
		f.unpack(t, v)
	case *nsrefExpr:
		ns, ok := t.name.value(f).(*Namespace)
		if !ok {
			raise(RuntimeError, "cannot assign attribute on non-namespace object")
		}
		ns.Attrs.Set(t.attr, v)
	}
}

func (f *frame) unpack(t *tupleExpr, v any) {
	var items []any
	switch x := v.(type) {
	case value.Tuple:
		items = x
	case *value.List:
		items = x.Items
	default:
		it, ok := iterate(v)
		if !ok {
			raise("TypeError", "cannot unpack non-iterable %s object", typeName(v))
		}
		for len(items) <= len(t.items) {
			w, ok := it()
			if !ok {
				break
			}
			items = append(items, w)
		}
	}
	switch {
	case len(items) > len(t.items):
		raise("ValueError", "too many values to unpack (expected %d)", len(t.items))
	case len(items) < len(t.items):
		raise("ValueError", "not enough values to unpack (expected %d, got %d)", len(t.items), len(items))
	}
	for i, it := range t.items {
		f.assign(it, items[i])
	}
}

func (n *setBlockStmt) exec(f *frame) flow {
	f.line = n.line
	f.enter(n.scope)
	v := f.markup(f.capture(n.body))
	f.line = n.line
	if n.filter != nil {
		old := f.text
		f.text = v
		v = n.filter.eval(f)
		f.text = old
	}
	f.assign(n.target, v)
	f.export(n.exported)
	return proceed
}

func (n *filterStmt) exec(f *frame) flow {
	f.line = n.line
	f.enter(n.scope)
	old := f.text
	text := f.markup(f.capture(n.body))
	f.line, f.text = n.line, text
	f.emit(n.filter.eval(f))
	f.text = old
	return proceed
}

func (n *withStmt) exec(f *frame) flow {
	f.line = n.line
	f.enter(n.scope)
	for i, t := range n.targets {
		f.assign(t, n.vals[i].eval(f))
	}
	return f.run(n.body)
}

func (n *autoescapeStmt) exec(f *frame) flow {
	f.line = n.line
	f.enter(n.scope)
	old, oldCtx := f.escape, f.ctx.escape
	f.escape = truth(n.val.eval(f))
	f.ctx.escape = f.escape
	fl := f.run(n.body)
	f.escape, f.ctx.escape = old, oldCtx
	return fl
}

func (n *doStmt) exec(f *frame) flow {
	f.line = n.line
	n.val.eval(f)
	return proceed
}

func (n *loopStmt) exec(*frame) flow { return n.f }

func (n *timedStmt) exec(f *frame) flow {
	f.line = n.line
	timed := f.rt.run.Timed
	if timed == nil {
		return f.run(n.body)
	}
	label, start := str(n.label.eval(f)), time.Now()
	fl := f.run(n.body)
	timed(n.source, label, time.Since(start))
	return fl
}

func (n *forStmt) exec(f *frame) flow {
	f.line = n.line
	v := n.iter.eval(f)
	if n.fn == nil {
		return n.loop(f, v, nil, 0)
	}
	f.write(n.recurse(f, v, 0))
	return proceed
}

// recurse executes one level of a recursive loop in its own frame.
func (n *forStmt) recurse(f *frame, v any, depth int) string {
	var b buffer
	g := f.rt.frame(f.tmpl, f.ctx, n.fn, f, &b)
	g.line, g.escape, g.block, g.parent, g.text = n.line, f.escape, f.block, f.parent, f.text
	n.loop(g, v, func(v any, depth int) string { return n.recurse(f, v, depth) }, depth)
	g.done()
	return b.String()
}

func (n *forStmt) loop(f *frame, v any, recurse func(any, int) string, depth int) flow {
	next := Iterate(v)
	if n.test != nil {
		next = n.filtered(f, next)
		v = nil
	}
	var loop *Loop
	if n.needLoop {
		loop = &Loop{next: next, over: v, index: -1, recurse: recurse, depth: depth, current: missing, before: missing, after: missing, changed: missing}
		next = loop.step
	}
	some := false
	for {
		it, ok := next()
		if !ok {
			break
		}
		f.rt.tick()
		some = true
		f.enter(n.bodyScope)
		if loop != nil {
			f.slots[n.loopSlot] = loop
		}
		if t, ok := n.target.(*nameExpr); ok {
			f.slots[t.slot.idx] = it
		} else {
			f.line = n.line
			f.assign(n.target, it)
		}
		if f.run(n.body) == breakLoop {
			break
		}
	}
	if !some && n.els != nil {
		f.enter(n.elseScope)
		return f.run(n.els)
	}
	return proceed
}

// filtered yields the items that pass the test of the loop.
func (n *forStmt) filtered(f *frame, next Iter) Iter {
	return func() (any, bool) {
		for {
			it, ok := next()
			if !ok {
				return nil, false
			}
			f.rt.tick()
			f.enter(n.testScope)
			f.assign(n.testTarget, it)
			line := f.line
			f.line = n.line
			ok = truth(n.test.eval(f))
			f.line = line
			if ok {
				return it, true
			}
		}
	}
}

func (f *frame) locals(ls []local) map[string]any {
	if len(ls) == 0 {
		return nil
	}
	m := make(map[string]any, len(ls))
	for _, l := range ls {
		if v := f.at(l.ref); v != missing {
			m[l.name] = v
		}
	}
	return m
}

func (n *blockStmt) exec(f *frame) flow {
	if n.top && n.guard && f.parent != nil {
		return proceed
	}
	f.line = n.line
	c := f.ctx
	if n.scoped {
		c = c.derived(f.locals(n.locals))
	}
	stack := c.blocks[n.name]
	if n.required && len(stack) <= 1 {
		raise(RuntimeError, "Required block %s not found", value.Repr(n.name))
	}
	f.rt.block(c, stack, 0, f.out)
	return proceed
}

// block executes one of the blocks of a name.
func (rt *runtime) block(c *Context, stack []*function, i int, out *buffer) {
	fn := stack[i]
	f := rt.frame(c.owner[fn], c, fn, nil, out)
	f.line, f.block = fn.block.line, fn
	f.enter(fn.entry)
	if s := fn.block.selfSlot; s >= 0 {
		f.slots[s] = &selfObject{c}
	}
	if s := fn.block.superSlot; s >= 0 {
		f.slots[s] = superOf(rt, c, fn.name, i)
	}
	f.run(fn.body)
	f.done()
}

// superOf returns the parent of the i-th block of a name.
func superOf(rt *runtime, c *Context, name string, i int) any {
	if i+1 >= len(c.blocks[name]) {
		return rt.undefinedHint("super", fmt.Sprintf("there is no parent block called %s.", value.Repr(name)))
	}
	return &blockRef{c, name, i + 1}
}

func (n *extendsStmt) exec(f *frame) flow {
	f.line = n.line
	if f.parent != nil {
		raise(RuntimeError, "extended multiple times")
	}
	t := f.template(n.name.eval(f))
	f.parent = t
	f.ctx.addBlocks(t)
	return proceed
}

// template loads the template of a name; v may also be a template itself.
func (f *frame) template(v any) *Template {
	name, ok := v.(string)
	if m, is := v.(Markup); is {
		name, ok = string(m), true
	}
	if !ok {
		if u, is := v.(*Undefined); is {
			u.fail()
		}
		raise("TypeError", "the name of a template must be a string, not %s", typeName(v))
	}
	t, ok := f.rt.load(name)
	if !ok {
		panic(&Error{Kind: NotFound, Message: name})
	}
	return t
}

func (n *includeStmt) exec(f *frame) flow {
	f.line = n.line
	t := n.find(f)
	if t == nil {
		return proceed
	}
	if !n.withContext {
		f.write(f.rt.module(t).body)
		return proceed
	}
	f.rt.render(t, f.rt.newContext(t, f.shared(n.locals)), f.out)
	return proceed
}

// shared returns the names visible to a template that gets this context.
func (f *frame) shared(ls []local) *scopeVars {
	vars := f.ctx.all()
	if m := f.locals(ls); len(m) > 0 {
		vars = &scopeVars{vars: m, up: vars}
	}
	return vars
}

// find returns the first existing template of one or several names.
func (n *includeStmt) find(f *frame) *Template {
	v := n.name.eval(f)
	var names []any
	switch x := v.(type) {
	case *value.List:
		names = x.Items
	case value.Tuple:
		names = x
	default:
		if s, ok := text(v); ok {
			if t, ok := f.rt.load(s); ok {
				return t
			}
			if n.ignoreMissing {
				return nil
			}
			panic(&Error{Kind: NotFound, Message: s})
		}
		if n.ignoreMissing && isUndefined(v) {
			return nil
		}
		return f.template(v)
	}
	var asked []string
	for _, v := range names {
		s, ok := text(v)
		if !ok {
			continue
		}
		if t, ok := f.rt.load(s); ok {
			return t
		}
		asked = append(asked, s)
	}
	if n.ignoreMissing {
		return nil
	}
	if len(names) == 0 {
		panic(&Error{Kind: NoneFound, Message: "Tried to select from an empty list of templates."})
	}
	panic(&Error{Kind: NoneFound, Message: "none of the templates given were found: " + strings.Join(asked, ", ")})
}

func (n *importStmt) exec(f *frame) flow {
	f.line = n.line
	m := f.imported(n.name.eval(f), n.withContext, n.locals)
	f.put(n.target.slot, m)
	if n.top {
		f.ctx.set(n.target.name, m)
		delete(f.ctx.exported, n.target.name)
	}
	return proceed
}

func (f *frame) imported(name any, withContext bool, ls []local) *Module {
	t := f.template(name)
	if !withContext {
		return f.rt.module(t)
	}
	return f.rt.newModule(t, f.shared(ls))
}

// module returns the exports of a template imported without context. The
// template is executed once per rendering.
func (rt *runtime) module(t *Template) *Module {
	if m, ok := rt.modules[t]; ok {
		return m
	}
	m := rt.newModule(t, rt.globals)
	if rt.modules == nil {
		rt.modules = map[*Template]*Module{}
	}
	rt.modules[t] = m
	return m
}

func (rt *runtime) newModule(t *Template, vars *scopeVars) *Module {
	c := rt.newContext(t, vars)
	var b buffer
	rt.render(t, c, &b)
	m := &Module{name: t.name, body: b.String(), vars: map[string]any{}}
	for name := range c.exported {
		m.vars[name] = c.vars[name]
	}
	return m
}

func (n *fromStmt) exec(f *frame) flow {
	f.line = n.line
	m := f.imported(n.name.eval(f), n.withContext, n.locals)
	for i, name := range n.names {
		v, ok := m.Attr(name)
		if !ok {
			in := ""
			if f.tmpl != f.rt.unnamed {
				in = " in " + value.Repr(f.tmpl.name)
			}
			v = f.rt.undefinedHint(name, fmt.Sprintf("the template %s (imported on line %d%s) does not export the requested name %s",
				value.Repr(m.name), n.line, in, value.Repr(name)))
		}
		t := n.targets[i]
		f.put(t.slot, v)
		if n.top {
			f.ctx.set(t.name, v)
			delete(f.ctx.exported, t.name)
		}
	}
	return proceed
}

func (n *macroStmt) exec(f *frame) flow {
	m := &Macro{def: n, name: n.name.name, f: f}
	f.put(n.name.slot, m)
	if n.top {
		f.export([]*nameExpr{n.name})
	}
	return proceed
}

func (n *callStmt) exec(f *frame) flow {
	f.line = n.line
	caller := &Macro{def: n.macro, f: f}
	v := n.call.call(f, caller)
	f.line = n.line
	f.emit(v)
	return proceed
}
