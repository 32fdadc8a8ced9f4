package minion

import (
	"testing"

	"brine/internal/call/fn"
	"brine/internal/daemons/minion/mine"
	"brine/internal/py/value"
)

// TestMineFiresItsEvent: mine data from functions is fired as an event on the minion's own
// bus, whose handler sends it to each master once.
func TestMineFiresItsEvent(t *testing.T) {
	m, err := newMinion(t, func(cfg *Config) {
		cfg.Options.Master = Masters{"127.0.0.1:1", "127.0.0.1:2"}
		cfg.Options.MineFunctions = value.DictOf("test.ping", value.ListOf())
	})
	if err != nil {
		t.Fatal(err)
	}
	events := m.bus.Own().Subscribe(16, mine.TagMine)
	defer events.Close()
	call := func(fun string, args ...any) {
		t.Helper()
		if o := m.funcs.Run(t.Context(), m.calls.New(nil, ""), fn.Job{Fun: fun, Arg: args}); o.Return != true {
			t.Fatalf("%s: %+v", fun, o)
		}
	}
	want := func(cmd string) {
		t.Helper()
		select {
		case e := <-events.C:
			if e.Data.Str("cmd") != cmd || e.Data.Str("id") != "w1" {
				t.Errorf("%s: the event is %s", cmd, value.Repr(e.Data))
			}
		default:
			t.Errorf("%s: no event", cmd)
		}
	}
	call("mine.send", "test.ping")
	want("_mine")
	call("mine.delete", "test.ping")
	want("_mine_delete")
	call("mine.flush")
	want("_mine_flush")
	m.mine.Update(t.Context(), value.DictOf("test.ping", value.ListOf()))
	want("_mine")
}
