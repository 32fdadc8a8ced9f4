package output

import (
	"io"
	"log/slog"
	"testing"

	"brine/internal/py/value"
)

// TestJSONAllocations checks that JSON is streamed: memory does not grow with the document.
func TestJSONAllocations(t *testing.T) {
	p := New(Options{}, slog.New(slog.DiscardHandler))
	allocs := func(n int) float64 {
		d := value.NewDict(n)
		for i := range n {
			d.Set(value.Str(int64(i)), value.DictOf("name", "some text \"quoted\"", "result", true, "changes", value.ListOf("a", nil)))
		}
		return testing.AllocsPerRun(10, func() {
			if err := p.Print(io.Discard, "json", d, Call{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := allocs(10), allocs(1000); few > 10 || many > few+10 {
		t.Errorf("%v allocations for 10 entries, %v for 1,000", few, many)
	}
}
