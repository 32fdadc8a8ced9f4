package render

import (
	"context"

	"brine/internal/py/value"
)

// Python runs the renderers that are written in Python.
type Python interface {
	// Has reports whether there is a renderer of a name: py, or one of the user's, which
	// goes before one of the same name that is not.
	Has(name string) bool
	// Render runs a renderer on the text or data that the one before it made. first says
	// that there was none before it.
	Render(ctx context.Context, name string, req *Request, data any, first bool, arg string) (any, error)
}

// external returns the step that runs a renderer written in Python, or nil.
func (r *Renderer) external(name string, first bool) step {
	if r.python == nil || !r.python.Has(name) {
		return nil
	}
	return func(ctx context.Context, _ *Renderer, req *Request, in any, arg string) (any, error) {
		v, err := r.python.Render(ctx, name, req, in, first, arg)
		if err != nil {
			return nil, &Error{Message: err.Error(), Name: req.name(), Err: err}
		}
		return v, nil
	}
}

// pythonText renders a template of a managed file by the engine py.
func (r *Renderer) pythonText(ctx context.Context, engine string, req *Request) (string, error) {
	do := r.external(engine, true)
	if do == nil {
		return "", unknownRenderer(req, engine, engine)
	}
	v, err := do(ctx, r, req, string(req.Source), "")
	if err != nil {
		return "", err
	}
	if s, ok := v.(string); ok {
		return s, nil
	}
	return value.Str(v), nil
}
