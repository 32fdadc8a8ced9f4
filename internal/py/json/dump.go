package json

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"brine/internal/py/value"
)

// Format holds the options of Dump. The zero Format is that of Python's
// json.dumps without arguments, except for ASCII.
type Format struct {
	// ASCII escapes characters outside of ASCII; Python's default.
	ASCII bool
	// SortKeys sorts the keys of objects.
	SortKeys bool
	// Indent, unless nil, puts each item on its own line, indented by this
	// string per level.
	Indent *string
	// Comma and Colon are the separators; ", " (or "," with Indent) and ": " if
	// empty.
	Comma, Colon string
	// Other, if set, converts a value that JSON cannot represent. Without it
	// such a value is an error.
	Other func(v any) (any, error)
}

// Spaces returns an Indent of n blanks.
func Spaces(n int) *string {
	s := strings.Repeat(" ", max(0, n))
	return &s
}

// ErrCircular means that a value contains itself.
var ErrCircular = errors.New("a value contains itself, or nests too deep")

// Dump writes v as JSON. Keys that are numbers, booleans or null are written as
// strings.
func Dump(v any, f Format) (string, error) {
	if f.Comma == "" {
		f.Comma = ", "
		if f.Indent != nil {
			f.Comma = ","
		}
	}
	if f.Colon == "" {
		f.Colon = ": "
	}
	w := writer{f: f}
	if err := w.value(v, 0); err != nil {
		return "", err
	}
	return string(w.b), nil
}

type writer struct {
	f Format
	b []byte
}

func (w *writer) newline(depth int) {
	if w.f.Indent == nil {
		return
	}
	w.b = append(w.b, '\n')
	for range depth {
		w.b = append(w.b, *w.f.Indent...)
	}
}

func (w *writer) value(v any, depth int) error {
	if depth > MaxDepth {
		return ErrCircular
	}
	switch x := v.(type) {
	case string:
		w.b = AppendText(w.b, x, w.f.ASCII)
	case *value.List:
		return w.list(x.Items, depth)
	case value.Tuple:
		return w.list(x, depth)
	case *value.Dict:
		return w.dict(x, depth)
	default:
		s, ok := scalar(v)
		if ok {
			w.b = append(w.b, s...)
			return nil
		}
		return w.other(v, depth)
	}
	return nil
}

func (w *writer) other(v any, depth int) error {
	if w.f.Other == nil {
		return unserializable(v)
	}
	u, err := w.f.Other(v)
	if err != nil {
		return err
	}
	return w.value(u, depth+1)
}

func scalar(v any) (string, bool) {
	switch x := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(x), true
	case int64:
		return strconv.FormatInt(x, 10), true
	case *big.Int:
		return x.String(), true
	case float64:
		switch {
		case math.IsNaN(x):
			return "NaN", true
		case math.IsInf(x, 1):
			return "Infinity", true
		case math.IsInf(x, -1):
			return "-Infinity", true
		}
		return value.FormatFloat(x), true
	}
	return "", false
}

func (w *writer) list(items []any, depth int) error {
	if len(items) == 0 {
		w.b = append(w.b, "[]"...)
		return nil
	}
	w.b = append(w.b, '[')
	for i, it := range items {
		if i > 0 {
			w.b = append(w.b, w.f.Comma...)
		}
		w.newline(depth + 1)
		if err := w.value(it, depth+1); err != nil {
			return err
		}
	}
	w.newline(depth)
	w.b = append(w.b, ']')
	return nil
}

func (w *writer) dict(d *value.Dict, depth int) error {
	if d.Len() == 0 {
		w.b = append(w.b, "{}"...)
		return nil
	}
	keys := d.Keys()
	if w.f.SortKeys {
		if err := sortKeys(keys); err != nil {
			return err
		}
	}
	w.b = append(w.b, '{')
	for i, k := range keys {
		if i > 0 {
			w.b = append(w.b, w.f.Comma...)
		}
		w.newline(depth + 1)
		name, ok := k.(string)
		if !ok {
			if name, ok = scalar(k); !ok {
				return fmt.Errorf("keys must be str, int, float, bool or None, not %s", value.TypeName(k))
			}
		}
		w.b = AppendText(w.b, name, w.f.ASCII)
		w.b = append(w.b, w.f.Colon...)
		if err := w.value(d.At(k), depth+1); err != nil {
			return err
		}
	}
	w.newline(depth)
	w.b = append(w.b, '}')
	return nil
}

// sortKeys sorts as Python does; keys of different types are an error.
func sortKeys(keys []any) (err error) {
	sort.SliceStable(keys, func(i, j int) bool {
		c, ok := value.Compare(keys[i], keys[j])
		if !ok && err == nil {
			err = fmt.Errorf("'<' not supported between instances of '%s' and '%s'", value.TypeName(keys[i]), value.TypeName(keys[j]))
		}
		return ok && c < 0
	})
	return err
}

// AppendText appends s in quotes.
func AppendText(b []byte, s string, ascii bool) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			b = appendASCII(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case !ascii:
			b = append(b, s[i:i+n]...)
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\udc%02x`, c)
		case r >= 0x10000:
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		i += n
	}
	return append(b, '"')
}

func appendASCII(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	}
	if c < 0x20 {
		return fmt.Appendf(b, `\u%04x`, c)
	}
	return append(b, c)
}

// TypeError reports a value that JSON cannot represent, with Python's message.
type TypeError struct{ Type string }

func (e *TypeError) Error() string { return "Object of type " + e.Type + " is not JSON serializable" }

func unserializable(v any) error { return &TypeError{value.TypeName(v)} }
