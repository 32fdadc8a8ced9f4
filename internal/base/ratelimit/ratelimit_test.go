package ratelimit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWindow(t *testing.T) {
	w := Window{Most: 2, Every: time.Minute}
	now := time.Unix(1000, 0)
	for i, ok := range []bool{true, true, false, false} {
		if skipped, got := w.Admit(now); got != ok || skipped != 0 {
			t.Errorf("event %d: %v, %d skipped", i, got, skipped)
		}
	}
	if _, ok := w.Admit(now.Add(time.Minute - 1)); ok {
		t.Error("a third event in the interval")
	}
	if skipped, ok := w.Admit(now.Add(time.Minute)); !ok || skipped != 3 {
		t.Errorf("after the interval: %v, %d skipped", ok, skipped)
	}
	if skipped, ok := w.Admit(now.Add(-time.Hour)); !ok || skipped != 0 {
		t.Errorf("after the clock was set back: %v, %d skipped", ok, skipped)
	}
}

func TestWindowWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := Window{Most: 5, Every: time.Second}
		began := time.Now()
		for range 11 {
			if !w.Wait(t.Context()) {
				t.Fatal("ended")
			}
		}
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("11 in %v at 5 a second", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if w.Wait(ctx) || (&Window{}).Wait(ctx) {
			t.Error("goes on after the end of the context")
		}
		if !(&Window{}).Wait(t.Context()) {
			t.Error("0 is a limit")
		}
	})
}

func TestKeys(t *testing.T) {
	k := Keys{Most: 3, Every: time.Minute}
	now := time.Unix(1000, 0)
	if !k.Admit("a", now) || k.Admit("a", now.Add(time.Minute-1)) || !k.Admit("a", now.Add(time.Minute)) {
		t.Error("not once in a minute")
	}
	for i := range 10 {
		if !k.Admit(fmt.Sprint(i), now) || len(k.at) > k.Most {
			t.Errorf("key %d: %d are kept", i, len(k.at))
		}
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := 10
		p := Pace{Rate: func() int { return rate }}
		began := time.Now()
		for range 21 {
			p.Wait()
		}
		if d := time.Since(began); d < 2*time.Second-CatchUp || d > 2*time.Second {
			t.Errorf("21 in %v at 10 a second", d)
		}
		rate = 0
		began = time.Now()
		for range 1000 {
			p.Wait()
		}
		if d := time.Since(began); d != 0 || p.Interval() != 0 || (*Pace)(nil).Interval() != 0 {
			t.Errorf("without a limit: %v", d)
		}
	})
}

func TestBucket(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := Bucket{Rate: 10, Burst: 20}
	admit := func(want int) {
		t.Helper()
		n := 0
		for b.Admit(1, now) {
			n++
		}
		if n != want {
			t.Errorf("%d admitted, want %d", n, want)
		}
	}
	admit(20)
	admit(0)
	now = now.Add(500 * time.Millisecond)
	admit(5)
	now = now.Add(time.Hour)
	if b.Admit(21, now) {
		t.Error("more than the burst is admitted at once")
	}
	admit(20)
	now = now.Add(-time.Hour) // setting the clock back must neither add nor remove tokens
	admit(0)
	now = now.Add(time.Second)
	admit(10)
}

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLog(slog.New(slog.NewTextHandler(&out, nil)), 2, time.Hour)
		l.Log(slog.LevelDebug, "not counted")
		for range 5 {
			l.Log(slog.LevelInfo, "bad peer")
		}
		if n := strings.Count(out.String(), "bad peer"); n != 2 {
			t.Errorf("%d records, want 2", n)
		}
		time.Sleep(time.Hour)
		l.Log(slog.LevelInfo, "bad peer")
		if !strings.Contains(out.String(), "skipped=3") {
			t.Errorf("the record does not tell how many were left out: %s", out.String())
		}
		(*Log)(nil).Log(slog.LevelInfo, "nothing")
	})
}
