package jinja

import (
	"math/big"
	"strings"
	"time"

	"brine/internal/py/value"
)

// attr evaluates obj.name.
func (f *frame) attr(obj any, name string) any {
	if d, ok := obj.(*value.Dict); ok {
		if m := f.rt.env.methods.dict[name]; m != nil {
			return &method{obj, m}
		}
		if v, ok := d.Get(name); ok {
			return v
		}
		return f.rt.undefinedOf(obj, name)
	}
	if v, ok := f.attribute(obj, name); ok {
		return v
	}
	if v, ok := f.lookup(obj, name); ok {
		return v
	}
	return f.rt.undefinedOf(obj, name)
}

// item evaluates obj[key].
func (f *frame) item(obj, key any) any {
	if v, ok := f.lookup(obj, key); ok {
		return v
	}
	if name, ok := text(key); ok {
		if d, ok := obj.(*value.Dict); ok {
			if m := f.rt.env.methods.dict[name]; m != nil {
				return &method{d, m}
			}
		} else if v, ok := f.attribute(obj, name); ok {
			return v
		}
		return f.rt.undefinedOf(obj, name)
	}
	return f.rt.undefinedOf(obj, key)
}

// attribute is the sandbox's getattr().
func (f *frame) attribute(obj any, name string) (any, bool) {
	var m *Func
	switch x := obj.(type) {
	case string, Markup:
		m = f.rt.env.methods.str[name]
	case *value.List:
		m = f.rt.env.methods.list[name]
	case *value.Dict:
		m = f.rt.env.methods.dict[name]
	case value.Tuple:
		m = f.rt.env.methods.tuple[name]
	case []byte:
		m = f.rt.env.methods.bytes[name]
	case int64, *big.Int, bool:
		switch name {
		case "real", "numerator":
			n, _ := asInt(x)
			return n, true
		case "imag":
			return int64(0), true
		case "denominator":
			return int64(1), true
		}
		m = f.rt.env.methods.int[name]
	case float64:
		switch name {
		case "real":
			return x, true
		case "imag":
			return 0.0, true
		}
		m = f.rt.env.methods.float[name]
	case *Set:
		m = f.rt.env.methods.set[name]
	case Range:
		switch name {
		case "start":
			return x.start, true
		case "stop":
			return x.stop, true
		case "step":
			return x.step, true
		}
		m = f.rt.env.methods.seq[name]
	case time.Time:
		return f.timeAttr(x, name)
	case *Undefined:
		return f.undefinedAttr(x, name)
	case Attributer:
		if strings.HasPrefix(name, "_") {
			return nil, false
		}
		return x.Attr(name)
	}
	if m == nil {
		return nil, false
	}
	return &method{obj, m}, true
}

func (f *frame) undefinedAttr(u *Undefined, name string) (any, bool) {
	if u.kind == ChainableUndefined && !strings.HasPrefix(name, "__") {
		return u, true
	}
	if name == "__class__" && u.errKind == "" {
		return f.rt.undefinedOf(u, name), true
	}
	u.fail()
	return nil, false
}

func (f *frame) timeAttr(t time.Time, name string) (any, bool) {
	n := 0
	switch name {
	case "year":
		n = t.Year()
	case "month":
		n = int(t.Month())
	case "day":
		n = t.Day()
	case "hour":
		n = t.Hour()
	case "minute":
		n = t.Minute()
	case "second":
		n = t.Second()
	case "microsecond":
		n = t.Nanosecond() / 1000
	default:
		m := f.rt.env.methods.time[name]
		if m == nil {
			return nil, false
		}
		return &method{t, m}, true
	}
	return int64(n), true
}

// lookup returns obj[key]; ok is false if there is no such item.
func (f *frame) lookup(obj, key any) (any, bool) {
	switch x := obj.(type) {
	case *value.Dict:
		if u, ok := key.(*Undefined); ok && u.kind == StrictUndefined {
			u.fail()
		}
		k := plainKey(key)
		if !hashable(k) {
			return nil, false
		}
		return x.Get(k)
	case *value.List:
		return nth(key, len(x.Items), func(i int) any { return x.Items[i] })
	case value.Tuple:
		return nth(key, len(x), func(i int) any { return x[i] })
	case string:
		return nthRune(x, key)
	case Markup:
		v, ok := nthRune(string(x), key)
		if ok {
			v = Markup(v.(string))
		}
		return v, ok
	case []byte:
		return nth(key, len(x), func(i int) any { return int64(x[i]) })
	case Range:
		return nth(key, x.Len(), func(i int) any { return x.at(i) })
	case *Undefined:
		if x.kind == ChainableUndefined {
			return x, true
		}
		x.fail()
	case Itemer:
		return x.Item(plainKey(key))
	}
	return nil, false
}

func nth(key any, n int, at func(int) any) (any, bool) {
	k, ok := asInt(key)
	if !ok {
		return nil, false
	}
	i := index(k)
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil, false
	}
	return at(i), true
}

func nthRune(s string, key any) (any, bool) {
	k, ok := asInt(key)
	if !ok {
		return nil, false
	}
	rs := []rune(s)
	return nth(k, len(rs), func(i int) any { return string(rs[i]) })
}

// method is a bound method.
type method struct {
	self any
	f    *Func
}

// Call calls the method with the value as first argument.
func (m *method) Call(c *Call) (any, error) {
	args := make([]any, 0, len(c.Args)+1)
	args = append(append(args, m.self), c.Args...)
	return m.f.call(&Call{Ctx: c.Ctx, Args: args, Kwargs: c.Kwargs, f: c.f})
}

func (m *method) String() string {
	return "<built-in method " + m.f.name + " of " + typeName(m.self) + " object>"
}

func (m *method) TypeName() string { return "builtin_function_or_method" }

// methodTables holds the methods of Python's types.
type methodTables struct {
	str, bytes, list, tuple, dict, int, float, set, seq, time map[string]*Func
}

func newMethods() *methodTables {
	return &methodTables{str: strMethods(), bytes: bytesMethods(), list: listMethods(), tuple: seqMethods(), seq: seqMethods(),
		dict: dictMethods(), int: intMethods(), float: floatMethods(), set: setMethods(), time: timeMethods()}
}

func table(fs ...*Func) map[string]*Func {
	m := make(map[string]*Func, len(fs))
	for _, f := range fs {
		m[f.name] = f
	}
	return m
}

// fn makes a Func of a function that panics on errors, as functions of this
// package do.
func fn(sig string, do func(c *Call) any) *Func {
	return NewFunc(sig, func(c *Call) (any, error) { return do(c), nil })
}
