package render

import (
	"errors"
	"sort"
	"strings"

	"brine/internal/py/jinja"
	"brine/internal/py/value"
)

// saltObject is the variable salt.
type saltObject struct{ funcs Functions }

// TypeName is the name in error messages.
func (s *saltObject) TypeName() string { return "salt.utils.templates.AliasedLoader" }

// Attr returns a module, or one of the methods of a dict.
func (s *saltObject) Attr(name string) (any, bool) {
	if s.funcs == nil {
		return nil, false
	}
	if hasModule(s.funcs, name) {
		return &saltModule{s.funcs, name}, true
	}
	switch name {
	case "get":
		return jinja.Global(jinja.NewFunc("get(key, default=None)", func(c *jinja.Call) (any, error) {
			if v, ok := s.Item(c.Bound[0]); ok {
				return v, nil
			}
			return c.Bound[1], nil
		})), true
	case "keys":
		return jinja.Global(jinja.NewFunc("keys()", func(*jinja.Call) (any, error) { return value.Strings(s.funcs.Names()), nil })), true
	}
	return nil, false
}

// Item returns the function with a full name, or a module.
func (s *saltObject) Item(key any) (any, bool) {
	name, ok := key.(string)
	if !ok || s.funcs == nil {
		return nil, false
	}
	if s.funcs.Has(name) {
		return &saltFunction{s.funcs, name}, true
	}
	if hasModule(s.funcs, name) {
		return &saltModule{s.funcs, name}, true
	}
	return nil, false
}

// Contains reports whether a function with a full name exists.
func (s *saltObject) Contains(v any) bool {
	_, ok := s.Item(v)
	return ok
}

// Mapping means that the object counts as a dict.
func (s *saltObject) Mapping() {}

// Iterate yields the names.
func (s *saltObject) Iterate() jinja.Iter {
	i := 0
	var names []string
	if s.funcs != nil {
		names = s.funcs.Names()
	}
	return func() (any, bool) {
		if i >= len(names) {
			return nil, false
		}
		i++
		return names[i-1], true
	}
}

func hasModule(f Functions, name string) bool {
	if m, ok := f.(interface{ HasModule(name string) bool }); ok {
		return m.HasModule(name)
	}
	names := f.Names()
	i := sort.SearchStrings(names, name+".")
	return name != "" && i < len(names) && strings.HasPrefix(names[i], name+".")
}

// saltModule is salt.module.
type saltModule struct {
	funcs Functions
	name  string
}

// TypeName is the name in error messages.
func (m *saltModule) TypeName() string { return "salt.loader.lazy.LoadedMod" }

// Attr returns a function.
func (m *saltModule) Attr(name string) (any, bool) {
	full := m.name + "." + name
	if !m.funcs.Has(full) {
		return nil, false
	}
	return &saltFunction{m.funcs, full}, true
}

// saltFunction is salt['module.function'].
type saltFunction struct {
	funcs Functions
	name  string
}

// TypeName is the name in error messages.
func (f *saltFunction) TypeName() string { return "salt.loader.lazy.LoadedFunc" }

// String returns the printed form of a function.
func (f *saltFunction) String() string { return "<salt.loader.lazy.LoadedFunc " + f.name + ">" }

// Outside implements jinja.Outsider: the time of functions does not count as the
// template's.
func (f *saltFunction) Outside() bool { return true }

// Call calls the function with values of the model.
func (f *saltFunction) Call(c *jinja.Call) (any, error) {
	if f.funcs == nil || !f.funcs.Has(f.name) {
		return nil, errors.New("the function " + f.name + " is not available")
	}
	var u undefineds
	args := make([]any, len(c.Args))
	for i, a := range c.Args {
		v, err := u.argument(f.name, a, i == 1)
		if err != nil {
			return nil, err
		}
		args[i] = v
	}
	kw := value.NewDict(c.Kwargs.Len())
	for k, a := range c.Kwargs.All() {
		take := u.argument
		if value.Equal(k, "merge") {
			// Python copies it, which fails with an undefined value.
			take = strictArgument
		}
		v, err := take(f.name, a, value.Equal(k, "default"))
		if err != nil {
			return nil, err
		}
		kw.Set(k, v)
	}
	v, err := f.funcs.Call(c.Ctx, f.name, args, kw)
	var a answered
	if errors.As(err, &a) {
		return a.Answer(), nil
	}
	if err != nil || len(u.kept) == 0 {
		return v, err
	}
	return u.giveBack(v)
}

