// Package ratelimit stands for the one of this name.
package ratelimit

import "log/slog"

// Log stands for the one of this name.
type Log struct{}

// Log has the parameters of the one of this name.
func (*Log) Log(level slog.Level, msg string, args ...any) {}
