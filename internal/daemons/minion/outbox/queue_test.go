package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// fakeLink is a master that is unreachable until it is switched on.
type fakeLink struct {
	mu   sync.Mutex
	up   bool
	got  []string
	poor string // the message that it fails to store while up
}

func (f *fakeLink) request(_ context.Context, l *value.Dict) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.up || l.Str("jid") == f.poor {
		return nil, errors.New("away")
	}
	f.got = append(f.got, l.Str("jid"))
	return nil, nil
}

func TestReturnsWaitForTheirMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLink{}
		o := newQueue(f.request, &Options{ReturnQueue: 3, ReturnRetryTimer: time.Second, ReturnRetryTimerMax: 10 * time.Second}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { o.Run(ctx); close(done) }()
		for i := range 4 {
			o.Put(value.DictOf("jid", fmt.Sprint(i)))
		}
		time.Sleep(10 * time.Minute) // far longer than Salt's three attempts
		f.mu.Lock()
		f.up = true
		f.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		f.mu.Lock()
		got := len(f.got)
		f.mu.Unlock()
		if got != 3 {
			t.Errorf("delivered %v, want the newest three of four", f.got)
		}
		cancel()
		<-done
	})
}

func TestOneReturnCannotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLink{up: true, poor: "bad"}
		o := newQueue(f.request, &Options{ReturnQueue: 10, ReturnRetryTimer: time.Second, ReturnRetryTimerMax: time.Second}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { o.Run(ctx); close(done) }()
		o.Put(value.DictOf("jid", "bad"))
		o.Put(value.DictOf("jid", "good"))
		time.Sleep(time.Minute)
		synctest.Wait()
		f.mu.Lock()
		if len(f.got) != 1 || f.got[0] != "good" {
			t.Errorf("delivered %v", f.got)
		}
		f.mu.Unlock()
		cancel()
		<-done
	})
}

// TestReturnsThatCannotBeStored: a master whose disk is full receives every return once
// without delay, and again until it can store it.
func TestReturnsThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		full, heard, stored := true, map[string]int{}, []string{}
		request := func(_ context.Context, l *value.Dict) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			heard[l.Str("jid")]++
			if full {
				return value.DictOf(salt.KeepReturn, "no space left on device"), nil
			}
			stored = append(stored, l.Str("jid"))
			return nil, nil
		}
		o := newQueue(request, &Options{ReturnQueue: 5, ReturnRetryTimer: time.Second, ReturnRetryTimerMax: 10 * time.Second}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { o.Run(ctx); close(done) }()
		for i := range 6 {
			o.Put(value.DictOf("jid", fmt.Sprint(i)))
			synctest.Wait() // no time passes
			mu.Lock()
			if heard[fmt.Sprint(i)] != 1 {
				t.Errorf("return %d was heard %d times", i, heard[fmt.Sprint(i)])
			}
			mu.Unlock()
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		mu.Lock()
		n := 0
		for _, k := range heard {
			n += k
		}
		if n < 60 || n > 200 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		full = false
		mu.Unlock()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		mu.Lock()
		slices.Sort(stored)
		if fmt.Sprint(stored) != "[1 2 3 4 5]" {
			t.Errorf("stored %v, want the newest five of six, once", stored)
		}
		mu.Unlock()
		cancel()
		<-done
	})
}
