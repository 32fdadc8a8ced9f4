package syndic

import (
	"context"
	"testing"

	"brine/internal/base/liveness"
	"brine/internal/daemons/minion/link"
	"brine/internal/py/value"
	"brine/test/eventually"
)

// TestCheckLive: the self-check fails while an event cannot be recorded and while the periodic
// work hangs, whether or not masters are connected.
func TestCheckLive(t *testing.T) {
	limit := liveness.StepTime
	defer func() { liveness.StepTime = limit }()
	r := testRouter(t, nil)
	s := &Syndic{book: r.book, router: r, links: &link.Set{}}
	check := func(when string, good bool) {
		t.Helper()
		if err := s.CheckLive(t.Context()); (err == nil) != good {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("before it runs", true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.tend(ctx) }()
	liveness.StepTime = 0
	eventually.True(t, "a turn of the periodic work", func() bool { return s.CheckLive(ctx) != nil })
	liveness.StepTime = limit
	check("while it runs", true)
	cancel()
	<-done

	// An event is not recorded.
	s = &Syndic{book: r.book, router: r, links: &link.Set{}}
	entered, release := make(chan struct{}, 10), make(chan struct{})
	for _, u := range r.uppers {
		u.wake = func() { entered <- struct{}{}; <-release }
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		s.heard("salt/minion/m1/start", value.DictOf("id", "m1"))
	}()
	<-entered
	check("for a short time", true)
	liveness.StepTime = 0
	check("for a long time", false)
	close(release)
	<-heard
	check("after the event", true)
}
