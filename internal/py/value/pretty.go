package value

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pretty formats v as Python's pprint.pformat does: dict keys sorted, wrapped
// at 80 columns, indented by perLevel blanks per level.
func Pretty(v any, perLevel int) string {
	return PrettyFormat{Indent: perLevel, Width: 80}.String(v)
}

// PrettyFormat holds the options of Python's pprint.pformat.
type PrettyFormat struct {
	Indent      int  // blanks per level
	Width       int  // column to wrap at if possible
	Depth       int  // levels to show, "..." for deeper ones; 0 for all
	Compact     bool // several items of a list per line
	KeepOrder   bool // dict keys in their order, not sorted
	Underscores bool // 1_000 for 1000
}

// String formats v.
func (f PrettyFormat) String(v any) string {
	w := prettyWriter{PrettyFormat: f}
	w.format(v, 0, 0, 1)
	return w.b.String()
}

type prettyWriter struct {
	PrettyFormat
	b strings.Builder
}

// format writes v. indent is its first column; allowance is the number of
// columns that must stay free after it.
func (w *prettyWriter) format(v any, indent, allowance, level int) {
	rep := w.repr(v, level-1)
	if width(rep) <= w.Width-indent-allowance {
		w.b.WriteString(rep)
		return
	}
	switch x := v.(type) {
	case *Dict:
		w.dict(x, indent, allowance+1, level)
	case *List:
		w.b.WriteByte('[')
		w.items(x.Items, indent, allowance+1, level)
		w.b.WriteByte(']')
	case Tuple:
		end := ")"
		if len(x) == 1 {
			end = ",)"
		}
		w.b.WriteByte('(')
		w.items(x, indent, allowance+len(end), level)
		w.b.WriteString(end)
	case string:
		w.pieces(w.splitRepr(x, indent, allowance, level), indent, level)
	case []byte:
		if len(x) <= 4 {
			w.b.WriteString(rep)
			return
		}
		w.bytes(x, indent, allowance, level)
	default:
		w.b.WriteString(rep)
	}
}

func (w *prettyWriter) pad() {
	for range w.Indent - 1 {
		w.b.WriteByte(' ')
	}
}

func (w *prettyWriter) dict(d *Dict, indent, allowance, level int) {
	w.b.WriteByte('{')
	w.pad()
	indent += w.Indent
	keys := w.keys(d)
	for i, k := range keys {
		free := 1
		if i == len(keys)-1 {
			free = allowance
		}
		if i > 0 {
			w.b.WriteString(",\n" + strings.Repeat(" ", indent))
		}
		rep := w.repr(k, level)
		w.b.WriteString(rep + ": ")
		w.format(d.At(k), indent+width(rep)+2, free, level+1)
	}
	w.b.WriteByte('}')
}

func (w *prettyWriter) items(items []any, indent, allowance, level int) {
	w.pad()
	indent += w.Indent
	line := ",\n" + strings.Repeat(" ", indent)
	delim, whole := "", w.Width-indent+1
	room := whole
	for i, it := range items {
		free := 1
		if i == len(items)-1 {
			free = allowance
			whole -= allowance
			room -= allowance
		}
		if w.Compact {
			rep := w.repr(it, level)
			n := width(rep) + 2
			if room < n {
				room = whole
				if delim != "" {
					delim = line
				}
			}
			if room >= n {
				room -= n
				w.b.WriteString(delim + rep)
				delim = ", "
				continue
			}
		}
		w.b.WriteString(delim)
		delim = line
		w.format(it, indent, free, level+1)
	}
}

// pieces writes adjacent literals, in parentheses at the top level.
func (w *prettyWriter) pieces(reps []string, indent, level int) {
	if len(reps) == 1 {
		w.b.WriteString(reps[0])
		return
	}
	if level == 1 {
		indent++
		w.b.WriteByte('(')
	}
	w.b.WriteString(strings.Join(reps, "\n"+strings.Repeat(" ", indent)))
	if level == 1 {
		w.b.WriteByte(')')
	}
}

