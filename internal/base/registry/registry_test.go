package registry

import (
	"slices"
	"strings"
	"testing"
)

func TestRegistry(t *testing.T) {
	r := New[int]("number")
	r.Register("two", 2)
	r.Register("one", 1)
	panics(t, "without a name", func() { r.Register("", 0) })
	panics(t, "number two", func() { r.Register("two", 3) })
	if got := r.Names(); !slices.Equal(got, []string{"one", "two"}) {
		t.Error(got)
	}
	if n, ok := r.Lookup("two"); n != 2 || !ok {
		t.Error(n, ok)
	}
	if n, ok := r.Lookup("three"); n != 0 || ok {
		t.Error(n, ok)
	}
	panics(t, "after the first look-up", func() { r.Register("three", 3) })
}

func panics(t *testing.T, want string, do func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text, _ := recover().(string); !strings.Contains(text, want) {
			t.Errorf("got %q, want a panic with %q", text, want)
		}
	}()
	do()
}
