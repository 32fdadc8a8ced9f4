package simulate

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/daemons/master"
	"brine/internal/net/event"
	"brine/internal/net/transport"
	"brine/internal/net/transport/tcp"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/value"
)

const minions = 20

// startMaster runs a real master that has accepted the minions.
func startMaster(t *testing.T, tr transport.Transport, keys []*Key) (m *master.Master, cfg master.Config) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bsm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg = master.Config{ID: "bench", PKIDir: filepath.Join(dir, "pki"), CacheDir: filepath.Join(dir, "cache"), User: "root", Opts: value.NewDict(0)}
	for _, o := range []any{&cfg.Options, &cfg.Channel, &cfg.Publish, &cfg.Keys, &cfg.Cache, &cfg.Jobs, &cfg.Events} {
		if err := field.Defaults(o); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Events.SockDir = filepath.Join(dir, "sock")
	cfg.Listen = []master.Listen{{Transport: tr, Publish: "127.0.0.1:0", Request: "127.0.0.1:0", Options: transport.ListenOptions{Filter: tr.Name() == "tcp"}}}
	if err := Accept(cfg.PKIDir, keys, minions); err != nil {
		t.Fatal(err)
	}
	if m, err = master.New(cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m, cfg
}

func TestFleet(t *testing.T) {
	keys, err := NewKeys(2)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for _, tr := range []transport.Transport{zeromq.New(log), tcp.New(log)} {
		t.Run(tr.Name(), func(t *testing.T) { testFleet(t, tr, keys) })
	}
}

func testFleet(t *testing.T, tr transport.Transport, keys []*Key) {
	m, cfg := startMaster(t, tr, keys)
	pub, err := os.ReadFile(filepath.Join(cfg.PKIDir, "master.pub"))
	if err != nil {
		t.Fatal(err)
	}
	p, r := m.Addrs()
	f := New(Config{Transport: tr, Publish: p[0].String(), Request: r[0].String(), MasterKey: string(pub), Keys: keys, Count: minions, Timeout: 30 * time.Second})
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.SignIn(ctx, 4); err != nil {
		t.Fatal(err)
	}
	bus, err := event.Dial(ctx, cfg.Events.Sockets())
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	var failed atomic.Pointer[error]
	if err := f.Subscribe(ctx, 4, Answer(ctx, func(err error) { failed.Store(&err) })); err != nil {
		t.Fatal(err)
	}
	for len(m.Subscribers()) < minions {
		if ctx.Err() != nil {
			t.Fatal("not all subscribed")
		}
		time.Sleep(5 * time.Millisecond)
	}
	op, err := NewOperator(tr, r[0].String(), filepath.Join(cfg.CacheDir, ".root_key"))
	if err != nil {
		t.Fatal(err)
	}
	defer op.Close()
	if _, err := op.Publish(ctx, "test.ping"); err != nil {
		t.Fatal(err)
	}
	seen, event := map[string]bool{}, false
	for e, err := range bus.Events("salt/job/", "bench/") {
		if err != nil {
			t.Fatalf("%d of %d returned, event %v: %v", len(seen), minions, event, err)
		}
		event = event || e.Tag == "bench/event"
		if e.Data.Str("cmd") == "_return" && e.Data.At("return") == true {
			if len(seen) == 0 { // now events are certainly received
				if err := f.Minions[0].Event(ctx, "bench/event", value.DictOf("a", 1)); err != nil {
					t.Fatal(err)
				}
			}
			seen[e.Data.Str("id")] = true
		}
		if event && len(seen) == minions {
			break
		}
	}
	if err := failed.Load(); err != nil {
		t.Error(*err)
	}
}

func TestForeignPublication(t *testing.T) {
	f := New(Config{Transport: zeromq.New(slog.New(slog.DiscardHandler)), Keys: []*Key{}})
	defer f.Close()
	for _, b := range [][]byte{nil, {0xc1}, {0x80}, []byte("\x81\xa4load\xa3abc")} {
		if _, err := f.openPublication(b); err == nil {
			t.Errorf("%x was taken for a publication", b)
		}
	}
}
