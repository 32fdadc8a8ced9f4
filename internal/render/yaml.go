package render

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"brine/internal/value"
	"brine/internal/yaml"
)

// renderYAML loads a YAML document. Nothing, and what Python takes for
// nothing, is an empty dict.
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

// yamlError shows the line of the rendered text, which is not that of the
// file when jinja came first.
func yamlError(req *Request, err error, text string) error {
	var ye *yaml.Error
	if !errors.As(err, &ye) {
		return &Error{Message: err.Error(), Name: req.name(), Err: err}
	}
	msg, at := yamlFault(ye, text)
	e := &Error{Message: msg, Name: req.name(), Line: at.Line, Column: at.Column, Err: err}
	if strings.HasPrefix(ye.Reason, "found character") && startsWithTab(text, ye.Line, ye.Column) {
		e.Message = "Illegal tab character"
	}
	e.Context = excerpt(text, at.Line)
	return e
}

// yamlFault says what is wrong with a YAML text and where to look. What lacks
// its end is missed where the text ends; where it begins says more.
func yamlFault(e *yaml.Error, text string) (string, yaml.Mark) {
	msg, at := e.Reason, e.Mark
	if e.Context != "" {
		msg += " " + e.Context
	}
	begin := e.ContextMark
	lines := strings.Count(strings.TrimRight(text, "\n"), "\n") + 1
	switch {
	case at.Line > lines && begin.Line > 0:
		return msg, begin
	case at.Line > lines:
		return msg, yaml.Mark{Line: lines}
	case begin.Line > 0 && begin.Line != at.Line:
		msg += " that begins in line " + strconv.Itoa(begin.Line)
	}
	return msg, at
}

// startsWithTab reports whether there is a tab at a place in the text.
func startsWithTab(text string, line, column int) bool {
	lines := strings.SplitN(text, "\n", line+1)
	if line < 1 || line > len(lines) {
		return false
	}
	l := []rune(lines[line-1])
	return column >= 1 && column <= len(l) && l[column-1] == '\t'
}

// asText is the input of a renderer that reads text.
func asText(req *Request, in any, name string) (string, error) {
	switch x := in.(type) {
	case string:
		return x, nil
	case []byte:
		return string(x), nil
	}
	return "", &Error{Message: "the renderer " + name + " reads text, but the one before it in the pipe made a " + value.TypeName(in), Name: req.name()}
}
