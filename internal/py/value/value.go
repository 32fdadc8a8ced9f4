// Package value is the data model shared by all of Brine: the values that a
// Python program has after decoding msgpack, YAML or JSON.
//
// A value is an any that holds exactly one of these types:
//
//	nil         None
//	bool        bool
//	int64       int that fits 64 bits
//	*big.Int    int outside the range of int64
//	float64     float
//	string      str; valid UTF-8
//	[]byte      bytes
//	*List       list, shared by reference as in Python
//	Tuple       tuple
//	*Dict       dict: insertion order, any scalar (or Tuple) as key
//	time.Time   datetime without zone, kept in UTC
//	Const       one of Salt's named constants (msgpack extension 79)
//	Ext         a msgpack extension of unknown type
//
// From turns ordinary Go values (int, map[string]any, []string …) into these.
// The package does not depend on files, encodings or Salt.
package value

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"sort"
	"time"
)

// List is a mutable sequence, shared by reference.
type List struct {
	Items []any
}

// ListOf returns a new list of the given values, each passed through From.
func ListOf(items ...any) *List {
	l := &List{Items: make([]any, len(items))}
	for i, it := range items {
		l.Items[i] = From(it)
	}
	return l
}

// Len returns the number of items. A nil list is empty.
func (l *List) Len() int {
	if l == nil {
		return 0
	}
	return len(l.Items)
}

func (l *List) items() []any {
	if l == nil {
		return nil
	}
	return l.Items
}

// Append adds items at the end.
func (l *List) Append(items ...any) { l.Items = append(l.Items, items...) }

// Tuple is an immutable sequence. It may be a dict key.
type Tuple []any

// Const is a named constant that some Salt functions return in place of data,
// for example when a depth limit is reached.
type Const struct {
	Name  string
	Value any
}

// Ext is a msgpack extension of unknown type; it is passed on unchanged.
type Ext struct {
	Type int8
	Data []byte
}

// From converts v to a value of this package. Values of the model are returned
// unchanged (containers by reference). A type without counterpart becomes its
// fmt.Sprint string, so that it can always be displayed.
func From(v any) any {
	switch x := v.(type) {
	case nil, bool, int64, float64, string, []byte, *List, Tuple, *Dict, time.Time, Const, Ext, *big.Int:
		return v
	case int:
		return int64(x)
	case int32:
		return int64(x)
	case int16:
		return int64(x)
	case int8:
		return int64(x)
	case uint8:
		return int64(x)
	case uint16:
		return int64(x)
	case uint32:
		return int64(x)
	case uint:
		return fromUint(uint64(x))
	case uint64:
		return fromUint(x)
	case float32:
		return float64(x)
	case []any:
		return ListOf(x...)
	case []string:
		return Strings(x)
	case []*Dict:
		l := &List{Items: make([]any, len(x))}
		for i, d := range x {
			l.Items[i] = d
		}
		return l
	case map[string]any:
		d := NewDict(len(x))
		for _, k := range sortedKeys(x) {
			d.Set(k, From(x[k]))
		}
		return d
	case map[string]string:
		d := NewDict(len(x))
		for _, k := range sortedKeys(x) {
			d.Set(k, x[k])
		}
		return d
	case time.Duration:
		return x.Seconds()
	case error:
		return x.Error()
	case fmt.Stringer:
		return x.String()
	}
	return fromKind(reflect.ValueOf(v))
}

// fromKind converts named scalar types and slices of any type.
func fromKind(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fromUint(v.Uint())
	case reflect.Float32, reflect.Float64:
		return v.Float()
	case reflect.String:
		return v.String()
	case reflect.Slice, reflect.Array:
		l := &List{Items: make([]any, v.Len())}
		for i := range l.Items {
			l.Items[i] = From(v.Index(i).Interface())
		}
		return l
	}
	return fmt.Sprint(v.Interface())
}

func fromUint(u uint64) any {
	if u <= math.MaxInt64 {
		return int64(u)
	}
	return new(big.Int).SetUint64(u)
}

// Big returns i as int64 when it fits, otherwise i itself.
func Big(i *big.Int) any {
	if i.IsInt64() {
		return i.Int64()
	}
	return i
}

// Strings returns a list of strings.
func Strings(ss []string) *List {
	l := &List{Items: make([]any, len(ss))}
	for i, s := range ss {
		l.Items[i] = s
	}
	return l
}

func sortedKeys[V any](m map[string]V) []string {
	ks := make([]string, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	sort.Strings(ks)
	return ks
}

// Truth reports whether Python would treat v as true.
func Truth(v any) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case int64:
		return x != 0
	case float64:
		return x != 0
	case *big.Int:
		return x.Sign() != 0
	case string:
		return x != ""
	case []byte:
		return len(x) != 0
	case *List:
		return x.Len() != 0
	case Tuple:
		return len(x) != 0
	case *Dict:
		return x.Len() != 0
	}
	return true
}

