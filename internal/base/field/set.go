package field

import (
	"encoding"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"brine/internal/py/value"
)

// Setter is a type that converts values of the model to itself. Its errors are
// shown to the user unchanged, after the name of the field.
type Setter interface {
	SetValue(v any) error
}

// Error reports that a value does not fit a field, in terms of YAML.
type Error struct {
	// Want is the expected value, for example "a number of seconds".
	Want string
	// Got describes the given value, for example "list".
	Got string
	// At is the path inside a list or mapping, for example "[2].port"; empty
	// for the value itself.
	At string
}

func (e *Error) Error() string {
	s := "expected " + e.Want + ", got " + e.Got
	if e.At != "" {
		s = e.At + ": " + s
	}
	return s
}

func mismatch(want string, v any) error { return &Error{Want: want, Got: Describe(v)} }

// Describe describes a value for an error message: its type, and for a scalar
// the shortened value.
func Describe(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(x)
	case int64, float64, *big.Int:
		return "the number " + shorten(value.Str(x))
	case string:
		return "the string " + strconv.Quote(shorten(x))
	case []byte:
		return "binary data"
	case *value.List, value.Tuple:
		return "list"
	case *value.Dict:
		return "mapping"
	case time.Time:
		return "a date"
	}
	return value.TypeName(v)
}

func shorten(s string) string {
	const limit = 60
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	dictType     = reflect.TypeFor[*value.Dict]()
	listType     = reflect.TypeFor[*value.List]()
	bytesType    = reflect.TypeFor[[]byte]()
	anyType      = reflect.TypeFor[any]()
)

// Set converts v, a value of the model, into dst, which must be settable.
//
//   - any takes everything; *value.Dict and *value.List take their type, and
//     null as nil. A List is shared, not copied.
//   - A type with SetValue(any) error converts itself. A type with
//     UnmarshalText (netip.Addr, for example) reads a string.
//   - Strings take every scalar, written as Python's str(); other targets take
//     null only if they are a pointer, a slice or a map.
//   - Booleans take true, false, a number (true unless 0), and the words
//     true, yes, on, false, no, off.
//   - Numbers take numbers in their range and strings of numbers, never
//     booleans; whole numbers take no fraction. A time.Duration is a number
//     of seconds, with fraction.
//   - Slices take a list, or one scalar as their only item; maps with string
//     keys take a mapping; structs take a mapping of their fields.
//
// The error is an *Error unless a type's own conversion failed. dst may have
// been changed in part after an error inside a list or mapping.
func Set(dst reflect.Value, v any) error {
	if v != nil {
		v = value.From(v)
	}
	if dst.CanAddr() {
		if s, ok := dst.Addr().Interface().(Setter); ok {
			return s.SetValue(v)
		}
	}
	switch t := dst.Type(); t {
	case anyType:
		if v == nil {
			dst.SetZero()
			return nil
		}
		dst.Set(reflect.ValueOf(v))
		return nil
	case dictType, listType, bytesType, timeType:
		return setModel(dst, v)
	case durationType:
		return setDuration(dst, v)
	}
	if dst.Kind() == reflect.Pointer {
		return setPointer(dst, v)
	}
	if dst.CanAddr() {
		if u, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
			return setText(u, v)
		}
	}
	switch dst.Kind() {
	case reflect.Slice:
		return setSlice(dst, v)
	case reflect.Map:
		return setMap(dst, v)
	case reflect.Struct:
		return setStruct(dst, v)
	}
	return setScalar(dst, v)
}

// setModel sets targets whose type is one of the model.
func setModel(dst reflect.Value, v any) error {
	var out any
	var want string
	ok := false
	switch dst.Type() {
	case dictType:
		want = "a mapping"
		out, ok = v.(*value.Dict)
	case listType:
		want = "a list"
		if t, is := v.(value.Tuple); is {
			v = &value.List{Items: t}
		}
		out, ok = v.(*value.List)
	case bytesType:
		want = "a string or binary data"
		if s, is := v.(string); is {
			v = []byte(s)
		}
		out, ok = v.([]byte)
	case timeType:
		want = "a date"
		out, ok = v.(time.Time)
	}
	switch {
	case ok:
		dst.Set(reflect.ValueOf(out))
	case v == nil && dst.Type() != timeType:
		dst.SetZero()
	default:
		return mismatch(want, v)
	}
	return nil
}

func setPointer(dst reflect.Value, v any) error {
	if v == nil {
		dst.SetZero()
		return nil
	}
	p := reflect.New(dst.Type().Elem())
	if err := Set(p.Elem(), v); err != nil {
		return err
	}
	dst.Set(p)
	return nil
}

func setText(u encoding.TextUnmarshaler, v any) error {
	switch v.(type) {
	case string, int64, float64:
	default:
		return mismatch("a string", v)
	}
	return u.UnmarshalText([]byte(value.Str(v)))
}

func setScalar(dst reflect.Value, v any) error {
	switch dst.Kind() {
	case reflect.String:
		s, ok := text(v)
		if !ok {
			return mismatch("a string", v)
		}
		dst.SetString(s)
	case reflect.Bool:
		b, ok := boolean(v)
		if !ok {
			return mismatch("true or false", v)
		}
		dst.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		bits := dst.Type().Bits()
		i, ok := whole(v)
		if !ok {
			return mismatch("a whole number", v)
		}
		if !i.IsInt64() || dst.OverflowInt(i.Int64()) {
			limit := int64(1)<<(bits-1) - 1
			return mismatch(fmt.Sprintf("a whole number from %d to %d", -limit-1, limit), v)
		}
		dst.SetInt(i.Int64())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		i, ok := whole(v)
		if !ok {
			return mismatch("a whole number", v)
		}
		if !i.IsUint64() || dst.OverflowUint(i.Uint64()) {
			limit := uint64(math.MaxUint64) >> (64 - dst.Type().Bits())
			return mismatch(fmt.Sprintf("a whole number from 0 to %d", limit), v)
		}
		dst.SetUint(i.Uint64())
	case reflect.Float32, reflect.Float64:
		f, ok := number(v)
		if !ok {
			return mismatch("a number", v)
		}
		dst.SetFloat(f)
	default:
		return fmt.Errorf("field: cannot set a %v", dst.Type())
	}
	return nil
}

