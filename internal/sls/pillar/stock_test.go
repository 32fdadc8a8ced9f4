package pillar

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"brine/internal/base/field"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/core"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// TestLikeStock compiles cases.json and expects the results of stock Salt,
// recorded in expected.json by testdata/record.py.
func TestLikeStock(t *testing.T) {
	cases, expected := readList(t, "testdata/cases.json"), readList(t, "testdata/expected.json")
	if len(cases) != len(expected) || len(cases) < 50 {
		t.Fatalf("%d cases, %d expectations", len(cases), len(expected))
	}
	for i, it := range cases {
		c := it.(*value.Dict)
		t.Run(c.Str("name"), func(t *testing.T) {
			got := compileCase(t, c)
			if !value.Equal(got, plain(expected[i], "ROOT")) {
				t.Errorf("got  %s\nwant %s", value.Repr(got), value.Repr(expected[i]))
			}
		})
	}
}

func readList(t *testing.T, file string) []any {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	v, err := json.Load(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return v.(*value.List).Items
}

// compileCase compiles the pillar of one case, in the format of the recording.
func compileCase(t *testing.T, c *value.Dict) any {
	dir := t.TempDir()
	for name, text := range c.Dict("tree").All() {
		p := filepath.Join(dir, name.(string))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(strings.ReplaceAll(text.(string), "ROOT", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Dump(orEmpty(c.Dict("options")), json.Format{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := json.Load(strings.ReplaceAll(text, "ROOT", dir))
	if err != nil {
		t.Fatal(err)
	}
	opts := value.DictOf("renderer", "jinja|yaml", "pillar_roots", value.DictOf("base", value.ListOf(dir+"/base")))
	opts.Update(v.(*value.Dict))
	cfg := Config{Renderer: render.New(render.Options{}), Opts: opts, Nodegroups: target.Nodegroups{}, CacheDir: t.TempDir()}
	fill(t, &cfg.Options, opts)
	fill(t, &cfg.Top, opts)
	for k, g := range opts.Dict("nodegroups").All() {
		cfg.Nodegroups[k.(string)] = g
	}
	if cfg.Funcs, err = fn.NewRegistry(nil, append(core.Modules(), core.Grains(nil))...); err != nil {
		t.Fatal(err)
	}
	grains := orEmpty(c.Dict("grains"))
	id := c.Str("id")
	if id == "" {
		id = "web1"
	}
	grains.Set("id", id)
	got, err := New(cfg).Compile(context.Background(), Request{ID: id, Grains: grains, Saltenv: c.Str("saltenv"), Pillarenv: c.Str("pillarenv"),
		Override: c.Dict("override"), Extra: c.Dict("extra"), External: c.At("ext")})
	if err != nil {
		return err.Error()
	}
	return plain(got, dir)
}

func fill(t testing.TB, ptr any, opts *value.Dict) {
	t.Helper()
	if err := field.Defaults(ptr); err != nil {
		t.Fatal(err)
	}
	rv := reflect.ValueOf(ptr).Elem()
	fields, err := field.Of(rv.Type())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		if v, ok := opts.Get(f.Name); ok {
			if err := f.Set(rv, v); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// plain converts keys and strings to the format of the recording.
func plain(v any, dir string) any {
	switch x := v.(type) {
	case *value.Dict:
		out := value.NewDict(x.Len())
		for k, w := range x.All() {
			key, ok := k.(string)
			if !ok {
				key = value.Repr(k)
			}
			out.Set(key, plain(w, dir))
		}
		return out
	case *value.List:
		out := &value.List{}
		for _, w := range x.Items {
			out.Append(plain(w, dir))
		}
		return out
	case string:
		x = strings.ReplaceAll(x, dir, "ROOT")
		if head, _, ok := strings.Cut(x, " failed, render error:\n"); ok {
			return head // the rest is the renderer's own text
		}
		return x
	}
	return v
}
