package outbox

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/py/value"
)

// world is an outbox whose masters can be connected or unreachable.
type world struct {
	*Outbox
	mu     sync.Mutex
	away   map[string]bool
	taken  map[string][]string // ids of the returns that a master has accepted
	events []string
	queues map[string]*Queue
}

func newWorld(dir string, o Options, masters ...string) *world {
	w := &world{away: map[string]bool{}, taken: map[string][]string{}, queues: map[string]*Queue{}}
	o.ReturnQueue, o.ReturnRetryTimer, o.ReturnRetryTimerMax = 10, time.Second, 2*time.Second
	log := slog.New(slog.DiscardHandler)
	w.Outbox = New(Config{Options: o, ID: "w1", Dir: dir, Log: log, Fire: func(tag string, _ any) { w.events = append(w.events, tag) }})
	for _, name := range masters {
		w.queues[name] = w.NewQueue(name, func(_ context.Context, load *value.Dict) (any, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.away[name] {
				return nil, context.DeadlineExceeded
			}
			w.taken[name] = append(w.taken[name], load.Str("jid"))
			return nil, nil
		}, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.away[name]
		}, log)
	}
	return w
}

// run runs the outbox and its queues until stop is called.
func (w *world) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	for _, q := range w.queues {
		wg.Go(func() { q.Run(ctx) })
	}
	return func() { cancel(); wg.Wait(); w.Close() }
}

func (w *world) got(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.taken[name], " ")
}

func TestReturnGoesToAnotherMasterWhenItsOwnIsAway(t *testing.T) {
	for to, want := range map[string]string{"any": "1", "publisher": ""} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t.TempDir(), Options{PubRet: true, ReturnTo: to, OutboxSize: 1 << 20}, "a", "b")
			w.away["a"] = true
			stop := w.run(t)
			w.GiveBack(aReturn("1", ""), []*Queue{w.queues["a"]}, true)
			time.Sleep(10 * time.Second)
			if got := w.got("b"); got != want {
				t.Errorf("%s: the other master has %q, want %q", to, got, want)
			}
			w.mu.Lock()
			w.away["a"] = false
			w.mu.Unlock()
			time.Sleep(10 * time.Second)
			stop()
			if got := w.got("a"); got != "1" {
				t.Errorf("%s: its own master has %q", to, got)
			}
		})
	}
}

func TestNoReturnIsSentWithoutPubRet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t.TempDir(), Options{OutboxSize: 1 << 20}, "a")
		stop := w.run(t)
		if err := w.Begin("1", "test.ping", value.NewDict(0), []*Queue{w.queues["a"]}); err != nil {
			t.Fatal(err)
		}
		w.GiveBack(aReturn("1", ""), []*Queue{w.queues["a"]}, true)
		time.Sleep(time.Minute)
		if got := w.journal.interrupted(); len(got) != 0 {
			t.Errorf("the job is not over: %v", got)
		}
		stop()
		if got := w.got("a"); got != "" {
			t.Errorf("sent: %s", got)
		}
	})
}

func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		options := Options{PubRet: true, Outbox: true, OutboxSize: 1 << 20, ReturnTo: "publisher"}
		w := newWorld(dir, options, "a", "b")
		w.Recall(func(*value.Dict, string) *value.Dict { t.Error("no job was interrupted"); return nil })
		to := []*Queue{w.queues["a"]}
		if err := w.Begin("1", "test.ping", value.NewDict(0), to); err != nil {
			t.Fatal(err)
		}
		w.GiveBack(aReturn("1", ""), to, true)
		if err := w.Begin("2", "test.sleep", value.DictOf("user", "root"), []*Queue{w.queues["a"], nil}); err != nil {
			t.Fatal(err)
		}
		w.Started("2", 1<<30) // no such process
		w.Close()

		w = newWorld(dir, options, "a", "b")
		var reason string
		w.Recall(func(begun *value.Dict, why string) *value.Dict {
			reason = why
			return aReturn(begun.Str("jid"), why)
		})
		if !strings.HasPrefix(reason, "ERROR: the minion was stopped or killed") || strings.Contains(reason, "process") {
			t.Errorf("the interrupted job returns %q", reason)
		}
		if !w.Knows("1") || !w.Knows("2") || w.Knows("3") {
			t.Error("the jobs of the earlier process are not those that are known")
		}
		stop := w.run(t)
		time.Sleep(10 * time.Second)
		stop()
		got := strings.Fields(w.got("a"))
		slices.Sort(got)
		if !slices.Equal(got, []string{"1", "2"}) || w.got("b") != "" {
			t.Errorf("delivered %v and %q", got, w.got("b"))
		}
	})
}

func TestInterruptedJobNamesItsProcess(t *testing.T) {
	begun := &begunNote{JID: "1", Processes: value.ListOf(
		value.DictOf("pid", 1, "start", startTime(1)),
		value.DictOf("pid", 1, "start", startTime(1)+1), // another process with that number
	)}
	if startTime(1) == 0 {
		t.Skip("/proc cannot be read")
	}
	if got := interruption(begun); strings.Count(got, "Its process 1 still runs") != 1 {
		t.Error(got)
	}
}

func TestHandOverLeavesReturns(t *testing.T) {
	w := newWorld(t.TempDir(), Options{}, "a", "b")
	a, b := w.queues["a"], w.queues["b"]
	a.Put(value.DictOf("cmd", "_return", "jid", "1"))
	a.Put(value.DictOf("cmd", "_minion_event", "jid", "2"))
	a.HandOver(b)
	if len(a.queue) != 1 || a.queue[0].head.JID != "1" || len(b.queue) != 1 || b.queue[0].head.JID != "2" {
		t.Errorf("a has %v, b has %v", a.queue, b.queue)
	}
}

func TestDroppedReturnsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t.TempDir(), Options{PubRet: true, OutboxSize: 1000}, "a")
		w.away["a"] = true
		stop := w.run(t)
		for _, jid := range []string{"1", "2"} {
			w.GiveBack(aReturn(jid, strings.Repeat("x", 900)), []*Queue{w.queues["a"]}, true)
		}
		time.Sleep(2 * time.Second)
		stop()
		if !slices.Equal(w.events, []string{"salt/minion/w1/returns_dropped"}) {
			t.Errorf("events: %v", w.events)
		}
	})
}
