package auth

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// slowSystem needs a while for each password, and counts.
type slowSystem struct {
	mu        sync.Mutex
	now, most int
	wait      chan struct{}
}

func (s *slowSystem) Authenticate(_ context.Context, c Credentials) (Vouched, error) {
	if c.Password == "right" {
		return Vouched{}, nil
	}
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	<-s.wait
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return Vouched{}, ErrRefused
}

// TestTurns: however many try the password of one user, others are let in at
// once; and refusals that only wait hold up no check.
func TestTurns(t *testing.T) {
	s := must(t, Options{External: external(t, "{auto: {}}")})
	sys := &slowSystem{wait: make(chan struct{})}
	s.used["slow"] = sys
	var all sync.WaitGroup
	for range 300 {
		all.Go(func() { s.Authenticate(t.Context(), Credentials{"slow", "eve", "x"}) })
	}
	for {
		sys.mu.Lock()
		n := sys.now
		sys.mu.Unlock()
		if n == maxAskedOfOne {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := s.Authenticate(t.Context(), Credentials{"slow", "ann", "right"}); err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Authenticate(gone, Credentials{"slow", "eve", "right"}); err == nil {
		t.Error("an attempt whose sender has gone was checked")
	}
	close(sys.wait)
	all.Wait()
	if sys.most > maxAskedOfOne {
		t.Errorf("%d checks for one user at once", sys.most)
	}

	// Of many users, the total is bounded.
	sys.wait, sys.most = make(chan struct{}), 0
	for i := range 200 {
		all.Go(func() { s.Authenticate(t.Context(), Credentials{"slow", fmt.Sprint(i), "x"}) })
	}
	time.AfterFunc(100*time.Millisecond, func() { close(sys.wait) })
	all.Wait()
	if sys.most > maxAsked {
		t.Errorf("%d checks at once", sys.most)
	}

	// While refusals linger others are checked.
	s.slowest = time.Hour
	late, stop := context.WithCancel(t.Context())
	for range 300 {
		all.Go(func() { s.Authenticate(late, Credentials{"slow", "bob", "x"}) })
	}
	in := make(chan error, 1)
	go func() {
		_, err := s.Authenticate(t.Context(), Credentials{"slow", "bob", "right"})
		in <- err
	}()
	select {
	case err := <-in:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a right password waits for refused ones")
	}
	stop()
	all.Wait()
	if len(s.turns.byName) > 0 || s.turns.running != 0 || len(s.turns.waiting) > 0 {
		t.Errorf("left over: %+v", s.turns)
	}
}
