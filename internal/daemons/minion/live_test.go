package minion

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/liveness"
	"brine/internal/py/value"
	"brine/test/eventually"
)

// stuckLog hangs at the record of a job that is already known.
type stuckLog struct {
	slog.Handler
	entered, release chan struct{}
}

func (s stuckLog) Enabled(context.Context, slog.Level) bool { return true }

func (s stuckLog) WithAttrs([]slog.Attr) slog.Handler { return s }

func (s stuckLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "already known") {
		close(s.entered)
		<-s.release
	}
	return nil
}

// TestCheckLive: masters that are unreachable, or accept connections and never answer, do not fail
// the self-check, and neither do grains that wait for another machine. A job that cannot be started
// does.
func TestCheckLive(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var slow atomic.Bool
	entered, release := make(chan struct{}), make(chan struct{})
	stuck := stuckLog{slog.DiscardHandler, make(chan struct{}), make(chan struct{})}
	m, err := newMinionWithLog(t, slog.New(stuck), func(cfg *Config) {
		cfg.Options.Master = []string{"127.0.0.1:1", silent.Addr().String()}
		cfg.LateGrains = true
		cfg.CollectGrains = func(context.Context) *value.Dict {
			if slow.Load() {
				close(entered)
				<-release
			}
			return value.NewDict(0)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slow.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	accept := func(jid, typ, tgt string) (accepted chan struct{}) {
		accepted = make(chan struct{})
		go func() {
			defer close(accepted)
			m.runner.Accept(m.links.All()[0], value.DictOf("fun", "test.ping", "arg", value.ListOf(), "tgt", tgt, "tgt_type", typ, "jid", jid,
				"ret", "", "user", "root"))
		}()
		return accepted
	}
	limit := liveness.StepTime
	waits := accept("20261121000000000001", "grain", "os:x")
	<-entered
	liveness.StepTime = 0
	if err := m.CheckLive(ctx); err != nil {
		t.Errorf("while grains wait: %v", err)
	}
	close(release)
	<-waits
	<-accept("20261121000000000002", "glob", "w1")
	starts := accept("20261121000000000002", "glob", "w1")
	<-stuck.entered
	if err := m.CheckLive(ctx); err == nil {
		t.Error("the self-check passes while a job does not start")
	}
	liveness.StepTime = limit
	if err := m.CheckLive(ctx); err != nil {
		t.Errorf("while a job waits for a short time: %v", err)
	}
	liveness.StepTime = 0
	close(stuck.release)
	<-starts
	go func() { done <- m.Run(ctx) }()
	eventually.Nil(t, time.Minute, "both masters were tried", func() error {
		for _, l := range m.links.All() {
			if l.State().State == "" {
				return errors.New(l.State().Name)
			}
		}
		return nil
	})
	// While the links wait for their masters, no step is open.
	eventually.Nil(t, time.Minute, "no job is being started", m.runner.CheckLive)
	eventually.Nil(t, time.Minute, "the schedule waits", m.schedule.CheckLive)
	liveness.StepTime = limit
	if err := m.CheckLive(ctx); err != nil {
		t.Errorf("without masters: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
