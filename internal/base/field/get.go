package field

import (
	"encoding"
	"math"
	"reflect"
	"sort"
	"time"

	"brine/internal/py/value"
)

// Getter is the counterpart of Setter: it returns the value of the model that
// SetValue would convert to the receiver.
type Getter interface {
	Value() any
}

// Get converts v to a value of the model, the reverse of Set. A time.Duration
// becomes seconds, an int if whole; a nil pointer becomes null. A type without
// counterpart becomes a string.
func Get(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	if g, ok := v.Interface().(Getter); ok {
		return g.Value()
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		if x%time.Second == 0 {
			return int64(x / time.Second)
		}
		return x.Seconds()
	case []byte, *value.Dict, *value.List, value.Tuple, time.Time:
		return value.From(x)
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err == nil {
			return string(text)
		}
	}
	return getKind(v)
}

func getKind(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return Get(v.Elem())
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if u := v.Uint(); u <= math.MaxInt64 {
			return int64(u)
		}
		return value.From(v.Uint())
	case reflect.Float32, reflect.Float64:
		return v.Float()
	case reflect.Slice, reflect.Array:
		l := &value.List{Items: make([]any, v.Len())}
		for i := range l.Items {
			l.Items[i] = Get(v.Index(i))
		}
		return l
	case reflect.Map:
		return getMap(v)
	case reflect.Struct:
		return getStruct(v)
	}
	return value.From(v.Interface())
}

func getMap(v reflect.Value) any {
	keys := v.MapKeys()
	sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	d := value.NewDict(len(keys))
	for _, k := range keys {
		d.Set(k.String(), Get(v.MapIndex(k)))
	}
	return d
}

func getStruct(v reflect.Value) any {
	fields, err := Of(v.Type())
	if err != nil || len(fields) == 0 {
		return value.From(v.Interface())
	}
	d := value.NewDict(len(fields))
	for _, f := range fields {
		d.Set(f.Name, Get(f.In(v)))
	}
	return d
}
