// Package messages fuzzes the structs of a conversation (package wire): whatever a
// peer sends, reading it neither panics nor loses a key nor exceeds a bound.
package messages

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// Fuzz runs the target of a conversation with structs of these types. The seeds are
// encoded messages that a peer has sent; one of each type is added.
func Fuzz(f *fuzztest.F, seeds [][]byte, types ...any) {
	f.Helper()
	for i, m := range types {
		for _, d := range append(tooLarge(reflect.TypeOf(m)), wire.Encode(m)) {
			b, err := msgpack.Marshal(d, msgpack.Wire)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, uint8(i))
		}
	}
	for _, b := range seeds {
		for i := range types {
			f.Add(b, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, which uint8) {
		v, err := msgpack.Limits{Depth: 32, Items: 1 << 12}.Unmarshal(body)
		d, ok := v.(*value.Dict)
		if err != nil || !ok {
			return
		}
		typ := reflect.TypeOf(types[int(which)%len(types)])
		before := value.Repr(d)
		strict(t, d, typ)
		lax(t, d, typ)
		if after := value.Repr(d); after != before {
			t.Fatalf("reading %s as %s changed it to %s", before, typ, after)
		}
	})
}

// largestSeed bounds seeds in bytes.
const largestSeed = 32 << 10

// tooLarge returns messages that each exceed one bound.
func tooLarge(typ reflect.Type) (out []*value.Dict) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		limit, err := strconv.Atoi(f.Tag.Get("max"))
		if err != nil || limit > largestSeed {
			continue
		}
		var v any = strings.Repeat("x", limit+1)
		if f.Type == reflect.TypeFor[*value.List]() || f.Type == reflect.TypeFor[[]string]() {
			v = value.Strings(make([]string, limit+1))
		}
		key, _, _ := strings.Cut(f.Tag.Get("wire"), ",")
		out = append(out, value.DictOf(key, v))
	}
	return out
}

// strict checks Decode: what it accepts is within the declared bounds, and encoding
// it and decoding it again changes nothing.
func strict(t *testing.T, d *value.Dict, typ reflect.Type) {
	first, second := reflect.New(typ), reflect.New(typ)
	if err := wire.Decode(d, first.Interface()); err != nil {
		if len(err.Error()) > 200 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		return
	}
	for i := range typ.NumField() {
		limit, err := strconv.Atoi(typ.Field(i).Tag.Get("max"))
		if n := size(first.Elem().Field(i)); err == nil && n > limit {
			t.Errorf("%s.%s has a size of %d, of %d at most", typ, typ.Field(i).Name, n, limit)
		}
	}
	out := wire.Encode(first.Interface())
	if _, keeps := typ.FieldByName("Rest"); keeps {
		for k := range d.All() {
			if !out.Has(k) && value.Truth(d.At(k)) {
				t.Errorf("%s lost the key %s", typ, value.Repr(k))
			}
		}
	}
	if err := wire.Decode(out, second.Interface()); err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	if again := wire.Encode(second.Interface()); value.Repr(again) != value.Repr(out) {
		t.Errorf("%s became %s", value.Repr(out), value.Repr(again))
	}
}

// size returns the size that a bound limits.
func size(v reflect.Value) int {
	switch x := v.Interface().(type) {
	case *value.List:
		return x.Len()
	case string:
		return len(x)
	case []byte:
		return len(x)
	case []string:
		return len(x)
	}
	return 0
}

// lax checks View: a message whose values have any type keeps all that it has when
// it is encoded again.
func lax(t *testing.T, d *value.Dict, typ reflect.Type) {
	to := reflect.New(typ)
	wire.View(d, to.Interface())
	if _, keeps := typ.FieldByName("Rest"); !keeps {
		return
	}
	out := wire.Encode(to.Interface())
	for k, val := range d.All() {
		if got, ok := out.Get(k); value.Truth(val) && (!ok || !same(got, val)) {
			t.Errorf("%s: the key %s became %s, from %s", typ, value.Repr(k), value.Repr(got), value.Repr(val))
		}
	}
}

// same compares a value with itself after decoding and encoding. A field may convert bytes to a
// string, a tuple to a list, and numbers and booleans to each other.
func same(got, was any) bool {
	switch x := was.(type) {
	case []byte:
		if s, ok := got.(string); ok {
			return s == string(x)
		}
	case string:
		if b, ok := got.([]byte); ok {
			return string(b) == x
		}
	case value.Tuple:
		if l, ok := got.(*value.List); ok {
			return value.Repr(l) == value.Repr(&value.List{Items: x})
		}
	case float64:
		if n, ok := got.(int64); ok {
			return n == int64(x)
		}
	}
	if b, ok := got.(bool); ok {
		return b == value.Truth(was)
	}
	if n, ok := got.(int64); ok && was == true {
		return n == 1
	}
	return value.Repr(got) == value.Repr(was)
}
