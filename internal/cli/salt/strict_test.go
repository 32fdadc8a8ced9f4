package salt

import (
	"context"
	"strings"
	"testing"
	"time"

	"brine/internal/call/client/clienttest"
)

// TestStrictExit compares Salt's exit codes with those of --strict-exit.
func TestStrictExit(t *testing.T) {
	t.Parallel()
	m := clienttest.Start(t, clienttest.Options{Minions: fleet(), Config: groups})
	for _, c := range []struct {
		args         string
		code, strict int
	}{
		{"alpha test.ping", 0, 0},
		{"alpha test.false", 0, 1},
		{"--static alpha test.false", 0, 1},
		{"--static alpha,beta -L test.ping", 0, 0},
		{"--static -L alpha,gamma test.ping", 0, 1},
		{"--hide-timeout -L alpha,gamma test.ping", 0, 1},
		{"-b 1 alpha test.false", 0, 1},
		{"-b 1 -L alpha,gamma test.ping", 0, 1},
		{"-b 1 -s -L alpha,gamma test.ping", 0, 1},
		{"-b 1 -L alpha,beta test.ping", 0, 0},
		{"-b 1 nobody test.ping", 0, 2},
		{"--async nobody test.ping", 0, 2},
		{"--async alpha test.ping", 0, 0},
		{"-N nosuch test.ping", 0, 1},
		{"-a pam --username=u --password=p alpha test.ping", 0, 77},
		{"nobody test.ping", 2, 2},
		{"gamma test.ping", 1, 1},
		{"alpha sys.doc no.such", 0, 0},
	} {
		for strict, want := range map[string]int{"": c.code, "--strict-exit ": c.strict} {
			if got := runSalt(t.Context(), m, "", strings.Fields(strict+c.args)...); got.code != want {
				t.Errorf("%s%s: want %d, got %+v", strict, c.args, want, got)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if got := runSalt(ctx, m, "", "--strict-exit", "-t", "30", "gamma", "test.ping"); got.code != 130 {
		t.Errorf("Ctrl-C: %+v", got)
	}
	m.Stop()
	if got := runSalt(t.Context(), m, "", "--strict-exit", "alpha", "test.ping"); got.code != 69 {
		t.Errorf("without a master: %+v", got)
	}
}
