package python

import (
	"context"

	"brine/internal/py/jinja"
	"brine/internal/py/value"
)

// object is a Python object among the variables of a template that Python renders: an instance of a
// class of the user, or a function. Python keeps it, and answers what the template asks of it.
type object struct {
	ctx    context.Context
	pool   *Pool
	env    *Env
	number int64
	class  string // its name, for messages
}

// What Python says that an object can do, besides having attributes.
const (
	canCall     = "call"
	canIterate  = "iterate"
	canMap      = "map"
	answerValue = "value"
	answerThing = "object"
)

// lent returns the template's value for what Python sent in place of an object.
func (p *Pool) lent(ctx context.Context, env *Env, v any) (any, error) {
	parts := value.Items(v)
	if len(parts) < 2 {
		return nil, errMalformed
	}
	if parts[0] == answerValue {
		return parts[1], nil
	}
	number, ok := parts[1].(int64)
	if !ok || len(parts) != 4 || parts[0] != answerThing {
		return nil, errMalformed
	}
	o := &object{ctx, p, env, number, value.Str(parts[2])}
	switch parts[3] {
	case canCall:
		return callable{o}, nil
	case canIterate:
		return collection{o}, nil
	case canMap:
		return mapping{collection{o}}, nil
	}
	return o, nil
}

// ask asks Python. ok is false if the object does not have that.
func (o *object) ask(action string, args ...any) (v any, ok bool, err error) {
	answer, _, err := o.pool.call(o.ctx, o.env, true, "object", append([]any{o.number, action}, args...)...)
	if err != nil || answer == nil {
		return nil, false, err
	}
	v, err = o.pool.lent(o.ctx, o.env, answer)
	return v, err == nil, err
}

// must is ask for an action that every object has. An exception ends the rendering.
func (o *object) must(action string, args ...any) (any, bool) {
	v, ok, err := o.ask(action, args...)
	if err != nil {
		jinja.Fail(err)
	}
	return v, ok
}

// Attr implements jinja.Attributer.
func (o *object) Attr(name string) (any, bool) { return o.must("attribute", name) }

// Item implements jinja.Itemer.
func (o *object) Item(key any) (any, bool) { return o.must("item", sent(key)) }

// TypeName implements jinja.Named.
func (o *object) TypeName() string { return o.class }

// Shown implements jinja.Shown.
func (o *object) Shown(repr bool) string {
	v, _ := o.must("text", repr)
	return value.Str(v)
}

// Plain implements jinja.Plainer.
func (o *object) Plain() any {
	v, _ := o.must("plain")
	return v
}

// sent returns a value of a template as Python gets it: an object that Python lent is named by its number.
func sent(v any) any {
	switch x := v.(type) {
	case *object:
		return value.DictOf(lentKey, x.number)
	case callable:
		return sent(x.object)
	case collection:
		return sent(x.object)
	case mapping:
		return sent(x.object)
	}
	p, err := jinja.Plain(v)
	if err != nil {
		jinja.Fail(err)
	}
	return p
}

// lentKey is the only key of a dict that stands for an object.
const lentKey = "\x00lent"

// callable is an object that can be called.
type callable struct{ *object }

// Call implements jinja.Callable.
func (o callable) Call(c *jinja.Call) (any, error) {
	args, kwargs := &value.List{}, value.NewDict(0)
	for _, a := range c.Args {
		args.Append(sent(a))
	}
	for k, v := range c.Kwargs.All() {
		kwargs.Set(k, sent(v))
	}
	v, _, err := o.ask("call", args, kwargs)
	return v, err
}

// Outside implements jinja.Outsider: the time of Python is not that of the template.
func (callable) Outside() bool { return true }

// collection is an object with items.
type collection struct{ *object }

// Iterate implements jinja.Iterable.
func (o collection) Iterate() jinja.Iter {
	v, _ := o.must("iterate")
	items := value.Items(v)
	i := -1
	return func() (any, bool) {
		if i++; i >= len(items) {
			return nil, false
		}
		return items[i], true
	}
}

// Len implements jinja.Sized.
func (o collection) Len() int {
	v, _ := o.must("length")
	n, _ := v.(int64)
	return int(n)
}

// Contains implements jinja.Container.
func (o collection) Contains(v any) bool {
	found, _ := o.must("contains", sent(v))
	return found == true
}

// mapping is an object with values by key.
type mapping struct{ collection }

// Mapping implements jinja.Mapping.
func (mapping) Mapping() {}
