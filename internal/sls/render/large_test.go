package render

import (
	"fmt"
	"strings"
	"testing"
)

// bigMap is a map.jinja of some 10,000 lines, like those of large formulas.
func bigMap() string {
	var b strings.Builder
	b.WriteString("{% set hosts = {\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "  'host%04d.example.com': {'ip': '10.0.%d.%d', 'role': 'web', 'ports': [80, 443],\n   'aliases': ['www%d', 'static%[4]d']},\n", i,
			i/250, i%250, i)
	}
	b.WriteString("} %}\n")
	return b.String()
}

// TestLargeTemplates checks that large trees stay within the default limits,
// although they allocate many times the memory that they use at once.
func TestLargeTemplates(t *testing.T) {
	bounds := Limits{MaxMemory: 64 << 20} // a quarter of the default
	for _, c := range []struct{ name, src, want string }{
		{"a text that grows by ~",
			"{% set ns = namespace(s='') %}{% for i in range(5000) %}{% set ns.s = ns.s ~ 'server' ~ i ~ '.example.com 10.0.0.1\\n' %}{% endfor %}{{ " +
				"ns.s | length }}", "158890"},
		{"a text that grows by +",
			"{% set ns = namespace(s='') %}{% for i in range(5000) %}{% set ns.s = ns.s + 'server.example.com 10.0.0.1\\n' %}{% endfor %}{{ ns.s | length }}",
			"140000"},
		{"a text that is safe",
			"{% set ns = namespace(s='' | safe) %}{% for i in range(5000) %}{% set ns.s = ns.s + 'server.example.com 10.0.0.1\\n' %}{% endfor %}{{ " +
				"ns.s | length }}", "140000"},
		{"a list that grows by +", "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l | length }}",
			"5000"},
		{"a text that is replaced",
			"{% set ns = namespace(s='@' ~ 'x' * 50000) %}{% for i in range(5000) %}{% set ns.s = ns.s | replace('@', 'x') | replace('x', '@', 1) " +
				"%}{% endfor %}{{ ns.s | length }}", "50001"},
		{"a text that stays", "{% set ns = namespace(s='x' * 100000) %}{% for i in range(1500) %}{% set ns.s = ns.s | trim | replace('y', 'z') %}{% " +
			"endfor %}{{ ns.s | length }}", "100000"},
		{"keys that are looked at",
			"{% from 'web/hosts.jinja' import hosts %}{% set ns = namespace(n=0) %}{% for i in range(2000) %}{% if 'host0001.example.com' in " +
				"hosts.keys() | list %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.n }}", "2000"},
		{"a large map", "{% from 'web/hosts.jinja' import hosts %}{% set ns = namespace(s='') %}{% for name, h in hosts.items() %}{% set ns.s = ns.s " +
			"~ h.ip ~ ' ' ~ name ~ ' ' ~ h.aliases | join(' ') ~ '\\n' %}{% endfor %}{{ ns.s | length }}", "253080"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := request(c.src)
			req.Default = "jinja"
			req.Loader.(tree)["web/hosts.jinja"] = bigMap()
			out, err := New(Options{Limits: bounds}).Render(t.Context(), req)
			if err != nil || strings.TrimSpace(out.(string)) != c.want {
				t.Errorf("%v, %v; want %s", out, err, c.want)
			}
		})
	}
}
