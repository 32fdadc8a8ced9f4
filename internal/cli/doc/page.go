package doc

import (
	"bytes"
	"regexp"
	"strings"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// generated is the first line of every generated page.
const generated = "<!-- Written by make reference from the declarations in the code. -->\n\n"

// columns is the width of wrapped text.
const columns = 100

// page is a Markdown page.
type page struct{ bytes.Buffer }

// line writes a line.
func (w *page) line(s string) { w.WriteString(s + "\n") }

// heading writes a heading between empty lines.
func (w *page) heading(level int, s string) {
	if n := w.Len(); n > 0 && !bytes.HasSuffix(w.Bytes(), []byte("\n\n")) {
		w.line("")
	}
	w.line(strings.Repeat("#", level) + " " + escape(s))
	w.line("")
}

// text writes each line of s as a wrapped paragraph.
func (w *page) text(s string) {
	for para := range strings.SplitSeq(strings.TrimSpace(s), "\n") {
		w.wrap(escape(para), "", "")
		w.line("")
	}
}

// item writes a wrapped list item.
func (w *page) item(s string) { w.wrap(s, "* ", "  ") }

func (w *page) wrap(s, first, next string) {
	line := first
	begun := false
	for word := range strings.FieldsSeq(s) {
		switch {
		case !begun:
			line += word
		case len(line)+1+len(word) <= columns:
			line += " " + word
		default:
			w.line(line)
			line = next + word
		}
		begun = true
	}
	w.line(strings.TrimRight(line, " "))
}

// code writes a block of code.
func (w *page) code(language, s string) {
	w.line("```" + language)
	w.line(strings.TrimRight(s, "\n"))
	w.line("```")
	w.line("")
}

// yaml writes a key and its value as a code block.
func (w *page) yaml(key string, v any) {
	w.code("yaml", block(key, v))
}

// block returns a key and its value as YAML.
func block(key string, v any) string {
	return yaml.Dump(value.DictOf(key, v), yaml.Width(-1), yaml.KeepOrder())
}

var (
	markup          = strings.NewReplacer(`\`, `\\`, "<", "&lt;", "*", `\*`, "[", `\[`)
	outerUnderscore = regexp.MustCompile(`\b_|_\b`) // an underscore within a word is not markup
)

// escape escapes Markdown's special characters, except in code in backticks.
func escape(s string) string {
	var b strings.Builder
	for i, piece := range strings.Split(s, "`") {
		if i > 0 {
			b.WriteByte('`')
		}
		if i%2 == 0 {
			piece = outerUnderscore.ReplaceAllString(markup.Replace(piece), `\_`)
		}
		b.WriteString(piece)
	}
	return b.String()
}

// cell escapes a string for a table cell.
func cell(s string) string { return strings.ReplaceAll(escape(s), "|", `\|`) }

// quoted formats a string as inline code.
func quoted(s string) string {
	if s == "" {
		return "(empty)"
	}
	if strings.Contains(s, "`") {
		return "`` " + s + " ``"
	}
	return "`" + s + "`"
}

// firstSentence returns the first sentence of the first line.
func firstSentence(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i+1]
	}
	return s
}
