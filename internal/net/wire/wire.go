// Package wire has the messages of the conversations between masters, minions
// and programs as Go structs: one file per conversation, and Decode and Encode
// for all of them.
//
// A struct declares the keys of a message by tags:
//
//	type SignIn struct {
//		Cmd   string      `wire:"cmd"`
//		ID    string      `wire:"id,required" max:"255"`
//		Token []byte      `wire:"token,omitempty" max:"4096"`
//		Rest  *value.Dict `wire:"*"`
//	}
//
// The options of a tag are:
//
//	required   Decode fails if the key is missing
//	omitempty  Encode leaves out a zero value
//
// The tag max bounds a string or bytes in bytes, and a list in items. A field
// named Rest with the key "*" keeps the keys that the struct does not declare,
// so that a newer peer's message passes through an older one unchanged.
//
// A peer may send anything: Decode checks types and sizes; the reader must
// check the meaning.
package wire

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"brine/internal/py/value"
)

// Error names the key of a message that is missing, too large or of a wrong
// type. It contains no value of the peer.
type Error struct {
	Key  string
	Want string // such as "a text of at most 64 bytes"
	Got  string // such as "list"; "" if the key is missing
}

func (e *Error) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("the key %s is missing: expected %s", e.Key, e.Want)
	}
	return fmt.Sprintf("the key %s: expected %s, got %s", e.Key, e.Want, e.Got)
}

// field is a declared key of a message.
type field struct {
	key      string
	index    int
	kind     kind
	max      int // 0: no limit
	required bool
	omit     bool
}

// kind is the type of a field.
type kind uint8

const (
	anything kind = iota
	text
	binary
	integer
	truth
	dict
	list
	texts
)

var kinds = map[reflect.Type]kind{
	reflect.TypeFor[any]():         anything,
	reflect.TypeFor[string]():      text,
	reflect.TypeFor[[]byte]():      binary,
	reflect.TypeFor[int64]():       integer,
	reflect.TypeFor[bool]():        truth,
	reflect.TypeFor[*value.Dict](): dict,
	reflect.TypeFor[*value.List](): list,
	reflect.TypeFor[[]string]():    texts,
}

// layout is the declaration of a message.
type layout struct {
	fields []field
	byKey  map[string]int // index of fields
	rest   int            // index of the field Rest, or -1
}

// maxFields bounds the declared keys of a message: decode has a bit for each.
const maxFields = 64

var layouts sync.Map // reflect.Type -> *layout

// layoutOf returns the declaration of a struct type. An invalid tag is a
// programming error and panics.
func layoutOf(t reflect.Type) *layout {
	if l, ok := layouts.Load(t); ok {
		return l.(*layout)
	}
	l := &layout{byKey: map[string]int{}, rest: -1}
	for i := range t.NumField() {
		f := t.Field(i)
		key, opts, _ := strings.Cut(f.Tag.Get("wire"), ",")
		k, known := kinds[f.Type]
		switch {
		case key == "*" && k == dict:
			l.rest = i
			continue
		case key == "" || key == "*" || !known:
			panic(fmt.Sprintf("wire: %s.%s has no usable tag or type", t, f.Name))
		}
		d := field{key: key, index: i, kind: k}
		for _, o := range strings.FieldsFunc(opts, func(r rune) bool { return r == ',' }) {
			switch o {
			case "required":
				d.required = true
			case "omitempty":
				d.omit = true
			default:
				panic(fmt.Sprintf("wire: %s.%s has the unknown option %s", t, f.Name, o))
			}
		}
		if m := f.Tag.Get("max"); m != "" {
			n, err := strconv.Atoi(m)
			if err != nil || n < 1 {
				panic(fmt.Sprintf("wire: %s.%s has the bound %q", t, f.Name, m))
			}
			d.max = n
		}
		if _, twice := l.byKey[key]; twice {
			panic(fmt.Sprintf("wire: %s declares %s twice", t, key))
		}
		l.byKey[key] = len(l.fields)
		l.fields = append(l.fields, d)
	}
	if len(l.fields) > maxFields {
		panic(fmt.Sprintf("wire: %s has %d fields, of %d that Decode can mark", t, len(l.fields), maxFields))
	}
	stored, _ := layouts.LoadOrStore(t, l)
	return stored.(*layout)
}

// Decode decodes a message into the struct that to points to; a nil dict is an
// empty message. A key with None counts as missing, because Salt's programs
// send both. The error is an *Error about the first wrong field in the order of
// the struct; the struct is then partly filled.
func Decode(d *value.Dict, to any) error { return decode(d, to, false) }

// View is Decode for a message whose reader accepts whatever fits, because an
// older program wrote it, or because it is forwarded unchanged. A value of a wrong
// type stays in Rest, and its field is empty, as if the key were missing. Sizes
// are not checked: the receiver of the message has checked them.
func View(d *value.Dict, to any) { _ = decode(d, to, true) }

