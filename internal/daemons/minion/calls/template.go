package calls

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// templates renders templates for functions such as cp.get_template.
type templates struct {
	renderer *render.Renderer
	funcs    func() *fn.Registry
}

// Text implements fn.Templates.
func (m templates) Text(ctx context.Context, c *fn.Call, t fn.Template) (string, error) {
	return m.renderer.Text(ctx, t.Engine, render.Request{
		Source: t.Source, Path: t.Path, Saltenv: t.Saltenv, Funcs: templateFunctions{m.funcs(), c}, Grains: c.Grains.All(), Pillar: c.Pillar.All(),
		Opts: c.Config.All(), Context: t.Context, Loader: fileclient.Templates{Files: c.Files},
	})
}

// Data implements fn.Templates.
func (m templates) Data(ctx context.Context, c *fn.Call, pipe string, t fn.Template) (any, error) {
	return m.renderer.Render(ctx, render.Request{
		Source: t.Source, Path: t.Path, Saltenv: t.Saltenv, Default: pipe, Funcs: templateFunctions{m.funcs(), c}, Grains: c.Grains.All(), Pillar: c.Pillar.All(),
		Opts: c.Config.All(), Context: t.Context, Loader: fileclient.Templates{Files: c.Files},
	})
}

// templateFunctions are the functions that a template can call.
type templateFunctions struct {
	*fn.Registry
	c *fn.Call
}

// Call implements render.Functions.
func (f templateFunctions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	return f.Registry.Call(ctx, f.c, name, args, kwargs)
}

var _ render.Functions = templateFunctions{}
