package daemon

import (
	"context"
	"log/slog"
	"sync"

	"brine/internal/base/profile"
)

// serveProfiles serves profiles of this process, if configured, until stop is called. The daemon
// also runs if that fails.
func serveProfiles(o profile.Options, log *slog.Logger) (stop func()) {
	p, err := profile.New(o, log)
	if err != nil {
		log.Warn("cannot start pprof", "err", err)
	}
	if p == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			log.Warn("pprof stopped", "err", err)
		}
	})
	return func() { cancel(); running.Wait() }
}
