package render

import (
	"context"
	"errors"
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
	e := &Error{Message: ye.Reason, Name: req.name(), Line: ye.Line, Err: err}
	if ye.Context != "" {
		e.Message += " " + ye.Context
	}
	if strings.HasPrefix(ye.Reason, "found character") && startsWithTab(text, ye.Line, ye.Column) {
		e.Message = "Illegal tab character"
	}
	e.Context = excerpt(text, ye.Line)
	return e
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
