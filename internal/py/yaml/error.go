package yaml

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Stage is the part of the loader that rejected a document. Salt's error
// messages depend on it.
type Stage string

// The stages in the order in which a document passes them.
const (
	Reader      Stage = "reader"      // the bytes are not text that YAML allows
	Scanner     Stage = "scanner"     // the text is not a sequence of YAML tokens
	Parser      Stage = "parser"      // the tokens do not nest
	Composer    Stage = "composer"    // anchors, aliases, number of documents, limits
	Constructor Stage = "constructor" // invalid keys and tags
)

// Mark is a position in a document. Lines and columns count from 1; the zero
// Mark means unknown.
type Mark struct {
	Line, Column int
}

// Error says why and where a document was rejected.
type Error struct {
	// Name is the name given to Load: a file or another origin.
	Name  string
	Stage Stage
	// Mark is the position of the problem; its Line is 0 if unknown.
	Mark
	// Reason is PyYAML's message.
	Reason string
	// Context and ContextMark say what the loader was parsing and where that
	// began. Context may be empty.
	Context     string
	ContextMark Mark
	// Text is the line at Mark, without its end, shortened.
	Text string
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Name != "" {
		b.WriteString(e.Name + ": ")
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d", e.Line)
		if e.Column > 0 {
			fmt.Fprintf(&b, ", column %d", e.Column)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Reason)
	if e.Context != "" {
		b.WriteString(" " + e.Context)
		if e.ContextMark.Line > 0 && e.ContextMark.Line != e.Line {
			fmt.Fprintf(&b, " that begins in line %d", e.ContextMark.Line)
		}
	}
	if t := strings.TrimSpace(e.Text); t != "" {
		b.WriteString(": " + t)
	}
	return b.String()
}

// fullLine returns line n of data, counted from 1, without its end.
func fullLine(data []byte, n int) string {
	for ; n > 1; n-- {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return ""
		}
		data = data[i+1:]
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return strings.TrimSuffix(string(line), "\r")
}

// sourceLine returns line n for an error text: shortened, and valid UTF-8.
func sourceLine(data []byte, n int) string {
	if n < 1 {
		return ""
	}
	s := fullLine(data, n)
	const limit = 200
	if len(s) > limit {
		cut := limit
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
