// Package serialize writes values in the formats of Salt's serializers, and
// reads them: yaml, yamlex, json, toml, plist, configparser, keyvalue, python
// and msgpack. What is written equals what Salt writes with its Python
// libraries, byte for byte, so that a file that Salt keeps stays as it is.
//
// Options are those that Salt hands to these libraries; one that a format
// does not have is an error. Texts may come from strangers: size and depth
// are bounded.
package serialize

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"brine/internal/py/value"
)

// The bounds of what is read and written.
const (
	// MaxBytes is the greatest size of a text that is read.
	MaxBytes = 16 << 20
	// MaxDepth is how deep lists and maps may nest.
	MaxDepth = 400
)

var (
	errDeep  = fmt.Errorf("lists and maps nest deeper than %d", MaxDepth)
	errLarge = fmt.Errorf("the text has more than the %d bytes allowed", MaxBytes)
)

// Format is one way to write values.
type Format struct {
	// Write returns a string, or a []byte for a format that is no text.
	Write func(v any, options *value.Dict) (any, error)
	// Read is nil for a format that can only be written. It may return a
	// value.Const for what only this format knows; see Plain.
	Read func(data []byte, options *value.Dict) (any, error)
}

// Named returns the format with one of Salt's names.
func Named(name string) (Format, bool) {
	f, ok := map[string]Format{
		"configparser": {writeConfig, readConfig},
		"json":         {writeJSON, readJSON},
		"keyvalue":     {writeKeyvalue, readKeyvalue},
		"msgpack":      {writeMsgpack, readMsgpack},
		"plist":        {writePlist, readPlist},
		"python":       {writePython, nil},
		"toml":         {writeTOML, readTOML},
		"yaml":         {writeYAML, readYAML},
		"yamlex":       {writeYamlex, readYamlex},
	}[name]
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

// Plain returns v with the texts of what only the format knows that it was
// read from, such as dates of TOML, which a value keeps so that they can be
// written as they were. Containers may be shared with v.
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

// options hands out the options of a format and knows which are left.
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

// take returns an option; ok is false if it is not given.
func (o *options) take(name string) (v any, ok bool) {
	v, ok = o.left.Get(name)
	o.left.Delete(name)
	return v, ok
}

// truth returns an option that is taken for true or false.
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
	o.fail("%s must be a number, and is %s", name, value.Repr(v))
	return unless
}

// texts returns an option that is a list of texts, or the characters of one.
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
				o.fail("%s must be a list of texts, and has %s", name, value.Repr(it))
			}
			out = append(out, s)
		}
		return out
	}
	o.fail("%s must be a list of texts, and is %s", name, value.Repr(v))
	return unless
}

// null accepts options that change nothing as long as they are null or false.
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

// done returns what was wrong, be it an option that the format does not have.
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

// depthOK fails for a value that nests too deep, be it because it contains
// itself.
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

var errText = errors.New("the text is not UTF-8")
