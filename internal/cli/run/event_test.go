package run

import (
	"context"
	"strings"
	"testing"
	"time"

	"brine/internal/call/client/clienttest"
	"brine/internal/py/value"
)

// watching runs salt-run and fires events until it ends.
func watching(ctx context.Context, t *testing.T, m *clienttest.Master, args ...string) outcome {
	t.Helper()
	done := make(chan outcome)
	go func() { done <- saltRun(ctx, m, args...) }()
	for {
		select {
		case got := <-done:
			return got
		default:
			if err := m.Bus.Fire("my/tag", value.DictOf("a", 1, "_stamp", "now")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestEvent(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{})
	stamped := func(s string) string { // remove the parts that vary
		before, rest, _ := strings.Cut(s, `"_stamp": "`)
		_, after, _ := strings.Cut(rest, `"`)
		return before + after
	}
	for args, want := range map[string]string{
		"state.event my/* count=1":                       "my/tag\t{\"a\": 1, }\nNone\n",
		"state.event my/tag 1 pretty=True":               "my/tag\t{\n    ,\n    \"a\": 1\n}\nNone\n",
		"--quiet state.event (my|your)/tag count=1":      "my/tag\t{\"a\": 1, }\n",
		"state.event count=2 quiet=True --out=json":      "null",
		"state.event my/tag count=1 quiet=True --quiet ": "",
	} {
		got := watching(t.Context(), t, m, strings.Fields(args)...)
		if got.code != 0 || got.stderr != "" || strings.TrimSuffix(stamped(got.stdout), "\n") != strings.TrimSuffix(want, "\n") {
			t.Errorf("%s: %+v", args, got)
		}
	}
	got := saltRun(t.Context(), m, "state.event", "node=minion")
	if got.code != 1 || !strings.HasPrefix(got.stdout, "Exception occurred in runner state.event: only the master's events can be watched") {
		t.Errorf("node=minion: %+v", got)
	}
	if got := saltRun(t.Context(), m, "state.event", "nonsense=1"); got.code != 0 || !strings.HasPrefix(got.stdout, "\nPassed invalid arguments: ") {
		t.Errorf("wrong arguments: %+v", got)
	}
	if len(m.Loads()) != 0 {
		t.Errorf("the master was asked: %v", m.Loads())
	}
	m.Stop()
	if got := saltRun(t.Context(), m, "state.event"); got.code != 1 || !strings.Contains(got.stderr, "cannot reach the event bus") {
		t.Errorf("without a master: %+v", got)
	}
}

func TestEventInterrupted(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{})
	for _, after := range []time.Duration{0, 50 * time.Millisecond} { // before and after the connection is made
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(after, cancel)
		if got := watching(ctx, t, m, "state.event", "none"); got != (outcome{0, "", "\nExiting gracefully on Ctrl-c\n"}) {
			t.Errorf("got %+v", got)
		}
	}
}
