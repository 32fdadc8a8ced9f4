package jinja

import (
	"strings"
	"testing"
	"unsafe"
)

// TestOutputPieces checks that output in one piece is not copied, and that
// several pieces keep their order.
func TestOutputPieces(t *testing.T) {
	env := New(Options{})
	for _, c := range []struct{ source, tail, want string }{
		{"", "", ""}, {"", "\n", "\n"}, {"a\n", "\n", "a\n"}, {"a\n", "", "a"}, {"{# c #}", "\n", "\n"},
		{"{{ 'a' }}\n", "\n", "a\n"}, {"{{ 'a' }}b\n", "\n", "ab\n"}, {"{{ '' }}{{ 'a' }}{{ '' }}", "", "a"},
		{"{% set x %}a{% endset %}{{ x }}{{ x }}", "", "aa"},
		{"{% for i in range(3) %}{{ i }},{% endfor %}", "", "0,1,2,"},
	} {
		tpl, err := env.Parse("t", c.source)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := tpl.Render(t.Context(), Run{Tail: c.tail}); out != c.want || err != nil {
			t.Errorf("%q: %q %v, not %q", c.source, out, err, c.want)
		}
	}
	source := strings.Repeat("a line of an SLS\n", 1000)
	tpl, err := env.Parse("t", source)
	if err != nil {
		t.Fatal(err)
	}
	out, err := tpl.Render(t.Context(), Run{Tail: "\n"})
	if err != nil || out != source || unsafe.StringData(out) != unsafe.StringData(source) {
		t.Errorf("a template without tags is copied: %d bytes, %v", len(out), err)
	}
}
