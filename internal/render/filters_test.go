package render

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"brine/internal/json"
	"brine/internal/value"
)

// TestSaltFilters compares with what stock Salt made of the same expressions.
func TestSaltFilters(t *testing.T) {
	t.Setenv("TZ", "UTC")
	old := time.Local
	time.Local = time.UTC
	defer func() { time.Local = old }()
	b, err := os.ReadFile("testdata/filters.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := json.Load(string(b))
	if err != nil {
		t.Fatal(err)
	}
	cases := v.(*value.List).Items
	if len(cases) < 100 {
		t.Fatalf("only %d cases", len(cases))
	}
	r := New(Options{})
	for _, c := range cases {
		d := c.(*value.Dict)
		expr := d.Str("expr")
		t.Run(expr, func(t *testing.T) {
			src := "{{ " + expr + " }}"
			if strings.HasPrefix(expr, "{%") {
				src = expr
			}
			got, err := r.Text(t.Context(), "jinja", Request{Source: []byte(src), Opts: value.DictOf("id", "m1"),
				Grains: value.DictOf("os", "Debian", "n", []int{3, 1, 2}), Funcs: &functions{}})
			if !d.Has("error") {
				if err != nil || got != d.Str("out") {
					t.Errorf("got  %q, %v\nwant %q", got, err, d.Str("out"))
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %q, %v, want %s", got, err, d.Str("error"))
			}
			first, _, _ := strings.Cut(e.Message, "\n")
			if d.Str("error") != "" && first != d.Str("error") {
				t.Errorf("got  %s\nwant %s", first, d.Str("error"))
			}
		})
	}
}
