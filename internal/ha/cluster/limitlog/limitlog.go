// Package limitlog suppresses repeated log messages.
package limitlog

import (
	"log/slog"
	"time"

	"brine/internal/base/ratelimit"
)

// Log suppresses repeated messages: it logs messages of one kind once a minute.
type Log struct {
	Log  *slog.Logger
	keys ratelimit.Keys
}

// New returns a log that writes to log.
func New(log *slog.Logger) *Log {
	return &Log{Log: log, keys: ratelimit.Keys{Most: 1000, Every: time.Minute}}
}

// Warn logs a warning unless one with the same key was logged less than a minute ago.
func (g *Log) Warn(key, msg string, args ...any) {
	if g.keys.Admit(key, time.Now()) {
		g.Log.Warn(msg, args...)
	}
}

// Error is Warn for errors.
func (g *Log) Error(key, msg string, args ...any) {
	if g.keys.Admit(key, time.Now()) {
		g.Log.Error(msg, args...)
	}
}

// Debug logs without a limit.
func (g *Log) Debug(msg string, args ...any) { g.Log.Debug(msg, args...) }
