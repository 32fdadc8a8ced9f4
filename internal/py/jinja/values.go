package jinja

import (
	"math/big"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"brine/internal/py/value"
)

// Markup is a string that is safe in HTML. Otherwise it behaves as a string.
type Markup string

// Range is the result of range().
type Range struct{ start, stop, step int64 }

// Len returns the number of items.
func (r Range) Len() int {
	switch {
	case r.step > 0 && r.start < r.stop:
		return int((r.stop - r.start + r.step - 1) / r.step)
	case r.step < 0 && r.start > r.stop:
		return int((r.start - r.stop - r.step - 1) / -r.step)
	}
	return 0
}

func (r Range) at(i int) int64 { return r.start + int64(i)*r.step }

// view is the result of a dict's keys, values and items methods.
type view struct {
	d    *value.Dict
	kind byte // k, v or i
}

func (v view) at(i int) any {
	k, w := v.d.Entry(i)
	switch v.kind {
	case 'k':
		return k
	case 'v':
		return w
	}
	return value.Tuple{k, w}
}

func (v view) list() []any {
	out := make([]any, v.d.Len())
	for i := range out {
		out[i] = v.at(i)
	}
	return out
}

func (v view) name() string {
	return map[byte]string{'k': "dict_keys", 'v': "dict_values", 'i': "dict_items"}[v.kind]
}

// Iterator is a sequence that can be read once, such as the result of the
// filter map.
type Iterator struct {
	next Iter
	name string
}

// NewIterator returns an iterator; name is Python's name of its type.
func NewIterator(name string, next Iter) *Iterator { return &Iterator{next, name} }

// Set is Python's set. It keeps the order of insertion.
type Set struct{ d *value.Dict }

// NewSet returns a set of the items. It fails if one is unhashable.
func NewSet(items []any) (*Set, error) {
	s := &Set{value.NewDict(len(items))}
	for _, it := range items {
		if !hashable(it) {
			return nil, Errorf("TypeError", "unhashable type: '%s'", typeName(it))
		}
		s.d.Set(it, true)
	}
	return s, nil
}

// Items returns the members.
func (s *Set) Items() []any { return s.d.Keys() }

// typeName returns Python's name of the type of a value.
func typeName(v any) string {
	switch x := v.(type) {
	case Markup:
		return "Markup"
	case Range:
		return "range"
	case view:
		return x.name()
	case *Iterator:
		return x.name
	case *Set:
		return "set"
	case *Undefined:
		return [...]string{"Undefined", "StrictUndefined", "ChainableUndefined", "DebugUndefined"}[x.kind]
	case *Namespace:
		return "jinja2.utils.Namespace"
	case Named:
		return x.TypeName()
	case value.Const:
		return typeName(x.Value)
	}
	return value.TypeName(v)
}

// TypeName returns Python's name of the type of a template value.
func TypeName(v any) string { return typeName(v) }

// text returns a string or Markup as string.
func text(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case Markup:
		return string(x), true
	}
	return "", false
}

// Text returns v if it is a string or Markup.
func Text(v any) (string, bool) { return text(v) }

// truth is Python's bool().
func truth(v any) bool {
	switch x := v.(type) {
	case bool:
		return x
	case string:
		return x != ""
	case Markup:
		return x != ""
	case *Undefined:
		if x.kind == StrictUndefined {
			x.fail()
		}
		return false
	case Range:
		return x.Len() > 0
	case view:
		return x.d.Len() > 0
	case *Set:
		return x.d.Len() > 0
	case Sized:
		return x.Len() > 0
	}
	return value.Truth(v)
}

// Truth reports whether v is true in Python's sense. It fails the rendering for
// a StrictUndefined.
func Truth(v any) bool { return truth(v) }

// str is Python's str().
func str(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case Markup:
		return string(x)
	case int64, bool, nil, float64, []byte:
		return value.Str(v)
	case time.Time:
		return value.Str(v)
	case *Undefined:
		return x.text()
	case Shown:
		return x.Shown(false)
	}
	return repr(v)
}

// Str returns Python's str() of v.
func Str(v any) string { return str(v) }

// repr is Python's repr().
func repr(v any) string {
	var w reprWriter
	w.value(v)
	return w.b.String()
}

// Repr returns Python's repr() of v.
func Repr(v any) string { return repr(v) }

// maxRepr bounds the nesting of a printed value.
const maxRepr = 500

// maxDigits bounds the digits of a number that is printed or parsed, as in
// Python.
const maxDigits = 4300

