package ratelimit

import (
	"context"
	"log/slog"
	"time"
)

// Log limits messages that peers can cause at will. It writes a few per interval
// and counts the rest, so that a flood of requests cannot fill the log. It is safe
// for concurrent use.
type Log struct {
	log    *slog.Logger
	window Window
}

// NewLog returns a Log that writes at most burst records in an interval.
func NewLog(log *slog.Logger, burst int, every time.Duration) *Log {
	return &Log{log: log, window: Window{Most: burst, Every: every}}
}

// Log writes the record unless the limit of the current interval is reached. The
// first record of an interval has the number of dropped ones as "skipped". A nil
// Log does nothing.
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
