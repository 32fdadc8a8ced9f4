package calls

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// template fills in a template on behalf of a function, such as
// cp.get_template.
func (m *Factory) template(ctx context.Context, c *fn.Call, t fn.Template) (string, error) {
	return m.cfg.Renderer.Text(ctx, t.Engine, render.Request{
		Source: t.Source, Path: t.Path, Saltenv: t.Saltenv, Funcs: templateFunctions{m.cfg.Funcs(), c}, Grains: c.Grains.All(), Pillar: c.Pillar.All(),
		Opts: c.Config.All(), Context: t.Context, Loader: fileclient.Templates{Files: c.Files},
	})
}

// render turns a text into data on behalf of a function.
func (m *Factory) render(ctx context.Context, c *fn.Call, pipe string, t fn.Template) (any, error) {
	return m.cfg.Renderer.Render(ctx, render.Request{
		Source: t.Source, Path: t.Path, Saltenv: t.Saltenv, Default: pipe, Funcs: templateFunctions{m.cfg.Funcs(), c}, Grains: c.Grains.All(), Pillar: c.Pillar.All(),
		Opts: c.Config.All(), Context: t.Context, Loader: fileclient.Templates{Files: c.Files},
	})
}

// templateFunctions are what a template calls.
type templateFunctions struct {
	*fn.Registry
	c *fn.Call
}

// Call implements render.Functions.
func (f templateFunctions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	return f.Registry.Call(ctx, f.c, name, args, kwargs)
}

var _ render.Functions = templateFunctions{}
