package output

import (
	"bufio"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"brine/internal/py/value"
)

func init() { outputters.Register("json", (*Printer).json) }

// json writes one JSON document like Python's json.dumps with ensure_ascii=False, keys in the order
// of the data.
func (p *Printer) json(data any, _ Call) (string, error) {
	var text strings.Builder
	b := bufio.NewWriter(&text)
	p.writeJSON(b, data)
	err := b.Flush() // flush before reading the string
	return text.String(), err
}

// writeJSON writes any value. Values that JSON cannot represent, and keys that are not scalars, are
// written as strings in Python's form. b records errors.
func (p *Printer) writeJSON(b *bufio.Writer, data any) {
	ind := p.opts.Indent
	if !ind.Given {
		ind.Width = 4
	}
	w := jsonWriter{Writer: b, ind: ind, comma: ","}
	if ind.Width < 0 {
		w.comma = ", "
	}
	w.value(data, 0)
}

type jsonWriter struct {
	*bufio.Writer
	ind   Indent
	comma string
}

const blanks = "                                                                "

// newline starts a line at a depth, unless the document is on a single line.
func (w *jsonWriter) newline(depth int) {
	if w.ind.Width < 0 {
		return
	}
	w.WriteByte('\n')
	n := depth * w.ind.Width
	for ; n > len(blanks); n -= len(blanks) {
		w.WriteString(blanks)
	}
	w.WriteString(blanks[:n])
}

func (w *jsonWriter) value(v any, depth int) {
	switch x := v.(type) {
	case nil, bool, int64, float64, *big.Int:
		w.WriteString(jsonScalar(v))
	case string:
		w.text(x)
	case *value.List:
		w.list(x.Items, depth)
	case value.Tuple:
		w.list(x, depth)
	case *value.Dict:
		w.dict(x, depth)
	default:
		w.text(value.Repr(v))
	}
}

func jsonScalar(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(x)
	case float64:
		switch {
		case math.IsNaN(x):
			return "NaN"
		case math.IsInf(x, 1):
			return "Infinity"
		case math.IsInf(x, -1):
			return "-Infinity"
		}
	}
	return value.Repr(v)
}

func (w *jsonWriter) list(items []any, depth int) {
	if len(items) == 0 {
		w.WriteString("[]")
		return
	}
	w.WriteByte('[')
	for i, it := range items {
		if i > 0 {
			w.WriteString(w.comma)
		}
		w.newline(depth + 1)
		w.value(it, depth+1)
	}
	w.newline(depth)
	w.WriteByte(']')
}

func (w *jsonWriter) dict(d *value.Dict, depth int) {
	if d.Len() == 0 {
		w.WriteString("{}")
		return
	}
	var keys []any
	if w.ind.Sort {
		keys = sortedKeys(d)
	}
	w.WriteByte('{')
	for i := range d.Len() {
		if i > 0 {
			w.WriteString(w.comma)
		}
		w.newline(depth + 1)
		k, v := d.Entry(i)
		if keys != nil {
			k, v = keys[i], d.At(keys[i])
		}
		w.keyText(k)
		w.WriteString(": ")
		w.value(v, depth+1)
	}
	w.newline(depth)
	w.WriteByte('}')
}

func (w *jsonWriter) keyText(k any) {
	switch x := k.(type) {
	case string:
		w.text(x)
	case nil, bool, int64, float64, *big.Int:
		w.text(jsonScalar(k))
	default:
		w.text(value.Repr(k))
	}
}

func (w *jsonWriter) text(s string) {
	b := w.Writer
	b.WriteByte('"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b.WriteString(s[start:i])
		start = i + 1
		switch c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			fmt.Fprintf(b, `\u%04x`, c)
		}
	}
	b.WriteString(s[start:])
	b.WriteByte('"')
}
