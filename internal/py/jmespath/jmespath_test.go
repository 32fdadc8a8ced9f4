package jmespath

import (
	"os"
	"strings"
	"testing"

	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func load(t testing.TB, path string) any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := json.Load(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAsRecorded compares results and errors with those of Python's library.
func TestAsRecorded(t *testing.T) {
	data := load(t, "testdata/data.json")
	cases := load(t, "testdata/golden.json").(*value.List).Items
	if len(cases) < 500 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		c := c.(*value.Dict)
		expr := c.Str("expr")
		got, err := Search(expr, data)
		if c.Has("error") {
			// A comparison of a string and a number fails with Python's own
			// TypeError.
			if err == nil && c.Str("error") != "TypeError" {
				t.Errorf("%s is %s, want %s: %s", expr, value.Repr(got), c.Str("error"), c.Str("text"))
			}
			if where, _, ok := strings.Cut(c.Str("text"), "value: "); ok && err != nil && !strings.HasPrefix(err.Error(), where) {
				t.Errorf("%s: %v, want %s", expr, err, c.Str("text"))
			}
			continue
		}
		if err != nil || value.Repr(got) != value.Repr(c.At("out")) {
			t.Errorf("%s is %s, %v, want %s", expr, value.Repr(got), err, value.Repr(c.At("out")))
		}
	}
	if again := load(t, "testdata/data.json"); !value.Equal(data, again) {
		t.Error("a query changed the data")
	}
}

func TestDepth(t *testing.T) {
	for _, expr := range []string{strings.Repeat("(", 1e5) + "a", strings.Repeat("!", 1e5) + "a", strings.Repeat("[", 1e5), strings.Repeat("a.{b:", 1e4)} {
		if _, err := Compile(expr); err == nil || !strings.Contains(err.Error(), "deep") {
			t.Errorf("%.10s…: %v", expr, err)
		}
	}
	if v, err := Search(strings.Repeat("a.", 1e4)+"a", nil); v != nil || err != nil {
		t.Error(v, err)
	}
}

func FuzzSearch(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	data := load(f, "testdata/data.json")
	for _, c := range load(f, "testdata/golden.json").(*value.List).Items {
		f.Add(c.(*value.Dict).Str("expr"))
	}
	f.Fuzz(func(_ *testing.T, expr string) {
		if len(expr) < 1000 {
			Search(expr, data)
		}
	})
}
