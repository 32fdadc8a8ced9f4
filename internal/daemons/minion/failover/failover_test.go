package failover

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/roles"
	"brine/internal/daemons/minion/status"
	"brine/internal/py/value"
)

// fleet is a failover over links that connect to nothing.
type fleet struct {
	*Failover
	links   *link.Set
	running atomic.Bool // a job of the active master
}

func newFleet(t *testing.T, o Options, names ...string) *fleet {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	f := &fleet{links: &link.Set{ID: "w1", OneAtATime: true}}
	box := outbox.New(outbox.Config{Options: outbox.Options{ReturnQueue: 100}, ID: "w1", Dir: t.TempDir(), Log: log, Fire: f.links.Fire})
	for _, name := range names {
		addr := address.Master{Text: name, Host: name, Port: 4506}
		f.links.Add(&link.Link{Addr: addr, Out: box.NewQueue(name, nil, func() bool { return false }, log)})
	}
	f.Failover = New(Config{
		Options: o, ID: "w1", MasterPort: 4506, Links: f.links, Log: log,
		Busy: func(*link.Link) bool { return f.running.Load() },
		Status: status.New(status.Config{ID: "w1", Path: filepath.Join(t.TempDir(), "x"), OneAtATime: func() bool { return true },
			Masters: func() []status.Master { return nil }, Log: log}),
	})
	return f
}

// roles returns the roles of the links in order.
func (f *fleet) roles() (out []string) {
	for _, c := range f.links.All() {
		out = append(out, c.Role().String())
	}
	return out
}

func (f *fleet) want(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := f.roles(); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", when, got, want)
	}
}

func TestTheNextMasterTakesOver(t *testing.T) {
	f := newFleet(t, Options{}, "a", "b", "c")
	f.step(roles.Event{})
	f.want(t, "at first", "standby", "off", "off")
	f.step(roles.Event{Kind: roles.Up, Master: 0})
	f.step(roles.Event{Kind: roles.Serving, Master: 0})
	f.want(t, "connected", "active", "standby", "off")
	f.step(roles.Event{Kind: roles.Up, Master: 1})
	f.step(roles.Event{Kind: roles.Lost, Master: 0, Why: "gone"})
	if got := f.roles(); got[1] != "active" {
		t.Errorf("after the loss: %v", got)
	}
	f.step(roles.Event{Kind: roles.Serving, Master: 1})
	if got := f.links.Receivers(); len(got) != 1 || got[0].Addr.Text != "b" {
		t.Errorf("events go to %v", got)
	}
	last := f.cfg.Status.Load("b").Dict("last")
	if last.Str("from") != "a" || last.Str("to") != "b" || last.Str("reason") != "gone" {
		t.Errorf("reported: %s", value.Repr(last))
	}
}

func TestFailbackWaitsForJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Options{Failback: true, FailbackInterval: 10 * time.Second}, "a", "b")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.Run(ctx, time.Second); close(done) }()
		time.Sleep(2 * time.Second)
		for _, e := range []roles.Event{{Kind: roles.Up, Master: 0}, {Kind: roles.Serving, Master: 0}, {Kind: roles.Up, Master: 1},
			{Kind: roles.Lost, Master: 0, Why: "gone"}, {Kind: roles.Serving, Master: 1}, {Kind: roles.Up, Master: 0}} {
			f.Notify(e)
			synctest.Wait()
		}
		f.want(t, "after the loss", "standby", "active")
		f.running.Store(true)
		time.Sleep(time.Minute)
		f.want(t, "while a job runs", "standby", "active")
		f.running.Store(false)
		time.Sleep(time.Minute)
		f.want(t, "afterwards, until the preferred one is connected", "active", "active")
		f.Notify(roles.Event{Kind: roles.Serving, Master: 0})
		synctest.Wait()
		f.want(t, "at the end", "active", "standby")
		cancel()
		<-done
		f.Notify(roles.Event{}) // does not block after the end
	})
}

func TestEndBeforeTheBeginning(t *testing.T) {
	f := newFleet(t, Options{}, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Run(ctx, time.Hour)
	for range 100 {
		f.Notify(roles.Event{})
	}
	f.want(t, "never run", "off")
}

func TestRebalance(t *testing.T) {
	if d := (&Options{}).rebalance(); d != 0 {
		t.Errorf("turned off, it is %v", d)
	}
	o := &Options{Rebalance: 100 * time.Second}
	for range 1000 {
		if d := o.rebalance(); d < 10*time.Second || d > 100*time.Second {
			t.Fatalf("%v is not between a tenth and the whole", d)
		}
	}
}
