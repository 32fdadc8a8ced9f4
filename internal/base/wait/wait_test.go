package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		from := time.Now()
		if !Sleep(ctx, time.Minute) || time.Since(from) != time.Minute {
			t.Errorf("slept %v", time.Since(from))
		}
		if !Sleep(ctx, 0) || !Sleep(ctx, -1) {
			t.Error("no time at all did not pass")
		}
		time.AfterFunc(time.Second, cancel)
		from = time.Now()
		if Sleep(ctx, time.Hour) || time.Since(from) != time.Second {
			t.Errorf("the end of the context came after %v", time.Since(from))
		}
		if Sleep(ctx, 0) {
			t.Error("nothing to wait for, but the context has ended")
		}
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early := make(chan struct{})
		from := time.Now()
		if !Until(t.Context(), early, time.Second) || time.Since(from) != time.Second {
			t.Errorf("waited %v", time.Since(from))
		}
		time.AfterFunc(time.Minute, func() { close(early) })
		if Until(t.Context(), early, 0) || time.Since(from) != time.Second+time.Minute {
			t.Errorf("without a limit it ended after %v", time.Since(from))
		}
	})
}

func TestJitter(t *testing.T) {
	for range 1000 {
		if d := Jitter(10); d < 0 || d >= 10 {
			t.Fatalf("%v is not below 10", d)
		}
	}
	if Jitter(0) != 0 || Jitter(-time.Second) != 0 {
		t.Error("there is no part of no time")
	}
}

func TestWakeup(t *testing.T) {
	w := NewWakeup()
	pending := func(w Wakeup) bool {
		select {
		case <-w.C():
			return true
		default:
			return false
		}
	}
	if pending(w) {
		t.Error("a new one is pending")
	}
	w.Wake()
	w.Wake() // does not block
	if !pending(w) || pending(w) {
		t.Error("two calls are not one")
	}
	var none Wakeup
	none.Wake()
	if pending(none) {
		t.Error("the zero value is pending")
	}
}
