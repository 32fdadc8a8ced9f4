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
	jidFmt  string // "" means JIDFormat
	usesJID bool
}

// part is literal text, or a field with a verb for package fmt.
type part struct {
	text  string
	field string
	verb  string
	// as is the type that the verb expects.
	as kind
}

// kind is the conversion of the value of a field.
type kind int

const (
	asText  kind = iota // like Python's str
	asRepr              // like Python's repr
	asInt               // truncated to an integer
	asFloat             // converted to a float
)

// record holds the values of the fields.
type record struct {
	time    time.Time
	level   string
	number  int
	name    string
	message string
	jid     string
	pc      uintptr
}

// began is the start time of the process, for %(relativeCreated)s.
var began = time.Now()

// fields maps the field names of Salt's formats to functions that return their
// values, with Python's types: string, int or float64.
var fields = map[string]func(t *Template, r *record) any{
	"asctime":         func(t *Template, r *record) any { return strftime(t.timeFmt, r.time) },
	"created":         func(_ *Template, r *record) any { return float64(r.time.UnixNano()) / 1e9 },
	"msecs":           func(_ *Template, r *record) any { return float64(r.time.Nanosecond() / 1e6) },
	"relativeCreated": func(_ *Template, r *record) any { return float64(r.time.Sub(began)) / 1e6 },
	"name":            func(_ *Template, r *record) any { return r.name },
	"levelname":       func(_ *Template, r *record) any { return r.level },
	"levelno":         func(_ *Template, r *record) any { return r.number },
	"message":         func(_ *Template, r *record) any { return r.message },
	"msg":             func(_ *Template, r *record) any { return r.message },
	"jid":             func(t *Template, r *record) any { return t.formatJID(r.jid) },
	"process":         func(*Template, *record) any { return os.Getpid() },
	"processName":     func(*Template, *record) any { return "MainProcess" },
	"taskName":        func(*Template, *record) any { return "None" },
	"thread":          func(*Template, *record) any { return 0 },
	"threadName":      func(*Template, *record) any { return "MainThread" },
	"lineno":          func(_ *Template, r *record) any { return frame(r.pc).Line },
	"pathname":        func(_ *Template, r *record) any { return frame(r.pc).File },
	"filename":        func(_ *Template, r *record) any { return filepath.Base(frame(r.pc).File) },
	"module":          func(_ *Template, r *record) any { return strings.TrimSuffix(filepath.Base(frame(r.pc).File), ".go") },
	"funcName":        func(_ *Template, r *record) any { return frame(r.pc).Function },
	"bracketlevel":    func(_ *Template, r *record) any { return fmt.Sprintf("[%-8s]", r.level) },
	"bracketname":     func(_ *Template, r *record) any { return fmt.Sprintf("[%-17s]", r.name) },
	"bracketprocess":  func(*Template, *record) any { return fmt.Sprintf("[%5d]", os.Getpid()) },
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

func (t *Template) formatJID(jid string) string {
	if jid == "" {
		return ""
	}
	return strings.ReplaceAll(orElse(t.jidFmt, JIDFormat), "%(jid)s", jid)
}

// CheckJIDFormat checks a value of log_fmt_jid.
func CheckJIDFormat(format string) error {
	if rest := strings.ReplaceAll(format, "%(jid)s", ""); strings.Contains(rest, "%") || rest == format {
		return fmt.Errorf("log format %q: expected text with %%(jid)s", format)
	}
	return nil
}

func frame(pc uintptr) runtime.Frame {
	if pc == 0 {
		return runtime.Frame{}
	}
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return f
}

// NewTemplate parses a format in Python's % style and the strftime format of
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

// parseField parses "(name)-17s" and returns its length.
func parseField(s string) (part, int, error) {
	end := strings.IndexByte(s, ')')
	if !strings.HasPrefix(s, "(") || end < 0 {
		return part{}, 0, fmt.Errorf("%% must be followed by (field)")
	}
	name := s[1:end]
	get := fields[name]
	if get == nil {
		return part{}, 0, fmt.Errorf("unknown field %q", name)
	}
	i := end + 1
	for i < len(s) && strings.IndexByte("-+ #0123456789.", s[i]) >= 0 {
		i++
	}
	flags := s[end+1 : i]
	for i < len(s) && strings.IndexByte("hlL", s[i]) >= 0 { // Python ignores these length modifiers, too
		i++
	}
	if i == len(s) {
		return part{}, 0, fmt.Errorf("field %q needs a conversion such as s or d", name)
	}
	for _, num := range strings.FieldsFunc(flags, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(num); err != nil || n > 200 {
			return part{}, 0, fmt.Errorf("the width of %q is too large", name)
		}
	}
	p, err := conversion(name, flags, s[i], get(&Template{}, &record{}))
	return p, i + 1, err
}

// conversion returns the part for a Python conversion of a field whose values
// have the type of sample.
func conversion(name, flags string, conv byte, sample any) (part, error) {
	_, text := sample.(string)
	_, fraction := sample.(float64)
	switch {
	case strings.IndexByte("sra", conv) >= 0:
		as := asText
		if conv != 's' {
			as = asRepr
		}
		// Python ignores the flags for numbers here; package fmt would use them.
		return part{field: name, verb: "%" + strings.Map(dropNumeric, flagless(flags)) + "s", as: as}, nil
	case strings.IndexByte("diuoxXceEfFgG", conv) < 0:
		return part{}, fmt.Errorf("field %q has the unknown conversion %q", name, conv)
	case text:
		return part{}, fmt.Errorf("field %q is text: use %%(%s)s", name, name)
	case fraction && strings.IndexByte("oxXc", conv) >= 0:
		return part{}, fmt.Errorf("field %q is a fraction: use %%(%s)f or %%(%s)d", name, name, name)
	}
	if strings.IndexByte("diuoxX", conv) >= 0 {
		flags = zeroPadded(flags)
	}
	switch conv {
	case 'd', 'i', 'u':
		return part{field: name, verb: "%" + strings.ReplaceAll(flags, "#", "") + "d", as: asInt}, nil
	case 'o':
		if strings.Contains(flags, "#") {
			return part{field: name, verb: "%" + strings.ReplaceAll(flags, "#", "") + "O", as: asInt}, nil
		}
	case 'g', 'G':
		if !strings.Contains(flags, ".") {
			flags += ".6" // package fmt has no default precision here
		}
	}
	as := asFloat
	if strings.IndexByte("oxXc", conv) >= 0 {
		as = asInt
	}
	return part{field: name, verb: "%" + flags + string(conv), as: as}, nil
}

// flagless removes a leading flag 0; a 0 after another digit is part of the
// width.
func flagless(flags string) string {
	i := 0
	for i < len(flags) && strings.IndexByte("-+ #0", flags[i]) >= 0 {
		i++
	}
	return strings.ReplaceAll(flags[:i], "0", "") + flags[i:]
}

// zeroPadded removes the precision of an integer if the flag 0 pads to more
// digits. Package fmt would use the precision and ignore the flag.
func zeroPadded(flags string) string {
	head, precision, _ := strings.Cut(flags, ".")
	width := strings.TrimLeft(head, "-+ #0")
	lead := head[:len(head)-len(width)]
	w, err := strconv.Atoi(width)
	p, err2 := strconv.Atoi("0" + precision)
	if err != nil || err2 != nil || w < p || !strings.Contains(lead, "0") || strings.Contains(lead, "-") {
		return flags
	}
	return head
}

// dropNumeric removes the flags for numbers.
func dropNumeric(r rune) rune {
	if r == '+' || r == '#' || r == ' ' {
		return -1
	}
	return r
}

// appendTo formats r as one line.
func (t *Template) appendTo(b []byte, r *record) []byte {
	for _, p := range t.parts {
		switch {
		case p.field == "":
			b = append(b, p.text...)
		case p.field == "message" && p.verb == "%s" && p.as == asText:
			b = append(b, r.message...)
		default:
			b = fmt.Appendf(b, p.verb, p.as.of(fields[p.field](t, r)))
		}
	}
	return append(b, '\n')
}

// of converts the value of a field.
func (k kind) of(v any) any {
	switch k {
	case asInt:
		if f, ok := v.(float64); ok {
			return int64(f)
		}
		return v
	case asFloat:
		if n, ok := v.(int); ok {
			return float64(n)
		}
		return v
	}
	switch x := v.(type) {
	case int:
		return strconv.Itoa(x)
	case float64:
		s := strconv.FormatFloat(x, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	case string:
		if k == asRepr {
			return "'" + reprEscapes.Replace(x) + "'"
		}
	}
	return v
}

var reprEscapes = strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\t", `\t`, "\r", `\r`)

// strftime formats t with the directives of glibc in the C locale; unknown ones
// stay unchanged.
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
		isoYear, isoWeek := t.ISOWeek()
		switch format[i] {
		case '%':
			b.WriteByte('%')
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 's':
			b.WriteString(strconv.FormatInt(t.Unix(), 10))
		case 'P':
			b.WriteString(strings.ToLower(t.Format("PM")))
		case 'w':
			fmt.Fprint(&b, int(t.Weekday()))
		case 'u':
			fmt.Fprint(&b, (int(t.Weekday())+6)%7+1)
		case 'C':
			fmt.Fprintf(&b, "%02d", t.Year()/100)
		case 'G':
			fmt.Fprint(&b, isoYear)
		case 'g':
			fmt.Fprintf(&b, "%02d", isoYear%100)
		case 'V':
			fmt.Fprintf(&b, "%02d", isoWeek)
		case 'U':
			fmt.Fprintf(&b, "%02d", (t.YearDay()+6-int(t.Weekday()))/7)
		case 'W':
			fmt.Fprintf(&b, "%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
		case 'k':
			fmt.Fprintf(&b, "%2d", t.Hour())
		case 'l':
			fmt.Fprintf(&b, "%2d", (t.Hour()+11)%12+1)
		default:
			b.WriteString(format[i-1 : i+1])
		}
	}
	return b.String()
}

var directives = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'b': "Jan", 'h': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday", 'j': "002", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05", 'X': "15:04:05", 'e': "_2", 'D': "01/02/06", 'x': "01/02/06", 'R': "15:04", 'r': "03:04:05 PM",
	'c': "Mon Jan _2 15:04:05 2006",
}