// text converts a scalar to a string as Python's str() does.
func text(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case []byte:
		return string(x), utf8.Valid(x)
	case bool, int64, float64, *big.Int, time.Time:
		return value.Str(x), true
	}
	return "", false
}

func boolean(v any) (b, ok bool) {
	switch x := v.(type) {
	case bool:
		return x, true
	case int64, float64:
		return value.Truth(x), true
	case string:
		switch strings.ToLower(x) {
		case "true", "yes", "on":
			return true, true
		case "false", "no", "off":
			return false, true
		}
	}
	return false, false
}

// whole returns v as an integer if that is lossless.
func whole(v any) (*big.Int, bool) {
	switch x := v.(type) {
	case int64:
		return big.NewInt(x), true
	case *big.Int:
		return x, true
	case float64:
		if x == math.Trunc(x) && math.Abs(x) <= 1<<53 {
			return big.NewInt(int64(x)), true
		}
	case string:
		s := strings.TrimSpace(x)
		if len(s) <= 40 && decimal.MatchString(s) {
			return new(big.Int).SetString(s, 10)
		}
	}
	return nil, false
}

func number(v any) (float64, bool) {
	switch x := v.(type) {
	case int64:
		return float64(x), true
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f, !math.IsInf(f, 0)
	case float64:
		return x, true
	case string:
		s := strings.TrimSpace(x)
		if fraction.MatchString(s) {
			f, err := strconv.ParseFloat(s, 64)
			return f, err == nil
		}
	}
	return 0, false
}

func setDuration(dst reflect.Value, v any) error {
	const want = "a number of seconds"
	if i, ok := v.(int64); ok && i >= math.MinInt64/int64(time.Second) && i <= math.MaxInt64/int64(time.Second) {
		dst.SetInt(i * int64(time.Second))
		return nil
	}
	f, ok := number(v)
	ns := math.Round(f * float64(time.Second))
	if !ok || math.IsNaN(f) || ns >= math.MaxInt64 || ns <= math.MinInt64 {
		return mismatch(want, v)
	}
	dst.SetInt(int64(ns))
	return nil
}

func setSlice(dst reflect.Value, v any) error {
	var items []any
	switch x := v.(type) {
	case nil:
		dst.SetZero()
		return nil
	case *value.List:
		items = x.Items
	case value.Tuple:
		items = x
	case *value.Dict:
		if dst.Type().Elem().Kind() != reflect.Struct {
			return mismatch("a list", v)
		}
		items = []any{x}
	default:
		items = []any{v}
	}
	out := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, it := range items {
		if err := Set(out.Index(i), it); err != nil {
			if _, isList := v.(*value.List); !isList {
				return mismatch("a list", v)
			}
			return at(err, "["+strconv.Itoa(i)+"]")
		}
	}
	dst.Set(out)
	return nil
}

func setMap(dst reflect.Value, v any) error {
	d, ok := v.(*value.Dict)
	t := dst.Type()
	if v == nil {
		dst.SetZero()
		return nil
	}
	if !ok {
		return mismatch("a mapping", v)
	}
	if t.Key().Kind() != reflect.String {
		return fmt.Errorf("field: cannot set a %v: its keys are not strings", t)
	}
	out := reflect.MakeMapWithSize(t, d.Len())
	for k, w := range d.All() {
		ks, ok := text(k)
		if !ok {
			return mismatch("a mapping whose keys are strings", k)
		}
		e := reflect.New(t.Elem()).Elem()
		if err := Set(e, w); err != nil {
			return at(err, ks)
		}
		out.SetMapIndex(reflect.ValueOf(ks).Convert(t.Key()), e)
	}
	dst.Set(out)
	return nil
}

// setStruct sets the defaults of a nested struct, then the given fields.
func setStruct(dst reflect.Value, v any) error {
	d, ok := v.(*value.Dict)
	if !ok {
		return mismatch("a mapping", v)
	}
	fields, err := Of(dst.Type())
	if err != nil {
		return err
	}
	known := make(map[string]Field, len(fields))
	for _, f := range fields {
		known[f.Name] = f
		for _, a := range f.Alias {
			known[a] = f
		}
		if err := f.SetDefault(dst); err != nil {
			return err
		}
	}
	for k, w := range d.All() {
		name, _ := text(k)
		f, ok := known[name]
		if !ok {
			return fmt.Errorf("unknown key %q", shorten(value.Str(k)))
		}
		if err := f.Set(dst, w); err != nil {
			return at(err, name)
		}
	}
	return nil
}

// at prepends an element to the path of an error.
func at(err error, step string) error {
	e, ok := err.(*Error) // exact: the texts around a wrapped one would be lost
	if !ok {
		return fmt.Errorf("%s: %w", step, err)
	}
	switch {
	case e.At == "":
	case strings.HasPrefix(e.At, "["):
		step += e.At
	default:
		step += "." + e.At
	}
	return &Error{Want: e.Want, Got: e.Got, At: step}
}