// TypeName returns Python's name of v's type, for error messages.
func TypeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case *List:
		return "list"
	case Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case time.Time:
		if IsDate(v) {
			return "date"
		}
		return "datetime"
	}
	return "object"
}

// Equal reports whether a == b in Python: numbers compare across int, float
// and bool; dicts without regard to order; str and bytes are never equal.
func Equal(a, b any) bool {
	switch x := a.(type) {
	case nil:
		return b == nil
	case bool, int64, float64, *big.Int:
		c, ok := compareNumbers(a, b)
		return ok && c == 0
	case string:
		y, ok := b.(string)
		return ok && x == y
	case []byte:
		y, ok := b.([]byte)
		return ok && slices.Equal(x, y)
	case *List:
		y, ok := b.(*List)
		return ok && equalItems(x.items(), y.items())
	case Tuple:
		y, ok := b.(Tuple)
		return ok && equalItems(x, y)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for k, v := range x.All() {
			w, ok := y.Get(k)
			if !ok || !Equal(v, w) {
				return false
			}
		}
		return true
	case time.Time:
		y, ok := b.(time.Time)
		return ok && x.Equal(y)
	case Const:
		y, ok := b.(Const)
		return ok && x.Name == y.Name && Equal(x.Value, y.Value)
	case Ext:
		y, ok := b.(Ext)
		return ok && x.Type == y.Type && slices.Equal(x.Data, y.Data)
	}
	return false
}

func equalItems(a, b []any) bool {
	return slices.EqualFunc(a, b, Equal)
}

// Compare orders a and b as Python's < does for numbers, strings, bytes and
// sequences of these. ok is false if Python raises a TypeError.
func Compare(a, b any) (c int, ok bool) {
	if c, ok := compareNumbers(a, b); ok {
		return c, true
	}
	switch x := a.(type) {
	case string:
		if y, is := b.(string); is {
			return compareOrdered(x, y), true
		}
	case []byte:
		if y, is := b.([]byte); is {
			return slices.Compare(x, y), true
		}
	case *List:
		if y, is := b.(*List); is {
			return compareItems(x.items(), y.items())
		}
	case Tuple:
		if y, is := b.(Tuple); is {
			return compareItems(x, y)
		}
	case time.Time:
		if y, is := b.(time.Time); is {
			return x.Compare(y), true
		}
	}
	return 0, false
}

func compareItems(a, b []any) (int, bool) {
	for i := range min(len(a), len(b)) {
		if Equal(a[i], b[i]) {
			continue
		}
		return Compare(a[i], b[i])
	}
	return compareOrdered(len(a), len(b)), true
}

func compareOrdered[T int | int64 | string | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// compareNumbers compares exactly, without rounding an int to a float first.
func compareNumbers(a, b any) (int, bool) {
	x, okX := number(a)
	y, okY := number(b)
	if !okX || !okY {
		return 0, false
	}
	if i, ok := x.(int64); ok {
		if j, ok := y.(int64); ok {
			return compareOrdered(i, j), true
		}
	}
	f, fok := x.(float64)
	g, gok := y.(float64)
	if fok && gok {
		if math.IsNaN(f) || math.IsNaN(g) {
			return 1, true // not equal to anything
		}
		return compareOrdered(f, g), true
	}
	if fok && (math.IsNaN(f) || math.IsInf(f, 0)) || gok && (math.IsNaN(g) || math.IsInf(g, 0)) {
		if fok {
			if math.IsInf(f, -1) {
				return -1, true
			}
			return 1, true
		}
		if math.IsInf(g, 1) {
			return -1, true
		}
		return 1, true
	}
	return bigFloat(x).Cmp(bigFloat(y)), true
}

func number(v any) (any, bool) {
	switch x := v.(type) {
	case bool:
		if x {
			return int64(1), true
		}
		return int64(0), true
	case int64, float64, *big.Int:
		return v, true
	}
	return nil, false
}

func bigFloat(v any) *big.Float {
	switch x := v.(type) {
	case int64:
		return new(big.Float).SetPrec(64).SetInt64(x)
	case *big.Int:
		return new(big.Float).SetPrec(uint(max(64, x.BitLen()))).SetInt(x)
	default:
		return new(big.Float).SetFloat64(v.(float64))
	}
}

// Items returns the items of a list or tuple, else nil.
func Items(v any) []any {
	switch x := v.(type) {
	case *List:
		return x.items()
	case Tuple:
		return x
	}
	return nil
}
