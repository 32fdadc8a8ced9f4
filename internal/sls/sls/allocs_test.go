package sls

import (
	"fmt"
	"testing"

	"brine/internal/py/value"
)

// TestChunkAllocations checks that a chunk is one dict, allocated at its final
// size.
func TestChunkAllocations(t *testing.T) {
	const n = 1000
	high := value.NewDict(n)
	for i := range n {
		high.Set(fmt.Sprintf("file_%d", i), value.DictOf("__sls__", "web", "__env__", "base", "file", value.ListOf(
			value.DictOf("name", "/etc/web"), value.DictOf("source", "salt://web"), value.DictOf("mode", "0644"), "managed", value.DictOf("order", 10000+i))))
	}
	got := testing.AllocsPerRun(5, func() {
		if chunks, errs := Chunks(high, nil); len(chunks) != n || len(errs) > 0 {
			t.Fatal(len(chunks), errs)
		}
	})
	// The dict, its entries, the list of the state's chunks, two strings that
	// become values, and the sort key.
	if got > 7*n {
		t.Errorf("%.1f allocations for each of %d chunks", got/n, n)
	}
}
