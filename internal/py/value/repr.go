package value

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Repr returns Python's repr() of v.
func Repr(v any) string {
	var b strings.Builder
	writeRepr(&b, v)
	return b.String()
}

// Str returns Python's str() of v: a string itself, otherwise Repr(v).
func Str(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case time.Time:
		if IsDate(x) {
			return x.Format(time.DateOnly)
		}
		return isoTime(x, ' ')
	}
	return Repr(v)
}

// dateZone marks a time that stands for a date. As in Salt, a date that is sent becomes a datetime.
var dateZone = time.FixedZone("date", 0)

// Date returns Python's datetime.date.
func Date(year, month, day int) time.Time {
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, dateZone)
}

// IsDate reports whether a time is a date without a time of the day.
func IsDate(t time.Time) bool { return t.Location() == dateZone }

func isoTime(t time.Time, sep byte) string {
	s := t.Format("2006-01-02") + string(sep) + t.Format("15:04:05")
	if us := t.Nanosecond() / 1000; us != 0 {
		s += fmt.Sprintf(".%06d", us)
	}
	return s
}

func writeRepr(b *strings.Builder, v any) {
	switch x := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if x {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(x, 10))
	case *big.Int:
		b.WriteString(x.String())
	case float64:
		b.WriteString(FormatFloat(x))
	case string:
		writeStrRepr(b, x)
	case []byte:
		writeBytesRepr(b, x)
	case *List:
		b.WriteByte('[')
		writeItems(b, x.items())
		b.WriteByte(']')
	case Tuple:
		b.WriteByte('(')
		writeItems(b, x)
		if len(x) == 1 {
			b.WriteByte(',')
		}
		b.WriteByte(')')
	case *Dict:
		b.WriteByte('{')
		first := true
		for k, w := range x.All() {
			if !first {
				b.WriteString(", ")
			}
			first = false
			writeRepr(b, k)
			b.WriteString(": ")
			writeRepr(b, w)
		}
		b.WriteByte('}')
	case time.Time:
		if IsDate(x) {
			fmt.Fprintf(b, "datetime.date(%d, %d, %d)", x.Year(), int(x.Month()), x.Day())
			return
		}
		fmt.Fprintf(b, "datetime.datetime(%d, %d, %d, %d, %d", x.Year(), int(x.Month()), x.Day(), x.Hour(), x.Minute())
		us := x.Nanosecond() / 1000
		if x.Second() != 0 || us != 0 {
			fmt.Fprintf(b, ", %d", x.Second())
		}
		if us != 0 {
			fmt.Fprintf(b, ", %d", us)
		}
		b.WriteByte(')')
	case Const:
		b.WriteString(x.Name)
	case Ext:
		fmt.Fprintf(b, "ExtType(code=%d, data=", x.Type)
		writeBytesRepr(b, x.Data)
		b.WriteByte(')')
	default:
		fmt.Fprint(b, v)
	}
}

func writeItems(b *strings.Builder, items []any) {
	for i, it := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		writeRepr(b, it)
	}
}

// FormatFloat returns Python's repr() of a float: the shortest text that
// reads back as f, with ".0" for whole numbers and an exponent below 1e-4 and
// from 1e16 on.
func FormatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		s := strconv.FormatFloat(f, 'e', -1, 64)
		return s
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func writeStrRepr(b *strings.Builder, s string) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteByte(quote)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			fmt.Fprintf(b, `\udc%02x`, s[i])
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x7f:
			b.WriteByte(byte(r))
		case printable(r):
			b.WriteString(s[i : i+n])
		case r <= 0xff:
			fmt.Fprintf(b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
		i += n
	}
	b.WriteByte(quote)
}

// printable follows str.isprintable: separators other than the space, control,
// format, surrogate, private and unassigned characters are escaped.
func printable(r rune) bool {
	return unicode.IsPrint(r)
}

func writeBytesRepr(b *strings.Builder, p []byte) {
	quote := byte('\'')
	if strings.Contains(string(p), "'") && !strings.Contains(string(p), `"`) {
		quote = '"'
	}
	b.WriteByte('b')
	b.WriteByte(quote)
	for _, c := range p {
		switch {
		case c == quote || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte(quote)
}
