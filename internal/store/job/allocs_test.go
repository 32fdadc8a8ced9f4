//go:build !race

package job

import "testing"

// TestAllocations bounds the allocations for a return until it is queued.
func TestAllocations(t *testing.T) {
	r := ret(jid, "minion", true)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := newReturn(r, kept); err != nil {
			t.Error(err)
		}
	}); n > 13 {
		t.Errorf("%v allocations for a return", n)
	}
}
