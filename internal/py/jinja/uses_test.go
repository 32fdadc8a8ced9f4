package jinja

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestUses: each place that reads below a variable is found, whatever statement it is in.
func TestUses(t *testing.T) {
	tpl, err := New(Options{}).Parse("t", `{% set a = salt['x.a']('first', 2, who='me') %}
{%- for i in salt.x.b() if salt["x.c"](i) %}{{ loop.index }}{% else %}{{ salt['x.d'] }}{% endfor %}
{%- macro m(p=salt['x.e']()) %}
{{ salt['x']['f'](salt['x.g'](1)) }}
{%- endmacro %}
{% if salt['x.h'](**{'k': salt.x.i()}) %}{% elif salt['x.j'] in [salt['x.k']()] %}
{% endif %}{{ m() | default(salt['x.l'](y)(z)) }}{{ pepper['x.m']() }}{{ salt[a]() }}
{{ "salt['x.n']()" }}{# salt['x.o']() #}{% raw %}{{ salt['x.p']() }}{% endraw %}
{% block b %}{{ {'a': salt['x.q'](
  k=1)} }}{% endblock %}{{ salt['x.r']().stdout }}`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range tpl.Uses("salt") {
		s := fmt.Sprintf("%d %s", u.Line, u.Path)
		if u.Called {
			s += fmt.Sprintf("%q%q", u.Args, u.Kwargs)
		}
		got = append(got, s)
	}
	want := []string{`1 x.a["first" ""]["who"]`, "2 x.b[][]", `2 x.c[""][]`, "2 x.d", "3 x.e[][]", `4 x.f[""][]`, `4 x.g[""][]`, "6 x.h[][]",
		"6 x.i[][]", "6 x.j",
		"6 x.k[][]", `7 x.l[""][]`, `9 x.q[]["k"]`, "10 x.r[][]"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestUsesOfOwnVariable: a variable of the template's own is another one.
func TestUsesOfOwnVariable(t *testing.T) {
	for _, text := range []string{"{% from 'map.jinja' import salt %}", "{% import 'map.jinja' as salt %}", "{% set salt = {} %}",
		"{% for salt in x %}{% endfor %}",
		"{% set salt %}x{% endset %}"} {
		tpl, err := New(Options{}).Parse("t", text+"{{ salt.x.y }}")
		if err != nil {
			t.Fatal(err)
		}
		if got := tpl.Uses("salt"); len(got) > 0 {
			t.Errorf("%s: %v", text, got)
		}
	}
}
