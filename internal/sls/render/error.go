package render

import (
	"fmt"
	"strings"
)

// Error describes why and where rendering failed.
type Error struct {
	// Message is the reason.
	Message string
	// Name is the path of the faulty text: an imported template, or the text of the
	// request.
	Name string
	// Line counts from 1; 0 means unknown.
	Line int
	// Column counts from 1; 0 means unknown.
	Column int
	// Context is the line with its neighbours, marked as in Salt. It may be empty.
	Context string
	// Err is the cause, if it was an error.
	Err error

	place     string // separate line that replaces "; line N"
	elsewhere bool   // the error is in another file, which the message names

	unexpected bool
}

// Unexpected reports whether a renderer in Python raised an exception that does not stand for a
// faulty template. Salt reports it in other words.
func (e *Error) Unexpected() bool { return e.unexpected }

// Error returns the message in Salt's form: reason, line, lines around.
func (e *Error) Error() string {
	s := e.Message
	if e.elsewhere {
		return fmt.Sprintf("%s\n%s(%d):\n%s", s, e.Name, e.Line, e.Context)
	}
	switch {
	case e.place != "":
		s += e.place
	case e.Line > 0:
		s += fmt.Sprintf("; line %d", e.Line)
	}
	if e.Context != "" {
		s += "\n\n" + e.Context
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// around is the number of lines that Salt shows before and after a fault.
const around = 5

// marker is Salt's mark after the faulty line.
const marker = "    <======================"

// excerpt returns the lines around one line of a text, the line marked.
func excerpt(text string, line int) string {
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	from, to := max(0, line-around-1), min(len(lines), line+around)
	out := []string{"---"}
	if from > 0 {
		out = append(out, "[...]")
	}
	for i := from; i < to; i++ {
		if i == line-1 {
			out = append(out, lines[i]+marker)
		} else {
			out = append(out, lines[i])
		}
	}
	if to < len(lines) {
		out = append(out, "[...]")
	}
	return strings.Join(append(out, "---"), "\n")
}
