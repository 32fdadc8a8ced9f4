// Package jmespath evaluates JMESPath (jmespath.org) on the value model, as the
// Python library of that name does: mappings keep their order, and error
// messages are the same.
package jmespath

import (
	"fmt"
	"strings"

	"brine/internal/py/value"
)

// Search compiles an expression and applies it to data. A missing value is nil.
func Search(expression string, data any) (any, error) {
	q, err := Compile(expression)
	if err != nil {
		return nil, err
	}
	return q.Search(data)
}

// Query is a compiled expression.
type Query struct{ root node }

// Compile parses an expression.
func Compile(expression string) (*Query, error) {
	tokens, err := lex(expression)
	if err != nil {
		return nil, err
	}
	p := &parser{text: expression, tokens: tokens}
	root, err := p.expression(0)
	if err == nil && p.at(0).kind != tokEOF {
		err = p.unexpected()
	}
	if err != nil {
		return nil, err
	}
	return &Query{root}, nil
}

// Search applies the query to data. It does not change data.
func (q *Query) Search(data any) (any, error) { return q.root.eval(data) }

// node is a node of the syntax tree.
type node interface {
	eval(v any) (any, error)
}

type identity struct{}

func (identity) eval(v any) (any, error) { return v, nil }

type literal struct{ v any }

func (n literal) eval(any) (any, error) { return value.DeepCopy(n.v), nil }

type field struct{ name string }

func (n field) eval(v any) (any, error) {
	if d, ok := v.(*value.Dict); ok {
		return d.At(n.name), nil
	}
	return nil, nil
}

// chain applies its parts in order: a.b, a[0], a | b.
type chain []node

func (n chain) eval(v any) (_ any, err error) {
	for _, part := range n {
		if v, err = part.eval(v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

type index struct{ i int64 }

func (n index) eval(v any) (any, error) {
	l, ok := items(v)
	i := n.i
	if i < 0 {
		i += int64(len(l))
	}
	if !ok || i < 0 || i >= int64(len(l)) {
		return nil, nil
	}
	return l[i], nil
}

// slice is [start:stop:step]; an omitted part is nil.
type slice struct{ start, stop, step *int64 }

func (n slice) eval(v any) (any, error) {
	l, ok := items(v)
	if !ok {
		return nil, nil
	}
	step := int64(1)
	if n.step != nil {
		step = *n.step
	}
	if step == 0 {
		return nil, errorf("slice step cannot be zero")
	}
	size := int64(len(l))
	bound := func(p *int64, otherwise int64) int64 {
		if p == nil {
			return otherwise
		}
		i := *p
		if i < 0 {
			i += size
		}
		if step > 0 {
			return min(max(i, 0), size)
		}
		return min(max(i, -1), size-1)
	}
	out := &value.List{}
	if step > 0 {
		for i, stop := bound(n.start, 0), bound(n.stop, size); i < stop; i += step {
			out.Append(l[i])
			if step > size {
				break
			}
		}
		return out, nil
	}
	for i, stop := bound(n.start, size-1), bound(n.stop, -1); i > stop; i += step {
		out.Append(l[i])
		if step < -size {
			break
		}
	}
	return out, nil
}

// projection applies right to each item of left.
type projection struct {
	left, right node
	of          func(v any) ([]any, bool) // the items of the result of left
	keep        node                      // condition on items; nil for all
}

func (n projection) eval(v any) (any, error) {
	base, err := n.left.eval(v)
	if err != nil {
		return nil, err
	}
	list, ok := n.of(base)
	if !ok {
		return nil, nil
	}
	out := &value.List{}
	for _, it := range list {
		if n.keep != nil {
			good, err := n.keep.eval(it)
			if err != nil {
				return nil, err
			}
			if !truth(good) {
				continue
			}
		}
		got, err := n.right.eval(it)
		if err != nil {
			return nil, err
		}
		if got != nil {
			out.Append(got)
		}
	}
	return out, nil
}

// items returns the items of a list or tuple.
func items(v any) ([]any, bool) {
	switch x := v.(type) {
	case *value.List:
		return x.Items, true
	case value.Tuple:
		return x, true
	}
	return nil, false
}

func values(v any) ([]any, bool) {
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, false
	}
	out := make([]any, 0, d.Len())
	for _, w := range d.All() {
		out = append(out, w)
	}
	return out, true
}

type flatten struct{ of node }

func (n flatten) eval(v any) (any, error) {
	base, err := n.of.eval(v)
	if err != nil {
		return nil, err
	}
	l, ok := items(base)
	if !ok {
		return nil, nil
	}
	out := &value.List{}
	for _, it := range l {
		if inner, ok := items(it); ok {
			out.Append(inner...)
		} else {
			out.Append(it)
		}
	}
	return out, nil
}

type not struct{ of node }

func (n not) eval(v any) (any, error) {
	got, err := n.of.eval(v)
	return !truth(got), err
}

// either is || and &&: the result is right if left is false (||) or true (&&).
type either struct {
	left, right node
	and         bool
}

func (n either) eval(v any) (any, error) {
	got, err := n.left.eval(v)
	if err != nil || truth(got) != n.and {
		return got, err
	}
	return n.right.eval(v)
}

// truth reports whether a value is true: all but "", null, false and empty
// containers.
func truth(v any) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case string:
		return x != ""
	case *value.Dict:
		return x.Len() > 0
	}
	if l, ok := items(v); ok {
		return len(l) > 0
	}
	return true
}

type comparison struct {
	op          string
	left, right node
}

func (n comparison) eval(v any) (any, error) {
	a, err := n.left.eval(v)
	if err != nil {
		return nil, err
	}
	b, err := n.right.eval(v)
	if err != nil {
		return nil, err
	}
	switch n.op {
	case "==":
		return equal(a, b), nil
	case "!=":
		return !equal(a, b), nil
	}
	if typeOf(a) != typeOf(b) || typeOf(a) != "number" && typeOf(a) != "string" {
		return nil, nil
	}
	c, _ := value.Compare(a, b)
	switch n.op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

// equal is Python's ==, except that true differs from 1 and false from 0.
func equal(a, b any) bool {
	if (typeOf(a) == "boolean") != (typeOf(b) == "boolean") {
		return false
	}
	return value.Equal(a, b)
}

type multiList []node

func (n multiList) eval(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	out := &value.List{}
	for _, part := range n {
		got, err := part.eval(v)
		if err != nil {
			return nil, err
		}
		out.Append(got)
	}
	return out, nil
}

type multiDict struct {
	keys   []string
	values []node
}

func (n multiDict) eval(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	out := value.NewDict(len(n.keys))
	for i, k := range n.keys {
		got, err := n.values[i].eval(v)
		if err != nil {
			return nil, err
		}
		out.Set(k, got)
	}
	return out, nil
}

// reference is &expression: an expression passed to a function.
type reference struct{ of node }

func (n reference) eval(any) (any, error) { return n, nil }

type call struct {
	name string
	args []node
}

func (n call) eval(v any) (any, error) {
	args := make([]any, len(n.args))
	for i, a := range n.args {
		got, err := a.eval(v)
		if err != nil {
			return nil, err
		}
		args[i] = got
	}
	return invoke(n.name, args)
}

// typeOf returns JMESPath's name of the type of a value.
func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case *value.Dict:
		return "object"
	case *value.List, value.Tuple:
		return "array"
	case reference:
		return "expref"
	}
	if strings.HasSuffix(value.TypeName(v), "int") || value.TypeName(v) == "float" {
		return "number"
	}
	return value.TypeName(v)
}

// Error is an error in an expression or in its application to data.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }

func errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }
