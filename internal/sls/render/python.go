package render

import (
	"context"
	"errors"

	"brine/internal/call/python"
	"brine/internal/py/value"
)

// Python runs the renderers that are written in Python.
type Python interface {
	// Has reports whether there is a renderer with this name: py, or a user's own one,
	// which takes precedence over a renderer of Brine.
	Has(name string) bool
	// Render passes text or data to a renderer. first means that it is the first renderer
	// of the pipe.
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
			e := &Error{Message: err.Error(), Name: req.name(), Err: err}
			switch trace := python.Trace(err); {
			case python.Is(err, "salt.exceptions.SaltRenderError"):
				e.Message = python.Text(err)
			case trace != "":
				e.Message, e.unexpected = python.Text(err)+"\n"+trace+"\n", true
			}
			return nil, e
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
		var e *Error
		if errors.As(err, &e) && e.unexpected {
			e.Message = python.Text(e.Err) // without the traceback, as in Salt
		}
		return "", err
	}
	if s, ok := v.(string); ok {
		return s, nil
	}
	return value.Str(v), nil
}
