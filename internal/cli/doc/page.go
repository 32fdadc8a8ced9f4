package doc

import (
	"bytes"
	"regexp"
	"strings"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// generated begins every page that a program wrote.
const generated = "<!-- Written by make reference from the declarations in the code. -->\n\n"

// columns is where running text is wrapped.
const columns = 100

// page is Markdown that is being written.
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

// text writes a paragraph for each line of s, wrapped.
func (w *page) text(s string) {
	for para := range strings.SplitSeq(strings.TrimSpace(s), "\n") {
		w.wrap(escape(para), "", "")
		w.line("")
	}
}

// item writes an item of a list, wrapped.
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

// yaml writes a value of a key as a block.
func (w *page) yaml(key string, v any) {
	w.code("yaml", block(key, v))
}

// block returns a value of a key as YAML in lines.
func block(key string, v any) string {
	return yaml.Dump(value.DictOf(key, v), yaml.Width(-1), yaml.KeepOrder())
}

var (
	markup          = strings.NewReplacer(`\`, `\\`, "<", "&lt;", "*", `\*`, "[", `\[`)
	outerUnderscore = regexp.MustCompile(`\b_|_\b`) // one within a word is no markup
)

// escape keeps Markdown from taking characters of a text for markup. Code in
// backticks stays.
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

// cell makes a text fit a table's cell.
func cell(s string) string { return strings.ReplaceAll(escape(s), "|", `\|`) }

// quoted makes a text code within a line.
func quoted(s string) string {
	if s == "" {
		return "(empty)"
	}
	if strings.Contains(s, "`") {
		return "`` " + s + " ``"
	}
	return "`" + s + "`"
}

// firstSentence returns the text up to its first full stop.
func firstSentence(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i+1]
	}
	return s
}
