package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"brine/internal/net/event"
	"brine/internal/py/value"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fake is a master and bus with answers from the test.
type fake struct {
	answer func(load *value.Dict) (any, error)

	mu     sync.Mutex
	loads  []*value.Dict
	events chan *event.Event
	closed int
}

func newFake(answer func(*value.Dict) (any, error)) *fake {
	return &fake{answer: answer, events: make(chan *event.Event, 1000)}
}

func (f *fake) client(o Options) *Client {
	if o.Timeout == 0 {
		o.Timeout, o.GatherJobTimeout, o.SyndicWait = 5*time.Second, 10*time.Second, 5*time.Second
	}
	return New(o, "/etc/salt/master", f, f, quiet())
}

func (f *fake) Request(_ context.Context, load *value.Dict) (any, error) {
	f.mu.Lock()
	f.loads = append(f.loads, load)
	f.mu.Unlock()
	return f.answer(load)
}

func (f *fake) Subscribe(context.Context, ...string) (Events, error) { return f, nil }

var errBroken = errors.New("connection reset")

func (f *fake) Next(ctx context.Context) (*event.Event, error) {
	select {
	case e, ok := <-f.events:
		if !ok {
			return nil, errBroken
		}
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fake) Close() error { f.closed++; return nil }

func (f *fake) fire(tag string, pairs ...any) {
	f.events <- &event.Event{Tag: tag, Data: value.DictOf(pairs...)}
}

const testJID = "20261121040156486143"

// jobs answers publish requests: the first is the job, the others are questions about it, numbered from 0.
func jobs(minions, missing []string, ask func(n int, jid string, ids []string)) func(*value.Dict) (any, error) {
	n := -1
	return func(load *value.Dict) (any, error) {
		n++
		jid := testJID
		if n > 0 {
			jid = fmt.Sprintf("202611210500%08d", n-1)
			ids := value.OnlyTexts(load.At("tgt").(*value.List))
			ask(n-1, jid, ids)
			return published(jid, ids, nil), nil
		}
		return published(jid, minions, missing), nil
	}
}

func published(jid string, minions, missing []string) *value.Dict {
	return value.DictOf("enc", "clear", "load", value.DictOf("jid", jid, "minions", minions, "missing", missing))
}

func noQuestions(t *testing.T) func(int, string, []string) {
	return func(_ int, _ string, ids []string) { t.Errorf("unexpected question about %v", ids) }
}
