package run

import (
	"context"
	"strings"
	"testing"

	"brine/internal/call/client/clienttest"
)

// TestStrictExit compares Salt's exit codes with those of --strict-exit.
func TestStrictExit(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Runner: real(t, nil)})
	for _, c := range []struct {
		args         string
		code, strict int
	}{
		{"test.arg 1", 0, 0},
		{"no.such", 0, 255},
		{"config.get", 0, 1},
		{"salt.cmd test.false", 0, 1},
		{"salt.cmd test.ping", 0, 0},
		{"state.event nonsense=1", 0, 1},
		{"error.error Exception", 1, 1},
		{"-a pam --username=u --password=p test.arg", 0, 77},
		{"-a nosuch test.arg", 0, 77},
	} {
		for strict, want := range map[string]int{"": c.code, "--strict-exit ": c.strict} {
			if got := saltRun(t.Context(), m, strings.Fields(strict+c.args)...); got.code != want {
				t.Errorf("%s%s: want %d, got %+v", strict, c.args, want, got)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := saltRun(ctx, m, "--strict-exit", "test.sleep"); got.code != 130 {
		t.Errorf("Ctrl-C: %+v", got)
	}
}
