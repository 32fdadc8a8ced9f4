package ratelimit

import (
	"context"
	"log/slog"
	"time"
)

// Log writes messages that peers can cause at will. It lets through a few per
// interval and counts the rest, so that a flood of bad peers cannot fill the log.
// It is safe for concurrent use.
type Log struct {
	log    *slog.Logger
	window Window
}

// NewLog returns a Log that writes at most burst records in an interval.
func NewLog(log *slog.Logger, burst int, every time.Duration) *Log {
	return &Log{log: log, window: Window{Most: burst, Every: every}}
}

// Log writes the record if the current interval has room for it; the first record
// of an interval has as "skipped" how many were left out before it. Nothing
// happens on a nil Log.
func (l *Log) Log(level slog.Level, msg string, args ...any) {
	if l == nil || !l.log.Enabled(context.Background(), level) {
		return
	}
	skipped, ok := l.window.Admit(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		args = append(args, "skipped", skipped)
	}
	l.log.Log(context.Background(), level, msg, args...)
}
