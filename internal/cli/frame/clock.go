package frame

import (
	"context"
	"log/slog"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/steady"
)

// ResumeTime reads the time that an earlier process of a daemon has recorded in a file, and logs if
// the clock is ahead of it (steady.Resume). record records the time of this process until its context
// ends.
func ResumeTime(path string, log *slog.Logger) (record func(ctx context.Context)) {
	if ahead := steady.Resume(path); ahead > 0 {
		log.Info("this daemon was stopped for a while, or the clock is wrong: nothing old is removed for an hour", "since", ahead.Round(time.Second),
			"record", path)
	}
	return func(ctx context.Context) {
		unrecorded := ratelimit.NewLog(log, 1, time.Hour)
		steady.Record(ctx, path, func(err error) { unrecorded.Log(slog.LevelWarn, "cannot record the time", "err", err) })
	}
}
