package jinja

import (
	"context"
	"fmt"
	"sort"

	"brine/internal/py/value"
)

// Attributer is an object with attributes.
type Attributer interface {
	// Attr returns an attribute. It is never called with a name that begins
	// with an underscore.
	Attr(name string) (any, bool)
}

// Itemer is an object with items, as a dict.
type Itemer interface {
	Item(key any) (any, bool)
}

// Callable is an object that can be called.
type Callable interface {
	Call(c *Call) (any, error)
}

// Iterable is an object that can be iterated over, each time from the start.
type Iterable interface {
	Iterate() Iter
}

// Container is an object that supports the operator in.
type Container interface {
	Contains(v any) bool
}

// Sized is an object with a length.
type Sized interface {
	Len() int
}

// Named is an object with a type name for error messages.
type Named interface {
	TypeName() string
}

// Shown is an object with its own texts: Python's str(), or repr().
type Shown interface {
	Shown(repr bool) string
}

// Plainer is an object that stands for a value of package value, which Plain returns.
type Plainer interface {
	Plain() any
}

// Outsider is a Callable whose time may be excluded from MaxTime.
type Outsider interface {
	Callable
	// Outside reports whether the time of the function is excluded.
	Outside() bool
}

// Iter yields the next item, and false at the end.
type Iter func() (any, bool)

// Call is a call from a template.
type Call struct {
	Ctx  context.Context
	Args []any
	// Kwargs may be nil, meaning empty.
	Kwargs *value.Dict
	// Bound holds the arguments in the order of the parameters of a Func.
	Bound []any
	f     *frame
}

// Context returns the context of the calling template.
func (c *Call) Context() *Context { return c.f.ctx }

// Escape reports whether output is escaped for HTML.
func (c *Call) Escape() bool { return c.f.escape }

// Undefined returns an undefined value of a name, which fails with hint when
// used.
func (c *Call) Undefined(name, hint string) any { return c.f.rt.undefinedHint(name, hint) }

// Tick must be called in long loops. It ends the rendering at its limits.
func (c *Call) Tick() { c.f.rt.tick() }

// Spend counts n bytes that a function is about to allocate; too many end the
// rendering.
func (c *Call) Spend(n int) { c.f.rt.spend(max(0, n)) }

// Reserve ends the rendering unless n more bytes may be allocated, and if n is
// negative, which stands for too many to count. The result of a function is counted
// by the engine.
func (c *Call) Reserve(n int) { c.f.rt.reserve(n) }

// Invoke calls fn, which may be a macro or any other callable of a template.
func (c *Call) Invoke(fn any, args []any, kwargs *value.Dict) (any, error) {
	return c.f.call(fn, args, kwargs), nil
}

// Attribute returns an attribute or method of a value, as the sandbox allows.
func (c *Call) Attribute(v any, name string) (any, bool) {
	if d, ok := v.(*value.Dict); ok {
		m := c.f.rt.env.methods.dict[name]
		return &method{d, m}, m != nil
	}
	return c.f.attribute(v, name)
}

// filter applies a filter by name.
func (c *Call) filter(name string, in any, args []any, kwargs *value.Dict) any {
	fn := c.f.tmpl.env.filters[name]
	if fn == nil {
		raise(RuntimeError, "No filter named %s.", quoted(name))
	}
	return c.f.apply(fn, append([]any{in}, args...), kwargs)
}

func (c *Call) test(name string, in any, args []any, kwargs *value.Dict) bool {
	fn := c.f.tmpl.env.tests[name]
	if fn == nil {
		raise(RuntimeError, "No test named %s.", quoted(name))
	}
	return truth(c.f.apply(fn, append([]any{in}, args...), kwargs))
}

// Namespace is an object whose attributes templates can set.
type Namespace struct{ Attrs *value.Dict }

// Attr returns an attribute.
func (n *Namespace) Attr(name string) (any, bool) { return n.Attrs.Get(name) }

// Item returns an attribute.
func (n *Namespace) Item(key any) (any, bool) { return n.Attrs.Get(key) }

// String returns the text form of a namespace.
func (n *Namespace) String() string { return "<Namespace " + repr(n.Attrs) + ">" }

// Module holds the exports of an imported template.
type Module struct {
	name, body string
	vars       map[string]any
}

// Attr returns an exported name of the template.
func (m *Module) Attr(name string) (any, bool) { v, ok := m.vars[name]; return v, ok }

// Name returns the name of the template.
func (m *Module) Name() string { return m.name }

// String returns the output of the template.
func (m *Module) String() string { return m.body }

// TypeName returns the name used in error messages.
func (m *Module) TypeName() string { return "jinja2.environment.TemplateModule" }

