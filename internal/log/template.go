package log

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Template is a parsed log format such as "[%(levelname)-8s] %(message)s".
type Template struct {
	parts   []part
	timeFmt string
	usesJID bool
}

// part is literal text, or a field with a verb for package fmt.
type part struct {
	text  string
	field string
	verb  string
}

// record is what a template can show.
type record struct {
	time    time.Time
	level   string
	number  int
	name    string
	message string
	jid     string
	pc      uintptr
}

// fields maps the names of Salt's formats to their values: text for %s, a
// number for %d.
var fields = map[string]func(t *Template, r *record) any{
	"asctime":        func(t *Template, r *record) any { return strftime(t.timeFmt, r.time) },
	"created":        func(_ *Template, r *record) any { return float64(r.time.UnixNano()) / 1e9 },
	"msecs":          func(_ *Template, r *record) any { return r.time.Nanosecond() / 1e6 },
	"name":           func(_ *Template, r *record) any { return r.name },
	"levelname":      func(_ *Template, r *record) any { return r.level },
	"levelno":        func(_ *Template, r *record) any { return r.number },
	"message":        func(_ *Template, r *record) any { return r.message },
	"jid":            func(_ *Template, r *record) any { return formatJID(r.jid) },
	"process":        func(*Template, *record) any { return os.Getpid() },
	"processName":    func(*Template, *record) any { return "MainProcess" },
	"thread":         func(*Template, *record) any { return 0 },
	"threadName":     func(*Template, *record) any { return "MainThread" },
	"lineno":         func(_ *Template, r *record) any { return frame(r.pc).Line },
	"pathname":       func(_ *Template, r *record) any { return frame(r.pc).File },
	"filename":       func(_ *Template, r *record) any { return filepath.Base(frame(r.pc).File) },
	"module":         func(_ *Template, r *record) any { return strings.TrimSuffix(filepath.Base(frame(r.pc).File), ".go") },
	"funcName":       func(_ *Template, r *record) any { return frame(r.pc).Function },
	"bracketlevel":   func(_ *Template, r *record) any { return fmt.Sprintf("[%-8s]", r.level) },
	"bracketname":    func(_ *Template, r *record) any { return fmt.Sprintf("[%-17s]", r.name) },
	"bracketprocess": func(*Template, *record) any { return fmt.Sprintf("[%5d]", os.Getpid()) },
	"colorlevel": func(_ *Template, r *record) any {
		return paint(colorsOf(r.level).level, fmt.Sprintf("[%-8s]", r.level))
	},
	"colorname":    func(_ *Template, r *record) any { return paint("0;1;32", fmt.Sprintf("[%-17s]", r.name)) },
	"colorprocess": func(*Template, *record) any { return paint("0;1;34", fmt.Sprintf("[%5d]", os.Getpid())) },
	"colormsg":     func(_ *Template, r *record) any { return paint(colorsOf(r.level).msg, r.message) },
}

type levelColors struct{ level, msg string }

func colorsOf(level string) levelColors {
	switch level {
	case "CRITICAL":
		return levelColors{"0;1;31", "0;1;31"}
	case "ERROR":
		return levelColors{"0;1;31", "0;31"}
	case "WARNING":
		return levelColors{"0;1;33", "0;33"}
	case "INFO":
		return levelColors{"0;1;32", "0;32"}
	case "PROFILE":
		return levelColors{"0;1;36", "0;1;36"}
	case "DEBUG":
		return levelColors{"0;1;36", "0;36"}
	case "TRACE":
		return levelColors{"0;1;35", "0;35"}
	case "GARBAGE":
		return levelColors{"0;1;34", "0;34"}
	}
	return levelColors{"0;0", "0;0"}
}

func paint(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0;0m" }

func formatJID(jid string) string {
	if jid == "" {
		return ""
	}
	return strings.ReplaceAll(jidFormat, "%(jid)s", jid)
}

func frame(pc uintptr) runtime.Frame {
	if pc == 0 {
		return runtime.Frame{}
	}
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return f
}

// NewTemplate parses a format in Python's style and the strftime format of
// its %(asctime)s. Unknown fields and conversions are errors.
func NewTemplate(format, timeFmt string) (*Template, error) {
	t := &Template{timeFmt: timeFmt}
	for rest := format; rest != ""; {
		lit, after, found := strings.Cut(rest, "%")
		if lit != "" {
			t.parts = append(t.parts, part{text: lit})
		}
		if !found {
			break
		}
		if strings.HasPrefix(after, "%") {
			t.parts = append(t.parts, part{text: "%"})
			rest = after[1:]
			continue
		}
		p, n, err := parseField(after)
		if err != nil {
			return nil, fmt.Errorf("log format %q: %w", format, err)
		}
		t.usesJID = t.usesJID || p.field == "jid"
		t.parts = append(t.parts, p)
		rest = after[n:]
	}
	return t, nil
}

// parseField reads "(name)-17s" and returns how long it was.
func parseField(s string) (part, int, error) {
	end := strings.IndexByte(s, ')')
	if !strings.HasPrefix(s, "(") || end < 0 {
		return part{}, 0, fmt.Errorf("%% must be followed by (field)")
	}
	name := s[1:end]
	get := fields[name]
	if get == nil {
		return part{}, 0, fmt.Errorf("there is no field %q", name)
	}
	i := end + 1
	for i < len(s) && strings.IndexByte("-+ #0123456789.", s[i]) >= 0 {
		i++
	}
	if i == len(s) || strings.IndexByte("sdrf", s[i]) < 0 {
		return part{}, 0, fmt.Errorf("field %q needs a conversion such as s or d", name)
	}
	flags, conv := s[end+1:i], s[i]
	for _, num := range strings.FieldsFunc(flags, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(num); err != nil || n > 200 {
			return part{}, 0, fmt.Errorf("the width of %q is too great", name)
		}
	}
	verb := "v"
	_, text := get(&Template{}, &record{}).(string)
	switch {
	case conv == 'd' && !text:
		verb = "d"
	case conv == 'f' && name == "created":
		verb = "f"
	case conv == 'd' || conv == 'f':
		return part{}, 0, fmt.Errorf("field %q is text: use %%(%s)s", name, name)
	}
	if name == "created" && verb == "d" {
		return part{}, 0, fmt.Errorf("field %q is a fraction: use %%(%s)f", name, name)
	}
	return part{field: name, verb: "%" + flags + verb}, i + 1, nil
}

// appendTo formats r as one line.
func (t *Template) appendTo(b []byte, r *record) []byte {
	for _, p := range t.parts {
		switch {
		case p.field == "":
			b = append(b, p.text...)
		case p.field == "message" && p.verb == "%v":
			b = append(b, r.message...)
		default:
			b = fmt.Appendf(b, p.verb, fields[p.field](t, r))
		}
	}
	return append(b, '\n')
}

// strftime formats t with the usual directives; others stay as they are.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if layout, ok := directives[format[i]]; ok {
			b.WriteString(t.Format(layout))
			continue
		}
		switch format[i] {
		case '%':
			b.WriteByte('%')
		case 's':
			b.WriteString(strconv.FormatInt(t.Unix(), 10))
		default:
			b.WriteString(format[i-1 : i+1])
		}
	}
	return b.String()
}

var directives = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday", 'j': "002", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05", 'e': "_2", 'D': "01/02/06", 'R': "15:04", 'c': "Mon Jan _2 15:04:05 2006",
}
