package render

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

func init() { steps.Register("yaml", renderYAML) }

// renderYAML decodes a YAML document. Empty input, and values that are false in
// Python, become an empty dict.
func renderYAML(_ context.Context, _ *Renderer, req *Request, in any, _ string) (any, error) {
	text, err := asText(req, in, "yaml")
	if err != nil {
		return nil, err
	}
	v, err := yaml.LoadText(text, req.name())
	if err != nil {
		return nil, yamlError(req, err, text)
	}
	if !value.Truth(v) {
		return value.NewDict(0), nil
	}
	return v, nil
}

// yamlError shows the line of the rendered text, which differs from that of the
// file after jinja. Salt's message comes first, and additions follow on
// separate lines, because scripts compare the beginning.
func yamlError(req *Request, err error, text string) error {
	var ye *yaml.Error
	if !errors.As(err, &ye) {
		return &Error{Message: err.Error(), Name: req.name(), Err: err}
	}
	at := faultPlace(ye, text)
	e := &Error{Message: saltYAML(ye), Name: req.name(), Line: at.Line, Column: at.Column, Err: err}
	e.place = "\n(" + placeText(at) + ")"
	if ye.Stage == yaml.Scanner {
		e.place = "\n(" + placeText(at) + doing(ye) + ")"
	}
	if strings.HasPrefix(ye.Reason, "found character") && startsWithTab(text, ye.Line, ye.Column) {
		e.place = "\n(" + placeText(at) + ": a tab)"
	}
	e.Context = excerpt(text, at.Line)
	return e
}

// saltYAML formats an error as Salt does.
func saltYAML(e *yaml.Error) string {
	if e.Stage == yaml.Scanner || e.Stage == yaml.Reader || e.Line == 0 {
		return e.Reason
	}
	mark := func(m yaml.Mark) string {
		return fmt.Sprintf("\n  in \"<unicode string>\", line %d, column %d", m.Line, m.Column)
	}
	s := e.Reason + mark(e.Mark)
	if e.Context == "" {
		return s
	}
	if e.ContextMark.Line > 0 && e.ContextMark != e.Mark {
		return e.Context + mark(e.ContextMark) + "\n" + s
	}
	return e.Context + "\n" + s
}

func placeText(at yaml.Mark) string {
	if at.Column == 0 {
		return fmt.Sprintf("line %d", at.Line)
	}
	return fmt.Sprintf("line %d, column %d", at.Line, at.Column)
}

// doing describes what the loader was parsing at the error, if known.
func doing(e *yaml.Error) string {
	switch {
	case e.Context == "":
		return ""
	case e.ContextMark.Line > 0 && e.ContextMark.Line != e.Line:
		return fmt.Sprintf(", %s that begins in line %d", e.Context, e.ContextMark.Line)
	}
	return ", " + e.Context
}

// faultPlace returns where to look. If an end is missing, the parser notices at
// the end of the text; the beginning is more useful.
func faultPlace(e *yaml.Error, text string) yaml.Mark {
	at, begin := e.Mark, e.ContextMark
	lines := strings.Count(strings.TrimRight(text, "\n"), "\n") + 1
	switch {
	case at.Line > lines && begin.Line > 0:
		return begin
	case at.Line > lines:
		return yaml.Mark{Line: lines}
	}
	return at
}

// startsWithTab reports whether there is a tab at a position of the text.
func startsWithTab(text string, line, column int) bool {
	lines := strings.SplitN(text, "\n", line+1)
	if line < 1 || line > len(lines) {
		return false
	}
	l := []rune(lines[line-1])
	return column >= 1 && column <= len(l) && l[column-1] == '\t'
}

// asText returns the input of a renderer that reads text.
func asText(req *Request, in any, name string) (string, error) {
	switch x := in.(type) {
	case string:
		return x, nil
	case []byte:
		return string(x), nil
	}
	return "", &Error{Message: "the renderer " + name + " reads text, but the one before it in the pipe made a " + value.TypeName(in), Name: req.name()}
}
