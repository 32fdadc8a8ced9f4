package pillar

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/core"
	"brine/internal/py/value"
)

// BenchmarkCompile compiles a minion's pillar from 200 lines with jinja, as a
// master does for each minion of a fleet.
func BenchmarkCompile(b *testing.B) {
	files := map[string]string{"base/top.sls": "base:\n  '*': [common, app]\n  'web*': [web]\n"}
	for _, name := range []string{"common", "app", "web"} {
		var text strings.Builder
		fmt.Fprintf(&text, "{%% set id = grains['id'] %%}\n%s:\n", name)
		for i := range 22 {
			fmt.Fprintf(&text,
				"  key%d:\n    name: {{ id }}-%d\n{%% if grains['os'] == 'Debian' %%}\n    os: {{ salt['grains.get']('os') | lower }}\n{%% endif %%}\n", i, i)
		}
		files["base/"+name+".sls"] = text.String()
	}
	dir := writeTree(b, files)
	reg, err := fn.NewRegistry(nil, append(core.Modules(), core.Grains(nil))...)
	if err != nil {
		b.Fatal(err)
	}
	c := compiler(dir, func(c *Config) { c.Default, c.Funcs = "", reg })
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		d, err := c.Compile(context.Background(), Request{ID: fmt.Sprintf("web%d", n), Grains: value.DictOf("id", fmt.Sprintf("web%d", n), "os", "Debian")})
		if err != nil || d.Len() != 3 {
			b.Fatal(value.Repr(d), err)
		}
	}
}
