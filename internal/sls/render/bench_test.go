package render

import (
	"os"
	"testing"

	"brine/internal/py/value"
)

func benchTree(b *testing.B) (tree, string) {
	b.Helper()
	t := tree{}
	for _, f := range []string{"map.jinja", "defaults.yaml", "libtofs.jinja"} {
		src, err := os.ReadFile("testdata/bench/" + f)
		if err != nil {
			b.Fatal(err)
		}
		t["app/"+f] = string(src)
	}
	src, err := os.ReadFile("testdata/bench/init.sls")
	if err != nil {
		b.Fatal(err)
	}
	return t, string(src)
}

// BenchmarkFormula renders an SLS that imports a map.jinja and macros, like
// formulas; testdata/bench/stock.py does the same with stock Salt.
func BenchmarkFormula(b *testing.B) {
	t, src := benchTree(b)
	r := New(Options{})
	for b.Loop() {
		v, err := r.Render(b.Context(), Request{Source: []byte(src), Path: "/srv/salt/app/init.sls", SLS: "app", Saltenv: "base",
			Funcs: &functions{}, Grains: value.DictOf("os", "Debian", "os_family", "Debian", "id", "m1"), Pillar: value.NewDict(0), Loader: t})
		if err != nil {
			b.Fatal(err)
		}
		if v.(*value.Dict).Len() != 81 {
			b.Fatalf("%d states", v.(*value.Dict).Len())
		}
	}
}

// BenchmarkJinja is BenchmarkFormula without the YAML step.
func BenchmarkJinja(b *testing.B) {
	t, src := benchTree(b)
	r := New(Options{})
	for b.Loop() {
		_, err := r.Render(b.Context(), Request{Source: []byte(src), Path: "/srv/salt/app/init.sls", SLS: "app", Saltenv: "base", Default: "jinja",
			Funcs: &functions{}, Grains: value.DictOf("os", "Debian", "os_family", "Debian", "id", "m1"), Pillar: value.NewDict(0), Loader: t})
		if err != nil {
			b.Fatal(err)
		}
	}
}
