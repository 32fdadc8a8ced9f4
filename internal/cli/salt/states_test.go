package salt

import (
	"strings"
	"testing"
	"time"

	"brine/internal/call/client"
	"brine/internal/cli/session"
	"brine/internal/py/value"
)

func TestParseExpire(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "90": 90 * time.Second, "90s": 90 * time.Second, "10m": 10 * time.Minute, "2h": 2 * time.Hour,
		"7d": 7 * 24 * time.Hour} {
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

// TestElsewhereIsPrintable: a minion reports the name of the master that commands it, but cannot
// send control characters to the terminal with that name.
func TestElsewhereIsPrintable(t *testing.T) {
	env, _, stderr := testEnv(nil, "")
	p := &program{session: &session.Session{Env: env}}
	p.tellElsewhere(map[string]string{"a": "bücher.example", "b": "\x1b]0;x\a\n\u202e"})
	for _, id := range []string{"a", "b"} {
		v, _ := p.shape(client.Result{ID: id, Absent: true}, "").data.Get(id)
		stderr.WriteString(value.Str(v))
	}
	if got := stderr.String(); strings.Count(got, "bücher.example") != 2 || strings.Count(got, `\x1b]0;x\a\n\u202e`) != 2 ||
		strings.ContainsAny(got, "\x1b\a\u202e") {
		t.Errorf("%q", got)
	}
}
