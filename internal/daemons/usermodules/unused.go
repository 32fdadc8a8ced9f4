package usermodules

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	"brine/internal/files/extmods"
	"brine/internal/py/value"
)

// unusedKinds are the kinds of modules that saltutil.sync_* copy and that do not run.
var unusedKinds = []string{"cache", "clouds", "log_handlers", "matchers", "netapi", "proxy", "queues", "roster", "thorium", "tokens", "wrapper"}

// LogUnused warns of modules in Python that are on disk and do not run, so that an operator who has brought
// them from Salt does not rely on them.
func LogUnused(opts *value.Dict, extensionModules string, log *slog.Logger) {
	for _, kind := range unusedKinds {
		names := slices.Sorted(maps.Keys(extmods.Scan(extmods.Dirs(opts, extensionModules, kind)).Paths))
		if len(names) > 0 {
			log.Warn("modules in Python of this kind are not run; see docs/python-modules.md", "kind", kind, "names", strings.Join(names, " "))
		}
	}
}
