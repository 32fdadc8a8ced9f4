package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"brine/internal/py/value"
)

// Func is a filter, a test or a method: a Go function with a Python signature.
type Func struct {
	name            string
	params          []param
	required        int
	varargs, kwargs bool
	// lends says that the function returns an argument or a part of one. grow
	// is the factor by which a returned string may be longer than the
	// arguments.
	lends bool
	grow  int
	heavy bool // takes some 100 ns per byte
	do    func(c *Call) (any, error)
}

type param struct {
	name string
	def  any
}

// NewFunc returns a function. sig is its name and its arguments as Python
// writes them, with None, True, False, numbers and plain strings as defaults:
//
//	indent(s, width=4, first=False)
//	zip(*args)
//
// Call.Bound has the arguments in this order, *args as a value.Tuple and
// **kwargs as a *value.Dict. NewFunc panics on an invalid signature, which is a
// programming error.
func NewFunc(sig string, do func(c *Call) (any, error)) *Func {
	name, rest, ok := strings.Cut(sig, "(")
	if !ok || !strings.HasSuffix(rest, ")") {
		panic("jinja: bad signature: " + sig)
	}
	f := &Func{name: name, do: do, lends: lending[name], grow: max(1, growing[name]), heavy: heavy[name]}
	for _, p := range strings.Split(strings.TrimSuffix(rest, ")"), ", ") {
		switch {
		case p == "":
		case strings.HasPrefix(p, "**"):
			f.kwargs = true
		case strings.HasPrefix(p, "*"):
			f.varargs = true
		default:
			n, def, opt := strings.Cut(p, "=")
			if !opt {
				f.required++
			}
			f.params = append(f.params, param{n, literal(def, sig)})
		}
	}
	return f
}

func literal(s, sig string) any {
	switch s {
	case "", "None":
		return nil
	case "True", "False":
		return s == "True"
	case "missing":
		return missing
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i
	}
	if len(s) >= 2 && s[0] == '\'' && s[len(s)-1] == '\'' {
		return s[1 : len(s)-1]
	}
	panic("jinja: bad default in " + sig)
}

func (f *Func) call(c *Call) (any, error) {
	if err := f.bind(c); err != nil {
		return nil, err
	}
	if c.f == nil {
		return f.do(c)
	}
	rt := c.f.rt
	for _, a := range c.Args {
		if n := weight(a); n > 64 {
			if rt.work(n); f.heavy {
				rt.work(n << 6)
			}
			if n > 1<<16 && !f.lends {
				rt.reserve(n * f.grow)
			}
		}
	}
	v, err := f.do(c)
	if !f.lends && !slices.ContainsFunc(c.Args, func(a any) bool { return partOf(v, a) }) {
		rt.made(v)
	}
	return v, err
}

// partOf reports whether v is the value a itself, or a part of its string: many
// functions return their argument if there is nothing to change.
func partOf(v, a any) bool {
	switch x := v.(type) {
	case string, Markup:
		s, _ := text(x)
		whole, ok := text(a)
		if !ok || len(s) < lentFrom || len(s) > len(whole) {
			return false
		}
		p, begin := uintptr(unsafe.Pointer(unsafe.StringData(s))), uintptr(unsafe.Pointer(unsafe.StringData(whole)))
		return p >= begin && p < begin+uintptr(len(whole))
	case *value.List:
		return any(x) == a
	case *value.Dict:
		return any(x) == a
	}
	return false
}

// weight estimates how many bytes a function reads.
func weight(v any) int {
	switch x := v.(type) {
	case string:
		return len(x)
	case Markup:
		return len(x)
	case []byte:
		return len(x)
	case *value.List:
		if x != nil {
			return 4 * len(x.Items)
		}
	case value.Tuple:
		return 4 * len(x)
	}
	return 0
}

// lending lists the filters, methods and globals that return an argument or a
// part of one, so that their result allocates nothing.
var lending = map[string]bool{"default": true, "first": true, "last": true, "random": true, "min": true, "max": true, "attr": true, "length": true,
	"get": true, "pop": true, "popitem": true, "setdefault": true, "safe": true, "string": true, "traverse": true, "method_call": true, "raise": true,
	"count": true, "index": true, "find": true, "rfind": true, "startswith": true, "endswith": true, "append": true, "sum": true}

// growing has the factors by which functions may lengthen a string.
var growing = map[string]int{"quote": 5, "yaml_dquote": 10, "yaml_squote": 2, "yaml_encode": 10, "json": 6, "tojson": 6, "urlencode": 3, "escape": 5,
	"forceescape": 5, "base64_encode": 2, "regex_escape": 2, "upper": 2, "xml": 6, "yaml": 4, "python": 4, "pprint": 4, "load_yaml": 4, "load_json": 4,
	"urlize": 3, "reverse": 5, "wordwrap": 3, "to_snake_case": 2, "strftime": 10, "to_bytes": 2, "encode": 2, "decode": 2}

