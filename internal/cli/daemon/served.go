package daemon

import (
	"context"
	"log/slog"

	"brine/internal/cli/migrate/compat"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
)

// warnServed logs what top files and reactions name and what does not exist. Nothing of it prevents a start.
func warnServed(ctx context.Context, t *config.Tree, opts *value.Dict, conf *config.Master, log *slog.Logger) {
	found, err := compat.Served(ctx, t, opts, conf, slog.New(slog.DiscardHandler))
	if err != nil {
		log.Warn("cannot check the top files and the SLS files of reactor", "err", err)
		return
	}
	for i, f := range found {
		if i == maxServed {
			log.Warn("more names in top files and SLS files of reactor do not exist; brine migrate check lists them", "count", len(found)-i)
			return
		}
		place := ""
		if len(f.Places) > 0 {
			place = f.Places[0].String()
		}
		log.Warn(f.Kind+" "+f.Name+": "+f.Why, "at", place)
	}
}

// warnOwnServed is warnServed for a minion that serves itself.
func warnOwnServed(ctx context.Context, t *config.Tree, opts *value.Dict, cfg *config.Minion, log *slog.Logger) {
	if opts.Str("file_client") == "local" {
		warnServed(ctx, t, opts, &config.Master{Served: cfg.Served, Pillar: cfg.Pillar, Top: cfg.Top}, log)
	}
}

// maxServed bounds the warnings.
const maxServed = 20
