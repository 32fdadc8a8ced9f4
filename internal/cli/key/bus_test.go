package key

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"brine/internal/net/event"
	"brine/internal/py/value"
)

// A running master receives an event for every key.
func TestEvents(t *testing.T) {
	m := newMaster(t, "")
	short, err := os.MkdirTemp("", "sock") // socket paths must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	m.write("master", "root_dir: /\npki_dir: "+m.dir+"/pki\ncachedir: "+m.dir+"/cache\nsock_dir: "+short+"\nid: lab_master\n")
	opts := event.Options{PubHWM: 10, PubBuffer: 1}
	at := event.MasterOptions{Options: opts, SockDir: short}.Sockets()
	events := event.NewBus(0)
	server, err := event.Listen(events, at, opts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	sub := events.Subscribe(10, "salt/key")
	defer sub.Close()

	m.put("pre:one,two")
	for _, step := range []struct{ args, act string }{
		{"-y -a one", "accept"}, {"-y --include-accepted -r one", "reject"}, {"-y -d one", "delete"},
	} {
		if code, _, stderr := m.run(nil, strings.Fields(step.args)...); code != 0 {
			t.Fatal(stderr)
		}
		select {
		case e := <-sub.C:
			d := e.Data.Clone()
			if !d.Delete("_stamp") || !value.Equal(d, value.DictOf("result", true, "act", step.act, "id", "one")) || e.Tag != "salt/key" {
				t.Errorf("%s: event %s %s", step.args, e.Tag, value.Repr(e.Data))
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: no event", step.args)
		}
	}
}
