// Package notify reports the state of a daemon to the service manager.
package notify

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"brine/internal/base/wait"
)

// Manager reports the daemon's status to the service manager by the protocol of sd_notify(3). The
// zero Manager reports nothing.
type Manager struct {
	addr string
	// watchdog is the time without a message after which the manager restarts the daemon, 0 for
	// never.
	watchdog time.Duration
}

// FromEnvironment returns the manager that started this process, if any. It removes the variables
// from the environment, so that programs started by jobs do not see them.
func FromEnvironment() Manager {
	m := Manager{addr: os.Getenv("NOTIFY_SOCKET")}
	own := os.Getenv("WATCHDOG_PID")
	if usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 && (own == "" || own == strconv.Itoa(os.Getpid())) {
		m.watchdog = time.Duration(usec) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	return m
}

// Tell reports a change of state. Errors are ignored: the service manager may not listen.
func (m Manager) Tell(state string) {
	if m.addr == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.addr, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte(state))
}

// Daemon is a daemon that checks itself.
type Daemon interface {
	// CheckLive returns an error if the daemon does not work.
	CheckLive(ctx context.Context) error
}

// Watch reports to the manager that the daemon is alive while its self-check passes, until ctx is
// done. If the check hangs or fails, no report is sent and the manager's timeout expires.
func (m Manager) Watch(ctx context.Context, d Daemon, log *slog.Logger) {
	if m.addr == "" || m.watchdog == 0 {
		return
	}
	// Send three messages per timeout, so that a slow machine does not look like a dead daemon.
	for pause := m.watchdog / 3; ; {
		if err := d.CheckLive(ctx); err == nil {
			m.Tell("WATCHDOG=1")
		} else {
			log.Error("self-check failed; the service manager restarts this daemon if it stays so", "err", err)
		}
		if !wait.Sleep(ctx, pause) {
			return
		}
	}
}
