package system

import (
	"fmt"
	"strings"
	"time"
)

// layouts maps the directives of Python's strftime that Go also supports.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'D': "01/02/06", 'e': "_2",
	'F': "2006-01-02", 'H': "15", 'I': "03", 'm': "01", 'M': "04", 'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'S': "05", 'T': "15:04:05",
	'x': "01/02/06", 'X': "15:04:05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
}

// strftime formats a time with Python's directives. Unknown directives are
// copied.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		layout, ok := layouts[format[i]]
		switch c := format[i]; {
		case ok:
			b.WriteString(t.Format(layout))
		case c == '%':
			b.WriteByte('%')
		case c == 'n':
			b.WriteByte('\n')
		case c == 't':
			b.WriteByte('\t')
		case c == 's':
			fmt.Fprint(&b, t.Unix())
		case c == 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		case c == 'f':
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		case c == 'w':
			fmt.Fprint(&b, int(t.Weekday()))
		case c == 'u':
			fmt.Fprint(&b, (int(t.Weekday())+6)%7+1)
		default:
			b.WriteByte('%')
			b.WriteByte(c)
		}
	}
	return b.String()
}
