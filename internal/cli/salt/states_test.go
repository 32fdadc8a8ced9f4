package salt

import (
	"testing"
	"time"
)

func TestParseExpire(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "90": 90 * time.Second, "90s": 90 * time.Second, "10m": 10 * time.Minute, "2h": 2 * time.Hour, "7d": 7 * 24 * time.Hour} {
		if d, ok := parseExpire(text); !ok || d != want {
			t.Errorf("%s: %v, %v", text, d, ok)
		}
	}
	for _, text := range []string{"", "m", "-1", "1w", "x", "1.5", "99999999999", "1 0"} {
		if d, ok := parseExpire(text); ok {
			t.Errorf("%q is taken as %v", text, d)
		}
	}
}