// decode fills a struct without allocations except for Rest: it decodes every
// return, event and publication.
func decode(d *value.Dict, to any, lax bool) error {
	v := reflect.ValueOf(to).Elem()
	l := layoutOf(v.Type())
	var rest *value.Dict
	var present, filled uint64
	next, wrong := 0, len(l.fields)
	for n := range d.Len() {
		k, val := d.Entry(n)
		if i := l.find(k, next); i >= 0 {
			next = i + 1
			present |= 1 << i
			f := &l.fields[i]
			switch {
			case val == nil:
				continue
			case f.set(v.Field(f.index), val, lax):
				filled |= 1 << i
				continue
			case !lax:
				wrong = min(wrong, i)
				continue
			}
		}
		if l.rest < 0 {
			continue
		}
		if rest == nil {
			rest = value.NewDict(4)
		}
		rest.Set(k, val)
	}
	if l.rest >= 0 {
		v.Field(l.rest).Set(reflect.ValueOf(rest))
	}
	for i := range l.fields {
		f := &l.fields[i]
		switch {
		case filled&(1<<i) != 0:
			continue
		case i == wrong:
			return &Error{Key: f.key, Want: f.want(), Got: f.got(d.At(f.key))}
		case f.required && present&(1<<i) == 0 && !lax:
			return &Error{Key: f.key, Want: f.want()}
		}
		v.Field(f.index).SetZero()
	}
	return nil
}

// find returns the index of the field of a key, or -1. The keys of a message are
// usually in the order of the struct, so the field next is compared first.
func (l *layout) find(k any, next int) int {
	name, ok := k.(string)
	if !ok {
		return -1
	}
	if next < len(l.fields) && l.fields[next].key == name {
		return next
	}
	if i, ok := l.byKey[name]; ok {
		return i
	}
	return -1
}

// set stores a value that is not None, and reports whether it fits; if lax, with any
// size.
func (f *field) set(to reflect.Value, from any, lax bool) bool {
	switch f.kind {
	case anything:
		to.Set(reflect.ValueOf(from))
		return true
	case text:
		switch x := from.(type) {
		case string:
			to.SetString(x)
			return lax || f.fits(len(x))
		case []byte:
			to.SetString(string(x))
			return lax || f.fits(len(x))
		}
	case binary:
		switch x := from.(type) {
		case []byte:
			to.SetBytes(x)
			return lax || f.fits(len(x))
		case string:
			to.SetBytes([]byte(x))
			return lax || f.fits(len(x))
		}
	case integer:
		switch x := from.(type) {
		case int64:
			to.SetInt(x)
			return true
		case bool:
			to.SetInt(0)
			if x {
				to.SetInt(1)
			}
			return true
		case float64:
			to.SetInt(int64(x))
			return x >= -1<<53 && x <= 1<<53
		}
	case truth:
		to.SetBool(value.Truth(from))
		return true
	case dict:
		x, ok := from.(*value.Dict)
		to.Set(reflect.ValueOf(x))
		return ok
	case list, texts:
		return f.setList(to, from, lax)
	}
	return false
}

func (f *field) setList(to reflect.Value, from any, lax bool) bool {
	var items []any
	switch x := from.(type) {
	case *value.List:
		if f.kind == list {
			to.Set(reflect.ValueOf(x))
			return lax || f.fits(x.Len())
		}
		items = x.Items
	case value.Tuple:
		if f.kind == list {
			to.Set(reflect.ValueOf(&value.List{Items: x}))
			return lax || f.fits(len(x))
		}
		items = x
	default:
		return false
	}
	if !lax && !f.fits(len(items)) {
		return false
	}
	out := make([]string, len(items))
	for i, it := range items {
		s, ok := it.(string)
		if !ok {
			return false
		}
		out[i] = s
	}
	to.Set(reflect.ValueOf(out))
	return true
}

func (f *field) fits(n int) bool { return f.max == 0 || n <= f.max }

// want describes the accepted values.
func (f *field) want() string {
	s, unit := "a value", ""
	switch f.kind {
	case text:
		s, unit = "a text", "bytes"
	case binary:
		s, unit = "bytes", "bytes"
	case integer:
		s = "a number"
	case truth:
		s = "true or false"
	case dict:
		s = "a map"
	case list:
		s, unit = "a list", "items"
	case texts:
		s, unit = "a list of texts", "items"
	}
	if f.max > 0 && unit != "" {
		s += fmt.Sprintf(" of at most %d %s", f.max, unit)
	}
	return s
}

// got describes a rejected value.
func (f *field) got(v any) string {
	switch x := v.(type) {
	case string:
		return fmt.Sprintf("a text of %d bytes", len(x))
	case []byte:
		return fmt.Sprintf("%d bytes", len(x))
	case *value.List:
		return fmt.Sprintf("a list of %d items", x.Len())
	}
	return value.TypeName(v)
}

// Encode returns a message with its keys in the order of the struct that from
// points to, followed by those of Rest. It shares values with the struct.
func Encode(from any) *value.Dict {
	v := reflect.ValueOf(from)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	l := layoutOf(v.Type())
	d := value.NewDict(len(l.fields))
	for i := range l.fields {
		f := &l.fields[i]
		val := v.Field(f.index)
		if f.omit && empty(f.kind, val) {
			continue
		}
		d.Set(f.key, f.value(val))
	}
	if l.rest >= 0 {
		for k, val := range v.Field(l.rest).Interface().(*value.Dict).All() {
			d.Set(k, val)
		}
	}
	return d
}

// empty reports whether omitempty omits a field.
func empty(k kind, v reflect.Value) bool {
	switch k {
	case dict:
		return v.Interface().(*value.Dict).Len() == 0
	case list:
		return v.Interface().(*value.List).Len() == 0
	case binary, texts:
		return v.Len() == 0
	}
	return v.IsZero()
}

// value returns the value of a field in the form of the codecs.
func (f *field) value(v reflect.Value) any {
	switch f.kind {
	case dict:
		if v.IsNil() {
			return nil
		}
	case list:
		if v.IsNil() {
			return &value.List{}
		}
	case texts:
		return value.Strings(v.Interface().([]string))
	case binary:
		if v.IsNil() {
			return []byte{}
		}
	}
	return v.Interface()
}
