package grains

import (
	"slices"
	"testing"
)

// TestOrder checks that every group of Salt's order is registered once, and that other
// groups come after them.
func TestOrder(t *testing.T) {
	var names []string
	for _, f := range families() {
		names = append(names, f.name)
	}
	if !slices.Equal(names[:min(len(names), len(saltOrder))], saltOrder) || len(names) != len(collectors.Names()) {
		t.Errorf("got %v, want %v and then the others of %v", names, saltOrder, collectors.Names())
	}
}
