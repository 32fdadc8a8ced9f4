package runner

import (
	"fmt"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestStateSpans: the states of a return become spans, on the right day, and their number is
// bounded. Anything else in a return is left out.
func TestStateSpans(t *testing.T) {
	began := time.Date(2026, 3, 1, 23, 59, 58, 0, time.Local)
	ret := value.DictOf(
		"pkg_|-nginx_|-nginx_|-installed", value.DictOf("start_time", "23:59:59.500000", "duration", 250.0, "result", true),
		"cmd_|-late_|-late_|-run", value.DictOf("start_time", "00:00:01", "duration", 1500.0, "result", false),
		"cmd_|-never_|-never_|-run", value.DictOf("result", nil), "other", 1, "a_|-b_|-c_|-d", "text")
	got := stateSpans(ret, began)
	if len(got) != 2 || got[0].Failed || !got[1].Failed || !got[0].Start.Equal(began.Add(1500*time.Millisecond)) ||
		got[0].End.Sub(got[0].Start) != 250*time.Millisecond || !got[1].Start.Equal(began.Add(3*time.Second)) || got[0].Attributes[1] != "pkg.installed" {
		t.Errorf("%+v", got)
	}
	many := value.NewDict(0)
	for i := range 2 * maxStates {
		many.Set(fmt.Sprintf("cmd_|-%d_|-x_|-run", i), value.DictOf("start_time", "00:00:01", "duration", 1.0, "result", true))
	}
	if n := len(stateSpans(many, began)); n != maxStates {
		t.Errorf("%d spans", n)
	}
	for _, ret := range []any{nil, true, "text", value.ListOf(1)} {
		if n := len(stateSpans(ret, began)); n != 0 {
			t.Errorf("%v: %d spans", ret, n)
		}
	}
}
