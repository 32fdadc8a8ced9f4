package netserve

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// RateLog writes complaints that strangers can cause at will. It lets through
// a few per interval and counts the rest, so that a flood of bad peers cannot
// fill the log. It is safe for concurrent use.
type RateLog struct {
	log   *slog.Logger
	burst int
	every time.Duration

	mu      sync.Mutex
	start   time.Time
	n       int
	skipped int
}

// NewRateLog returns a RateLog that writes at most burst records per interval.
func NewRateLog(log *slog.Logger, burst int, every time.Duration) *RateLog {
	return &RateLog{log: log, burst: burst, every: every}
}

// Log writes the record if the current interval has room for it; the first
// record of an interval tells as "skipped" how many the last one left out.
func (r *RateLog) Log(level slog.Level, msg string, args ...any) {
	if r == nil || !r.log.Enabled(context.Background(), level) {
		return
	}
	skipped, ok := r.admit(time.Now())
	if !ok {
		return
	}
	if skipped > 0 {
		args = append(args, "skipped", skipped)
	}
	r.log.Log(context.Background(), level, msg, args...)
}

func (r *RateLog) admit(now time.Time) (skipped int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.start) >= r.every {
		skipped = r.skipped
		r.start, r.n, r.skipped = now, 0, 0
	}
	if r.n >= r.burst {
		r.skipped++
		return 0, false
	}
	r.n++
	return skipped, true
}
