// Package serialize writes values in the formats of Salt's serializers, and
// reads them: yaml, yamlex, json, toml, plist, configparser, keyvalue, python
// and msgpack. Output equals that of Salt's Python libraries byte for byte, so
// that files that Salt manages stay unchanged.
//
// Options are those that Salt passes to these libraries; an unknown option is
// an error. Input may come from unauthenticated peers: size and depth are
// bounded.
package serialize

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Bounds of input and output.
const (
	// MaxBytes is the maximum size of input.
	MaxBytes = 16 << 20
	// MaxDepth bounds the nesting of lists and maps.
	MaxDepth = 400
)

var (
	errDeep  = fmt.Errorf("lists and maps nest deeper than %d", MaxDepth)
	errLarge = fmt.Errorf("the input exceeds %d bytes", MaxBytes)
)

// Format is a serialization format.
type Format struct {
	// Write returns a string, or a []byte for a binary format.
	Write func(v any, options *value.Dict) (any, error)
	// Read is nil for a format that can only be written. It may return a
	// value.Const for types specific to the format; see Plain.
	Read func(data []byte, options *value.Dict) (any, error)
}

// formats are the formats by name. Each file registers its own; see base/registry, which
// this package is too low to import.
var formats = map[string]Format{}

func register(name string, f Format) {
	if _, ok := formats[name]; ok {
		panic("serialize: two formats are registered as " + name)
	}
	formats[name] = f
}

// Named returns the format with one of Salt's names.
func Named(name string) (Format, bool) {
	f, ok := formats[name]
	if f.Read != nil {
		read := f.Read
		f.Read = func(data []byte, options *value.Dict) (any, error) {
			if len(data) > MaxBytes {
				return nil, errLarge
			}
			return read(data, options)
		}
	}
	return f, ok
}

// Plain replaces types specific to a format, such as dates of TOML, by their
// text. Values keep these types so that they can be written unchanged.
// Containers may be shared with v.
func Plain(v any) any {
	switch x := v.(type) {
	case value.Const:
		return x.Value
	case *value.List:
		out := &value.List{Items: make([]any, x.Len())}
		for i, it := range x.Items {
			out.Items[i] = Plain(it)
		}
		return out
	case *value.Dict:
		out := value.NewDict(x.Len())
		for k, w := range x.All() {
			out.Set(k, Plain(w))
		}
		return out
	}
	return v
}

// options holds the options of a format and tracks the unused ones.
type options struct {
	format string
	left   *value.Dict
	err    error
}

func of(format string, d *value.Dict) *options {
	if d == nil {
		d = value.NewDict(0)
	}
	return &options{format: format, left: d.Clone()}
}

// take returns an option and marks it as used; ok is false if it is not given.
func (o *options) take(name string) (v any, ok bool) {
	v, ok = o.left.Get(name)
	o.left.Delete(name)
	return v, ok
}

// truth returns the truth value of an option.
func (o *options) truth(name string, unless bool) bool {
	if v, ok := o.take(name); ok {
		return value.Truth(v)
	}
	return unless
}

// number returns an option that is an int; null counts as not given.
func (o *options) number(name string, unless int) int {
	v, ok := o.take(name)
	if !ok || v == nil {
		return unless
	}
	switch n := v.(type) {
	case int64:
		return int(max(min(n, 1<<31), -1<<31))
	case bool:
		if n {
			return 1
		}
		return 0
	}
	o.fail("%s must be a number, not %s", name, value.Repr(v))
	return unless
}

// texts returns an option that is a list of strings, or the characters of one
// string.
func (o *options) texts(name string, unless []string) []string {
	v, ok := o.take(name)
	if !ok {
		return unless
	}
	switch x := v.(type) {
	case nil:
		return nil
	case string:
		return strings.Split(x, "")
	case *value.List:
		out := []string{}
		for _, it := range x.Items {
			s, ok := it.(string)
			if !ok {
				o.fail("%s must be a list of strings; it contains %s", name, value.Repr(it))
			}
			out = append(out, s)
		}
		return out
	}
	o.fail("%s must be a list of strings, not %s", name, value.Repr(v))
	return unless
}

// null accepts unsupported options if they are null or false.
func (o *options) null(names ...string) {
	for _, n := range names {
		if v, _ := o.take(n); value.Truth(v) {
			o.fail("%s cannot be set here", n)
		}
	}
}

func (o *options) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("options of %s: %w", o.format, fmt.Errorf(format, args...))
	}
}

// done returns the first error, or an error for an unknown option.
func (o *options) done() error {
	if o.err == nil && o.left.Len() > 0 {
		var names []string
		for k := range o.left.All() {
			names = append(names, value.Str(k))
		}
		sort.Strings(names)
		return fmt.Errorf("%s has no option %s", o.format, strings.Join(names, ", "))
	}
	return o.err
}

// depthOK fails for a value that nests too deep or contains itself.
func depthOK(v any, depth int) error {
	if depth > MaxDepth {
		return errDeep
	}
	switch x := v.(type) {
	case *value.List:
		for _, it := range x.Items {
			if err := depthOK(it, depth+1); err != nil {
				return err
			}
		}
	case yaml.Tagged:
		return depthOK(x.Value, depth+1)
	case value.Tuple:
		for _, it := range x {
			if err := depthOK(it, depth+1); err != nil {
				return err
			}
		}
	case *value.Dict:
		for _, it := range x.All() {
			if err := depthOK(it, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

var errText = errors.New("the input is not UTF-8")
