package core

import (
	"context"
	"log/slog"

	"brine/internal/base/log"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// logger writes messages of one level.
type logger struct{ level slog.Level }

func init() { units.Declare("log", logModule) }

func logModule() fn.Module {
	m := fn.Module{Name: "log", Doc: `Write into the minion's log, from templates above all.`}
	for _, l := range []struct {
		name  string
		level slog.Level
	}{
		{"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"warning", slog.LevelWarn},
		{"error", slog.LevelError}, {"critical", log.LevelCritical}, {"exception", slog.LevelError},
	} {
		m.Funcs = append(m.Funcs, fn.Of(l.name, logger{l.level}.log, `Write a message of level `+l.name+`.`,
			fn.Example("salt '*' log."+l.name+" 'This is a message'")))
	}
	return m
}

type logArgs struct {
	Message any `salt:"message" doc:"what to write"`
}

func (l logger) log(ctx context.Context, c *fn.Call, a logArgs) (bool, error) {
	c.Log.Log(ctx, l.level, value.Str(a.Message))
	return true, nil
}
