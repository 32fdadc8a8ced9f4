package core

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"brine/internal/fn"
	"brine/internal/value"
)

func TestJinja(t *testing.T) {
	r, err := fn.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	asked, answer := "", `{"a": [1, null]}`
	c := &fn.Call{Template: func(_ context.Context, _ *fn.Call, tm fn.Template) (string, error) {
		asked = string(tm.Source)
		if answer == "" {
			return "", errors.New("no such file")
		}
		return answer, nil
	}}
	for _, job := range []struct {
		fun  string
		args []any
		want string
	}{
		{"jinja.load_map", []any{`f/map".jinja`, "m_1"}, `{% from "f/map\".jinja" import m_1 with context %}{{ m_1 | tojson }}`},
		{"jinja.import_yaml", []any{"f.yaml"}, `{% import_yaml "f.yaml" as imported %}{{ imported | tojson }}`},
		{"jinja.import_json", []any{"f.json"}, `{% import_json "f.json" as imported %}{{ imported | tojson }}`},
	} {
		v, err := r.Call(t.Context(), c, job.fun, job.args, nil)
		if err != nil || value.Repr(v) != "{'a': [1, None]}" || asked != job.want {
			t.Errorf("%s: %s, %v; it asked for %s", job.fun, value.Repr(v), err, asked)
		}
	}
	asked = ""
	if _, err := r.Call(t.Context(), c, "jinja.load_map", []any{"f", "x %}{{ pillar"}, nil); err == nil || asked != "" {
		t.Errorf("a name with template code in it: %v, %s", err, asked)
	}
	answer = ""
	if _, err := r.Call(t.Context(), c, "jinja.import_json", []any{"f"}, nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

func TestRendererArguments(t *testing.T) {
	r, err := fn.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	var got fn.Template
	c := &fn.Call{Log: slog.New(slog.DiscardHandler), Render: func(_ context.Context, _ *fn.Call, pipe string, tm fn.Template) (any, error) {
		got = tm
		return pipe, nil
	}}
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
