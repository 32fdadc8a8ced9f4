package minion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

func load(jid string) *value.Dict {
	return value.DictOf("jid", jid, "fun", "test.ping", "arg", []any{}, "tgt", "*")
}

func TestJobFromTwoMastersRunsOnce(t *testing.T) {
	tab := newJobTable(0)
	a, b := &connection{}, &connection{}
	j, ready := tab.admit(load("1"), a, time.Now())
	if j == nil || ready != nil {
		t.Fatal("the first master's job was not admitted")
	}
	if again, ready := tab.admit(load("1"), a, time.Now()); again != nil || ready != nil {
		t.Error("a job that one master sent twice was admitted twice")
	}
	if other, ready := tab.admit(load("1"), b, time.Now()); other != nil || ready != nil {
		t.Error("a job that another master sent too was admitted again")
	}
	ret := value.DictOf("return", true)
	if to := tab.finish(j, ret); len(to) != 2 || to[0] != a || to[1] != b {
		t.Errorf("the return goes to %v, want both masters", to)
	}
	c := &connection{}
	if again, ready := tab.admit(load("1"), c, time.Now()); again != nil || ready != ret {
		t.Error("a master that publishes a finished job must get its return")
	}
	if again, ready := tab.admit(load("1"), a, time.Now()); again != nil || ready != nil {
		t.Error("a replay by the same master must do nothing")
	}
}

func TestJobTableForgetsOldJobsButNoneThatRuns(t *testing.T) {
	tab := newJobTable(100)
	running, _ := tab.admit(load("running"), &connection{}, time.Now())
	for i := range 500 {
		j, _ := tab.admit(load(fmt.Sprint(i)), &connection{}, time.Now())
		tab.finish(j, value.NewDict(0))
	}
	if n := len(tab.jobs); n != 101 {
		t.Errorf("%d jobs are remembered, want 100 and the running one", n)
	}
	if tab.find("running") == nil {
		t.Error("the running job is forgotten")
	}
	if got := tab.list("running"); len(got) != 0 {
		t.Errorf("running besides itself: %v", got)
	}
	tab.finish(running, value.NewDict(0))
	if tab.find("running") != nil {
		t.Error("a finished job is listed as running")
	}
}

func TestParseMaster(t *testing.T) {
	for _, c := range []struct {
		text string
		host string
		port int
		bad  string
	}{
		{"salt", "salt", 4506, ""},
		{"salt.example.com:5506", "salt.example.com", 5506, ""},
		{"10.0.0.1:99", "10.0.0.1", 99, ""},
		{"[2001:db8::1]:5506", "2001:db8::1", 5506, ""},
		{"[2001:db8::1]", "2001:db8::1", 4506, ""},
		{"2001:db8::1", "2001:db8::1", 4506, ""},
		{"salt:0", "", 0, "not a port"},
		{"salt:x", "", 0, "not a port"},
		{"[::1", "", 0, "no ]"},
		{"[::1]x", "", 0, "expected [address]:port"},
		{"a b", "", 0, "not a host name"},
		{":4506", "", 0, "not a host name"},
	} {
		m, err := parseMaster(c.text, 4506, false)
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%q: error %v, want %q", c.text, err, c.bad)
			}
			continue
		}
		if err != nil || m.host != c.host || m.port != c.port {
			t.Errorf("%q: %+v, %v", c.text, m, err)
		}
	}
	if _, err := parseMaster("name", 1, true); err == nil {
		t.Error("ip_only takes a name")
	}
}

// fakeLink is a master that is away until told otherwise.
type fakeLink struct {
	mu   sync.Mutex
	up   bool
	got  []string
	poor string // what it fails on while up
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
		o := newOutgoing(f.request, &Options{ReturnQueue: 3, ReturnRetryTimer: time.Second, ReturnRetryTimerMax: 10 * time.Second}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { o.run(ctx); close(done) }()
		for i := range 4 {
			o.put(value.DictOf("jid", fmt.Sprint(i)))
		}
		time.Sleep(10 * time.Minute) // far beyond Salt's three attempts
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
		o := newOutgoing(f.request, &Options{ReturnQueue: 10, ReturnRetryTimer: time.Second, ReturnRetryTimerMax: time.Second}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { o.run(ctx); close(done) }()
		o.put(value.DictOf("jid", "bad"))
		o.put(value.DictOf("jid", "good"))
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

// TestReturnsThatCannotBeStored has a master whose disk is full: it hears
// every return once without delay, and gets them again until it has room.
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
		o := newOutgoing(request, &Options{ReturnQueue: 5, ReturnRetryTimer: time.Second, ReturnRetryTimerMax: 10 * time.Second}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { o.run(ctx); close(done) }()
		for i := range 6 {
			o.put(value.DictOf("jid", fmt.Sprint(i)))
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