func (w *prettyWriter) bytes(p []byte, indent, allowance, level int) {
	room := w.Width - indent
	if level == 1 {
		room--
		allowance++
	}
	last := len(p) / 4 * 4
	var reps []string
	var cur []byte
	for i := 0; i < len(p); i += 4 {
		part := p[i:min(i+4, len(p))]
		cand := slices.Concat(cur, part)
		if i == last {
			room -= allowance
		}
		if width(Repr(cand)) > room {
			if len(cur) > 0 {
				reps = append(reps, Repr(cur))
			}
			cur = part
			continue
		}
		cur = cand
	}
	if len(cur) > 0 {
		reps = append(reps, Repr(cur))
	}
	if level == 1 { // parentheses even around a single piece
		w.b.WriteString("(" + strings.Join(reps, "\n"+strings.Repeat(" ", indent+1)) + ")")
		return
	}
	w.b.WriteString(strings.Join(reps, "\n"+strings.Repeat(" ", indent)))
}

// splitRepr breaks a string into literals that fit: at line ends, and within a
// line after blanks.
func (w *prettyWriter) splitRepr(s string, indent, allowance, level int) []string {
	if s == "" {
		return []string{"''"}
	}
	if level == 1 {
		indent++
		allowance++
	}
	room := w.Width - indent
	var reps []string
	lines := SplitLines(s, true)
	for i, line := range lines {
		lastLine := i == len(lines)-1
		fit := room
		if lastLine {
			fit -= allowance
		}
		if rep := Repr(line); width(rep) <= fit {
			reps = append(reps, rep)
			continue
		}
		cur, fit := "", room
		parts := words(line)
		for j, part := range parts {
			if lastLine && j == len(parts)-1 {
				fit -= allowance
			}
			if width(Repr(cur+part)) > fit {
				if cur != "" {
					reps = append(reps, Repr(cur))
				}
				cur = part
				continue
			}
			cur += part
		}
		if cur != "" {
			reps = append(reps, Repr(cur))
		}
	}
	return reps
}

// words splits s after every run of blanks.
func words(s string) []string {
	var out []string
	start, blank := 0, false
	for i, r := range s {
		sp := pySpace(r)
		if blank && !sp {
			out = append(out, s[start:i])
			start = i
		}
		blank = sp
	}
	return append(out, s[start:])
}

// repr is Python's repr with these options, for a value at a nesting level.
func (w *prettyWriter) repr(v any, level int) string {
	deep := w.Depth > 0 && level >= w.Depth
	switch x := v.(type) {
	case *List:
		switch {
		case x.Len() > 0 && deep:
			return "[...]"
		default:
			return "[" + w.joinReprs(x.Items, level+1) + "]"
		}
	case Tuple:
		switch {
		case len(x) == 1 && deep:
			return "(...,)"
		case len(x) == 1:
			return "(" + w.repr(x[0], level+1) + ",)"
		case len(x) > 0 && deep:
			return "(...)"
		}
		return "(" + w.joinReprs(x, level+1) + ")"
	case *Dict:
		if x.Len() > 0 && deep {
			return "{...}"
		}
		parts := make([]string, 0, x.Len())
		for _, k := range w.keys(x) {
			parts = append(parts, w.repr(k, level+1)+": "+w.repr(x.At(k), level+1))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case int64, *big.Int:
		if w.Underscores {
			return grouped(Repr(v))
		}
	}
	return Repr(v)
}

// grouped separates groups of three digits by underscores.
func grouped(s string) string {
	digits, sign := strings.TrimPrefix(s, "-"), ""
	if digits != s {
		sign = "-"
	}
	out := ""
	for len(digits) > 3 {
		out = "_" + digits[len(digits)-3:] + out
		digits = digits[:len(digits)-3]
	}
	return sign + digits + out
}

func (w *prettyWriter) joinReprs(items []any, level int) string {
	parts := make([]string, len(items))
	for i, it := range items {
		parts[i] = w.repr(it, level)
	}
	return strings.Join(parts, ", ")
}

func (w *prettyWriter) keys(d *Dict) []any {
	if w.KeepOrder {
		return d.Keys()
	}
	return sortedByType(d)
}

// sortedByType sorts keys that Python cannot compare by the name of their
// type.
func sortedByType(d *Dict) []any {
	keys := d.Keys()
	slices.SortStableFunc(keys, func(a, b any) int {
		if c, ok := Compare(a, b); ok {
			return c
		}
		return strings.Compare(fmt.Sprintf("<class '%s'>", TypeName(a)), fmt.Sprintf("<class '%s'>", TypeName(b)))
	})
	return keys
}

func width(s string) int { return utf8.RuneCountInString(s) }

// pySpace follows str.isspace.
func pySpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
