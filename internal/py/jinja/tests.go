package jinja

import (
	"math/big"
	"strings"

	"brine/internal/py/value"
)

// builtinTests returns the tests of Jinja2.
func builtinTests() map[string]*Func {
	is := func(name string, do func(v any) bool) *Func {
		return fn(name+"(value)", func(c *Call) any { return do(c.any(0)) })
	}
	compared := func(op string) *Func {
		return fn(op+"(a, b)", func(c *Call) any { return compare(c.f, op, c.any(0), c.any(1)) })
	}
	m := table(
		is("defined", func(v any) bool { return !isUndefined(v) }),
		is("undefined", isUndefined),
		is("none", func(v any) bool { return v == nil }),
		is("boolean", func(v any) bool { _, ok := v.(bool); return ok }),
		is("true", func(v any) bool { b, ok := v.(bool); return ok && b }),
		is("false", func(v any) bool { b, ok := v.(bool); return ok && !b }),
		is("integer", func(v any) bool { _, b := v.(bool); _, ok := asInt(v); return ok && !b }),
		is("float", func(v any) bool { _, ok := v.(float64); return ok }),
		is("number", func(v any) bool { _, ok := v.(float64); _, i := asInt(v); return ok || i }),
		is("string", func(v any) bool { _, ok := text(v); return ok }),
		is("mapping", isMapping),
		is("sequence", func(v any) bool { return IsSequence(v) }),
		is("iterable", func(v any) bool {
			if u, ok := v.(*Undefined); ok && u.kind == StrictUndefined {
				u.fail()
			}
			_, ok := iterate(v)
			return ok
		}),
		is("callable", func(v any) bool { _, ok := v.(Callable); return ok || isUndefined(v) }),
		is("escaped", func(v any) bool { _, ok := v.(Markup); return ok }),
		is("lower", func(v any) bool { s := str(v); return s != "" && strings.ToLower(s) == s && upper(s) != s }),
		is("upper", func(v any) bool { s := str(v); return s != "" && upper(s) == s && strings.ToLower(s) != s }),
		fn("odd(value)", func(c *Call) any { return equal(arith(c.f, '%', c.any(0), int64(2)), int64(1)) }),
		fn("even(value)", func(c *Call) any { return equal(arith(c.f, '%', c.any(0), int64(2)), int64(0)) }),
		fn("divisibleby(value, num)", func(c *Call) any { return equal(arith(c.f, '%', c.any(0), c.any(1)), int64(0)) }),
		fn("sameas(value, other)", func(c *Call) any { return identical(c.any(0), c.any(1)) }),
		fn("in(value, seq)", func(c *Call) any { return contains(c.f, c.any(1), c.any(0)) }),
		fn("filter(value)", func(c *Call) any { s, _ := text(c.any(0)); return c.f.tmpl.env.filters[s] != nil }),
		fn("test(value)", func(c *Call) any { s, _ := text(c.any(0)); return c.f.tmpl.env.tests[s] != nil }),
		compared("=="), compared("!="), compared("<"), compared("<="), compared(">"), compared(">="),
	)
	for name, op := range map[string]string{"eq": "==", "equalto": "==", "ne": "!=", "lt": "<", "lessthan": "<", "le": "<=",
		"gt": ">", "greaterthan": ">", "ge": ">="} {
		m[name] = m[op]
	}
	return m
}

func isMapping(v any) bool {
	switch v.(type) {
	case *value.Dict:
		return true
	case Mapping:
		return true
	}
	return false
}

// Mapping is an object that counts as a dict to tests.
type Mapping interface {
	Itemer
	// Mapping is a marker method.
	Mapping()
}

// IsSequence reports whether v has a length and items.
func IsSequence(v any) bool {
	switch x := v.(type) {
	case *Undefined:
		if x.kind == StrictUndefined {
			x.fail()
		}
		return true
	case string, Markup, []byte, *value.List, value.Tuple, *value.Dict, Range, *groupPair:
		return true
	}
	_, sized := v.(Sized)
	_, items := v.(Itemer)
	return sized && items
}

// identical is Python's operator is. Equal numbers and strings count as the
// same object.
func identical(a, b any) bool {
	switch x := a.(type) {
	case int64, bool, string, nil, float64:
		return a == b
	case *big.Int:
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0
	case value.Tuple:
		y, ok := b.(value.Tuple)
		return ok && len(x) == len(y) && (len(x) == 0 || &x[0] == &y[0])
	case []byte:
		y, ok := b.([]byte)
		return ok && len(x) == len(y) && (len(x) == 0 || &x[0] == &y[0])
	}
	return sameObject(a, b)
}
