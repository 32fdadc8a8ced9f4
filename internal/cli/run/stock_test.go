package run

import (
	"strings"
	"testing"

	"brine/internal/call/client/clienttest"
)

// TestStockMaster runs runners on a stock master.
func TestStockMaster(t *testing.T) {
	s := clienttest.StartStock(t)
	m := &clienttest.Master{Dir: s.Dir}
	for _, name := range []string{"run_test_arg", "run_event_send", "run_config", "run_jobs_lookup_missing"} {
		rec := clienttest.Read(t, recordings, name)
		if got := saltRun(t.Context(), m, rec.Args...); got != (outcome{rec.Exit, rec.Stdout, rec.Stderr}) {
			t.Errorf("%s: got %+v, want %+v", name, got, rec)
		}
	}
	done := make(chan outcome)
	go func() { done <- saltRun(t.Context(), m, "state.event", "my/[t]ag", "count=1") }()
	for waiting := true; waiting; { // it may not accept connections yet
		select {
		case got := <-done:
			if got.code != 0 || !strings.HasPrefix(got.stdout, "my/tag\t{\"a\": 1, \"_stamp\": \"2") || !strings.HasSuffix(got.stdout, "\"}\nNone\n") {
				t.Errorf("state.event: %+v", got)
			}
			waiting = false
		default:
			if got := saltRun(t.Context(), m, "event.send", "my/tag", "{a: 1}"); got != (outcome{0, "True\n", ""}) {
				t.Fatalf("event.send: %+v", got)
			}
		}
	}
	if got := saltRun(t.Context(), m, "manage.up"); got != (outcome{0, "- " + s.Minion + "\n", ""}) {
		t.Errorf("manage.up: %+v", got)
	}
	// The documentation comes from the program itself, as with stock salt-run.
	const doc = "jobs.lookup_jid:\n\n    Return what the minions returned"
	if got := saltRun(t.Context(), m, "-d", "jobs.lookup_jid"); got.code != 0 || !strings.HasPrefix(got.stdout, doc) {
		t.Errorf("-d: %+v", got)
	}
	if got := saltRun(t.Context(), m, "no.such"); got.code != 1 || !strings.HasPrefix(got.stdout, "Exception occurred in runner no.such: Traceback") {
		t.Errorf("no.such: %+v", got) // stock salt-run looks up the function itself
	}
}
