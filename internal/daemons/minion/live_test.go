package minion

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"brine/internal/base/liveness"
	"brine/internal/py/value"
	"brine/test/eventually"
)

// TestCheckLive: masters that are unreachable, or accept connections and never answer, do not fail
// the self-check. A job that cannot be started does.
func TestCheckLive(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	slow, entered, release := false, make(chan struct{}), make(chan struct{})
	m, err := newMinion(t, func(cfg *Config) {
		cfg.Options.Master = []string{"127.0.0.1:1", silent.Addr().String()}
		cfg.LateGrains = true
		cfg.CollectGrains = func(context.Context) *value.Dict {
			if slow {
				close(entered)
				<-release
			}
			return value.NewDict(0)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slow = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		m.runner.Accept(m.links.All()[0], value.DictOf("fun", "test.ping", "arg", value.ListOf(), "tgt", "os:x", "tgt_type", "grain", "jid",
			"20261121000000000001", "ret", "", "user", "root"))
	}()
	<-entered
	if err := m.CheckLive(ctx); err != nil {
		t.Errorf("while a job waits for a short time: %v", err)
	}
	limit := liveness.StepTime
	liveness.StepTime = 0
	if err := m.CheckLive(ctx); err == nil {
		t.Error("the self-check passes while a job does not start")
	}
	close(release)
	<-accepted
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