type reprWriter struct {
	b     strings.Builder
	stack []any // the containers being written
}

// maxReprSize bounds the bytes of a printed container: a list may contain
// another one many times.
const maxReprSize = 64 << 20

func (w *reprWriter) value(v any) {
	if w.b.Len() > maxReprSize {
		raise("MemoryError", "a value takes more than %d bytes when it is written", maxReprSize)
	}
	switch x := v.(type) {
	case nil, bool, int64, float64, string, []byte, time.Time, value.Ext:
		w.b.WriteString(value.Repr(v))
	case *big.Int:
		if x.BitLen() > maxDigits*10/3 && len(x.String()) > maxDigits {
			raise("ValueError", "Exceeds the limit (%d digits) for integer string conversion", maxDigits)
		}
		w.b.WriteString(x.String())
	case Markup:
		w.b.WriteString("Markup(" + value.Repr(string(x)) + ")")
	case *value.List:
		w.items(x, "[", x.Items, "]", "[...]")
	case value.Tuple:
		end := ")"
		if len(x) == 1 {
			end = ",)"
		}
		w.items(nil, "(", x, end, "(...)")
	case *value.Dict:
		w.dict(x)
	case *Set:
		if x.d.Len() == 0 {
			w.b.WriteString("set()")
			return
		}
		w.items(x, "{", x.d.Keys(), "}", "{...}")
	case view:
		w.items(nil, x.name()+"([", x.list(), "])", "...")
	case Range:
		w.b.WriteString("range(" + value.Str(x.start) + ", " + value.Str(x.stop))
		if x.step != 1 {
			w.b.WriteString(", " + value.Str(x.step))
		}
		w.b.WriteByte(')')
	case *Iterator:
		w.b.WriteString("<" + x.name + " object>")
	case *Undefined:
		w.b.WriteString("Undefined")
	case interface{ String() string }:
		w.b.WriteString(x.String())
	case value.Const:
		w.b.WriteString(x.Name)
	case Shown:
		w.b.WriteString(x.Shown(true))
	default:
		w.b.WriteString("<" + typeName(v) + " object>")
	}
}

// push enters a container. It reports whether the container is already being
// written.
func (w *reprWriter) push(c any) bool {
	if len(w.stack) > maxRepr {
		raise("RecursionError", "maximum recursion depth exceeded while getting the repr of an object")
	}
	if c != nil {
		for _, s := range w.stack {
			if s == c {
				return true
			}
		}
	}
	w.stack = append(w.stack, c)
	return false
}

func (w *reprWriter) pop() { w.stack = w.stack[:len(w.stack)-1] }

func (w *reprWriter) items(self any, begin string, items []any, end, again string) {
	if w.push(self) {
		w.b.WriteString(again)
		return
	}
	w.b.WriteString(begin)
	for i, it := range items {
		if i > 0 {
			w.b.WriteString(", ")
		}
		w.value(it)
	}
	w.b.WriteString(end)
	w.pop()
}

func (w *reprWriter) dict(d *value.Dict) {
	if w.push(d) {
		w.b.WriteString("{...}")
		return
	}
	w.b.WriteByte('{')
	for i := range d.Len() {
		if i > 0 {
			w.b.WriteString(", ")
		}
		k, v := d.Entry(i)
		w.value(k)
		w.b.WriteString(": ")
		w.value(v)
	}
	w.b.WriteByte('}')
	w.pop()
}

// escape makes text safe for HTML.
func escape(v any) Markup {
	switch x := v.(type) {
	case Markup:
		return x
	case *Undefined:
		return escapeText(x.text())
	}
	return escapeText(str(v))
}

