// Package liveness finds parts of a daemon that hang, for its self-check.
//
// Only a part of the daemon itself may fail the check. What waits for a peer, such as a connection
// to a master, never does: the service manager would restart a daemon that works because another
// machine does not.
package liveness

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Limits after which a part counts as hung. They are long, because a busy machine or a slow disk
// delays everything, and a restart would not help. Only tests change them.
var (
	// StepTime is the limit of a step that may wait for a disk.
	StepTime = 5 * time.Minute
	// AnswerTime is the limit of an answer that needs no disk.
	AnswerTime = 2 * time.Minute
)

// Pulse shows that a periodic loop makes progress. The zero Pulse has not begun, and passes.
type Pulse struct{ last atomic.Pointer[time.Time] }

// Beat must be called in each turn of the loop.
func (p *Pulse) Beat() {
	now := time.Now()
	p.last.Store(&now)
}

// Check returns an error if the last turn began before the limit. what names the loop.
func (p *Pulse) Check(what string, limit time.Duration) error {
	if last := p.last.Load(); last != nil && time.Since(*last) > limit {
		return hung(what, *last)
	}
	return nil
}

func hung(what string, since time.Time) error {
	return fmt.Errorf("%s has hung since %s", what, since.UTC().Format(time.RFC3339))
}

// Steps shows that steps end, which several goroutines may do at the same time. A goroutine that
// waits for work is in no step. The zero Steps has none.
type Steps struct {
	mu   sync.Mutex
	open map[*time.Time]struct{}
}

// Begin records the begin of a step, and returns the function that records its end.
func (s *Steps) Begin() (end func()) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*time.Time]struct{}{}
	}
	s.open[&now] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, &now)
	}
}

// Check returns an error if a step takes longer than the limit. what names the work.
func (s *Steps) Check(what string, limit time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest time.Time
	for began := range s.open {
		if oldest.IsZero() || began.Before(oldest) {
			oldest = *began
		}
	}
	if !oldest.IsZero() && time.Since(oldest) > limit {
		return hung(what, oldest)
	}
	return nil
}

// Question is a question that the daemon asks itself, by its own listener.
type Question struct {
	// What names the part that answers.
	What string
	// Ask returns when there is an answer. Any answer is good, and so is an error: a refusal needs a
	// working part, and an address that cannot be reached is a failure of the network. Only a
	// question without an answer until ctx ends fails the check, and only after others were answered:
	// a firewall may drop the packets of this one.
	Ask func(ctx context.Context) error
	// Limit is the time for an answer.
	Limit time.Duration

	mu       sync.Mutex
	asked    time.Time     // when the present question was asked; zero for none
	done     chan struct{} // closed at its end
	answered bool          // a question was answered without an error
	failure  error
}

// wait is how long Check waits for the answer to a new question. /livez has a limit of 5 s.
const wait = 2 * time.Second

// Check asks unless a question is open, and returns an error if the last one had no answer, or if
// the present one has none within the limit.
func (q *Question) Check(ctx context.Context) error {
	q.mu.Lock()
	if q.asked.IsZero() {
		q.asked, q.done = time.Now(), make(chan struct{})
		go q.ask(q.asked, q.done)
	}
	done := q.done
	q.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.answered && !q.asked.IsZero() && time.Since(q.asked) > q.Limit {
		return hung(q.What, q.asked)
	}
	return q.failure
}

func (q *Question) ask(began time.Time, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), q.Limit)
	defer cancel()
	err := q.Ask(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked, q.failure = time.Time{}, nil
	switch {
	case err == nil:
		q.answered = true
	case ctx.Err() != nil && q.answered:
		q.failure = hung(q.What, began)
	}
	close(done)
}
