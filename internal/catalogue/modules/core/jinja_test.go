package core

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// files is a tree of templates.
type files map[string]string

func (f files) Load(_ context.Context, env, path string) ([]byte, error) {
	if text, ok := f[path]; ok && env == "base" {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

// rendering returns a Call that renders the templates of a tree.
func rendering(f files) *fn.Call {
	r := render.New(render.Options{Local: render.AnyFile})
	return &fn.Call{Log: slog.New(slog.DiscardHandler), Templates: fntest.Templates{OfData: func(ctx context.Context, pipe string, tm fn.Template) (any, error) {
		return r.Render(ctx, render.Request{Source: tm.Source, Path: tm.Path, Saltenv: tm.Saltenv, Default: pipe, Context: tm.Context, Loader: f})
	}}}
}

func TestJinja(t *testing.T) {
	r, err := fn.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "own.jinja")
	if err := os.WriteFile(outside, []byte("{% set own = [1] %}"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := rendering(files{
		`f/map".jinja`: `{% set m_1 = {'a': [1, None]} %}`,
		"f.yaml":       "a: {{ 1 }}\ntwo: '{{ tplfile }}'\n",
		"f.json":       `{"a": {{ [1] | tojson }}}`,
		"form/map.jinja": `{%- set tplroot = tpldir.split('/')[0] %}
{%- set m = [tplroot, tpldir, tplfile, tpldot, tplpath, slspath, slsdotpath, slscolonpath, sls_path, sls, saltenv] %}`,
	})
	// Salt has the same names, except that its file is a temporary one.
	const names = "['.', '.', ':string:', '', ':string:', '', '', '', '', '', 'base']"
	for _, job := range []struct {
		fun  string
		args []any
		want string
	}{
		{"jinja.load_map", []any{`f/map".jinja`, "m_1"}, "{'a': [1, None]}"},
		{"jinja.load_map", []any{"form/map.jinja", "m"}, names},
		{"jinja.load_map", []any{outside, "own"}, "[1]"},
		{"jinja.import_yaml", []any{"f.yaml"}, "{'a': 1, 'two': 'f.yaml'}"},
		{"jinja.import_json", []any{"f.json"}, "{'a': [1]}"},
	} {
		v, err := r.Call(t.Context(), c, job.fun, job.args, nil)
		if err != nil || value.Repr(v) != job.want {
			t.Errorf("%s %v: %s, %v; want %s", job.fun, job.args, value.Repr(v), err, job.want)
		}
	}
	if _, err := r.Call(t.Context(), c, "jinja.load_map", []any{"f", "x %}{{ pillar"}, nil); err == nil || !strings.Contains(err.Error(), "name of a variable") {
		t.Errorf("a name with template code in it: %v", err)
	}
	if _, err := r.Call(t.Context(), c, "jinja.import_json", []any{"f"}, nil); err == nil || !strings.Contains(err.Error(), "Jinja error: f\n") {
		t.Error(err)
	}
	for pipe, want := range map[string]string{
		"nothing": "{}", "jinja|nothing": "{}", "nothing|yaml": "{}", // Salt only logs the error
		"json5": "is not available", "py": "Python", "jinja|mako": "Python", "jinja|yaml": "{'a': 1}",
	} {
		v, err := r.Call(t.Context(), c, "slsutil.renderer", nil, value.DictOf("string", "a: 1", "default_renderer", pipe))
		if got := fmt.Sprint(value.Repr(v), err); !strings.Contains(got, want) {
			t.Errorf("renderer %s: %s, want %s", pipe, got, want)
		}
	}
	v, err := r.Call(t.Context(), c, "slsutil.renderer", nil, value.DictOf("string", "{{ tpldir }} {{ tplfile }} {{ sls }}", "default_renderer", "jinja"))
	if err != nil || v != ". :string: " {
		t.Errorf("names of a text: %q, %v", v, err)
	}
}

func TestRendererArguments(t *testing.T) {
	r, err := fn.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	var got fn.Template
	c := (&fn.Call{Log: slog.New(slog.DiscardHandler), Templates: fntest.Templates{OfData: func(_ context.Context, pipe string, tm fn.Template) (any, error) {
		got = tm
		return pipe, nil
	}}}).Prepare()
	v, err := r.Call(t.Context(), c, "slsutil.renderer", []any{t.TempDir() + "/none"}, nil)
	if d, ok := v.(*value.Dict); err != nil || !ok || d.Len() != 0 {
		t.Errorf("a file that is not there: %v, %v; Salt returns {}", v, err)
	}
	v, err = r.Call(t.Context(), c, "slsutil.renderer", nil, value.DictOf("string", "x", "q", 7, "saltenv", "dev"))
	if err != nil || v != "jinja|yaml" || string(got.Source) != "x" || got.Saltenv != "dev" || got.Context.Int("q") != 7 {
		t.Errorf("%v, %v, %+v", v, err, got)
	}
	for _, bad := range []*value.Dict{value.NewDict(0), value.DictOf("string", "x", "path", "y")} {
		if _, err := r.Call(t.Context(), c, "slsutil.renderer", nil, bad); err == nil {
			t.Errorf("%s is accepted", value.Repr(bad))
		}
	}
}
