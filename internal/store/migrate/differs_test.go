package migrate

import (
	"testing"

	"brine/internal/py/value"
	"brine/internal/store/job"
)

// TestDiffersInOrder checks that the first of several different returns is named.
func TestDiffersInOrder(t *testing.T) {
	here, there := &job.Whole{Returns: map[string]*value.Dict{}}, &job.Whole{Returns: map[string]*value.Dict{}}
	for _, id := range []string{"d", "b", "a", "c", "e", "f"} {
		here.Returns[id], there.Returns[id] = value.DictOf("return", "x"), value.DictOf("return", "y")
	}
	for range 20 {
		if got := differs(here, there, false); got != "the target has a different return of a" {
			t.Fatal(got)
		}
	}
}
