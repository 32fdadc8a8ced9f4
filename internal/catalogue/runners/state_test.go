package runners

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

var errLost = errors.New("lost")

// watch runs state.event as salt-run does, with events of these tags.
func watch(t *testing.T, args []any, tags ...string) (lines []string, o fn.Outcome) {
	t.Helper()
	reg, err := fn.NewRegistry(nil, State(func(context.Context) iter.Seq2[*event.Event, error] {
		return func(yield func(*event.Event, error) bool) {
			for _, tag := range tags {
				if !yield(&event.Event{Tag: tag, Data: value.DictOf("b", value.ListOf("é", nil), "a", 1.5)}, nil) {
					return
				}
			}
			yield(nil, errLost)
		}
	}, func(line string) error { lines = append(lines, line); return nil }))
	if err != nil {
		t.Fatal(err)
	}
	c := &fn.Call{Config: fn.Tree{Dict: value.DictOf("sock_dir", "/run/salt")}}
	o = Run(t.Context(), reg, c, fn.Job{Fun: "state.event", Arg: args})
	return lines, o
}

func TestWatch(t *testing.T) {
	const data = "\t{\"b\": [\"é\", null], \"a\": 1.5}"
	named := func(kw ...any) []any { return fn.Wire([]any{"my/*"}, value.DictOf(kw...)) }
	for _, c := range []struct {
		name string
		args []any
		want []string
		lost bool
	}{
		{"without end", named(), []string{"my/a" + data, "my/b" + data}, true},
		{"count", named("count", 1), []string{"my/a" + data}, false},
		{"zero is one", named("count", 0), []string{"my/a" + data}, false},
		{"too few", named("count", 3), []string{"my/a" + data, "my/b" + data}, true},
		{"quiet", named("count", 2, "quiet", true), nil, false},
		{"pretty", named("count", 1, "pretty", true), []string{"my/a\t{\n    \"a\": 1.5,\n    \"b\": [\n        \"é\",\n        null\n    ]\n}"}, false},
		{"regexp", []any{"my/(b|c)", int64(1)}, []string{"my/b" + data}, false},
		{"the whole tag", []any{"(my|your)/", int64(1)}, nil, true},
		{"escapes", []any{"*[[]*", int64(1)}, []string{"?[2J" + data}, false},
		{"same text", []any{"[x", int64(1)}, []string{"[x" + data}, false},
	} {
		lines, o := watch(t, c.args, "your/a", "my/a", "my/b", "\x1b[2J", "[x")
		if !slices.Equal(lines, c.want) || errors.Is(o.Err, errLost) != c.lost || o.Return != nil && !c.lost {
			t.Errorf("%s: got %q, %v, %v", c.name, lines, o.Return, o.Err)
		}
	}
	for _, args := range []*value.Dict{value.DictOf("node", "minion"), value.DictOf("sock_dir", "/tmp")} {
		if _, o := watch(t, fn.Wire(nil, args), "my/a"); o.Err == nil || errors.Is(o.Err, errLost) {
			t.Errorf("%s was not refused: %v", value.Repr(args), o.Err)
		}
	}
	if _, o := watch(t, fn.Wire([]any{"[x"}, value.DictOf("sock_dir", "/run/salt/", "count", 1)), "[x"); o.Err != nil {
		t.Errorf("the master's own sock_dir: %v", o.Err)
	}
}

// TestWatchInMaster checks that a master only waits, and prints nothing.
func TestWatchInMaster(t *testing.T) {
	h := newHouse(t)
	all := h.bus.Subscribe(10)
	done := make(chan fn.Outcome)
	go func() { done <- h.call("state.event my/* count=2") }()
	for n := 0; ; n++ { // it may not have subscribed yet
		select {
		case o := <-done:
			if o.Return != nil || o.Err != nil || n < 2 {
				t.Errorf("after %d events: %v, %v", n, o.Return, o.Err)
			}
			for len(all.C) > 0 {
				if e := <-all.C; e.Tag != "my/x" {
					t.Errorf("event %s", e.Tag)
				}
			}
			h.want("state.event", "'Exception occurred in runner state.event: the master would wait for ever: give a count, or use salt-run on its machine'")
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if o := Run(ctx, h.reg, &fn.Call{}, fn.Job{Fun: "state.event", Arg: []any{"none", int64(1)}}); !errors.Is(o.Err, context.Canceled) {
				t.Errorf("after the end: %v", o.Err)
			}
			return
		default:
			if err := h.bus.Fire("my/x", value.NewDict(0)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
