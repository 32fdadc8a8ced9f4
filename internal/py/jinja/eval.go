package jinja

import (
	"fmt"
	"strings"
	"time"

	"brine/internal/py/value"
)

func (n *constExpr) eval(*frame) any { return n.v }

// value reads a variable. A slot is never nil; a missing value is undefined.
func (n *nameExpr) value(f *frame) any {
	g := f
	for up := n.slot.up; up > 0; up-- {
		g = g.up
	}
	v := g.slots[n.slot.idx]
	if v == missing {
		return f.rt.undefined(n.name)
	}
	return v
}

func (n *nameExpr) eval(f *frame) any { return n.value(f) }

func (n *nsrefExpr) eval(f *frame) any { return f.attr(n.name.value(f), n.attr) }

func evalAll(f *frame, es []expr) []any {
	out := make([]any, len(es))
	for i, e := range es {
		out[i] = e.eval(f)
	}
	return out
}

func (n *listExpr) eval(f *frame) any {
	f.rt.spend(32 * (1 + len(n.items)))
	return &value.List{Items: evalAll(f, n.items)}
}

func (n *tupleExpr) eval(f *frame) any {
	f.rt.spend(32 * len(n.items))
	return value.Tuple(evalAll(f, n.items))
}

func (n *dictExpr) eval(f *frame) any {
	f.rt.spend(128 * (1 + len(n.keys)))
	d := value.NewDict(len(n.keys))
	for i, k := range n.keys {
		setItem(d, k.eval(f), n.vals[i].eval(f))
	}
	return d
}

func (n *condExpr) eval(f *frame) any {
	if truth(n.test.eval(f)) {
		return n.yes.eval(f)
	}
	if n.no == nil {
		return &Undefined{hint: (fmt.Sprintf("the inline if-expression on line %d evaluated to false and no else section was defined.", n.line))}
	}
	return n.no.eval(f)
}

func (n *orExpr) eval(f *frame) any {
	if v := n.a.eval(f); truth(v) {
		return v
	}
	return n.b.eval(f)
}

func (n *andExpr) eval(f *frame) any {
	if v := n.a.eval(f); !truth(v) {
		return v
	}
	return n.b.eval(f)
}

func (n *notExpr) eval(f *frame) any { return !truth(n.a.eval(f)) }

