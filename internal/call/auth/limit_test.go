package auth

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// slowSystem delays each password check and counts the concurrent ones.
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

// TestLimiter checks that many attempts at one user name do not delay other users, and that the
// delay of refusals blocks no check.
func TestLimiter(t *testing.T) {
	s := must(t, Options{External: external(t, "{auto: {}}")})
	sys := &slowSystem{wait: make(chan struct{})}
	s.used["slow"] = sys
	var all sync.WaitGroup
	for range 300 {
		all.Go(func() { s.Authenticate(t.Context(), Credentials{"slow", "eve", "x", nil}) })
	}
	for {
		sys.mu.Lock()
		n := sys.now
		sys.mu.Unlock()
		if n >= maxAskedOfOne {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := s.Authenticate(t.Context(), Credentials{"slow", "ann", "right", nil}); err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Authenticate(gone, Credentials{"slow", "eve", "right", nil}); err == nil {
		t.Error("a cancelled attempt was checked")
	}
	close(sys.wait)
	all.Wait()
	if sys.most > maxAskedOfOne {
		t.Errorf("%d checks for one user at once", sys.most)
	}

	// The total is bounded for many users, too.
	sys.wait, sys.most = make(chan struct{}), 0
	for i := range 200 {
		all.Go(func() { s.Authenticate(t.Context(), Credentials{"slow", fmt.Sprint(i), "x", nil}) })
	}
	time.AfterFunc(100*time.Millisecond, func() { close(sys.wait) })
	all.Wait()
	if sys.most > maxAsked {
		t.Errorf("%d checks at once", sys.most)
	}

	// Delayed refusals do not block checks of other users.
	s.slowest = time.Hour
	late, stop := context.WithCancel(t.Context())
	for range 300 {
		all.Go(func() { s.Authenticate(late, Credentials{"slow", "bob", "x", nil}) })
	}
	in := make(chan error, 1)
	go func() {
		_, err := s.Authenticate(t.Context(), Credentials{"slow", "bob", "right", nil})
		in <- err
	}()
	select {
	case err := <-in:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a correct password waits for refused ones")
	}
	stop()
	all.Wait()
	if len(s.limiter.byName) > 0 || s.limiter.running != 0 || len(s.limiter.waiting) > 0 {
		t.Errorf("left over: %+v", s.limiter)
	}
}
