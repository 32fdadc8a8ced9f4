package memberauth

import (
	"strings"
	"testing"
	"time"

	"brine/internal/ha/cluster/refusal"
)

// TestSkew: two masters with different clocks refuse each other.
func TestSkew(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]string{0: "", 4 * time.Second: "", -4 * time.Second: "", time.Minute: "56s ahead", -time.Minute: "1m0s behind"} {
		// The query began four seconds before the answer.
		got := Skewed("a", Facts{ID: "b", Now: now.Add(d)}, now, now.Add(4*time.Second))
		if (want == "") != (got == nil) || got != nil && (got.Code != refusal.Clock || !strings.Contains(got.Reason, want)) {
			t.Errorf("%v: %+v", d, got)
		}
	}
}
