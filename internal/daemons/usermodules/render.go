package usermodules

import (
	"context"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// ownRenderers are renderers of Salt that need Python and are not modules of the user.
var ownRenderers = []string{"mako", "py", "pyobjects"}

// Renderers returns the renderers of Salt that run in Python.
func Renderers() []string { return slices.Clone(ownRenderers) }

// Has implements render.Python.
func (m *Modules) Has(name string) bool {
	if m.pool.Off() != nil {
		return false
	}
	if slices.Contains(ownRenderers, name) {
		return true
	}
	l, _ := m.listing(kindRenderers)
	return len(l.Claims[name]) > 0
}

// Render implements render.Python.
func (m *Modules) Render(ctx context.Context, name string, req *render.Request, data any, first bool, arg string) (any, error) {
	c := (&fn.Call{Grains: fn.Tree{Dict: req.Grains}, Pillar: fn.Tree{Dict: req.Pillar}, Config: fn.Tree{Dict: req.Opts}, Log: m.cfg.Log}).Prepare()
	c.ID = m.cfg.ID
	e := &python.Env{Call: c}
	if req.Funcs != nil {
		e.Functions = map[string]python.Functions{kindModules: req.Funcs}
	}
	path := req.Path
	if path == "" {
		path = "<" + name + ">"
	}
	values := value.DictOf("saltenv", req.Saltenv, "sls", req.SLS, "tplpath", path)
	if arg != "" {
		values.Update(value.DictOf("argline", arg))
	}
	if slices.Contains(ownRenderers, name) {
		values.Update(req.Context)
	} else if req.Context.Len() > 0 {
		values.Update(value.DictOf("context", req.Context))
	}
	return m.pool.Render(ctx, e, name, data, first, path, values)
}

var _ render.Python = (*Modules)(nil)
