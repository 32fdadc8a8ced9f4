package status

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/base/wait"
	"brine/internal/py/value"
)

func newStatus(t *testing.T) (s *Status, masters *[]Master) {
	masters = &[]Master{{Name: "a", State: Standby, Since: time.Unix(100, 0)}, {Name: "b", State: Connected, Since: time.Unix(200, 0)}, {Name: "c"}}
	return New(Config{ID: "w1", Path: filepath.Join(t.TempDir(), "brine", "masters.json"), OneAtATime: func() bool { return true },
		Masters: func() []Master { return *masters }, Log: slog.New(slog.DiscardHandler)}), masters
}

func pending(w wait.Wakeup) bool {
	select {
	case <-w.C():
		return true
	default:
		return false
	}
}

func TestLoad(t *testing.T) {
	s, _ := newStatus(t)
	s.Switched(value.DictOf("to", "b"))
	d := s.Load("b")
	last := d.Dict("last")
	if last.Str("to") != "b" || !last.Has("at") {
		t.Errorf("the last switch: %s", value.Repr(last))
	}
	d.Delete("last")
	want := value.DictOf("cmd", "_brine_standing", "id", "w1", "mode", "failover", "masters", value.ListOf(
		value.DictOf("master", "a", "state", "standby", "since", 100.0),
		value.DictOf("master", "b", "state", "connected", "since", 200.0, "you", true),
		value.DictOf("master", "c")))
	if !value.Equal(d, want) {
		t.Errorf("got %s", value.Repr(d))
	}
}

// TestChangesSpread: after a change the file is written at once, and subscribers
// are signalled a moment later.
func TestChangesSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStatus(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		news := s.Subscribe()
		if !pending(news) {
			t.Error("a new subscriber is not woken at once")
		}
		s.Changed()
		synctest.Wait()
		alive := func(int) bool { return true }
		if got := InUse(s.cfg.Path, alive); !slices.Equal(got, []string{"b", "a"}) {
			t.Errorf("in use: %v", got)
		}
		if got := InUse(s.cfg.Path, func(int) bool { return false }); got != nil {
			t.Errorf("of a dead process: %v", got)
		}
		time.Sleep(time.Second)
		if !pending(news) {
			t.Error("a subscriber is not woken by a change")
		}
		s.Unsubscribe(news)
		s.Changed()
		time.Sleep(time.Second)
		if pending(news) {
			t.Error("woken after the end of the subscription")
		}
		cancel()
		<-done
		if got := InUse(s.cfg.Path, alive); got != nil {
			t.Errorf("after the end: %v", got)
		}
	})
}

func TestInUseOfABrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := InUse(path, func(int) bool { return true }); got != nil {
		t.Errorf("%v", got)
	}
}

func TestNilReportsNothing(t *testing.T) {
	var s *Status
	s.Changed()
}
