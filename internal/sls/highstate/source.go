package highstate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
	"brine/internal/sls/render"
	"brine/internal/sls/sls"
	"brine/internal/sls/state"
)

// slsSource provides the compiler with rendered SLS files.
type slsSource struct{ s *Session }

// States implements sls.Source.
func (q slsSource) States(ctx context.Context, env string) ([]string, bool) {
	if !q.s.hasEnv(ctx, env) {
		return nil, false
	}
	names, err := q.s.states(ctx, env)
	if err != nil {
		q.s.call.Log.Error("cannot list the SLS files", "saltenv", env, "err", err)
	}
	return names, true
}

// Load implements sls.Source.
func (q slsSource) Load(ctx context.Context, name, env string) (sls.File, error) {
	f, err := q.s.files.State(ctx, name, env)
	if err != nil {
		return sls.File{}, notFound(err, sls.ErrNotFound)
	}
	data, err := q.s.render(ctx, f.Source, f.Dest, name, env)
	return sls.File{Path: strings.TrimPrefix(f.Source, "salt://"), Data: data}, err
}

// render renders a file of the file server.
func (s *Session) render(ctx context.Context, url, path, name, env string) (any, error) {
	text, err := s.files.Read(ctx, url, env)
	if err != nil {
		return nil, err
	}
	return s.renderText(ctx, text, path, name, env)
}

func (s *Session) renderText(ctx context.Context, text []byte, path, name, env string) (any, error) {
	req := s.request(text, path, name, env, s.Call())
	return s.deps.Renderer.Render(ctx, req)
}

func (s *Session) request(text []byte, path, name, env string, c *fn.Call) render.Request {
	return render.Request{
		Source: text, Path: path, SLS: name, Saltenv: env, Default: s.o.Renderer,
		Funcs: functions{c}, Grains: s.grains, Pillar: s.pillar, Opts: s.opts, Loader: Loader{c.Files},
		StateConf: &s.stateConf, Whitelist: s.o.RendererWhitelist, Blacklist: s.o.RendererBlacklist,
	}
}

// topSource provides the top files.
type topSource struct{ s *Session }

// Envs implements top.Source.
func (q topSource) Envs(ctx context.Context) ([]string, error) { return q.s.files.Envs(ctx) }

// States implements top.Source.
func (q topSource) States(ctx context.Context, env string) ([]string, error) {
	return q.s.states(ctx, env)
}

// Top implements top.Source.
func (q topSource) Top(ctx context.Context, env string) (any, bool, error) {
	url := fileclient.URL(q.s.top.File())
	path, err := q.s.files.CacheFile(ctx, url, env)
	if err != nil {
		if err := notFound(err, fs.ErrNotExist); !isNotExist(err) {
			return nil, false, err
		}
		return nil, false, nil
	}
	data, err := q.s.render(ctx, url, path, "", env)
	return data, true, err
}

// SLS implements top.Source.
func (q topSource) SLS(ctx context.Context, name, env string) (any, error) {
	f, err := q.s.files.State(ctx, name, env)
	if err != nil {
		return nil, err
	}
	return q.s.render(ctx, f.Source, f.Dest, name, env)
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Loader fetches what templates import from the file server.
type Loader struct {
	Files fn.Fetcher
}

// Load implements render.Loader.
func (l Loader) Load(ctx context.Context, env, path string) ([]byte, error) {
	data, err := l.Files.Read(ctx, fileclient.URL(path), env)
	if err != nil {
		return nil, notFound(err, fs.ErrNotExist)
	}
	return data, nil
}

// functions are the functions that templates call.
type functions struct{ c *fn.Call }

// Has implements render.Functions.
func (f functions) Has(name string) bool { return f.c.Funcs.Has(name) }

// HasModule reports whether there are functions of a module.
func (f functions) HasModule(name string) bool { return f.c.Funcs.HasModule(name) }

// Names implements render.Functions.
func (f functions) Names() []string { return f.c.Funcs.Names() }

// Call implements render.Functions.
func (f functions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	return f.c.Funcs.Call(ctx, f.c, name, args, kwargs)
}

// template renders the template of a state such as file.managed.
func (s *Session) template(ctx context.Context, c *fn.Call, t state.Template) (string, error) {
	req := s.request([]byte(t.Source), t.Name, "", t.Saltenv, c)
	req.Context = t.Context
	return s.deps.Renderer.Text(ctx, t.Engine, req)
}

// Text renders SLS text that is not in a file: state.template_str.
func (s *Session) Text(ctx context.Context, source string) (high *value.Dict, faults []string, err error) {
	data, err := s.renderText(ctx, []byte(source), "", "", s.env)
	if err != nil {
		return nil, nil, err
	}
	const name = "<template-str>"
	d, ok := data.(*value.Dict)
	if !ok {
		return nil, []string{"Template " + name + " does not render to a dictionary"}, nil
	}
	for _, k := range []string{"include", "exclude", "extends"} {
		if d.Has(k) {
			return nil, []string{fmt.Sprintf("The '%s' declaration found on '%s' is invalid when rendering single templates", k, name)}, nil
		}
	}
	o := s.o.Options
	o.AutoOrder = false
	high, errs := sls.New(slsSource{s}, o).RenderData(ctx, name, s.env, d)
	for _, v := range high.All() {
		if body, ok := v.(*value.Dict); ok {
			body.Delete("__sls__") // it belongs to no SLS
			body.Delete("__env__")
		}
	}
	return high, s.texts(ctx, errs), nil
}

// File renders an SLS file of this machine: state.template.
func (s *Session) File(ctx context.Context, path string) (*value.Dict, []string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, []string{fmt.Sprintf("Specified SLS %s on local filesystem cannot be found.", path)}
	}
	data, err := s.renderText(ctx, text, path, path, s.env)
	if err != nil {
		return nil, []string{fmt.Sprintf("Rendering SLS '%s:%s' failed: %v", s.env, path, redact.Error(err))}
	}
	c := sls.New(slsSource{s}, s.o.Options)
	high, faults := c.RenderData(ctx, path, s.env, data)
	return high, s.texts(ctx, faults)
}
