package render

import (
	"context"
	"errors"
	"strings"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

func init() { steps.Register("json", renderJSON) }

// renderJSON decodes a JSON document. Empty input is an empty dict.
func renderJSON(_ context.Context, _ *Renderer, req *Request, in any, _ string) (any, error) {
	text, err := asText(req, in, "json")
	if err != nil {
		return nil, err
	}
	body := withoutShebang(text)
	if strings.TrimSpace(body) == "" {
		return value.NewDict(0), nil
	}
	v, err := json.Load(body)
	if err == nil {
		return v, nil
	}
	e := &Error{Message: err.Error(), Name: req.name(), Err: err}
	var je *json.Error
	if errors.As(err, &je) {
		e.Message, e.Line = je.Reason, je.Line+strings.Count(text[:len(text)-len(body)], "\n")
		e.Context = excerpt(text, e.Line)
	}
	return nil, e
}
