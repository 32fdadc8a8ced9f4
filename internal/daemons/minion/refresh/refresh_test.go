package refresh

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"brine/internal/catalogue/modules/control"
	"brine/internal/daemons/minion/background"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/daemons/minion/ownpillar"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// house is a server on a bus without masters.
type house struct {
	*Server
	collected, beacons atomic.Int32
}

func newHouse(t *testing.T, daemon *event.Sockets) *house {
	t.Helper()
	h := &house{}
	group := background.New(t.Context())
	h.Server = New(Config{
		Bus: localbus.New(localbus.Config{ID: "w1", Events: event.MinionOptions{}, Daemon: daemon}), Links: &link.Set{}, Background: group,
		Grains: grains.New(grains.Config{ID: "w1", Background: group, Collect: func(context.Context) *value.Dict {
			return value.DictOf("n", int64(h.collected.Add(1)))
		}}),
		Own: func() *ownpillar.Pillar { return nil }, BeaconsChanged: func() { h.beacons.Add(1) }, Log: slog.New(slog.DiscardHandler),
	})
	h.cfg.Grains.Collect(t.Context())
	h.cfg.Bus.Own().Handle(h.ByEvent, TagPillar, TagGrains, TagModules, TagBeacons, TagMatchers)
	return h
}

// TestRefresh: if the call waits, the refresh is done when it returns.
func TestRefresh(t *testing.T) {
	h := newHouse(t, nil)
	f := Functions{h.Server}
	for _, what := range []string{control.RefreshModules, control.RefreshPillar} {
		before := h.collected.Load()
		if err := f.Refresh(t.Context(), what, false, true); err != nil || h.collected.Load() != before+1 {
			t.Errorf("%s: %v, collected %d times", what, err, h.collected.Load()-before)
		}
	}
	before := h.beacons.Load()
	for _, what := range []string{control.RefreshBeacons, control.RefreshMatchers, control.RefreshModules} {
		if err := f.Refresh(t.Context(), what, false, false); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	h.cfg.Background.Wait()
	if h.beacons.Load() < before+2 || h.collected.Load() != 4 {
		t.Errorf("beacons looked at %d times, grains collected %d times", h.beacons.Load()-before, h.collected.Load())
	}
	if err := f.Refresh(t.Context(), "nonsense", false, false); err == nil {
		t.Error("nonsense is refreshed")
	}
}

// TestReports: the final events name the failure, if there was one.
func TestReports(t *testing.T) {
	h := newHouse(t, nil)
	events := h.cfg.Bus.Own().Subscribe(8, tagPillarRefreshed, tagModulesRefreshed)
	defer events.Close()
	h.report(batch{pillar: true, notify: true}, nil)
	h.report(batch{pillar: true}, context.DeadlineExceeded)
	h.report(batch{grains: true}, nil)
	for i, want := range []*value.Dict{value.DictOf("complete", true), value.DictOf("complete", true),
		value.DictOf("complete", false, "comment", "context deadline exceeded")} {
		e := <-events.C
		e.Data.Delete("_stamp")
		if !value.Equal(e.Data, want) {
			t.Errorf("%d: %s", i, value.Repr(e.Data))
		}
		if err := refreshed(e.Data); (err != nil) != (i == 2) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestGrainsRefresh: the pillar is fetched only if the grains changed.
func TestGrainsRefresh(t *testing.T) {
	h := newHouse(t, nil)
	if fetched, err := h.refresh(t.Context(), batch{grains: true, ifChanged: true}); !fetched || err != nil {
		t.Errorf("changed: %v, %v", fetched, err)
	}
	if fetched, _ := h.refresh(t.Context(), batch{grains: true}); fetched {
		t.Error("the pillar is fetched although it was not asked for")
	}
}

// TestWithoutDaemon: salt-call refreshes by itself if there is no daemon.
func TestWithoutDaemon(t *testing.T) {
	dir := t.TempDir()
	h := newHouse(t, &event.Sockets{Network: "unix", Pub: dir + "/none", Pull: dir + "/none"})
	f := Functions{h.Server}
	if err := f.Refresh(t.Context(), control.RefreshPillar, false, true); err != nil || h.collected.Load() != 2 {
		t.Errorf("%v, collected %d times", err, h.collected.Load())
	}
	if err := f.Refresh(t.Context(), control.RefreshModules, false, false); err != nil {
		t.Error(err)
	}
	if err := f.Refresh(t.Context(), control.RefreshBeacons, false, false); err != nil {
		t.Error(err)
	}
	h.cfg.Background.Wait()
	if h.collected.Load() != 3 {
		t.Errorf("collected %d times", h.collected.Load())
	}
}
