package localbus

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"brine/internal/net/event"
	"brine/internal/py/value"
)

// daemon returns a bus that listens, and the connection of salt-call to it.
func daemon(t *testing.T) (inside, outside *Bus) {
	t.Helper()
	c := Config{ID: "w1", HashType: "sha256", Events: event.MinionOptions{SockDir: t.TempDir()}}
	c.Events.IPCMode, c.Events.MaxEventSize = "ipc", 1<<20
	inside = New(c)
	server, err := inside.Listen(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	at, err := c.Events.Sockets(c.ID, c.HashType)
	if err != nil {
		t.Fatal(err)
	}
	c.Daemon = &at
	return inside, New(c)
}

// TestAsk: the daemon gives the same answer inside and outside of its process. The test
// repeats answers, because an outside reader may not be connected yet at the first one.
func TestAsk(t *testing.T) {
	inside, outside := daemon(t)
	inside.Own().Handle(func(e *event.Event) {
		inside.Report("answer/"+e.Data.Str("n"), value.DictOf("to", e.Data.At("n")))
	}, "question")
	if inside.Outside() || !outside.Outside() {
		t.Error("which bus is which?")
	}
	for name, b := range map[string]*Bus{"inside": inside, "outside": outside} {
		d, err := b.Ask(t.Context(), "question", []*value.Dict{value.DictOf("n", "first "+name), value.DictOf("n", "second "+name)}, "answer/second "+name)
		if err != nil || d.Str("to") != "second "+name {
			t.Errorf("%s: %v, %v", name, d, err)
		}
		if d, err = b.Exchange(t.Context(), "question", value.DictOf("n", "third "+name), "answer/third "+name); err != nil || d.Str("to") != "third "+name {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

func TestAskWithoutAnswer(t *testing.T) {
	inside, outside := daemon(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, b := range map[string]*Bus{"inside": inside, "outside": outside} {
		if _, err := b.Ask(ctx, "question", []*value.Dict{value.NewDict(0)}, "answer"); err == nil {
			t.Errorf("%s: an answer from no listener", name)
		}
	}
	c := outside.cfg
	c.Daemon = &event.Sockets{Pub: t.TempDir() + "/none", Pull: t.TempDir() + "/none"}
	if _, err := New(c).Ask(t.Context(), "question", nil, "answer"); err == nil {
		t.Error("an answer from no daemon")
	}
}

func TestFireReachesTheDaemon(t *testing.T) {
	inside, outside := daemon(t)
	got := make(chan string, 2)
	inside.Own().Handle(func(e *event.Event) { got <- e.Data.Str("from") }, "tag")
	for name, b := range map[string]*Bus{"inside": inside, "outside": outside} {
		if err := b.Fire(t.Context(), "tag", value.DictOf("from", name)); err != nil {
			t.Fatal(err)
		}
		if from := <-got; from != name {
			t.Errorf("from %s, want %s", from, name)
		}
	}
}

func TestNoSocketsWithoutDirectory(t *testing.T) {
	if s, err := New(Config{}).Listen(nil); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
}

func TestInOrder(t *testing.T) {
	var wg sync.WaitGroup
	var got []int
	begin := make(chan struct{})
	q := InOrder{Go: wg.Go}
	q.Add(func() { <-begin })
	for i := range 100 {
		q.Add(func() { got = append(got, i) })
	}
	close(begin)
	wg.Wait()
	if len(got) != 100 || !slices.IsSorted(got) {
		t.Errorf("the order is %v", got)
	}
}