func escapeText(s string) Markup {
	if !strings.ContainsAny(s, `&<>'"`) {
		return Markup(s)
	}
	return Markup(strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;").Replace(s))
}

// plainKey converts a value to a dict key.
func plainKey(v any) any {
	if m, ok := v.(Markup); ok {
		return string(m)
	}
	return v
}

func hashable(v any) bool {
	switch v.(type) {
	case *Set:
		return false
	case *Undefined:
		return true
	}
	return value.Hashable(v)
}

// setItem executes d[k] = v.
func setItem(d *value.Dict, k, v any) {
	if u, ok := k.(*Undefined); ok {
		u.fail()
	}
	k = plainKey(k)
	if !hashable(k) {
		raise("TypeError", "unhashable type: '%s'", typeName(k))
	}
	d.Set(k, v)
}

// length is Python's len().
func length(v any) (int, bool) {
	switch x := v.(type) {
	case string:
		return runeLen(x), true
	case Markup:
		return runeLen(string(x)), true
	case []byte:
		return len(x), true
	case *value.List:
		return x.Len(), true
	case value.Tuple:
		return len(x), true
	case *value.Dict:
		return x.Len(), true
	case Range:
		return x.Len(), true
	case view:
		return x.d.Len(), true
	case *Set:
		return x.d.Len(), true
	case *Undefined:
		if x.kind == StrictUndefined {
			x.fail()
		}
		return 0, true
	case Sized:
		return x.Len(), true
	}
	return 0, false
}

func runeLen(s string) int { return utf8.RuneCountInString(s) }

func sliceIter(items []any) Iter {
	i := 0
	return func() (any, bool) {
		if i >= len(items) {
			return nil, false
		}
		i++
		return items[i-1], true
	}
}

// iterate is Python's iter(). A list that grows meanwhile is read to its end.
func iterate(v any) (Iter, bool) {
	i := 0
	switch x := v.(type) {
	case *value.List:
		return func() (any, bool) {
			if i >= len(x.Items) {
				return nil, false
			}
			i++
			return x.Items[i-1], true
		}, true
	case value.Tuple:
		return sliceIter(x), true
	case *value.Dict:
		return view{x, 'k'}.iterate(), true
	case view:
		return x.iterate(), true
	case string:
		return runes(x), true
	case Markup:
		return runes(string(x)), true // of plain text, as Python has it
	case []byte:
		return func() (any, bool) {
			if i >= len(x) {
				return nil, false
			}
			i++
			return int64(x[i-1]), true
		}, true
	case Range:
		n := x.Len()
		return func() (any, bool) {
			if i >= n {
				return nil, false
			}
			i++
			return x.at(i - 1), true
		}, true
	case *Iterator:
		return x.next, true
	case *Set:
		return sliceIter(x.d.Keys()), true
	case *Loop:
		return func() (any, bool) {
			v, ok := x.step()
			return value.Tuple{v, x}, ok
		}, true
	case *Undefined:
		if x.kind == StrictUndefined {
			x.fail()
		}
		return func() (any, bool) { return nil, false }, true
	case *Namespace:
		return nil, false
	case Iterable:
		return x.Iterate(), true
	}
	return nil, false
}

func (v view) iterate() Iter {
	i, n := 0, v.d.Len()
	return func() (any, bool) {
		if v.d.Len() != n {
			raise("RuntimeError", "dictionary changed size during iteration")
		}
		if i >= n {
			return nil, false
		}
		i++
		return v.at(i - 1), true
	}
}

func runes(s string) Iter {
	return func() (any, bool) {
		if s == "" {
			return nil, false
		}
		_, n := utf8.DecodeRuneInString(s)
		c := s[:n]
		s = s[n:]
		return c, true
	}
}

// items returns all items of an iterable.
func items(v any) []any {
	switch x := v.(type) {
	case *value.List:
		return x.Items
	case value.Tuple:
		return x
	}
	next := Iterate(v)
	var out []any
	for v, ok := next(); ok; v, ok = next() {
		if len(out) >= maxItems {
			raise("MemoryError", "a sequence has more than %d items", maxItems)
		}
		out = append(out, v)
	}
	return out
}

// maxItems bounds the items read from an iterator.
const maxItems = 1 << 20

// Items returns the items of v, or fails the rendering.
func Items(v any) []any { return items(v) }

// Plain converts a template value to types of package value: Markup to string,
// iterators to lists. Containers are changed in place. It fails if v nests more
// than 400 deep, or contains itself.
func Plain(v any) (any, error) {
	n := 0
	return plain(v, 0, &n)
}

// plain adds to size an estimate of the bytes of v when written. A container
// that occurs many times counts each time.
func plain(v any, depth int, size *int) (any, error) {
	if depth > 400 {
		return nil, Errorf("RecursionError", "a value nests more than 400 deep, or contains itself")
	}
	if *size += 8 + textSize(v); *size > maxReprSize {
		return nil, Errorf("MemoryError", "a value takes more than %d bytes when it is written", maxReprSize)
	}
	switch x := v.(type) {
	case nil, bool, int64, float64, string, []byte, *big.Int, time.Time:
		return v, nil
	case Markup:
		return string(x), nil
	case *value.List:
		return v, plainItems(x.Items, depth, size)
	case value.Tuple:
		return v, plainItems(x, depth, size)
	case *value.Dict:
		for i := range x.Len() {
			k, w := x.Entry(i)
			p, err := plain(w, depth+1, size)
			if err != nil {
				return nil, err
			}
			if !same(p, w) {
				x.Set(k, p)
			}
		}
		return v, nil
	case *Undefined:
		return nil, &Error{Kind: UndefinedError, Message: x.Message()}
	case view, *Iterator, *Set, Range:
		l := &value.List{Items: append([]any(nil), items(v)...)}
		return l, plainItems(l.Items, depth, size)
	case *Namespace:
		return plain(x.Attrs, depth, size)
	case *Module:
		return x.body, nil
	case Plainer:
		return x.Plain(), nil
	}
	return str(v), nil
}

// Convert is Plain with a conversion for values without a counterpart in
// package value, such as Markup, iterators or undefined values: other returns
// it. Containers with such a value are copied.
func Convert(v any, other func(v any) (any, error)) (any, error) {
	size := 0
	p, _, err := convert(v, other, 0, &size)
	return p, err
}

// convert adds to size an estimate of the bytes of v when written, as plain
// does.
func convert(v any, other func(v any) (any, error), depth int, size *int) (p any, changed bool, err error) {
	if depth > 400 {
		return nil, false, Errorf("RecursionError", "a value nests more than 400 deep, or contains itself")
	}
	if depth > 0 {
		if *size += 8 + textSize(v); *size > maxReprSize {
			return nil, false, Errorf("MemoryError", "a value takes more than %d bytes when it is written", maxReprSize)
		}
	}
	switch x := v.(type) {
	case nil, bool, int64, float64, string, []byte, *big.Int, time.Time, value.Ext:
		return v, false, nil
	case *value.List:
		items, changed, err := convertItems(x.Items, other, depth, size)
		if !changed {
			return v, false, err
		}
		return &value.List{Items: items}, true, err
	case value.Tuple:
		items, changed, err := convertItems(x, other, depth, size)
		return value.Tuple(items), changed, err
	case *value.Dict:
		d := x
		for i := range x.Len() {
			k, w := x.Entry(i)
			p, changed, err := convert(w, other, depth+1, size)
			if err != nil {
				return nil, false, err
			}
			if !changed {
				continue
			}
			if d == x {
				d = x.Clone()
			}
			d.Set(k, p)
		}
		return d, d != x, nil
	case Plainer:
		switch p := x.Plain().(type) {
		case *value.Dict, *value.List, value.Tuple:
			return p, true, nil
		}
	}
	p, err = other(v)
	return p, true, err
}

func convertItems(items []any, other func(v any) (any, error), depth int, size *int) (out []any, changed bool, err error) {
	out = items
	for i, it := range items {
		p, is, err := convert(it, other, depth+1, size)
		if err != nil {
			return nil, false, err
		}
		if !is {
			continue
		}
		if !changed {
			out, changed = slices.Clone(items), true
		}
		out[i] = p
	}
	return out, changed, nil
}

// shown is a string that is written without quotes.
type shown string

func (s shown) String() string { return string(s) }

// Pretty formats v as Python's pprint does; undefined values and types of
// templates by their repr.
func Pretty(v any) (string, error) {
	p, err := Convert(v, func(v any) (any, error) { return shown(repr(v)), nil })
	if err != nil {
		return "", err
	}
	return value.Pretty(p, 1), nil
}

// same reports whether plain did not change a value.
func same(a, b any) bool {
	switch b.(type) {
	case []byte, value.Tuple:
		return true
	case Markup, Range, view, *Iterator, *Set, *Namespace, *Module:
		return false
	}
	switch a.(type) {
	case []byte, value.Tuple:
		return false
	}
	return a == b
}

func plainItems(items []any, depth int, size *int) error {
	for i, it := range items {
		p, err := plain(it, depth+1, size)
		if err != nil {
			return err
		}
		items[i] = p
	}
	return nil
}

// Iterate returns an iterator over v, or fails the rendering.
func Iterate(v any) Iter {
	next, ok := iterate(v)
	if !ok {
		raise("TypeError", "'%s' object is not iterable", typeName(v))
	}
	return next
}

// IsIterable reports whether v can be iterated over.
func IsIterable(v any) bool {
	_, ok := iterate(v)
	return ok
}

func textSize(v any) int {
	switch x := v.(type) {
	case string:
		return len(x)
	case Markup:
		return len(x)
	case []byte:
		return len(x)
	}
	return 0
}
