package mine

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

func newMine(calls map[string]fn.Outcome) (m *Mine, sent *[]*value.Dict, asked *[]fn.Job) {
	sent, asked = &[]*value.Dict{}, &[]fn.Job{}
	m = &Mine{ID: "w1", Log: slog.New(slog.DiscardHandler),
		Send: func(load *value.Dict) { *sent = append(*sent, load) },
		Call: func(_ context.Context, j fn.Job) fn.Outcome { *asked = append(*asked, j); return calls[j.Fun] },
	}
	m.Fire = func(tag string, data *value.Dict) error { // as the bus does
		if data.Dict("data").Has("large") {
			return errors.New("too large")
		}
		m.ByEvent(&event.Event{Tag: tag, Data: data})
		return nil
	}
	return m, sent, asked
}

func TestUpdate(t *testing.T) {
	m, sent, asked := newMine(map[string]fn.Outcome{
		"test.ping": {Return: true}, "network.ip_addrs": {Return: "10.0.0.1"}, "test.fails": {Err: errors.New("no")},
	})
	m.Update(t.Context(), value.DictOf(
		"test.ping", value.ListOf(),
		"addrs", value.ListOf(value.DictOf("mine_function", "network.ip_addrs"), "eth0", value.DictOf("cidr", "10.0.0.0/8")),
		"test.fails", value.NewDict(0)))
	if len(*sent) != 1 {
		t.Fatalf("%d messages", len(*sent))
	}
	want := value.DictOf("cmd", "_mine", "data", value.DictOf("test.ping", true, "addrs", "10.0.0.1"), "id", "w1", "clear", false)
	if !value.Equal((*sent)[0], want) {
		t.Errorf("sent %s", value.Repr((*sent)[0]))
	}
	if args := value.ListOf((*asked)[1].Arg...); !value.Equal(args, value.ListOf("eth0", value.DictOf("cidr", "10.0.0.0/8", "__kwarg__", true))) {
		t.Errorf("asked with %s", value.Repr(args))
	}
	m.Update(t.Context(), value.DictOf("test.fails", value.NewDict(0)))
	if len(*sent) != 1 {
		t.Error("a mine without data is sent")
	}
}

func TestByEvent(t *testing.T) {
	m, sent, _ := newMine(nil)
	for cmd, goes := range map[string]bool{"_mine": true, "_mine_delete": true, "_mine_flush": true, "_return": false, "": false} {
		*sent = nil
		data := value.DictOf("cmd", cmd, "data", "x", "id", "other", "tok", "theirs", "_stamp", "now")
		m.ByEvent(&event.Event{Tag: TagMine, Data: data})
		if (len(*sent) == 1) != goes {
			t.Errorf("%q: sent %d", cmd, len(*sent))
		} else if goes && !value.Equal((*sent)[0], value.DictOf("cmd", cmd, "data", "x", "id", "w1")) {
			t.Errorf("%q: sent %s", cmd, value.Repr((*sent)[0]))
		}
		if data.Str("id") != "other" {
			t.Error("the event was changed, which others read")
		}
	}
}

func TestWhatIsTooLargeForAnEventIsSent(t *testing.T) {
	m, sent, _ := newMine(nil)
	m.Pass(value.DictOf("cmd", "_mine", "data", value.DictOf("large", true)))
	if len(*sent) != 1 {
		t.Errorf("%d messages", len(*sent))
	}
}
