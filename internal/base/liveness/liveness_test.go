package liveness

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func wantHung(t *testing.T, when string, err error, hung bool) {
	t.Helper()
	if hung != (err != nil) || err != nil && !strings.Contains(err.Error(), "the loop has hung since 2000-01-01T00:") {
		t.Errorf("%s: %v", when, err)
	}
}

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pulse
		time.Sleep(time.Hour / 2)
		wantHung(t, "before the first turn", p.Check("the loop", time.Minute), false)
		p.Beat()
		time.Sleep(time.Minute)
		wantHung(t, "in time", p.Check("the loop", time.Minute), false)
		time.Sleep(time.Nanosecond)
		wantHung(t, "late", p.Check("the loop", time.Minute), true)
		p.Beat()
		wantHung(t, "in the next turn", p.Check("the loop", time.Minute), false)
	})
}

// TestSteps: of several steps the oldest counts, and none that has ended.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Steps
		wantHung(t, "without a step", s.Check("the loop", 0), false)
		end := s.Begin()
		time.Sleep(time.Minute)
		endOther := s.Begin()
		time.Sleep(time.Second)
		wantHung(t, "in the first step", s.Check("the loop", time.Minute), true)
		end()
		wantHung(t, "in the second step", s.Check("the loop", time.Minute), false)
		time.Sleep(time.Minute)
		wantHung(t, "in a long second step", s.Check("the loop", time.Minute), true)
		endOther()
		time.Sleep(time.Minute)
		wantHung(t, "after all steps", s.Check("the loop", 0), false)
	})
}

// TestQuestion: a part fails the check if it answers nothing for the whole limit, but not if it is
// slow, refuses, or was never reached.
func TestQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := func(context.Context) error { return nil }
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		var now atomic.Value // of func(context.Context) error
		now.Store(hang)
		q := &Question{What: "the loop", Limit: time.Minute, Ask: func(ctx context.Context) error {
			return now.Load().(func(context.Context) error)(ctx)
		}}
		for range 10 {
			wantHung(t, "never reached", q.Check(t.Context()), false)
			time.Sleep(20 * time.Second)
		}
		synctest.Wait()
		now.Store(func(context.Context) error { time.Sleep(50 * time.Second); return nil })
		for range 10 {
			wantHung(t, "slow", q.Check(t.Context()), false)
			time.Sleep(20 * time.Second)
		}
		time.Sleep(time.Minute)
		now.Store(func(context.Context) error { return errors.New("refused") })
		wantHung(t, "a refusal", q.Check(t.Context()), false)
		now.Store(answer)
		wantHung(t, "an answer", q.Check(t.Context()), false)

		now.Store(hang)
		wantHung(t, "at first", q.Check(t.Context()), false)
		time.Sleep(time.Minute)
		for range 5 { // the next questions are not answered either
			wantHung(t, "without an answer", q.Check(t.Context()), true)
			time.Sleep(25 * time.Second)
		}
		now.Store(answer)
		time.Sleep(time.Minute)
		wantHung(t, "an answer again", q.Check(t.Context()), false)
	})
}

// TestDeafQuestion: a question that does not end with its context fails the check, too.
func TestDeafQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		first := true
		q := &Question{What: "the loop", Limit: time.Minute, Ask: func(context.Context) error {
			if !first {
				<-release
			}
			first = false
			return nil
		}}
		wantHung(t, "an answer", q.Check(t.Context()), false)
		wantHung(t, "at first", q.Check(t.Context()), false)
		time.Sleep(time.Minute)
		wantHung(t, "without an end", q.Check(t.Context()), true)
		close(release)
		synctest.Wait()
		wantHung(t, "at the end", q.Check(t.Context()), false)
	})
}