func (n *compExpr) eval(f *frame) any {
	a := n.first.eval(f)
	for i, op := range n.ops {
		b := n.rest[i].eval(f)
		if !compare(f, op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func compare(f *frame, op string, a, b any) bool {
	if n := weight(a); n > 1024 {
		f.rt.work(n)
	}
	switch op {
	case "==":
		return equal(a, b)
	case "!=":
		return !equal(a, b)
	case "in":
		return contains(f, b, a)
	case "not in":
		return !contains(f, b, a)
	}
	return less(op, a, b)
}

func (n *binExpr) eval(f *frame) any {
	a := n.a.eval(f)
	b := n.b.eval(f)
	return arith(f, n.op, a, b)
}

func (n *negExpr) eval(f *frame) any { return unary(n.op, n.a.eval(f)) }

func (n *concatExpr) eval(f *frame) any {
	items := evalAll(f, n.items)
	if f.escape {
		for i, v := range items {
			if _, ok := v.(Markup); ok {
				var b strings.Builder
				for _, w := range items[:i] {
					b.WriteString(string(escape(str(w))))
				}
				for _, w := range items[i:] {
					b.WriteString(string(escape(w)))
					f.rt.reserve(3 * b.Len())
				}
				f.rt.spend(b.Len())
				return Markup(b.String())
			}
		}
	}
	size := 0
	texts := make([]string, len(items))
	for i, v := range items {
		texts[i] = str(v)
		if size += len(texts[i]); size > 1<<16 {
			f.rt.reserve(2 * size)
		}
	}
	f.rt.copied(size)
	s := strings.Join(texts, "")
	f.rt.made(s)
	return s
}

func (n *getattrExpr) eval(f *frame) any { return f.attr(n.a.eval(f), n.name) }

func (n *getitemExpr) eval(f *frame) any { return f.item(n.a.eval(f), n.key.eval(f)) }

func (n *sliceExpr) eval(f *frame) any {
	bound := func(e expr) any {
		if e == nil {
			return nil
		}
		return e.eval(f)
	}
	a := n.a.eval(f)
	f.rt.work(weight(a))
	v := slice(a, bound(n.start), bound(n.stop), bound(n.step))
	if !partOf(v, a) {
		f.rt.made(v)
	}
	return v
}

func (n *loneSlice) eval(f *frame) any {
	raise("TypeError", "a slice cannot be one of several subscripts")
	return nil
}

// eval returns the arguments of a call, preceded by first if given.
func (c *callArgs) eval(f *frame, first ...any) ([]any, *value.Dict) {
	args := first
	if len(c.args) > 0 {
		args = make([]any, len(first), len(first)+len(c.args))
		copy(args, first)
		for _, e := range c.args {
			args = append(args, e.eval(f))
		}
	}
	var kw *value.Dict
	if len(c.names) > 0 {
		kw = value.NewDict(len(c.names))
		for i, name := range c.names {
			if kw.Has(name) {
				raise(SyntaxError, "keyword argument repeated: %s", name)
			}
			kw.Set(name, c.vals[i].eval(f))
		}
	}
	if c.star != nil {
		v := c.star.eval(f)
		it, ok := iterate(v)
		if !ok {
			raise("TypeError", "the argument after * must be an iterable, not %s", typeName(v))
		}
		for v, ok := it(); ok; v, ok = it() {
			f.rt.tick()
			args = append(args, v)
		}
	}
	if c.kwstar != nil {
		kw = spread(kw, c.kwstar.eval(f))
	}
	return args, kw
}

// spread adds the keywords of **v.
func spread(kw *value.Dict, v any) *value.Dict {
	d, ok := v.(*value.Dict)
	if !ok {
		if u, is := v.(*Undefined); is {
			u.fail()
		}
		raise("TypeError", "the argument after ** must be a mapping, not %s", typeName(v))
	}
	if kw == nil {
		kw = value.NewDict(d.Len())
	}
	for k, w := range d.All() {
		name, ok := text(k)
		if !ok {
			raise("TypeError", "keywords must be strings")
		}
		if kw.Has(name) {
			raise("TypeError", "got multiple values for keyword argument %s", value.Repr(name))
		}
		kw.Set(name, w)
	}
	return kw
}

func (n *callExpr) eval(f *frame) any { return n.call(f, nil) }

// call evaluates the call; caller, unless nil, is the body of a call block.
func (n *callExpr) call(f *frame, caller *Macro) any {
	fn := n.fn.eval(f)
	args, kw := n.callArgs.eval(f)
	if caller != nil {
		if kw == nil {
			kw = value.NewDict(1)
		}
		kw.Set("caller", caller)
	}
	return f.call(fn, args, kw)
}

func (f *frame) call(fn any, args []any, kw *value.Dict) any {
	c, ok := fn.(Callable)
	if !ok {
		if u, is := fn.(*Undefined); is {
			u.fail()
		}
		raise("TypeError", "'%s' object is not callable", typeName(fn))
	}
	f.rt.tick()
	call := &Call{Ctx: f.rt.ctx, Args: args, Kwargs: kw, f: f}
	if o, ok := c.(Outsider); ok && o.Outside() {
		began := time.Now()
		defer func() { f.rt.outside += time.Since(began) }()
	}
	v, err := c.Call(call)
	if err != nil {
		raiseErr(err)
	}
	return v
}

func (f *frame) apply(fn *Func, args []any, kw *value.Dict) any {
	f.rt.tick()
	c := &Call{Ctx: f.rt.ctx, Args: args, Kwargs: kw, f: f}
	v, err := fn.call(c)
	if err != nil {
		raiseErr(err)
	}
	return v
}

func (n *filterExpr) eval(f *frame) any {
	var in any
	if n.in != nil {
		in = n.in.eval(f)
	} else {
		in = f.text
	}
	if n.fn == nil {
		raise(RuntimeError, "No filter named %s found.", quoted(n.name))
	}
	args, kw := n.callArgs.eval(f, in)
	return f.apply(n.fn, args, kw)
}

func (n *testExpr) eval(f *frame) any {
	if n.fn == nil {
		raise(RuntimeError, "No test named %s found.", quoted(n.name))
	}
	in := n.in.eval(f)
	args, kw := n.callArgs.eval(f, in)
	return f.apply(n.fn, args, kw)
}