// answered is an error of a function that in Salt logs the error and returns a
// value anyway, such as one about a database server that does not run yet. The
// template continues with that value.
type answered interface {
	error
	Answer() any
}

// handOn are the functions that return an argument, or a part of it, without
// reading it; true for those that do so with an undefined default. They accept
// undefined values, so that a map may contain values that this system does not
// need; the rendering fails where one is used. The other functions need all of
// their arguments.
var handOn = map[string]bool{
	"config.get": true, "environ.get": true, "grains.get": true,
	"defaults.merge": false, "grains.filter_by": false, "match.filter_by": false, "pillar.filter_by": false, "pillar.get": false, "slsutil.update": false,
}

// undefineds are undefined arguments in a call. Placeholder constants, unknown
// to all functions, replace them meanwhile.
type undefineds struct{ kept []any }

const undefinedName = "jinja2.StrictUndefined"

func strictArgument(_ string, a any, _ bool) (any, error) { return jinja.Plain(a) }

// argument converts an argument of a function into a value of the model.
func (u *undefineds) argument(function string, a any, isDefault bool) (any, error) {
	whole, ok := handOn[function]
	if !ok || jinja.IsUndefined(a) && !(whole && isDefault) {
		return jinja.Plain(a)
	}
	return jinja.Convert(a, func(v any) (any, error) {
		if !jinja.IsUndefined(v) {
			return jinja.Plain(v)
		}
		u.kept = append(u.kept, v)
		return value.Const{Name: undefinedName, Value: int64(len(u.kept) - 1)}, nil
	})
}

func (u *undefineds) giveBack(v any) (any, error) {
	return jinja.Convert(v, func(v any) (any, error) {
		if c, ok := v.(value.Const); ok && c.Name == undefinedName {
			if i, ok := c.Value.(int64); ok && i >= 0 && i < int64(len(u.kept)) {
				return u.kept[i], nil
			}
		}
		return v, nil
	})
}

// ifelse is the global ifelse: the first value whose target matches the minion,
// found by the function match.ifelse.
func ifelse(f Functions) *jinja.Func {
	return jinja.NewFunc("ifelse(*args, **kwargs)", func(c *jinja.Call) (any, error) {
		args := c.Bound[0].(value.Tuple)
		if len(args) == 1 {
			return args[0], nil
		}
		return (&saltFunction{f, "match.ifelse"}).Call(c)
	})
}

// odict is the global odict: an ordered dict, as all dicts are.
func odict() *jinja.Func {
	return jinja.NewFunc("odict(*args, **kwargs)", func(c *jinja.Call) (any, error) {
		d := value.NewDict(0)
		for _, a := range c.Bound[0].(value.Tuple) {
			if o, ok := a.(*value.Dict); ok {
				d.Update(o)
				continue
			}
			for _, p := range jinja.Items(a) {
				if kv := jinja.Items(p); len(kv) == 2 && value.Hashable(kv[0]) {
					d.Set(kv[0], kv[1])
				}
			}
		}
		d.Update(c.Bound[1].(*value.Dict))
		return d, nil
	})
}

// raiseFunc is the global raise: it ends the rendering with a message.
func raiseFunc() *jinja.Func {
	return jinja.NewFunc("raise(msg)", func(c *jinja.Call) (any, error) {
		return nil, jinja.Errorf("TemplateError", "%s", jinja.Str(c.Bound[0]))
	})
}

// showContext returns the context of the template.
func showContext() *jinja.Func {
	return jinja.NewFunc("show_full_context()", func(c *jinja.Call) (any, error) {
		return simple(c.Context().Names(), 0), nil
	})
}

// simple keeps values that JSON supports, and converts the rest to strings.
func simple(v any, depth int) any {
	if depth > 100 {
		return "..."
	}
	switch x := v.(type) {
	case *value.Dict:
		out := value.NewDict(x.Len())
		for k, w := range x.All() {
			out.Set(k, simple(w, depth+1))
		}
		return out
	case *value.List:
		return simpleItems(x.Items, depth)
	case value.Tuple:
		return simpleItems(x, depth)
	case nil, bool, int64, float64, string:
		return v
	case jinja.Markup:
		return string(x)
	}
	return jinja.Repr(v)
}

func simpleItems(items []any, depth int) any {
	l := &value.List{Items: make([]any, len(items))}
	for i, it := range items {
		l.Items[i] = simple(it, depth+1)
	}
	return l
}
