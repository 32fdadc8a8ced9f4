package notify

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/metrics"
	"brine/test/eventually"
)

// ill is a daemon whose self-check fails while the value is set.
type ill struct {
	atomic.Bool
	checks atomic.Int64
}

func (d *ill) Metrics(*metrics.Page)            {}
func (d *ill) CheckReady(context.Context) error { return nil }
func (d *ill) CheckLive(context.Context) error {
	d.checks.Add(1)
	if d.Load() {
		return errors.New("hangs")
	}
	return nil
}

// TestWatchdog: the service manager gets messages while the self-check passes, and none while it
// fails.
func TestWatchdog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var heard atomic.Int64
	go func() {
		buf := make([]byte, 100)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if string(buf[:n]) == "WATCHDOG=1" {
				heard.Add(1)
			}
		}
	}()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000")
	t.Setenv("WATCHDOG_PID", "")
	m := FromEnvironment()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := &ill{}
	var log strings.Builder
	done := make(chan struct{})
	go func() { defer close(done); m.Watch(ctx, d, slog.New(slog.NewTextHandler(&log, nil))) }()
	eventually.True(t, "messages to the service manager", func() bool { return heard.Load() > 2 })

	d.Store(true)
	from := d.checks.Load()
	eventually.True(t, "checks", func() bool { return d.checks.Load() > from+2 })
	before := heard.Load()
	from = d.checks.Load()
	eventually.True(t, "checks", func() bool { return d.checks.Load() > from+3 })
	cancel()
	<-done
	// A message of an earlier check may be read late.
	if after := heard.Load(); after > before+1 {
		t.Errorf("the service manager heard %d messages of a failing daemon", after-before)
	}
	if !strings.Contains(log.String(), "self-check failed") {
		t.Errorf("log: %s", log.String())
	}
}

// TestWatchdogOfAnother: a timeout for another process does not apply.
func TestWatchdogOfAnother(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/none")
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "1")
	if m := FromEnvironment(); m.watchdog != 0 || m.addr != "/none" {
		t.Errorf("%+v", m)
	}
}

// stuck is a daemon whose self-check does not end.
type stuck struct{ ill }

func (*stuck) CheckLive(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestWatchdogOfHungDaemon: the service manager hears nothing of a daemon whose self-check hangs.
func TestWatchdogOfHungDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000")
	t.Setenv("WATCHDOG_PID", "")
	m := FromEnvironment()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Watch(ctx, &stuck{}, slog.New(slog.DiscardHandler)) }()
	time.Sleep(100 * time.Millisecond) // thirty times the timeout
	m.Tell("END")
	buf := make([]byte, 100)
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "END" {
		t.Errorf("the service manager hears %q, %v", buf[:n], err)
	}
	cancel()
	<-done
}
