//go:build !race

package event

import (
	"fmt"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// TestAllocations limits the cost of firing: without listeners nothing, for a handler the copy of the data
// and the stamp.
func TestAllocations(t *testing.T) {
	data := value.DictOf("id", "m", "return", true, "jid", "20261121035835876743")
	b := NewBus(0)
	fire := func() { b.Fire("salt/job/20261121035835876743/ret/m", data) }
	defer b.Handle(func(*Event) {}, "other/")()
	if n := testing.AllocsPerRun(100, fire); n > 0 {
		t.Errorf("without listeners: %v allocations", n)
	}
	var e *Event
	remove := b.Handle(func(got *Event) { e = got })
	defer remove()
	if n := testing.AllocsPerRun(100, fire); n > 6 {
		t.Errorf("for a handler: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { fire(); e.Frame() }); n > 9 {
		t.Errorf("for a program: %v allocations", n)
	}
	large := value.NewDict(50)
	for i := range 50 { // 5 KB
		large.Set(fmt.Sprintf("value %02d", i), strings.Repeat("x", 90))
	}
	if n := testing.AllocsPerRun(100, func() { b.Fire("some/event", large); e.Frame() }); n > 12 {
		t.Errorf("5 KB for a program: %v allocations", n)
	}
}