// Loop is the variable loop.
type Loop struct {
	next    Iter
	over    any
	index   int
	length  int
	known   bool
	recurse func(any, int) string
	depth   int

	before, current, after any
	changed                any
	ended                  bool
}

func (l *Loop) step() (any, bool) {
	v := l.after
	if v != missing {
		l.after = missing
	} else {
		var ok bool
		if v, ok = l.advance(); !ok {
			return nil, false
		}
	}
	l.index++
	l.before, l.current = l.current, v
	return v, true
}

func (l *Loop) advance() (any, bool) {
	if l.ended {
		return nil, false
	}
	v, ok := l.next()
	l.ended = !ok
	return v, ok
}

func (l *Loop) peek() (any, bool) {
	if l.after == missing {
		if v, ok := l.advance(); ok {
			l.after = v
		}
	}
	return l.after, l.after != missing
}

// Len returns the number of items. It reads an iterator to its end.
func (l *Loop) Len() int {
	if l.known {
		return l.length
	}
	l.known = true
	if n, ok := length(l.over); ok && l.over != nil {
		l.length = n
		return n
	}
	var rest []any
	for {
		v, ok := l.advance()
		if !ok {
			break
		}
		rest = append(rest, v)
	}
	l.length = len(rest) + l.index + 1
	if l.after != missing {
		l.length++
	}
	l.next, l.ended = sliceIter(rest), false
	return l.length
}

// Attr returns an attribute of the loop.
func (l *Loop) Attr(name string) (any, bool) {
	switch name {
	case "index":
		return int64(l.index + 1), true
	case "index0":
		return int64(l.index), true
	case "revindex":
		return int64(l.Len() - l.index), true
	case "revindex0":
		return int64(l.Len() - l.index - 1), true
	case "first":
		return l.index == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return int64(l.Len()), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.index == 0 {
			return &Undefined{hint: "there is no previous item", kind: StrictUndefined}, true
		}
		return l.before, true
	case "nextitem":
		if v, ok := l.peek(); ok {
			return v, true
		}
		return &Undefined{hint: "there is no next item", kind: StrictUndefined}, true
	case "cycle":
		return &goFunc{"cycle", func(c *Call) (any, error) {
			if len(c.Args) == 0 {
				return nil, Errorf("TypeError", "no items for cycling given")
			}
			return c.Args[l.index%len(c.Args)], nil
		}}, true
	case "changed":
		return &goFunc{"changed", func(c *Call) (any, error) {
			now := value.Tuple(c.Args)
			if l.changed != missing && equal(l.changed, now) {
				return false, nil
			}
			l.changed = now
			return true, nil
		}}, true
	}
	return nil, false
}

// Call runs a recursive loop on the items of the next level.
func (l *Loop) Call(c *Call) (any, error) {
	if l.recurse == nil {
		return nil, Errorf("TypeError", "The loop must have the 'recursive' marker to be called recursively.")
	}
	if len(c.Args) != 1 {
		return nil, Errorf("TypeError", "loop() takes one argument, the items to iterate over")
	}
	return c.f.markup(l.recurse(c.Args[0], l.depth+1)), nil
}

// String returns the text form of a loop.
func (l *Loop) String() string { return fmt.Sprintf("<LoopContext %d/%d>", l.index+1, l.Len()) }

// TypeName returns the name used in error messages.
func (l *Loop) TypeName() string { return "jinja2.runtime.LoopContext" }

// Macro is a macro, or the body of a call block.
type Macro struct {
	def  *macroStmt
	name string
	f    *frame // where it was defined
}

// String returns the text form of a macro.
func (m *Macro) String() string {
	if m.name == "" {
		return "<Macro anonymous>"
	}
	return "<Macro " + value.Repr(m.name) + ">"
}

// TypeName returns the name used in error messages.
func (m *Macro) TypeName() string { return "jinja2.runtime.Macro" }

// Attr returns an attribute of the macro.
func (m *Macro) Attr(name string) (any, bool) {
	switch name {
	case "name":
		if m.name == "" {
			return nil, true
		}
		return m.name, true
	case "arguments":
		t := make(value.Tuple, len(m.def.args))
		for i, a := range m.def.args {
			t[i] = a.name
		}
		return t, true
	case "catch_kwargs":
		return m.def.kwargs, true
	case "catch_varargs":
		return m.def.varargs, true
	case "caller":
		return m.def.caller, true
	}
	return nil, false
}