// heavy lists the functions that parse, or search with regular expressions.
var heavy = map[string]bool{"load_yaml": true, "load_json": true, "regex_search": true, "regex_match": true, "regex_replace": true, "strftime": true,
	"wordwrap": true, "yaml": true, "urlize": true, "json_query": true}

// bind assigns the arguments to the parameters.
func (f *Func) bind(c *Call) error {
	n := len(f.params)
	if len(c.Args) == n && c.Kwargs.Len() == 0 && !f.varargs && !f.kwargs {
		c.Bound = c.Args
		return nil
	}
	b := make([]any, n, n+2)
	for i := range b {
		if i < len(c.Args) {
			b[i] = c.Args[i]
		} else {
			b[i] = f.params[i].def
			if i < f.required {
				b[i] = missing
			}
		}
	}
	if len(c.Args) > n && !f.varargs {
		return Errorf("TypeError", "%s() takes %s but %d were given", f.name, plural(f.required, n), len(c.Args))
	}
	extra, err := f.keywords(c, b)
	if err != nil {
		return err
	}
	var lacking []string
	for i := range f.required {
		if b[i] == missing {
			lacking = append(lacking, value.Repr(f.params[i].name))
		}
	}
	if len(lacking) > 0 {
		s := ""
		if len(lacking) > 1 {
			s = "s"
		}
		return Errorf("TypeError", "%s() missing %d required positional argument%s: %s", f.name, len(lacking), s, strings.Join(lacking, " and "))
	}
	if f.varargs {
		b = append(b, value.Tuple(c.Args[min(n, len(c.Args)):]))
	}
	if f.kwargs {
		b = append(b, extra)
	}
	c.Bound = b
	return nil
}

func plural(required, n int) string {
	s := "s"
	if n == 1 {
		s = ""
	}
	if required < n {
		return fmt.Sprintf("from %d to %d positional argument%s", required, n, s)
	}
	return fmt.Sprintf("%d positional argument%s", n, s)
}

func (f *Func) keywords(c *Call, b []any) (*value.Dict, error) {
	var extra *value.Dict
	if f.kwargs {
		extra = value.NewDict(0)
	}
	for k, v := range c.Kwargs.All() {
		i := f.param(k)
		switch {
		case i >= 0 && i < len(c.Args):
			return nil, Errorf("TypeError", "%s() got multiple values for argument %s", f.name, value.Repr(k))
		case i >= 0:
			b[i] = v
		case f.kwargs:
			extra.Set(k, v)
		default:
			return nil, Errorf("TypeError", "%s() got an unexpected keyword argument %s", f.name, value.Repr(k))
		}
	}
	return extra, nil
}

func (f *Func) param(name any) int {
	for i := range f.params {
		if f.params[i].name == name {
			return i
		}
	}
	return -1
}

// globalFunc is a Func as a global.
type globalFunc struct{ f *Func }

func (g globalFunc) Call(c *Call) (any, error) { return g.f.call(c) }
func (g globalFunc) String() string            { return "<function " + g.f.name + ">" }
func (g globalFunc) TypeName() string {
	switch g.f.name {
	case "dict", "namespace", "cycler", "joiner", "odict":
		return "type"
	}
	return "function"
}

// Global makes a Func callable, for use in Run.Globals.
func Global(f *Func) any { return globalFunc{f} }

// The arguments of a call by type. Each fails the rendering with a TypeError
// for another type.

func (c *Call) any(i int) any { return c.Bound[i] }

func (c *Call) str(i int) string {
	s, ok := text(c.Bound[i])
	if !ok {
		if u, is := c.Bound[i].(*Undefined); is {
			return u.text()
		}
		raise("TypeError", "expected str, got %s", typeName(c.Bound[i]))
	}
	return s
}

func (c *Call) int(i int) int {
	n, ok := asInt(c.Bound[i])
	if !ok {
		if u, is := c.Bound[i].(*Undefined); is {
			u.fail()
		}
		raise("TypeError", "'%s' object cannot be interpreted as an integer", typeName(c.Bound[i]))
	}
	return index(n)
}

func (c *Call) bool(i int) bool { return truth(c.Bound[i]) }

// Str, Int and Bool return a bound argument; each fails the rendering with a
// TypeError if it is of another type.

// Str returns a bound string argument.
func (c *Call) Str(i int) string { return c.str(i) }

// Int returns a bound integer argument, clamped to 40 bits.
func (c *Call) Int(i int) int { return c.int(i) }

// Bool reports whether a bound argument is true in Python's sense.
func (c *Call) Bool(i int) bool { return c.bool(i) }

// Name returns the name in the signature.
func (f *Func) Name() string { return f.name }