// Call executes the body of the macro and returns its output.
func (m *Macro) Call(c *Call) (any, error) {
	d, rt := m.def, m.f.rt
	if c.f != nil {
		rt = c.f.rt
	}
	args, kw := c.Args, c.Kwargs
	if kw.Len() > 0 {
		kw = kw.Clone()
	}
	vals := make([]any, len(d.args))
	foundCaller := false
	for i, a := range d.args {
		switch {
		case i < len(args):
			vals[i] = args[i]
		case kw.Has(a.name):
			vals[i] = kw.At(a.name)
			kw.Delete(a.name)
		default:
			vals[i] = missing
		}
		foundCaller = foundCaller || i >= len(args) && a.name == "caller"
	}
	var caller any
	if d.caller && !foundCaller {
		v, ok := kw.Get("caller")
		if ok {
			kw.Delete("caller")
		}
		if caller = v; v == nil {
			caller = rt.undefinedHint("caller", "No caller defined")
		}
	}
	if err := m.extra(args, kw); err != nil {
		return nil, err
	}
	return m.run(rt, vals, caller, args, kw), nil
}

// extra rejects arguments that the macro does not use.
func (m *Macro) extra(args []any, kw *value.Dict) error {
	d := m.def
	if !d.kwargs && kw.Len() > 0 {
		if kw.Has("caller") {
			return Errorf("TypeError", "macro %s was invoked with two values for the special caller argument. This is most likely a bug.", repr(m.nameOrNil()))
		}
		k, _ := kw.Entry(0)
		return Errorf("TypeError", "macro %s takes no keyword argument %s", repr(m.nameOrNil()), repr(k))
	}
	if !d.varargs && len(args) > len(d.args) {
		return Errorf("TypeError", "macro %s takes not more than %d argument(s)", repr(m.nameOrNil()), len(d.args))
	}
	return nil
}

func (m *Macro) nameOrNil() any {
	if m.name == "" {
		return nil
	}
	return m.name
}

func (m *Macro) run(rt *runtime, vals []any, caller any, args []any, kw *value.Dict) any {
	d := m.def
	var b buffer
	f := rt.frame(m.f.tmpl, m.f.ctx, d.fn, m.f, &b)
	f.line, f.escape, f.block, f.text = d.line, m.f.escape, m.f.block, m.f.text
	f.enter(d.fn.entry)
	if d.callerSlot >= 0 {
		f.slots[d.callerSlot] = caller
	}
	if d.kwargsSlot >= 0 {
		if kw == nil {
			kw = value.NewDict(0)
		}
		f.slots[d.kwargsSlot] = kw
	}
	if d.argsSlot_ >= 0 {
		f.slots[d.argsSlot_] = value.Tuple(args[min(len(args), len(vals)):])
	}
	for i, v := range vals {
		f.slots[d.slots[i]] = v
	}
	for i, v := range vals {
		if v != missing {
			continue
		}
		if k := i - (len(vals) - len(d.defaults)); k >= 0 {
			v = d.defaults[k].eval(f)
		} else {
			v = rt.undefinedHint(d.args[i].name, fmt.Sprintf("parameter %s was not provided", value.Repr(d.args[i].name)))
		}
		if d.args[i].name == "caller" && d.explicitCaller && caller != nil && !isUndefined(caller) {
			v = caller
		}
		f.slots[d.slots[i]] = v
	}
	f.run(d.body)
	f.done()
	return f.markup(b.String())
}

// selfObject is the variable self: the blocks of a template.
type selfObject struct{ c *Context }

func (s *selfObject) Attr(name string) (any, bool) {
	if len(s.c.blocks[name]) == 0 {
		return nil, false
	}
	return &blockRef{s.c, name, 0}, true
}

func (s *selfObject) Item(key any) (any, bool) {
	name, _ := key.(string)
	return s.Attr(name)
}

func (s *selfObject) TypeName() string { return "jinja2.runtime.TemplateReference" }

// blockRef is a block that can be called.
type blockRef struct {
	c    *Context
	name string
	i    int
}

func (b *blockRef) Attr(name string) (any, bool) {
	if name == "super" {
		return superOf(b.c.rt, b.c, b.name, b.i), true
	}
	return nil, false
}

func (b *blockRef) Call(c *Call) (any, error) {
	if len(c.Args) > 0 || c.Kwargs.Len() > 0 {
		return nil, Errorf("TypeError", "a block takes no arguments")
	}
	var out buffer
	b.c.rt.block(b.c, b.c.blocks[b.name], b.i, &out)
	return c.f.markup(out.String()), nil
}

// goFunc is a Go function as a callable.
type goFunc struct {
	name string
	do   func(c *Call) (any, error)
}

func (g *goFunc) Call(c *Call) (any, error) { return g.do(c) }
func (g *goFunc) String() string            { return "<built-in function " + g.name + ">" }
func (g *goFunc) TypeName() string          { return "builtin_function_or_method" }

// Function makes a Go function callable.
func Function(name string, do func(c *Call) (any, error)) any { return &goFunc{name, do} }

func sortedNames[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
